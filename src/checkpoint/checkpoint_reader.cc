#include "checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace minke {

// A shard whose errors know its tensors.
class CheckpointReader::Shard : public ByteSource {
 public:
  Shard(DirectFile file, const Checkpoint& checkpoint)
      : file_(std::move(file)), checkpoint_(checkpoint) {}

  Status Read(uint64_t begin, std::span<std::byte> target) const override {
    uint64_t failed_at = begin;
    Status status = file_.Read(begin, target, &failed_at);
    if (status) return status;
    return Fail(status.error().code, fmt::format("The weights could not be read: {} (tensor {})",
                                                 status.error().message, TensorAt(failed_at)));
  }
  const DirectFile& file() const { return file_; }

 private:
  // Reads begin at whole pages: where a tensor begins in the first page, it is meant, and not the
  // end of the one before.
  std::string TensorAt(uint64_t position) const {
    const TensorView* around = nullptr;
    const TensorView* begins = nullptr;
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (tensor.file != file_.path() || tensor.bytes.empty()) continue;
      if (tensor.begin < position) {
        if (tensor.begin + tensor.bytes.size() > position) around = &tensor;
      } else if (tensor.begin < position + kPageBytes) {
        if (begins == nullptr || tensor.begin < begins->begin) begins = &tensor;
      }
    }
    const bool whole_page = position % kPageBytes == 0;
    const TensorView* found =
        begins != nullptr && (whole_page || around == nullptr) ? begins : around;
    return found == nullptr ? std::string("none") : fmt::format("\"{}\"", found->name);
  }

  DirectFile file_;
  const Checkpoint& checkpoint_;
};

CheckpointReader::CheckpointReader() = default;
CheckpointReader::~CheckpointReader() = default;

Result<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(const Checkpoint& checkpoint) {
  auto reader = std::unique_ptr<CheckpointReader>(new CheckpointReader());
  for (const MappedFile& mapped : checkpoint.files()) {
    DirectFile file = TRY(DirectFile::Open(mapped.path(), mapped.bytes().size()));
    reader->shards_.push_back(std::make_unique<Shard>(std::move(file), checkpoint));
  }
  return reader;
}

bool CheckpointReader::direct() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard->file().direct(); });
}

const ByteSource& CheckpointReader::Source(const TensorView& tensor) const {
  const auto found = std::find_if(shards_.begin(), shards_.end(), [&](const auto& shard) {
    return shard->file().path() == tensor.file;
  });
  CHECK(found != shards_.end(), tensor.file);
  return **found;
}

TensorLayout CheckpointReader::LayOut(std::span<const TensorView* const> tensors) const {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(tensors[a]->file, tensors[a]->begin) <
           std::pair(tensors[b]->file, tensors[b]->begin);
  });
  TensorLayout layout;
  layout.offsets.resize(tensors.size());
  std::string_view file;
  for (const size_t index : order) {
    const TensorView& tensor = *tensors[index];
    const uint64_t begin = tensor.begin / kPageBytes * kPageBytes;
    const uint64_t end = tensor.begin + tensor.bytes.size();
    PieceExtent* last = layout.extents.empty() ? nullptr : &layout.extents.back();
    if (last == nullptr || file != tensor.file || begin > last->begin + last->bytes) {
      layout.extents.push_back({&Source(tensor), begin, 0, layout.bytes});
      last = &layout.extents.back();
      file = tensor.file;
    }
    last->bytes = std::max(last->bytes, RoundUpToPage(static_cast<size_t>(end - last->begin)));
    layout.bytes = last->target + last->bytes;
    layout.offsets[index] = last->target + static_cast<size_t>(tensor.begin - last->begin);
  }
  return layout;
}

namespace {

// The reads that fill bytes [begin, end) of the memory. Extents follow each other in it.
std::vector<ReadRequest> StepRequests(const TensorLayout& layout, std::span<std::byte> memory,
                                      size_t begin, size_t end) {
  auto extent = std::upper_bound(
      layout.extents.begin(), layout.extents.end(), begin,
      [](size_t position, const PieceExtent& one) { return position < one.target + one.bytes; });
  std::vector<ReadRequest> requests;
  for (; extent != layout.extents.end() && extent->target < end; ++extent) {
    const size_t first = std::max(begin, extent->target);
    const size_t last = std::min(end, extent->target + extent->bytes);
    requests.push_back({extent->source, extent->begin + (first - extent->target),
                        memory.subspan(first, last - first)});
  }
  return requests;
}

// Prepares a step while the one before it is read.
Status ReadSteps(const TensorLayout& layout, std::span<std::byte> memory, ReadPool& pool,
                 const LoadOptions& options) {
  const size_t step_bytes = options.step_bytes;
  const auto prepare = [&](size_t begin) {
    if (!options.before_step || begin >= memory.size()) return;
    options.before_step(memory.subspan(begin, std::min(step_bytes, memory.size() - begin)), begin);
  };
  prepare(0);
  for (size_t begin = 0; begin < memory.size(); begin += step_bytes) {
    const size_t end = std::min(begin + step_bytes, memory.size());
    ReadBatch batch;
    pool.Start(batch, StepRequests(layout, memory, begin, end), ReadUrgency::kNow);
    prepare(end);
    const ReadBatch* const all = &batch;
    pool.Wait({&all, 1});
    TRY_STATUS(pool.Outcome(batch));
    if (options.progress) options.progress(end, memory.size());
  }
  return {};
}

}  // namespace

Result<PageMemory> LoadTensors(const CheckpointReader& reader, ReadPool& pool,
                               std::span<const std::string_view> names, Checkpoint& checkpoint,
                               const LoadOptions& options) {
  std::vector<const TensorView*> tensors;
  tensors.reserve(names.size());
  for (const std::string_view name : names) {
    tensors.push_back(checkpoint.Find(name));
    CHECK(tensors.back() != nullptr, name);
  }
  const TensorLayout layout = reader.LayOut(tensors);
  PageMemory memory = TRY(PageMemory::Map(layout.bytes, options.what, options.way_out));
  TRY_STATUS(ReadSteps(layout, memory.bytes(), pool, options));
  for (size_t i = 0; i < tensors.size(); ++i) {
    checkpoint.Relocate(names[i],
                        memory.bytes().subspan(layout.offsets[i], tensors[i]->bytes.size()));
  }
  return memory;
}

}  // namespace minke
