#include "model/weight_stream.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace minke {
namespace {

// Tokens after which a use of an expert counts half: long enough to know the favourites of a text,
// short enough to follow it to the next one.
constexpr double kHalfLifeTokens = 32;
// Experts that are read at a time, at least: two keep the readers busy, one is being computed.
constexpr size_t kExpertsInFlight = 3;
constexpr size_t kEngramBlocksInFlight = 32;
// Pages of Engram tables that are kept: 1/16 of what the budget leaves for experts and them, and
// no fewer than this many.
constexpr int64_t kEngramShare = 16;
constexpr int64_t kEngramBlocksMin = 64;
// Predictions that count when the next ones are judged, and those that are taken on trust at first.
constexpr double kAheadMemory = 512;
constexpr double kAheadTrust = 8;

constexpr auto kBlockBytes = static_cast<int64_t>(kPageBytes);

const TensorView& TensorNamed(const Checkpoint& checkpoint, const std::string& name) {
  const TensorView* tensor = checkpoint.Find(name);
  CHECK(tensor != nullptr, name);
  return *tensor;
}

}  // namespace

WeightStream::WeightStream(const ModelConfig& config, int64_t budget_bytes)
    : config_(config), budget_bytes_(budget_bytes) {}

Result<std::unique_ptr<WeightStream>> WeightStream::Create(const ModelConfig& config,
                                                           Checkpoint& checkpoint,
                                                           int64_t budget_bytes) {
  auto stream = std::unique_ptr<WeightStream>(new WeightStream(config, budget_bytes));
  stream->reader_ = TRY(CheckpointReader::Open(checkpoint));
  stream->pool_ = TRY(ReadPool::Create(kWeightReaders));
  stream->LayOutExperts(checkpoint);
  stream->NumberEngramBlocks(checkpoint);
  TRY_STATUS(stream->LoadDense(checkpoint));
  return stream;
}

void WeightStream::LayOutExperts(const Checkpoint& checkpoint) {
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    for (int64_t expert = 0; expert < config_.n_routed_experts; ++expert) {
      std::array<const TensorView*, kExpertTensors> tensors = {};
      size_t count = 0;
      for (const char* matrix : {"w1", "w2", "w3"}) {
        for (const char* kind : {"weight", "scale"}) {
          tensors[count++] = &TensorNamed(checkpoint, fmt::format("layers.{}.ffn.experts.{}.{}.{}",
                                                                  layer, expert, matrix, kind));
        }
      }
      TensorLayout layout = reader_->LayOut(tensors);
      ExpertPlace& place = places_.emplace_back();
      std::copy(layout.offsets.begin(), layout.offsets.end(), place.offsets.begin());
      place.extents = std::move(layout.extents);
      expert_bytes_ = std::max(expert_bytes_, layout.bytes);
    }
  }
}

WeightStream::TablePart WeightStream::NumberPart(const TensorView& tensor) {
  const uint64_t end = tensor.begin + tensor.bytes.size();
  const auto blocks =
      static_cast<int64_t>((end + kPageBytes - 1) / kPageBytes - tensor.begin / kPageBytes);
  const TablePart part{&reader_->Source(tensor), tensor.begin,
                       static_cast<uint64_t>(tensor.shape[1]), block_count_, blocks};
  block_count_ += blocks;
  return part;
}

void WeightStream::NumberEngramBlocks(const Checkpoint& checkpoint) {
  for (const int64_t layer : config_.engram_layer_ids) {
    const std::string base = fmt::format("layers.{}.engram.embed.", layer);
    Table& table = tables_.emplace_back();
    table.codes = NumberPart(TensorNamed(checkpoint, base + "weight"));
    table.scales = NumberPart(TensorNamed(checkpoint, base + "scale"));
  }
}

Status WeightStream::LoadDense(Checkpoint& checkpoint) {
  std::vector<std::string_view> names;
  std::vector<const TensorView*> tensors;
  for (const TensorSpec& spec : TensorCatalogue(config_)) {
    if (!IsDenseTensor(spec)) continue;
    tensors.push_back(&TensorNamed(checkpoint, spec.name));
    names.push_back(tensors.back()->name);
  }
  const auto dense_bytes = static_cast<int64_t>(reader_->LayOut(tensors).bytes);
  const Budget budget = TRY(Split(checkpoint, dense_bytes));
  TRY_STATUS(MakeCaches(budget));
  dense_ = TRY(LoadTensors(*reader_, *pool_, names, checkpoint));
  const ReadTotals totals = pool_->totals();
  loaded_bytes_ = totals.bytes;
  loaded_seconds_ = totals.wait_seconds;
  loaded_waited_bytes_ = totals.waited_bytes;
  return {};
}

