#include "model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace minke {

namespace {

constexpr int64_t kTileSize = 32;     // rows and columns of one FP8 scale, columns of one FP4 scale
constexpr int64_t kHcScaleCount = 3;  // pre, post, comb (architecture.md 3.2)
constexpr size_t kListedTensorsMax = 5;  // names listed in an error about many tensors

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// ---- catalogue -------------------------------------------------------------------------------

int64_t CeilDiv(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Appends specs under a common name prefix; names are written out whole in the methods below so
// that they can be found by searching for them.
class CatalogueWriter {
 public:
  explicit CatalogueWriter(const ModelConfig& config) : config_(config) {}

  std::vector<TensorSpec> Write() {
    const int64_t d = config_.hidden_size;
    Dense("embed.weight", DType::kBf16, {config_.vocab_size, d}, ModelPart::kEmbedding);
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) BackboneLayer(layer);
    prefix_.clear();
    Dense("norm.weight", DType::kBf16, {d}, ModelPart::kEmbedding);
    Dense("head.weight", DType::kBf16, {config_.vocab_size, d}, ModelPart::kEmbedding);
    for (int64_t stage = 0; stage < config_.num_nextn_predict_layers; ++stage) DraftStage(stage);
    prefix_.clear();
    if (config_.vision.num_hidden_layers > 0) Vision();
    return std::move(specs_);
  }

 private:
  void Dense(std::string_view name, DType dtype, std::vector<int64_t> shape, ModelPart part) {
    int64_t parameters = 1;
    for (const int64_t dim : shape) parameters *= dim;
    specs_.push_back(
        {fmt::format("{}{}", prefix_, name), dtype, std::move(shape), part, parameters});
  }
  void Scale(std::string_view base, int64_t rows, int64_t cols, ModelPart part) {
    specs_.push_back(
        {fmt::format("{}{}.scale", prefix_, base), DType::kF8E8M0, {rows, cols}, part, 0});
  }
  void Fp8(std::string_view base, int64_t rows, int64_t cols, ModelPart part) {
    Dense(fmt::format("{}.weight", base), DType::kF8E4M3, {rows, cols}, part);
    Scale(base, CeilDiv(rows, kTileSize), CeilDiv(cols, kTileSize), part);
  }
  // Two elements a byte, stored as I8.
  void Fp4(std::string_view base, int64_t rows, int64_t cols, ModelPart part) {
    Dense(fmt::format("{}.weight", base), DType::kI8, {rows, cols / 2}, part);
    specs_.back().parameters = rows * cols;
    Scale(base, rows, cols / kTileSize, part);
  }

  void BackboneLayer(int64_t layer) {
    prefix_ = fmt::format("layers.{}.", layer);
    const LayerRole& role = config_.layers[static_cast<size_t>(layer)];
    Block(config_.n_routed_experts, ModelPart::kBackbone, ModelPart::kRoutedExperts);
    if (role.kv_source == layer) Compressor(role.compress_ratio);
    if (role.index_source == layer) Indexer(role.kv_source == layer);
    if (role.engram_index >= 0) Engram(role.engram_index);
  }

  // What backbone layers and draft stages have in common.
  void Block(int64_t experts, ModelPart part, ModelPart expert_part) {
    const int64_t d = config_.hidden_size;
    const int64_t heads = config_.num_attention_heads;
    const int64_t head_dim = config_.head_dim;
    const int64_t output_rank = config_.o_groups * config_.o_lora_rank;
    const int64_t mixes = (2 + config_.hc_mult) * config_.hc_mult;
    Dense("attn_norm.weight", DType::kBf16, {d}, part);
    Dense("ffn_norm.weight", DType::kBf16, {d}, part);
    for (const char* name : {"hc_attn", "hc_ffn"}) {
      Dense(fmt::format("{}_fn", name), DType::kF32, {mixes, config_.hc_mult * d}, part);
      Dense(fmt::format("{}_base", name), DType::kF32, {mixes}, part);
      Dense(fmt::format("{}_scale", name), DType::kF32, {kHcScaleCount}, part);
    }
    Dense("attn.attn_sink", DType::kF32, {heads}, part);
    Fp8("attn.wq_a", config_.q_lora_rank, d, part);
    Dense("attn.q_norm.weight", DType::kBf16, {config_.q_lora_rank}, part);
    Fp8("attn.wq_b", heads * head_dim, config_.q_lora_rank, part);
    Fp8("attn.wkv", head_dim, d, part);
    Dense("attn.kv_norm.weight", DType::kBf16, {head_dim}, part);
    Fp8("attn.wo_a", output_rank, heads / config_.o_groups * head_dim, part);
    Fp8("attn.wo_b", d, output_rank, part);
    Dense("ffn.gate.weight", DType::kBf16, {experts, d}, part);
    Dense("ffn.gate.bias", DType::kF32, {experts}, part);
    Dense("ffn.gate.bias_vl", DType::kF32, {experts}, part);
    const int64_t inner = config_.moe_intermediate_size;
    Fp8("ffn.shared_experts.w1", inner, d, part);
    Fp8("ffn.shared_experts.w2", d, inner, part);
    Fp8("ffn.shared_experts.w3", inner, d, part);
    for (int64_t expert = 0; expert < experts; ++expert) {
      Fp4(fmt::format("ffn.experts.{}.w1", expert), inner, d, expert_part);
      Fp4(fmt::format("ffn.experts.{}.w2", expert), d, inner, expert_part);
      Fp4(fmt::format("ffn.experts.{}.w3", expert), inner, d, expert_part);
    }
  }

  void Compressor(int64_t ratio) {
    const std::vector<int64_t> shape = {config_.head_dim, config_.hidden_size};
    Dense("attn.compressor.wkv.weight", DType::kBf16, shape, ModelPart::kBackbone);
    if (ratio > 1) {
      Dense("attn.compressor.wgate.weight", DType::kBf16, shape, ModelPart::kBackbone);
    }
    Dense("attn.compressor.norm.weight", DType::kBf16, {config_.head_dim}, ModelPart::kBackbone);
  }

  void Indexer(bool owns_keys) {
    const int64_t dim = config_.index_head_dim;
    const ModelPart part = ModelPart::kBackbone;
    Fp8("attn.indexer.wq_b", config_.index_n_heads * dim, config_.q_lora_rank, part);
    Dense("attn.indexer.weights_proj.weight", DType::kBf16,
          {config_.index_n_heads, config_.hidden_size}, part);
    if (!owns_keys) return;
    Dense("attn.indexer.wk.weight", DType::kBf16, {dim, config_.head_dim}, part);
    Dense("attn.indexer.k_norm.weight", DType::kBf16, {dim}, part);
  }

  void Engram(int64_t index) {
    const ModelPart part = ModelPart::kEngram;
    const int64_t rows = config_.engram_num_embeddings[static_cast<size_t>(index)];
    const int64_t dim = config_.engram_head_dim;
    const int64_t d = config_.hidden_size;
    Dense("engram.embed.weight", DType::kF8E4M3, {rows, dim}, part);
    Scale("engram.embed", rows, dim / kTileSize, part);
    Fp8("engram.wkv", (config_.hc_mult + 1) * d, config_.engram_columns() * dim, part);
    Dense("engram.q_weight", DType::kBf16, {config_.hc_mult, d}, part);
    Dense("engram.k_weight", DType::kBf16, {config_.hc_mult, d}, part);
  }

  void DraftStage(int64_t stage) {
    prefix_ = fmt::format("mtp.{}.", stage);
    const ModelPart part = ModelPart::kDspark;
    const int64_t d = config_.hidden_size;
    const int64_t rank = config_.dspark_markov_rank;
    Block(config_.dspark_n_routed_experts, part, part);
    if (stage == 0) {
      const auto taps = static_cast<int64_t>(config_.dspark_target_layer_ids.size());
      Fp8("main_proj", d, taps * d, part);
      Dense("main_norm.weight", DType::kBf16, {d}, part);
    }
    if (stage != config_.num_nextn_predict_layers - 1) return;
    Dense("norm.weight", DType::kBf16, {d}, part);
    Dense("markov_head.embed.weight", DType::kBf16, {config_.vocab_size, rank}, part);
    Dense("markov_head.head.weight", DType::kBf16, {config_.vocab_size, rank}, part);
    Dense("confidence_head.proj.weight", DType::kBf16, {1, d + rank}, part);
  }

  void Vision() {
    const ModelPart part = ModelPart::kVision;
    const VisionConfig& vision = config_.vision;
    const int64_t d = config_.hidden_size;
    const int64_t width = vision.hidden_size;
    const int64_t patch_values = 3 * vision.patch_size * vision.patch_size;
    const int64_t merged = width * vision.downsample_ratio * vision.downsample_ratio;
    Linear("vision.patch_embed.proj", width, patch_values);
    for (int64_t block = 0; block < vision.num_hidden_layers; ++block) {
      prefix_ = fmt::format("vision.blocks.{}.", block);
      Dense("norm1.weight", DType::kBf16, {width}, part);
      Dense("norm2.weight", DType::kBf16, {width}, part);
      Linear("attn.wqkv", 3 * width, width);
      Linear("attn.wo", width, width);
      Dense("mlp.w1.weight", DType::kBf16, {2 * vision.intermediate_size, width}, part);
      Dense("mlp.w2.weight", DType::kBf16, {width, vision.intermediate_size}, part);
    }
    prefix_.clear();
    Dense("vision.norm.weight", DType::kBf16, {width}, part);
    Linear("aligner.w1", d, merged);
    Linear("aligner.w2", d, d);
    for (const char* name : {"image_start", "image_end", "image_newline"}) {
      Dense(name, DType::kBf16, {d}, part);
    }
  }
  // A BF16 product with bias; only the vision tower has biases.
  void Linear(std::string_view base, int64_t rows, int64_t cols) {
    Dense(fmt::format("{}.weight", base), DType::kBf16, {rows, cols}, ModelPart::kVision);
    Dense(fmt::format("{}.bias", base), DType::kBf16, {rows}, ModelPart::kVision);
  }

  const ModelConfig& config_;
  std::string prefix_;
  std::vector<TensorSpec> specs_;
};

// ---- checks ----------------------------------------------------------------------------------

// Collects names up to kListedTensorsMax and counts the rest.
class NameList {
 public:
  void Add(std::string_view text) {
    if (count_++ < kListedTensorsMax)
      listed_ += fmt::format("{}{}", listed_.empty() ? "" : ", ", text);
  }
  size_t count() const { return count_; }
  std::string Text() const {
    if (count_ <= kListedTensorsMax) return listed_;
    return fmt::format("{} and {} more", listed_, count_ - kListedTensorsMax);
  }

