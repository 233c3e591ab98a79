#include "checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "core/json.h"

namespace minke {
namespace {

constexpr size_t kHeaderPaddingBytes = 8;  // headers end on a multiple of this

template <typename Tensor>
void WiderElementsFirst(std::vector<Tensor>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return DTypeBytes(a.dtype) > DTypeBytes(b.dtype);
  });
}

// The length and the header of tensors that lie in this order.
std::string HeaderBytes(std::span<const TensorPlan> tensors) {
  Json header{JsonObject()};
  int64_t begin = 0;
  for (const TensorPlan& tensor : tensors) {
    JsonArray shape;
    for (const int64_t dim : tensor.shape) shape.emplace_back(dim);
    const int64_t end = begin + tensor.bytes();
    JsonObject entry;
    entry.emplace_back("dtype", DTypeName(tensor.dtype));
    entry.emplace_back("shape", std::move(shape));
    entry.emplace_back("data_offsets", JsonArray{begin, end});
    // Not Set(), which looks for the name among the thousands before it.
    header.as_object().emplace_back(tensor.name, std::move(entry));
    begin = end;
  }
  std::string text = DumpJson(header, JsonStyle::kCompact);
  text.resize((text.size() + kHeaderPaddingBytes - 1) / kHeaderPaddingBytes * kHeaderPaddingBytes,
              ' ');
  const uint64_t length = text.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + text;
}

}  // namespace

int64_t TensorPlan::bytes() const {
  int64_t bytes = DTypeBytes(dtype);
  for (const int64_t dim : shape) bytes *= dim;
  return bytes;
}

Status WriteSafetensors(const std::string& path, std::span<const TensorToWrite> tensors) {
  std::vector<TensorToWrite> order(tensors.begin(), tensors.end());
  WiderElementsFirst(order);
  std::vector<TensorPlan> plans;
  uint64_t data_bytes = 0;
  for (const TensorToWrite& tensor : order) {
    plans.push_back({tensor.name, tensor.dtype, tensor.shape});
    CHECK(static_cast<uint64_t>(plans.back().bytes()) == tensor.bytes.size(), tensor.name);
    data_bytes += tensor.bytes.size();
  }
  const std::string header = HeaderBytes(plans);
  std::vector<std::byte> file(header.size() + data_bytes);
  std::memcpy(file.data(), header.data(), header.size());
  std::byte* out = file.data() + header.size();
  for (const TensorToWrite& tensor : order) {
    out = std::copy(tensor.bytes.begin(), tensor.bytes.end(), out);
  }
  return WriteFile(path, file);
}

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<TensorPlan> tensors)
    : path_(std::move(path)), temporary_(path_ + ".part"), tensors_(std::move(tensors)) {
  WiderElementsFirst(tensors_);
  for (const TensorPlan& tensor : tensors_) missing_bytes_ += tensor.bytes();
}

SafetensorsWriter::~SafetensorsWriter() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
}

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<TensorPlan> tensors) {
  auto writer = std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter(path, std::move(tensors)));
  writer->descriptor_ =
      open(writer->temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (writer->descriptor_ < 0) return IoFailure("create", writer->temporary_, errno);
  const std::string header = HeaderBytes(writer->tensors_);
  TRY_STATUS(writer->WriteBytes(std::as_bytes(std::span(header.data(), header.size()))));
  return writer;
}

Status SafetensorsWriter::WriteBytes(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return IoFailure("write", temporary_, errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  CHECK(static_cast<int64_t>(bytes.size()) <= missing_bytes_);
  missing_bytes_ -= static_cast<int64_t>(bytes.size());
  return WriteBytes(bytes);
}

Status SafetensorsWriter::Finish() {
  CHECK(missing_bytes_ == 0, path_);
  // A file system may tell only here that it had no room.
  if (close(std::exchange(descriptor_, -1)) != 0) {
    const int error = errno;
    unlink(temporary_.c_str());
    return IoFailure("write", temporary_, error);
  }
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return IoFailure("replace", path_, errno);
  return {};
}

}  // namespace minke