Result<WeightStream::Budget> WeightStream::Split(const Checkpoint& checkpoint,
                                                 int64_t dense_bytes) const {
  const auto expert_bytes = static_cast<int64_t>(expert_bytes_);
  const auto expert_count = static_cast<int64_t>(places_.size());
  const int64_t engram_min = std::min(kEngramBlocksMin, block_count_);
  const int64_t needed = config_.num_experts_per_tok * expert_bytes + engram_min * kBlockBytes;
  if (budget_bytes_ < dense_bytes + needed) {
    return Fail(
        ErrorCode::kLimit,
        fmt::format("--weights-ram has {} bytes, but the dense weights of {} alone take {}, and "
                    "what a token needs of one layer at a time ({} experts of {} bytes{}) {} "
                    "more; give it at least {} bytes",
                    budget_bytes_, checkpoint.directory(), dense_bytes, config_.num_experts_per_tok,
                    expert_bytes, tables_.empty() ? "" : " and pages of the Engram tables", needed,
                    dense_bytes + needed));
  }
  const int64_t rest = budget_bytes_ - dense_bytes;
  Budget budget;
  budget.engram_slots =
      std::min(block_count_, std::max(engram_min, rest / kEngramShare / kBlockBytes));
  // The least possible budget has room for its experts, however the share came out.
  budget.engram_slots = std::min(budget.engram_slots,
                                 (rest - config_.num_experts_per_tok * expert_bytes) / kBlockBytes);
  budget.expert_slots =
      std::min(expert_count, (rest - budget.engram_slots * kBlockBytes) / expert_bytes);
  // What all experts leave over is the tables'.
  budget.engram_slots =
      std::min(block_count_, (rest - budget.expert_slots * expert_bytes) / kBlockBytes);
  return budget;
}

Status WeightStream::MakeCaches(const Budget& budget) {
  experts_ = TRY(PieceCache::Create(
      *pool_,
      {.slot_bytes = expert_bytes_,
       .slot_count = budget.expert_slots,
       .half_life = kHalfLifeTokens * static_cast<double>(config_.num_hidden_layers),
       .in_flight = kExpertsInFlight,
       .what = "the experts"},
      [this](int64_t piece, std::vector<PieceExtent>& extents) {
        extents = places_[static_cast<size_t>(piece)].extents;
      }));
  if (tables_.empty()) return {};
  engram_ = TRY(PieceCache::Create(
      *pool_,
      {.slot_bytes = kPageBytes,
       .slot_count = budget.engram_slots,
       .half_life = kHalfLifeTokens * static_cast<double>(tables_.size()),
       .in_flight = kEngramBlocksInFlight,
       .what = "pages of the Engram tables"},
      [this](int64_t block, std::vector<PieceExtent>& extents) { BlockExtent(block, extents); }));
  return {};
}

int64_t WeightStream::ExpertPiece(int64_t layer, int32_t expert) const {
  return layer * config_.n_routed_experts + expert;
}

void WeightStream::StartExperts(int64_t layer, std::span<const int32_t> experts) {
  std::vector<int64_t> pieces;
  for (const int32_t expert : experts) pieces.push_back(ExpertPiece(layer, expert));
  experts_->Start(pieces);
}

// The share that was needed of late is the share of the list that is read, best first: what is read
// in vain delays what is needed by the reads that are running.
size_t WeightStream::WorthReadingAhead(size_t likely) {
  const PieceCounts counts = experts_->counts();
  ahead_count_ += static_cast<double>(counts.prefetched - ahead_seen_.prefetched);
  ahead_hits_ += static_cast<double>(counts.prefetch_hits - ahead_seen_.prefetch_hits);
  ahead_seen_ = counts;
  if (ahead_count_ > kAheadMemory) {
    ahead_count_ /= 2;
    ahead_hits_ /= 2;
  }
  const double share = (ahead_hits_ + kAheadTrust) / (ahead_count_ + kAheadTrust);
  return std::max<size_t>(1, static_cast<size_t>(std::lround(share * static_cast<double>(likely))));
}

void WeightStream::PrefetchExperts(int64_t layer, std::span<const int32_t> experts) {
  std::vector<int64_t> pieces;
  experts = experts.first(std::min(experts.size(), WorthReadingAhead(experts.size())));
  for (const int32_t expert : experts) pieces.push_back(ExpertPiece(layer, expert));
  experts_->Prefetch(pieces);
}

Status WeightStream::ForEachExpert(
    int64_t layer, const MoeWeights& weights,
    const std::function<void(int32_t expert, const ExpertWeights& weights)>& body) {
  return experts_->Drain([&](int64_t piece, const std::byte* data) {
    const int64_t expert = piece - ExpertPiece(layer, 0);
    CHECK(expert >= 0 && expert < config_.n_routed_experts);
    const ExpertPlace& place = places_[static_cast<size_t>(piece)];
    ExpertWeights here = weights.experts[static_cast<size_t>(expert)];
    size_t tensor = 0;
    for (Weight* weight : {&here.w1, &here.w2, &here.w3}) {
      weight->data = data + place.offsets[tensor++];
      weight->scales = reinterpret_cast<const uint8_t*>(data + place.offsets[tensor++]);
    }
    body(static_cast<int32_t>(expert), here);
  });
}

