// minke logits: token ids in, one row of float32 logits per position out. The tool of every
// comparison with another implementation.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/common.h"
#include "apps/terminal.h"
#include "apps/token_pass.h"
#include "core/file.h"
#include "core/thread_pool.h"
#include "engine/model_loader.h"
#include "model/forward.h"

namespace minke {
namespace {

// Appends what the forward shows to one file per tensor and layer. A tensor of several calls is
// the rows of one call after those of the other; "parts" tells them apart where widths differ.
class DumpFolder {
 public:
  explicit DumpFolder(std::string dir) : dir_(std::move(dir)) {}

  Status Create() {
    std::error_code error;
    std::filesystem::create_directories(dir_, error);
    if (!error) return {};
    return Fail(ErrorCode::kIo,
                fmt::format("The folder {} could not be made: {}.", dir_, error.message()));
  }

  template <typename T>
  void Add(std::string_view name, int64_t layer, const char* dtype, View<const T> values) {
    const std::string suffix = layer < 0 ? std::string() : fmt::format(".{}", layer);
    const std::string file = fmt::format("{}{}.{}", name, suffix, dtype);
    Entry& entry = entries_[file];
    const bool first = entry.parts.empty();
    entry.name = name;
    entry.layer = layer;
    entry.dtype = dtype;
    entry.parts.emplace_back(values.rows, values.cols);
    std::ofstream out(JoinPath(dir_, file),
                      std::ios::binary | (first ? std::ios::trunc : std::ios::app));
    for (int64_t row = 0; row < values.rows; ++row) {
      out.write(reinterpret_cast<const char*>(values.Row(row)),
                static_cast<std::streamsize>(values.cols * static_cast<int64_t>(sizeof(T))));
    }
    failed_ = failed_ || !out.flush().good();
  }

  Status WriteIndex() const {
    if (failed_) {
      return Fail(ErrorCode::kIo, fmt::format("Not every tensor could be written to {}; is the "
                                              "disk full?",
                                              dir_));
    }
    JsonArray tensors;
    for (const auto& [file, entry] : entries_) tensors.push_back(EntryJson(file, entry));
    Json index;
    index.Set("tensors", std::move(tensors));
    const std::string text = DumpJson(index, JsonStyle::kPretty);
    return WriteFile(JoinPath(dir_, "index.json"), std::as_bytes(std::span(text)));
  }

 private:
  struct Entry {
    std::string name;
    int64_t layer = -1;
    std::string dtype;
    std::vector<std::pair<int64_t, int64_t>> parts;  // rows, cols
  };

  static Json EntryJson(const std::string& file, const Entry& entry) {
    Json json;
    json.Set("name", entry.name);
    json.Set("layer", entry.layer);
    json.Set("dtype", entry.dtype);
    json.Set("file", file);
    JsonArray parts;
    int64_t rows = 0;
    bool same_width = true;
    for (const auto& [part_rows, part_cols] : entry.parts) {
      parts.emplace_back(JsonArray{Json(part_rows), Json(part_cols)});
      rows += part_rows;
      same_width = same_width && part_cols == entry.parts.front().second;
    }
    if (same_width) json.Set("shape", JsonArray{Json(rows), Json(entry.parts.front().second)});
    json.Set("parts", std::move(parts));
    return json;
  }

  std::string dir_;
  std::map<std::string, Entry> entries_;
  bool failed_ = false;
};

Diagnostics MakeDiagnostics(DumpFolder& folder) {
  Diagnostics diagnostics;
  diagnostics.tensor = [&folder](std::string_view name, int64_t layer, View<const float> values) {
    folder.Add(name, layer, "f32", values);
  };
  diagnostics.indices = [&folder](std::string_view name, int64_t layer,
                                  View<const int32_t> values) {
    folder.Add(name, layer, "i32", values);
  };
  return diagnostics;
}

// The rows of the next call: a chunk, then from decode_from on one token at a time.
int64_t CallRows(const LogitsFlags& flags, int64_t done, int64_t total) {
  if (flags.decode_from >= 0 && done >= flags.decode_from) return 1;
  const int64_t end = flags.decode_from >= 0 ? std::min(flags.decode_from, total) : total;
  return flags.chunk == 0 ? end - done : std::min(flags.chunk, end - done);
}

Status RunForward(const LogitsFlags& flags, const Model& model, ThreadPool& pool,
                  std::span<const int32_t> ids, const Diagnostics* diagnostics) {
  std::ofstream out(flags.out, std::ios::binary | std::ios::trunc);
  if (!out) {
    return Fail(ErrorCode::kIo, fmt::format("{} could not be opened for writing.", flags.out));
  }
  StatusLine status;
  const auto total = static_cast<int64_t>(ids.size());
  TokenPass pass(model, pool);
  pass.set_diagnostics(diagnostics);
  TRY_STATUS(pass.Run(
      ids, [&flags, total](int64_t done) { return CallRows(flags, done, total); },
      [&](int64_t done, View<const float> logits) {
        out.write(reinterpret_cast<const char*>(logits.data),
                  static_cast<std::streamsize>(logits.rows * logits.cols * int64_t{sizeof(float)}));
        status.ShowPrefill(done + logits.rows, total);
      }));
  out.close();
  if (out.good()) return {};
  return Fail(ErrorCode::kIo,
              fmt::format("{} could not be written whole; is the disk full?", flags.out));
}

void PrintSummary(const LogitsFlags& flags, const Model& model, int64_t rows) {
  if (!flags.json) return;
  Json json;
  json.Set("out", flags.out);
  json.Set("dtype", "float32");
  json.Set("shape", JsonArray{Json(rows), Json(model.config().vocab_size)});
  json.Set("numerics", flags.model.numerics);
  json.Set("kernels", KernelsName(model));
  std::cout << DumpJson(json, JsonStyle::kCompact) << '\n';
}

Status Logits(const LogitsFlags& flags) {
  const EngineOptions options = TRY(MakeEngineOptions(flags.model, {}));
  const std::string text = TRY(ReadInput(flags.tokens, kTokenFileBytesMax));
  const int threads = TRY(ThreadCount(options));
  const LoadedModel loaded = TRY(LoadModel(options));
  const ModelConfig& config = loaded.model->config();
  const std::vector<int32_t> ids = TRY(ParseTokenIds(text, flags.tokens, config.vocab_size));
  const auto count = static_cast<int64_t>(ids.size());
  if (count > config.max_position_embeddings) {
    return Fail(ErrorCode::kLimit,
                fmt::format("{} has {} tokens, but the context of this model holds {}.",
                            flags.tokens, count, config.max_position_embeddings));
  }
  if (flags.decode_from > count) {
    return Fail(fmt::format("--decode-from is {}, but {} has only {} tokens.", flags.decode_from,
                            flags.tokens, count));
  }
  ThreadPool pool(threads, kShareCostMin, PinningOf(options));
  TRY_STATUS(PrepareModel(flags.model, *loaded.model, pool));
  if (flags.dump.empty()) {
    TRY_STATUS(RunForward(flags, *loaded.model, pool, ids, nullptr));
  } else {
    DumpFolder folder(flags.dump);
    TRY_STATUS(folder.Create());
    const Diagnostics diagnostics = MakeDiagnostics(folder);
    TRY_STATUS(RunForward(flags, *loaded.model, pool, ids, &diagnostics));
    TRY_STATUS(folder.WriteIndex());
  }
  PrintSummary(flags, *loaded.model, count);
  return {};
}

}  // namespace

int RunLogits(const LogitsFlags& flags) {
  const Status status = Logits(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke
