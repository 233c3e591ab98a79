// What every command of the trainer needs of a folder: the model's config, its tokenizer, the map
// that Engram hashes through, and the weights, be they those of a run or of an exported model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "model/config.h"
#include "text/tokenizer.h"
#include "train/model.h"
#include "train/training_state.h"

namespace minke::train {

inline constexpr const char* kModelConfigFile = "config.json";
inline constexpr const char* kTokenizerFile = "tokenizer.json";
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";

struct ModelFolder {
  std::string config_text;  // as in the file
  ModelConfig config;
  Tokenizer tokenizer;
  std::string tokenizer_text;
  std::vector<int32_t> engram_token_map;
};

// config_path: a config.json; tokenizer_dir: a folder with tokenizer.json. What the trainer cannot
// train (vision) and files that do not belong together are errors.
Result<ModelFolder> OpenModelFolder(const std::string& config_path,
                                    const std::string& tokenizer_dir);

// A model with the weights of a training state; *state is what else the file says.
Result<std::unique_ptr<Model>> OpenState(const ModelFolder& folder, const std::string& path,
                                         StateFile* state);

// A model with the weights of `dir`: of its training.state, or, if it has none, of its
// model.safetensors. state_name: another state file of the run, e.g. "stage-2.state".
Result<std::unique_ptr<Model>> OpenWeights(const ModelFolder& folder, const std::string& dir,
                                           const std::string& state_name);

}  // namespace minke::train