void WeightStream::BlockExtent(int64_t block, std::vector<PieceExtent>& extents) const {
  for (const Table& table : tables_) {
    for (const TablePart* part : {&table.codes, &table.scales}) {
      if (block >= part->first_block + part->block_count) continue;
      const auto page = part->begin / kPageBytes + static_cast<uint64_t>(block - part->first_block);
      extents.push_back({part->source, page * kPageBytes, kPageBytes, 0});
      return;
    }
  }
  CHECK(false, "a block of no table");
}

void WeightStream::AddRow(const TablePart& part, int64_t row, uint8_t* target,
                          std::vector<RowSpan>& spans) {
  // Offsets are 64-bit: a released table has 98 GB.
  uint64_t position = part.begin + static_cast<uint64_t>(row) * part.row_bytes;
  for (uint64_t left = part.row_bytes; left > 0;) {
    const uint64_t offset = position % kPageBytes;
    const uint64_t bytes = std::min(left, kPageBytes - offset);
    const auto block =
        part.first_block + static_cast<int64_t>(position / kPageBytes - part.begin / kPageBytes);
    spans.push_back({block, static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes), target});
    if (target != nullptr) target += bytes;
    position += bytes;
    left -= bytes;
  }
}

void WeightStream::PrefetchEngramRows(std::span<const EngramRowList> lists) {
  std::vector<int64_t> blocks;
  for (const EngramRowList& list : lists) {
    const Table& table = tables_[static_cast<size_t>(list.engram_index)];
    std::vector<RowSpan> spans;
    for (int64_t row = 0; row < list.rows.rows; ++row) {
      for (int64_t column = 0; column < list.rows.cols; ++column) {
        AddRow(table.codes, list.rows.Row(row)[column], nullptr, spans);
        AddRow(table.scales, list.rows.Row(row)[column], nullptr, spans);
      }
    }
    for (const RowSpan& span : spans) blocks.push_back(span.block);
  }
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  // No more than half of the slots, so that some of what was used before stays.
  const auto most = static_cast<size_t>(engram_->slot_count() / 2);
  if (blocks.size() > most) blocks.resize(most);
  engram_->Prefetch(blocks);
}

Status WeightStream::GatherEngramRows(int64_t engram_index, View<const int64_t> rows,
                                      View<uint8_t> codes, View<uint8_t> scales) {
  const Table& table = tables_[static_cast<size_t>(engram_index)];
  CHECK(codes.rows == rows.rows * rows.cols &&
        static_cast<uint64_t>(codes.cols) == table.codes.row_bytes &&
        static_cast<uint64_t>(scales.cols) == table.scales.row_bytes);
  std::vector<RowSpan> spans;
  for (int64_t row = 0; row < rows.rows; ++row) {
    for (int64_t column = 0; column < rows.cols; ++column) {
      const int64_t target = row * rows.cols + column;
      AddRow(table.codes, rows.Row(row)[column], codes.Row(target), spans);
      AddRow(table.scales, rows.Row(row)[column], scales.Row(target), spans);
    }
  }
  const auto by_block = [](const RowSpan& a, const RowSpan& b) { return a.block < b.block; };
  std::sort(spans.begin(), spans.end(), by_block);
  std::vector<int64_t> blocks;
  for (const RowSpan& span : spans) {
    if (blocks.empty() || blocks.back() != span.block) blocks.push_back(span.block);
  }
  engram_->Start(blocks);
  return engram_->Drain([&](int64_t block, const std::byte* data) {
    const auto [begin, end] =
        std::equal_range(spans.begin(), spans.end(), RowSpan{block, 0, 0, nullptr}, by_block);
    for (auto span = begin; span != end; ++span) {
      std::memcpy(span->target, data + span->offset, span->bytes);
    }
  });
}

WeightStreamStats WeightStream::stats() const {
  const ReadTotals totals = pool_->totals();
  WeightStreamStats stats;
  stats.budget_bytes = budget_bytes_;
  stats.dense_bytes = static_cast<int64_t>(dense_.bytes().size());
  stats.expert_slots = experts_->slot_count();
  stats.expert_count = static_cast<int64_t>(places_.size());
  stats.expert_bytes = static_cast<int64_t>(expert_bytes_);
  stats.direct = reader_->direct();
  stats.read_bytes = totals.bytes - loaded_bytes_;
  stats.wait_seconds = totals.wait_seconds - loaded_seconds_;
  stats.waited_bytes = static_cast<int64_t>(totals.waited_bytes - loaded_waited_bytes_);
  stats.experts = experts_->counts();
  if (engram_ != nullptr) stats.engram_blocks = engram_->counts();
  return stats;
}

}  // namespace minke
