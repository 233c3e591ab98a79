#include "engine/engine.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/available_memory.h"
#include "engine/chat_prompt.h"
#include "engine/engine_impl.h"
#include "kernels/kernels.h"
#include "model/weights.h"
#include "text/chat_encoding.h"
#include "text/control_tokens.h"

namespace minke {
namespace {

std::string Describe(const ModelConfig& config, int64_t parameters) {
  const auto billions = static_cast<double>(parameters) / 1e9;
  const std::string size =
      billions >= 1 ? fmt::format("{:.1f} B", billions) : fmt::format("{:.2f} M", billions * 1000);
  return fmt::format(
      "{} parameters, {} layers, hidden size {}, {} experts of which {} act, vocabulary of {}",
      size, config.num_hidden_layers, config.hidden_size, config.n_routed_experts,
      config.num_experts_per_tok, config.vocab_size);
}

EngineInfo MakeInfo(const LoadedModel& loaded, const EngineOptions& options, int threads) {
  const Model& model = *loaded.model;
  const ModelConfig& config = model.config();
  const StateLayout layout(config, model.numerics());
  EngineInfo info;
  info.model_dir = options.model_dir;
  info.layer_count = config.num_hidden_layers;
  info.vocab_size = config.vocab_size;
  for (const TensorSpec& spec : TensorCatalogue(config)) info.parameter_count += spec.parameters;
  info.description = Describe(config, info.parameter_count);
  info.checkpoint_bytes = model.checkpoint().file_bytes();
  info.memory_bytes = PhysicalMemoryBytes();
  info.context_tokens_max =
      options.context_tokens_max > 0 ? options.context_tokens_max : config.max_position_embeddings;
  info.kv_bytes_per_token = KvBytesPerToken(layout);
  info.window_state_bytes = WindowStateBytes(layout);
  info.threads = threads;
  info.kernels = KernelsName(model);
  info.random_weights = loaded.random_weights;
  const std::string memory = MemoryWarning(info.checkpoint_bytes, info.memory_bytes);
  if (!memory.empty() && options.weights_ram_bytes == 0) info.warnings.push_back(memory);
  if (const char* difference = FastKernelsDifference(); difference != nullptr) {
    info.warnings.push_back(fmt::format(
        "The SIMD kernels were turned down, because {} gives other bits than the reference on this "
        "processor; the reference kernels run instead, which are slow. Please report it with the "
        "processor's name.",
        difference));
  }
  const char* asked = std::getenv("MINKE_TARGET");
  const bool chosen = asked == nullptr || *asked == '\0' || FastTargetName() == std::string(asked);
  if (!chosen && FastKernelsDifference() == nullptr) {
    info.warnings.push_back(
        fmt::format("MINKE_TARGET={} is not AVX2, AVX3, AVX3_DL or reference, or not what this "
                    "processor has; {} runs.",
                    std::string(asked).substr(0, 40), FastTargetName()));
  }
  return info;
}

Status CheckEngineOptions(const EngineOptions& options) {
  if (options.prefill_chunk_tokens < 1 || options.prefill_chunk_tokens > kPrefillChunkTokensMax) {
    return Fail(fmt::format("The prefill chunk must be between 1 and {} tokens, found {}.",
                            kPrefillChunkTokensMax, options.prefill_chunk_tokens));
  }
  if (options.context_tokens_max < 0) {
    return Fail(fmt::format("The context must be 0 (the model's own) or more tokens, found {}.",
                            options.context_tokens_max));
  }
  return {};
}

}  // namespace

void Engine::Prewarm(const std::function<bool(uint64_t done, uint64_t total)>& progress) const {
  impl_->loaded.model->checkpoint().Prewarm(progress);
}

Status Engine::CopyWeights(const std::function<void(uint64_t done, uint64_t total)>& progress) {
  if (impl_->options.weights_ram_bytes > 0) {
    return Fail("Weights that are read as they are needed (--weights-ram) cannot be copied.");
  }
  return impl_->loaded.model->CopyWeights(AvailableMemoryBytes(), impl_->pool, progress);
}

const char* NumericModeName(NumericMode mode) {
  switch (mode) {
    case NumericMode::kOfficial:
      return "official";
    case NumericMode::kF32:
      return "f32";
    case NumericMode::kF32CacheQuant:
      return "f32-cachequant";
  }
  return "unknown";
}

Result<NumericMode> ParseNumericMode(std::string_view name) {
  for (NumericMode mode :
       {NumericMode::kOfficial, NumericMode::kF32, NumericMode::kF32CacheQuant}) {
    if (name == NumericModeName(mode)) return mode;
  }
  return Fail(fmt::format("numerics must be official, f32 or f32-cachequant, found \"{}\".", name));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

std::span<const int32_t> Session::tokens() const {
  return impl_->tokens;
}

SessionMemory Session::memory() const {
  if (impl_->state == nullptr) return {};
  const SequenceState& state = *impl_->state;
  return {state.used_bytes(), state.capacity_bytes(), state.constant_bytes()};
}

void Session::Reset() {
  impl_->Drop();
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Open(const EngineOptions& options) {
  TRY_STATUS(CheckEngineOptions(options));
  const int threads = TRY(ThreadCount(options));
  LoadedModel loaded = TRY(LoadModel(options));
  const int64_t limit = loaded.model->config().max_position_embeddings;
  if (options.context_tokens_max > limit) {
    return Fail(ErrorCode::kLimit,
                fmt::format("A context of {} tokens was asked for, but this model was made for {} "
                            "(max_position_embeddings); ask for at most that.",
                            options.context_tokens_max, limit));
  }
  auto impl = std::make_unique<Impl>(std::move(loaded), options, threads);
  impl->info = MakeInfo(impl->loaded, options, threads);
  const std::string pinning = PinningWarning(impl->pool);
  if (!pinning.empty()) impl->info.warnings.push_back(pinning);
  TRY_STATUS(impl->OpenCache());
  impl->think_start = impl->loaded.tokenizer.ControlToken(kThinkStartToken);
  for (const std::string_view name :
       {kSystemToken, kUserToken, kAssistantToken, kLatestReminderToken}) {
    const std::optional<int32_t> id = impl->loaded.tokenizer.ControlToken(name);
    if (id.has_value()) impl->message_starts.push_back(*id);
  }
  impl->think_end = impl->loaded.tokenizer.ControlToken(kThinkEndToken);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

const EngineInfo& Engine::info() const {
  return impl_->info;
}

Result<std::vector<int32_t>> Engine::Tokenize(std::string_view text) const {
  if (text.size() > kEncodeBytesMax) {
    return Fail(ErrorCode::kLimit,
                fmt::format("The text has {} bytes; at most {} are encoded in one piece.",
                            text.size(), kEncodeBytesMax));
  }
  return impl_->loaded.tokenizer.EncodePlain(text);
}

Result<std::string> Engine::Detokenize(std::span<const int32_t> ids) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= impl_->info.vocab_size) {
      return Fail(fmt::format("Token {} of the list is id {}, but the vocabulary has ids 0 to {}.",
                              i, ids[i], impl_->info.vocab_size - 1));
    }
  }
  return impl_->loaded.tokenizer.Decode(ids);
}

Result<std::vector<int32_t>> Engine::TextPrompt(std::string_view text) const {
  std::vector<int32_t> ids = TRY(Tokenize(text));
  ids.insert(ids.begin(), static_cast<int32_t>(impl_->loaded.model->config().bos_token_id));
  return ids;
}

Result<ChatPrompt> Engine::EncodeChat(std::string_view json, std::string_view what,
                                      const ChatOptions& options) const {
  return MakeChatPrompt(impl_->loaded.tokenizer, json, what, options);
}

Result<std::vector<int32_t>> Engine::PromptIds(const Prompt& prompt) const {
  return minke::PromptIds(prompt, impl_->loaded.tokenizer);
}

std::string_view Engine::TokenBytes(int32_t id) const {
  return impl_->loaded.tokenizer.TokenBytes(id);
}

int32_t Engine::eos_token() const {
  return static_cast<int32_t>(impl_->loaded.model->config().eos_token_id);
}

std::optional<int32_t> Engine::ControlToken(std::string_view text) const {
  return impl_->loaded.tokenizer.ControlToken(text);
}

std::unique_ptr<Session> Engine::NewSession() const {
  return std::unique_ptr<Session>(new Session(std::make_unique<Session::Impl>(*impl_)));
}

Result<std::unique_ptr<Session>> Engine::Fork(const Session& session) const {
  std::unique_ptr<Session> fork = NewSession();
  Session::Impl& from = *session.impl_;
  if (from.state == nullptr) return fork;
  // Room for the copy must not come from what is copied.
  const bool was_in_use = std::exchange(from.in_use, true);
  const Status room = fork->impl_->NewState();
  from.in_use = was_in_use;
  TRY_STATUS(room);
  fork->impl_->state = from.state->Fork();
  fork->impl_->tenant = from.tenant;
  fork->impl_->tokens = from.tokens;
  fork->impl_->logits = from.logits;
  return fork;
}

}  // namespace minke
