#include "model/weight_copy.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/read_pool.h"
#include "model/weights.h"

namespace minke {
namespace {

constexpr int kCopyReaders = 8;  // enough for a fast disk (bench/disk_rate)

// A write to each small page, for a huge one may not be had.
void TouchPages(std::span<std::byte> bytes) {
  for (size_t at = 0; at < bytes.size(); at += kPageBytes) {
    static_cast<volatile std::byte*>(bytes.data())[at] = std::byte{0};
  }
}

void TouchOwnPages(std::span<std::byte> bytes, std::span<const int> owners, ThreadPool& pool) {
  pool.ForEachWorker([&](int worker) {
    for (size_t page = 0; page < owners.size(); ++page) {
      if (owners[page] != worker) continue;
      const size_t begin = page * kLargePageBytes;
      TouchPages(bytes.subspan(begin, std::min(kLargePageBytes, bytes.size() - begin)));
    }
  });
}

std::vector<TensorPlace> PlacesOf(const TensorLayout& layout,
                                  std::span<const TensorView* const> tensors) {
  std::vector<TensorPlace> places;
  for (size_t i = 0; i < tensors.size(); ++i) {
    places.push_back({layout.offsets[i], tensors[i]->bytes.size()});
  }
  std::sort(places.begin(), places.end(),
            [](const TensorPlace& a, const TensorPlace& b) { return a.begin < b.begin; });
  return places;
}

}  // namespace

std::vector<int> PageOwners(std::span<const TensorPlace> places, size_t begin, size_t end,
                            int threads) {
  std::vector<int> owners;
  for (size_t page = begin; page < end; page += kLargePageBytes) {
    const size_t middle = page + std::min(kLargePageBytes, end - page) / 2;
    auto place = std::upper_bound(
        places.begin(), places.end(), middle,
        [](size_t position, const TensorPlace& one) { return position < one.begin; });
    if (place != places.begin()) --place;
    // Between tensors there may be a hole, which goes to the one before it.
    const size_t offset = middle - std::min(middle, place->begin);
    const size_t share =
        (place->bytes + static_cast<size_t>(threads) - 1) / static_cast<size_t>(threads);
    const size_t worker = offset / std::max<size_t>(1, share);
    owners.push_back(std::min(threads - 1, static_cast<int>(worker)));
  }
  return owners;
}

Result<PageMemory> CopyWeights(const ModelConfig& config, Checkpoint& checkpoint,
                               int64_t available_bytes, ThreadPool& pool,
                               const CopyProgress& progress) {
  const std::unique_ptr<CheckpointReader> reader = TRY(CheckpointReader::Open(checkpoint));
  std::vector<std::string_view> names;
  std::vector<const TensorView*> tensors;
  for (const TensorSpec& spec : TensorCatalogue(config)) {
    if (!IsDenseTensor(spec) && spec.part != ModelPart::kRoutedExperts) continue;
    tensors.push_back(checkpoint.Find(spec.name));
    names.push_back(tensors.back()->name);
  }
  const TensorLayout layout = reader->LayOut(tensors);
  if (available_bytes > 0 && layout.bytes > static_cast<uint64_t>(available_bytes)) {
    return Fail(
        ErrorCode::kLimit,
        fmt::format("The weights of {} take {} bytes ({:.1f} GB) of memory, and {} bytes "
                    "({:.1f} GB) are available; end what else uses memory, or say "
                    "--weights-memory mapped or --weights-ram SIZE",
                    checkpoint.directory(), layout.bytes, static_cast<double>(layout.bytes) / 1e9,
                    available_bytes, static_cast<double>(available_bytes) / 1e9));
  }
  const std::vector<TensorPlace> places = PlacesOf(layout, tensors);
  LoadOptions options;
  options.what = "the weights";
  options.way_out = "say --weights-memory mapped or --weights-ram SIZE";
  options.before_step = [&](std::span<std::byte> bytes, size_t begin) {
    TouchOwnPages(bytes, PageOwners(places, begin, begin + bytes.size(), pool.threads()), pool);
  };
  options.progress = progress;
  const std::unique_ptr<ReadPool> readers = TRY(ReadPool::Create(kCopyReaders));
  Result<PageMemory> memory = LoadTensors(*reader, *readers, names, checkpoint, options);
  pool.ReleaseCaller();
  return memory;
}

}  // namespace minke