 private:
  size_t count_ = 0;
  std::string listed_;
};

Status CheckNames(const std::vector<TensorSpec>& catalogue, const Checkpoint& checkpoint) {
  std::unordered_set<std::string_view> expected;
  expected.reserve(catalogue.size());
  NameList missing;
  for (const TensorSpec& spec : catalogue) {
    expected.insert(spec.name);
    if (checkpoint.Find(spec.name) == nullptr) missing.Add(spec.name);
  }
  NameList extra;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!expected.contains(name)) extra.Add(fmt::format("{} (in {})", name, tensor.file));
  }
  if (missing.count() == 0 && extra.count() == 0) return {};
  std::string message =
      fmt::format("{}: config.json demands {} tensors", checkpoint.directory(), catalogue.size());
  if (missing.count() > 0) {
    message += fmt::format("; {} are missing: {}", missing.count(), missing.Text());
  }
  if (extra.count() > 0) {
    message += fmt::format("; {} others are present: {}", extra.count(), extra.Text());
  }
  return Fail(message + "; config.json and the weights must be of one model");
}

// ---- binding ---------------------------------------------------------------------------------

// Turns names into fields. REQUIRES: CheckTensors passed, so every name exists with its shape.
class Binder {
 public:
  Binder(const ModelConfig& config, const Checkpoint& checkpoint)
      : config_(config), checkpoint_(checkpoint) {}

