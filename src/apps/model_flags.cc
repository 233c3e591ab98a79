// Flags of the commands that read or run a model: where it is, and how it is computed.
#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "apps/flag_checks.h"

namespace minke {

void AddModelDir(CLI::App& command, std::string* model_dir) {
  command
      .add_option("-m,--model", *model_dir,
                  "Directory with config.json, tokenizer.json and the safetensors files "
                  "(default: $MINKE_MODEL, else the nano model that comes with minke)")
      ->type_name("DIR");
}

void AddContextFlags(CLI::App& command, ModelFlags* flags) {
  command
      .add_option("--context", flags->context,
                  "Most tokens of prompt and answer together (default: what the model was made "
                  "for)")
      ->check(CLI::Range(int64_t{1}, kTokensMax))
      ->type_name("N");
  command
      .add_option("--prefill-chunk", flags->prefill_chunk,
                  "Tokens of the prompt per step; the results do not depend on it")
      ->check(CLI::Range(int64_t{1}, kPrefillChunkTokensMax))
      ->type_name("N")
      ->capture_default_str();
  command
      .add_flag("--prewarm", flags->prewarm,
                "Read the whole checkpoint into memory first, with a progress bar")
      ->excludes("--weights-ram")
      ->excludes("--weights-memory");
}

void AddModelFlags(CLI::App& command, ModelFlags* flags) {
  AddModelDir(command, &flags->model_dir);
  command
      .add_option("--threads", flags->threads,
                  "Threads; the results do not depend on it (default: one per processor)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command.add_flag("--pin", flags->pin,
                   "Bind each thread to a processor of its own, the same number on every node of "
                   "the memory. For machines with several nodes and nothing else to do; "
                   "nobody is bound where there are more threads than processors");
  command
      .add_option("--weights-ram", flags->weights_ram,
                  "For models larger than memory: the most that weights may take of it, such as "
                  "16GiB. Experts beyond it are read from the disk as they are needed; answers "
                  "stay the same. An error names the least that works (default: the system "
                  "decides)")
      ->check(CheckByteSize)
      ->type_name("SIZE");
  command
      .add_option("--weights-memory", flags->weights_memory,
                  "mapped: the files are the memory, and the start is quick; copied: the weights "
                  "are read at the start into huge pages, each near the thread that reads it. "
                  "For machines with several nodes, with --pin. Answers stay the same")
      ->check(CLI::IsMember({"mapped", "copied"}))
      ->type_name("KIND")
      ->capture_default_str()
      ->excludes("--weights-ram");
  command
      .add_option("--numerics", flags->numerics,
                  "official: every rounding point of the model; f32 and f32-cachequant: for "
                  "comparison with other implementations")
      ->check(CLI::IsMember({"official", "f32", "f32-cachequant"}))
      ->type_name("MODE")
      ->capture_default_str();
  command.add_flag("--reference-artifacts", flags->reference_artifacts,
                   "For diagnosis: reproduce the official reference's stale index keys");
  command
      .add_option("--kernels", flags->kernels,
                  "For diagnosis: reference (plain loops) or fast (SIMD) arithmetic")
      ->check(CLI::IsMember({"default", "reference", "fast"}))
      ->type_name("KIND")
      ->capture_default_str();
}

}  // namespace minke
