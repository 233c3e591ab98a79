// The administration of the disk tier: what `minke cache` asks of a BlockStore.
#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "prefix_cache/block_store_impl.h"

namespace minke {

template <typename T>
Result<T> BlockStore::Impl::OnStorageThread(const std::function<Result<T>()>& work) {
  if (options.read_only) {
    return Fail(fmt::format("the cache directory {} is open for looking only", options.directory));
  }
  if (writer == nullptr) return Fail(ErrorCode::kIo, counters.Get().warning);
  Result<T> result = Fail("");
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  queue.AddJob([&]() {
    Result<T> outcome = work();
    // An index that cannot be trusted is made again here; other errors are the caller's to report.
    if (!outcome && outcome.error().code == ErrorCode::kInvalidInput) {
      Handle(Fail(ErrorCode::kInvalidInput, outcome.error().message));
    }
    const std::lock_guard<std::mutex> lock(mutex);
    result = std::move(outcome);
    done = true;
    changed.notify_one();
  });
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&done]() { return done; });
  return result;
}

template <typename T>
Result<T> BlockStore::Impl::WithView(const std::function<Result<T>(const StoreView&)>& work) {
  queue.Flush();
  StoreIndex index = TRY(OpenIndex());
  return work({.system = system, .directory = options.directory, .index = index, .files = files});
}

Result<std::vector<ListedRecord>> BlockStore::List(const std::optional<CacheKey>& tenant,
                                                   size_t limit) {
  return impl_->WithView<std::vector<ListedRecord>>(
      [&](const StoreView& view) { return ListRecords(view, tenant, limit); });
}

Result<VerifyReport> BlockStore::Verify(
    bool remove, const std::function<void(int64_t done, int64_t total)>& progress) {
  std::vector<IndexRow> damaged;
  VerifyReport report = TRY(impl_->WithView<VerifyReport>(
      [&](const StoreView& view) { return VerifyRecords(view, &damaged, progress); }));
  if (!remove || damaged.empty()) return report;
  TRY(impl_->OnStorageThread<int64_t>([&]() -> Result<int64_t> {
    TRY_STATUS(impl_->writer->RemoveDamaged(damaged));
    return 0;
  }));
  return report;
}

Result<int64_t> BlockStore::Gc() {
  return impl_->OnStorageThread<int64_t>([this]() { return impl_->writer->Gc(); });
}

Result<int64_t> BlockStore::Forget(const CacheKey& tenant) {
  return impl_->OnStorageThread<int64_t>(
      [this, &tenant]() { return impl_->writer->Forget(tenant); });
}

Result<int64_t> BlockStore::Export(const std::string& path, const std::optional<CacheKey>& tenant) {
  return impl_->WithView<int64_t>([&](const StoreView& view) {
    return ExportRecords(view, path, impl_->options.now_us(), tenant);
  });
}

Result<BlockStore::ImportReport> BlockStore::Import(const std::string& path) {
  return impl_->OnStorageThread<ImportReport>(
      [this, &path]() { return impl_->writer->Import(path); });
}

}  // namespace minke