  Result<ModelWeights> Bind() {
    weights_.embed = Dense("embed.weight");
    weights_.head = Dense("head.weight");
    weights_.norm = Vector<uint16_t>("norm.weight");
    weights_.layers.resize(static_cast<size_t>(config_.num_hidden_layers));
    for (size_t layer = 0; layer < weights_.layers.size(); ++layer) {
      prefix_ = fmt::format("layers.{}.", layer);
      Layer(static_cast<int64_t>(layer), weights_.layers[layer]);
    }
    TRY_STATUS(status_);
    return std::move(weights_);
  }

 private:
  const TensorView& Tensor(std::string_view name) const {
    const TensorView* tensor = checkpoint_.Find(fmt::format("{}{}", prefix_, name));
    CHECK(tensor != nullptr, name);
    return *tensor;
  }
  // The bytes at an address that is a multiple of the element size.
  const std::byte* Aligned(const TensorView& tensor) {
    const auto alignment = static_cast<size_t>(DTypeBytes(tensor.dtype));
    const std::byte* data = tensor.bytes.data();
    if (reinterpret_cast<uintptr_t>(data) % alignment == 0) return data;
    realigned_bytes_ += tensor.bytes.size();
    if (realigned_bytes_ > kRealignedBytesMax) {
      if (status_) {
        status_ = Fail(ErrorCode::kLimit,
                       fmt::format("{}: tensor \"{}\" must lie at a multiple of {} bytes, but it "
                                   "does not, and more than {} bytes of such tensors are not "
                                   "copied; write the file anew with aligned tensors",
                                   tensor.file, tensor.name, alignment, kRealignedBytesMax));
      }
      return data;
    }
    AlignedBytes copy = AllocateAligned(tensor.bytes.size());
    std::memcpy(copy.get(), data, tensor.bytes.size());
    return weights_.realigned.emplace_back(std::move(copy)).get();
  }
  template <typename T>
  std::span<const T> Vector(std::string_view name) {
    const TensorView& tensor = Tensor(name);
    CHECK(static_cast<size_t>(DTypeBytes(tensor.dtype)) == sizeof(T), name);
    return {reinterpret_cast<const T*>(Aligned(tensor)), tensor.bytes.size() / sizeof(T)};
  }
  Weight Dense(std::string_view name) {
    const TensorView& tensor = Tensor(name);
    const WeightFormat format =
        tensor.dtype == DType::kF32 ? WeightFormat::kF32 : WeightFormat::kBf16;
    return {format, Aligned(tensor), nullptr, tensor.shape[0], tensor.shape[1]};
  }
  const uint8_t* Scales(std::string_view base) const {
    return reinterpret_cast<const uint8_t*>(Tensor(fmt::format("{}.scale", base)).bytes.data());
  }
  Weight Quantized(WeightFormat format, std::string_view base) const {
    const TensorView& tensor = Tensor(fmt::format("{}.weight", base));
    const int64_t elements_per_byte = format == WeightFormat::kFp4Group32 ? 2 : 1;
    return {format, tensor.bytes.data(), Scales(base), tensor.shape[0],
            tensor.shape[1] * elements_per_byte};
  }
  Weight Fp8(std::string_view base) const { return Quantized(WeightFormat::kFp8Tile32, base); }

