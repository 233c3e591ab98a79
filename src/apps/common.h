// What several commands need: where the model is, how errors look, ids in files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/commands.h"
#include "core/json.h"
#include "core/result.h"
#include "engine/engine.h"

namespace minke {

class Model;
class ThreadPool;

// "minke: error: ..." in one line on stderr. Returns kExitFailure.
int PrintError(const Error& error);
// "minke: note: ..." in one line on stderr.
void PrintNote(std::string_view sentence);

// flag, or the variable MINKE_MODEL, or the nano model that comes with the program: two folders
// above build/release/minke, or share/minke/models/nano beside an installed bin/.
Result<std::string> FindModelDir(const std::string& flag);

// What --kv-disk names; empty where it is not given, or "none".
std::string DiskDirectory(const CacheFlags& cache);

Result<EngineOptions> MakeEngineOptions(const ModelFlags& flags, const CacheFlags& cache);
// On stderr: nobody trained the model.
void NoteRandomWeights();
// Opens the engine and says on stderr what an engine warns of, and that weights are random.
Result<std::unique_ptr<Engine>> OpenEngine(const ModelFlags& flags, const CacheFlags& cache);

// What --pin and --weights-memory ask for, for a model without an engine: says that threads are not
// bound where they are not, and copies the weights, with a progress bar.
Status PrepareModel(const ModelFlags& flags, Model& model, ThreadPool& pool);

// Whole file, or standard input for "-"; more than limit_bytes is an error.
Result<std::string> ReadInput(const std::string& path, uint64_t limit_bytes);

// Token ids as a JSON array or separated by blanks. Errors name the index. An empty list, numbers
// that are no integers and ids outside [0, vocab_size) are errors.
Result<std::vector<int32_t>> ParseTokenIds(std::string_view text, std::string_view what,
                                           int64_t vocab_size);

ChatOptions MakeChatOptions(const std::string& thinking, const std::string& effort);

Json JsonIds(std::span<const int32_t> ids);

// A random seed where none was given: the one place of the program that is not repeatable.
uint64_t ChooseSeed(const std::optional<uint64_t>& seed);

// A directory of this user by the XDG rules: the variable where it is an absolute path, else
// `below_home` in the home directory. `flag`: what to say instead, for the error.
Result<std::string> FindUserDir(const char* variable, const char* below_home,
                                std::string_view flag);

}  // namespace minke
