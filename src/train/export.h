// A trained model as a checkpoint in the released format: every tensor of the catalogue under its
// name, on its stored grid (FP8, FP4, BF16), with the config and tokenizer that it was trained
// with. Whatever reads a released checkpoint reads this one.
#pragma once

#include <string>

#include "core/json.h"
#include "core/result.h"
#include "train/model.h"

namespace minke::train {

inline constexpr const char* kWeightsFile = "model.safetensors";

// Writes model.safetensors to out_dir, which must exist. Errors: a parameter that the catalogue
// asks for is missing or has other numbers of values, values that are not finite.
Status WriteWeights(const Model& model, const std::string& out_dir);

// A whole model folder: config.json, tokenizer.json and tokenizer_config.json as they are in
// files_dir, the weights, and minke.json with `origin` ("trained": where the model comes from).
// out_dir is made; one that holds a model already is refused.
Status ExportModel(const Model& model, const std::string& files_dir, const Json& origin,
                   const std::string& out_dir);

// `origin` of the model in model_dir; null where it does not tell.
Result<Json> ReadModelOrigin(const std::string& model_dir);

}  // namespace minke::train