  void Layer(int64_t layer, LayerWeights& weights) {
    const LayerRole& role = config_.layers[static_cast<size_t>(layer)];
    weights.attn_norm = Vector<uint16_t>("attn_norm.weight");
    weights.ffn_norm = Vector<uint16_t>("ffn_norm.weight");
    weights.hc_attn = HyperConnection("hc_attn");
    weights.hc_ffn = HyperConnection("hc_ffn");
    Attention(weights.attn);
    if (role.kv_source == layer) Compressor(role.compress_ratio, weights.attn.compressor);
    if (role.index_source == layer) Indexer(role.kv_source == layer, weights.attn.indexer);
    Moe(weights.ffn);
    if (role.engram_index >= 0) Engram(weights.engram);
  }
  HyperConnectionWeights HyperConnection(std::string_view name) {
    HyperConnectionWeights weights;
    weights.fn = Dense(fmt::format("{}_fn", name));
    weights.base = Vector<float>(fmt::format("{}_base", name));
    weights.scale = Vector<float>(fmt::format("{}_scale", name));
    return weights;
  }
  void Attention(AttentionWeights& weights) {
    weights.attn_sink = Vector<float>("attn.attn_sink");
    weights.wq_a = Fp8("attn.wq_a");
    weights.q_norm = Vector<uint16_t>("attn.q_norm.weight");
    weights.wq_b = Fp8("attn.wq_b");
    weights.wkv = Fp8("attn.wkv");
    weights.kv_norm = Vector<uint16_t>("attn.kv_norm.weight");
    weights.wo_a = Fp8("attn.wo_a");
    weights.wo_b = Fp8("attn.wo_b");
  }
  void Compressor(int64_t ratio, CompressorWeights& weights) {
    weights.wkv = Dense("attn.compressor.wkv.weight");
    if (ratio > 1) weights.wgate = Dense("attn.compressor.wgate.weight");
    weights.norm = Vector<uint16_t>("attn.compressor.norm.weight");
  }
  void Indexer(bool owns_keys, IndexerWeights& weights) {
    weights.wq_b = Fp8("attn.indexer.wq_b");
    weights.weights_proj = Dense("attn.indexer.weights_proj.weight");
    if (!owns_keys) return;
    weights.wk = Dense("attn.indexer.wk.weight");
    weights.k_norm = Vector<uint16_t>("attn.indexer.k_norm.weight");
  }
  ExpertWeights Expert(WeightFormat format, const std::string& base) const {
    return {Quantized(format, base + ".w1"), Quantized(format, base + ".w2"),
            Quantized(format, base + ".w3")};
  }
  void Moe(MoeWeights& weights) {
    weights.gate = Dense("ffn.gate.weight");
    weights.bias = Vector<float>("ffn.gate.bias");
    weights.bias_vl = Vector<float>("ffn.gate.bias_vl");
    weights.shared_experts = Expert(WeightFormat::kFp8Tile32, "ffn.shared_experts");
    weights.experts.reserve(static_cast<size_t>(config_.n_routed_experts));
    for (int64_t expert = 0; expert < config_.n_routed_experts; ++expert) {
      weights.experts.push_back(
          Expert(WeightFormat::kFp4Group32, fmt::format("ffn.experts.{}", expert)));
    }
  }
  void Engram(EngramWeights& weights) {
    const TensorView& table = Tensor("engram.embed.weight");
    weights.embed = {reinterpret_cast<const uint8_t*>(table.bytes.data()), Scales("engram.embed"),
                     table.shape[0], table.shape[1]};
    weights.wkv = Fp8("engram.wkv");
    weights.q_weight = Vector<uint16_t>("engram.q_weight");
    weights.k_weight = Vector<uint16_t>("engram.k_weight");
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  std::string prefix_;
  ModelWeights weights_;
  uint64_t realigned_bytes_ = 0;
  Status status_;
};

}  // namespace

