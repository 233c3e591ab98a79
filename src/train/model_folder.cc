#include "train/model_folder.h"

#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "text/compressed_vocabulary.h"
#include "train/optimizer.h"
#include "train/trainer.h"
#include "train/training_state.h"

namespace minke::train {
namespace {

constexpr uint64_t kAnySeed = 0;  // of a model whose every value is replaced

}  // namespace

Result<ModelFolder> OpenModelFolder(const std::string& config_path,
                                    const std::string& tokenizer_dir) {
  const std::string tokenizer_path = JoinPath(tokenizer_dir, kTokenizerFile);
  std::string config_text = TRY(ReadFile(config_path, kConfigBytesMax));
  ModelConfig config = TRY(ParseConfig(config_text, config_path));
  std::string tokenizer_text = TRY(ReadFile(tokenizer_path, kTokenizerFileBytesMax));
  Tokenizer tokenizer = TRY(Tokenizer::Parse(tokenizer_text, tokenizer_path));
  if (tokenizer.vocab_size() != config.vocab_size) {
    return Fail(
        fmt::format("{} has {} tokens, but the vocab_size of {} is {}; the two files "
                    "belong to different models.",
                    tokenizer_path, tokenizer.vocab_size(), config_path, config.vocab_size));
  }
  if (config.vision.num_hidden_layers > 0) {
    return Fail(
        fmt::format("{} has {} vision layers, which are not trained here; set the vision config's "
                    "num_hidden_layers to 0.",
                    config_path, config.vision.num_hidden_layers));
  }
  std::vector<int32_t> map;
  if (config.has_engram()) {
    map = TRY(BuildCompressedVocabulary(tokenizer, config.vocab_size,
                                        config.engram_compressed_vocab_size));
  }
  return ModelFolder{std::move(config_text), std::move(config), std::move(tokenizer),
                     std::move(tokenizer_text), std::move(map)};
}

Result<std::unique_ptr<Model>> OpenState(const ModelFolder& folder, const std::string& path,
                                         StateFile* state) {
  std::unique_ptr<Model> model =
      TRY(Model::Create(folder.config, folder.engram_token_map, kAnySeed));
  Optimizer optimizer(model->parameters(), 1);
  *state = TRY(ReadState(path, model->parameters(), optimizer.moments()));
  return model;
}

Result<std::unique_ptr<Model>> OpenWeights(const ModelFolder& folder, const std::string& dir,
                                           const std::string& state_name) {
  const std::string path = JoinPath(dir, state_name.empty() ? kStateFileName : state_name);
  if (!state_name.empty() || FileExists(path)) {
    StateFile state;
    return OpenState(folder, path, &state);
  }
  std::unique_ptr<Model> model =
      TRY(Model::Create(folder.config, folder.engram_token_map, kAnySeed));
  TRY_STATUS(model->Load(dir));
  return model;
}

}  // namespace minke::train
