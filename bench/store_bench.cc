// Throughput of the disk tier beside plain sequential file I/O: the same bytes in the same
// batches, taken in turns, median of the rounds. Prints ratios and fails below --floor.
//
//   store_bench DIRECTORY [--rounds 5] [--mebibytes 256] [--floor 0.7]
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/block_pool.h"
#include "core/storage_system.h"
#include "prefix_cache/block_store.h"
#include "prefix_cache/segment_file.h"

namespace {

using minke::BlockRef;
using minke::CacheKey;
using minke::StorageSystem;

constexpr int64_t kPayloadBytes = 113920;  // a block at the released sizes: 128 * 890 B
constexpr int kReadBlocks = 512;
constexpr int64_t kBatchBytes = int64_t{16} << 20;  // between two syncs, as the store does it

constexpr int64_t kTurnRecords = 64;

struct Pair {  // seconds
  double plain = 0;
  double store = 0;
};

struct Options {
  std::string directory;
  int rounds = 5;
  int64_t records = (int64_t{256} << 20) / kPayloadBytes;
  double floor = 0.7;
};

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "store_bench: %s\n", message.c_str());
  std::exit(2);
}

void DropPages(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) Die("cannot open " + path);
  ::fdatasync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

CacheKey KeyOf(int64_t index) {
  minke::KeyHasher hasher("bench");
  hasher.Add("index", index);
  return hasher.Finish();
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), pool_(kPayloadBytes, int64_t{1} << 40) {
    // A few different payloads; none of them compressible.
    uint64_t state = 1;
    for (int i = 0; i < 16; ++i) {
      payloads_.push_back(pool_.Allocate());
      for (int64_t at = 0; at + 8 <= kPayloadBytes; at += 8) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        std::memcpy(payloads_.back().bytes() + at, &state, 8);
      }
    }
    for (int64_t i = -1; i < options.records; ++i) keys_.push_back(KeyOf(i));
    for (int i = 0; i < kReadBlocks; ++i) read_blocks_.push_back(pool_.Allocate());
  }

  bool Run() {
    std::vector<double> plain_write;
    std::vector<double> store_write;
    std::vector<double> plain_warm;
    std::vector<double> store_warm;
    std::vector<double> plain_cold;
    std::vector<double> store_cold;
    for (int round = 0; round < options_.rounds; ++round) {
      std::filesystem::remove_all(StorePath());
      plain_write.push_back(Seconds([this]() { WritePlain(); }));
      store_write.push_back(Seconds([this]() { WriteStore(); }));
      auto store = OpenStore();
      ReadBoth(*store);
      const Pair warm = ReadBoth(*store);
      plain_warm.push_back(warm.plain);
      store_warm.push_back(warm.store);
      // The first pass over new files measures how the machine below settles; it does not count.
      for (const bool counts : {false, true}) {
        DropPages(PlainPath());
        DropStorePages();
        const Pair cold = ReadBoth(*store);
        if (!counts) continue;
        plain_cold.push_back(cold.plain);
        store_cold.push_back(cold.store);
      }
    }
    bool good = Report("write (synced)", plain_write, store_write);
    good = Report("read, from memory", plain_warm, store_warm) && good;
    good = Report("read, from disk", plain_cold, store_cold) && good;
    std::filesystem::remove_all(StorePath());
    std::filesystem::remove(PlainPath());
    return good;
  }

 private:
  std::string PlainPath() const { return options_.directory + "/plain"; }
  std::string StorePath() const { return options_.directory + "/store"; }

  void DropStorePages() const {
    for (const auto& entry : std::filesystem::directory_iterator(StorePath())) {
      if (entry.path().extension() == ".mks") DropPages(entry.path());
    }
  }

  bool Report(const char* what, const std::vector<double>& plain,
              const std::vector<double>& store) const {
    const double mebibytes = static_cast<double>(options_.records * kPayloadBytes) / (1 << 20);
    const double ratio = Median(plain) / Median(store);
    std::printf("%-18s plain %7.0f MiB/s   store %7.0f MiB/s   ratio %.2f\n", what,
                mebibytes / Median(plain), mebibytes / Median(store), ratio);
    return ratio >= options_.floor;
  }

  void WritePlain() {
    std::filesystem::remove(PlainPath());
    StorageSystem& system = *posix_;
    const auto file = system.OpenFile(PlainPath(), minke::OpenMode::kCreate);
    if (!file) Die(file.error().message);
    int64_t offset = 0;
    int64_t unsynced = 0;
    std::vector<std::span<const std::byte>> parts;
    const auto flush = [&]() {
      if (!system.WriteAt(*file, offset, parts) || !system.Sync(*file)) Die("cannot write");
      offset += unsynced;
      unsynced = 0;
      parts.clear();
    };
    for (int64_t i = 0; i < options_.records; ++i) {
      parts.emplace_back(Payload(i).bytes(), kPayloadBytes);
      unsynced += kPayloadBytes;
      if (unsynced >= kBatchBytes) flush();
    }
    flush();
  }

  std::unique_ptr<minke::BlockStore> OpenStore() const {
    minke::StoreOptions options;
    options.directory = StorePath();
    options.queue_bytes = int64_t{1} << 40;
    auto store = minke::BlockStore::Open(options);
    if (!store) Die(store.error().message);
    return std::move(*store);
  }

  void WriteStore() {
    const auto store = OpenStore();
    for (int64_t i = 0; i < options_.records; ++i) {
      minke::RecordInfo info;
      info.key = Key(i);
      info.parent = Key(i - 1);
      info.end_position = (i + 1) * minke::kCacheBlockTokens;
      info.tokens.assign(static_cast<size_t>(minke::kCacheBlockTokens), 7);
      info.payload_bytes = kPayloadBytes;
      store->Put(std::move(info), Payload(i));
    }
    store->Flush();
    if (store->Stats().records_written != options_.records) Die("records are missing");
  }

  // In turns of a few records, so that whatever else runs on the machine slows both.
  Pair ReadBoth(minke::BlockStore& store) {
    const auto file = posix_->OpenFile(PlainPath(), minke::OpenMode::kRead);
    if (!file) Die(file.error().message);
    Pair seconds;
    for (int64_t begin = 0; begin < options_.records; begin += kTurnRecords) {
      const int64_t end = std::min(begin + kTurnRecords, options_.records);
      seconds.plain += Seconds([&]() { ReadPlain(*file, begin, end); });
      seconds.store += Seconds([&]() { ReadStore(store, begin, end); });
    }
    return seconds;
  }

  void ReadPlain(const minke::StorageFile& file, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::span<std::byte> part = ReadBlock(i);
      const auto count = posix_->ReadAt(file, i * kPayloadBytes, std::span(&part, 1));
      if (!count || *count != kPayloadBytes) Die("cannot read");
    }
  }

  void ReadStore(minke::BlockStore& store, int64_t begin, int64_t end) {
    minke::RecordInfo info;
    for (int64_t i = begin; i < end; ++i) {
      // Half a round ahead, or it would find the blocks that the plain turn has just warmed.
      const std::span<std::byte> block = ReadBlock(i + kReadBlocks / 2);
      if (store.Read(Key(i), block, &info) != minke::ReadOutcome::kHit) Die("a record is missing");
    }
    const std::span<std::byte> last = ReadBlock(end - 1 + kReadBlocks / 2);
    if (std::memcmp(last.data(), Payload(end - 1).bytes(), kPayloadBytes) != 0) {
      Die("a record has wrong bytes");
    }
  }

  const CacheKey& Key(int64_t index) const { return keys_[static_cast<size_t>(index + 1)]; }
  // Rows go to blocks of their own, as in the engine: more of them than the caches hold.
  std::span<std::byte> ReadBlock(int64_t index) const {
    const BlockRef& block = read_blocks_[static_cast<size_t>(index) % read_blocks_.size()];
    return {block.bytes(), static_cast<size_t>(kPayloadBytes)};
  }
  const BlockRef& Payload(int64_t index) const {
    return payloads_[static_cast<size_t>(index) % payloads_.size()];
  }

  const Options options_;
  const std::unique_ptr<StorageSystem> posix_ = minke::MakePosixStorage();
  minke::BlockPool pool_;
  std::vector<BlockRef> payloads_;
  std::vector<CacheKey> keys_;
  std::vector<BlockRef> read_blocks_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (argument == "--rounds") {
      options.rounds = std::atoi(value);
    } else if (argument == "--mebibytes") {
      options.records = (std::atoll(value) << 20) / kPayloadBytes;
    } else if (argument == "--floor") {
      options.floor = std::atof(value);
    } else {
      options.directory = argument;
      continue;
    }
    ++i;
  }
  if (options.directory.empty() || options.rounds < 1 || options.records < 1) {
    Die("usage: store_bench DIRECTORY [--rounds 5] [--mebibytes 256] [--floor 0.7]");
  }
  return Bench(options).Run() ? 0 : 1;
}