const char* ModelPartName(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding:
      return "embedding";
    case ModelPart::kBackbone:
      return "backbone";
    case ModelPart::kRoutedExperts:
      return "routed_experts";
    case ModelPart::kEngram:
      return "engram";
    case ModelPart::kDspark:
      return "dspark";
    case ModelPart::kVision:
      return "vision";
  }
  return "";
}

std::vector<TensorSpec> TensorCatalogue(const ModelConfig& config) {
  return CatalogueWriter(config).Write();
}

int64_t TensorBytes(const TensorSpec& spec) {
  int64_t bytes = DTypeBytes(spec.dtype);
  for (const int64_t dim : spec.shape) bytes *= dim;
  return bytes;
}

bool IsDenseTensor(const TensorSpec& spec) {
  switch (spec.part) {
    case ModelPart::kEmbedding:
    case ModelPart::kBackbone:
      return true;
    case ModelPart::kEngram:
      return !spec.name.ends_with("engram.embed.weight") &&
             !spec.name.ends_with("engram.embed.scale");
    case ModelPart::kRoutedExperts:
    case ModelPart::kDspark:
    case ModelPart::kVision:
      return false;
  }
  return false;
}

Status CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint) {
  const std::vector<TensorSpec> catalogue = TensorCatalogue(config);
  TRY_STATUS(CheckNames(catalogue, checkpoint));
  for (const TensorSpec& spec : catalogue) {
    const TensorView& tensor = *checkpoint.Find(spec.name);
    if (tensor.dtype == spec.dtype && tensor.shape == spec.shape) continue;
    return Fail(fmt::format("{}: tensor \"{}\" must be {} {} by config.json, but it is {} {}",
                            tensor.file, spec.name, DTypeName(spec.dtype), ShapeText(spec.shape),
                            DTypeName(tensor.dtype), ShapeText(tensor.shape)));
  }
  return {};
}

Result<ModelWeights> BindWeights(const ModelConfig& config, const Checkpoint& checkpoint) {
  TRY_STATUS(CheckTensors(config, checkpoint));
  return Binder(config, checkpoint).Bind();
}

}  // namespace minke
