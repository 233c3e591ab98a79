// The command line of minke bench.
#include <CLI/CLI.hpp>

#include "apps/bench_command.h"
#include "apps/flag_checks.h"
#include "bench/decode_bench.h"
#include "bench/kernel_bench.h"
#include "bench/layer_cut.h"
#include "bench/prefill_bench.h"
#include "bench/samples.h"
#include "model/config.h"

namespace minke {
namespace {

void AddThreads(CLI::App& command, int* threads) {
  command.add_option("--threads", *threads, "Threads (default: one per processor)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
}

void AddRounds(CLI::App& command, int64_t* rounds) {
  command
      .add_option("--rounds", *rounds,
                  "Samples of each figure, taken in turn with all others; the median is told")
      ->check(CLI::Range(int64_t{1}, kRoundsMax))
      ->type_name("N")
      ->capture_default_str();
}

std::string CheckShape(const std::string& text) {
  const Result<MatrixShape> shape = ParseMatrixShape(text);
  return shape ? std::string() : shape.error().message;
}

void AddMachine(CLI::App& bench, BenchMachineFlags* flags) {
  CLI::App* command = bench.add_subcommand(
      "machine", "The ceilings: bytes read and multiply-adds per second, and the disk");
  AddThreads(*command, &flags->threads);
  command->add_option("--seconds", flags->seconds, "How long to measure, at least five rounds")
      ->check(NumberIn(kBenchSecondsMin, kBenchSecondsMax))
      ->type_name("S")
      ->capture_default_str();
  command
      ->add_option("--dir", flags->dir,
                   "Also measure the disk of this folder with direct I/O; a file of 1 GiB is "
                   "written there and removed")
      ->type_name("DIR")
      ->check(NotEmpty("a folder"));
  command->add_flag("--json", flags->json,
                    "For programs: of each figure its median, its best and the number of samples");
  command->footer(
      "Memory is read beyond the caches: 1 GiB, or four times the last cache, or a quarter of\n"
      "what is free where that is less. Each round takes every figure once. The time that others\n"
      "took of the processors is told, with a warning above 2 %.\n"
      "Examples:\n"
      "  minke bench machine\n"
      "  minke bench machine --seconds 30 --dir . --json");
}

void AddKernels(CLI::App& bench, BenchKernelsFlags* flags) {
  CLI::App* command = bench.add_subcommand(
      "kernels", "Products on the shapes of the released model, against the ceilings");
  AddThreads(*command, &flags->threads);
  command->add_option("--format", flags->formats, "Formats of the weights, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"fp4", "fp8", "bf16"}))
      ->type_name("LIST")
      ->capture_default_str();
  command->add_option("--rows", flags->rows, "Rows of activations, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kBenchRowsMax))
      ->type_name("LIST")
      ->capture_default_str();
  command
      ->add_option("--shape", flags->shapes,
                   "Outputs by inputs, separated by commas (default: the released model's, "
                   "without cases of more than 20 G multiply-adds)")
      ->delimiter(',')
      ->check(CheckShape)
      ->type_name("RxC");
  AddRounds(*command, &flags->rounds);
  command
      ->add_option("--memory", flags->memory,
                   "Weights of a format: matrices in huge pages that are walked in turn, so that "
                   "none is in a cache")
      ->check(CheckByteSize)
      ->type_name("SIZE")
      ->capture_default_str();
  command->add_option("--kernels", flags->kernels, "reference (plain loops) or fast (SIMD)")
      ->check(CLI::IsMember({"reference", "fast"}))
      ->type_name("KIND")
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "Which random weights")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--plot", flags->plot, "Write a plot, SVG: share of the bound over rows")
      ->type_name("FILE");
  command->add_flag("--json", flags->json,
                    "For programs: machine, and cases[] with format, outputs, inputs, rows, "
                    "seconds, weight_bytes_per_second, multiply_adds_per_second, bound, ratio");
  command->footer(
      "bound: the longer of reading the weights once at the measured bandwidth and of doing the\n"
      "multiply-adds at the measured float32 peak. ratio: the bound's time over the measured one.\n"
      "Examples:\n"
      "  minke bench kernels --format fp4 --rows 1\n"
      "  minke bench kernels --format fp8 --rows 1,8 --shape 5120x8192 --rounds 15 --json");
}

std::string CheckLayers(const std::string& text) {
  const Result<std::vector<int64_t>> layers = ParseLayerList(text);
  return layers ? std::string() : layers.error().message;
}

void AddSynth(CLI::App& bench, BenchSynthFlags* flags) {
  CLI::App* command = bench.add_subcommand(
      "synth", "Write a model with some layers of a larger one, real sizes and random weights");
  command->add_option("--config", flags->config, "config.json of the larger model")
      ->type_name("FILE")
      ->check(NotEmpty("the name of a file"))
      ->required();
  command
      ->add_option("--layers", flags->layers,
                   "Ids of its layers, ascending, separated by commas; a layer needs those from "
                   "which it takes rows and selection")
      ->type_name("LIST")
      ->check(CheckLayers)
      ->required();
  command->add_option("--experts", flags->experts, "Routed experts of each layer")
      ->check(CLI::Range(int64_t{1}, kExpertCountMax))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--out", flags->out, "The folder to write; must not exist, or be empty")
      ->type_name("DIR")
      ->check(NotEmpty("a folder"))
      ->required();
  command->add_option("--seed", flags->seed, "The same seed gives the same bytes")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--vocab", flags->vocab, "Tokens of the vocabulary (default: the config's)")
      ->check(CLI::Range(int64_t{1}, kVocabSizeMax))
      ->type_name("N");
  command
      ->add_option("--tokenizer", flags->tokenizer,
                   "A model whose tokenizer is taken (default: $MINKE_MODEL, else the nano model "
                   "that comes with minke)")
      ->type_name("DIR")
      ->check(NotEmpty("a folder"));
  AddThreads(*command, &flags->threads);
  command->add_flag("--json", flags->json, "For programs: what was written");
  command->footer(
      "Draft stages and vision are left out, and Engram tables are small. A layer of the released\n"
      "model takes 0.17 GB and 0.019 GB an expert, embedding and head 2.6 GB; 1 GiB of the disk "
      "is\n"
      "left free. minke inspect shows what became of it.\n"
      "Examples:\n"
      "  minke bench synth --config config.json --layers 0,2,3,20,21,24 --experts 32 --out cut\n"
      "  minke bench decode --model cut");
}

void AddModel(CLI::App& command, BenchModelFlags* flags) {
  AddModelFlags(command, &flags->model);
  command.add_option("--seed", flags->seed, "Which random tokens and cached rows")
      ->type_name("N")
      ->capture_default_str();
  command.add_flag("--json", flags->json,
                   "For programs: machine, and cases[] with the figure, its bound, the ratio and "
                   "the times of layers");
}

void AddTokens(CLI::App& command, int64_t* tokens) {
  command.add_option("--tokens", *tokens, "Steps that are measured, after one that is not")
      ->check(CLI::Range(int64_t{1}, kBenchTokensMax))
      ->type_name("N")
      ->capture_default_str();
}

void AddDecode(CLI::App& bench, BenchDecodeFlags* flags) {
  CLI::App* command = bench.add_subcommand(
      "decode", "Tokens per second one after the other, against the bytes that they need");
  AddModel(*command, flags);
  AddTokens(*command, &flags->tokens);
  command
      ->add_option("--context", flags->context, "Tokens before them, whose cached rows are random")
      ->check(CLI::Range(int64_t{0}, kContextTokensMax))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--sequences", flags->sequences, "Sequences that decode together")
      ->check(CLI::Range(int64_t{1}, kBenchSequencesMax))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--dir", flags->disk_dir,
                   "With --weights-ram: where the disk's rate is measured, in a new file of 1 GiB "
                   "(default: in the largest file of the model)")
      ->check(NotEmpty("a directory"))
      ->type_name("DIR");
  command->footer(
      "bound: bytes of a step (all dense weights, the experts that were chosen, the head, the "
      "rows\n"
      "of the cache) over the read bandwidth measured between the steps. Tokens are random, so "
      "that\n"
      "experts differ. \"all layers and head\" adds up the layers of the model that was cut.\n"
      "With --weights-ram, weights are read as they are needed, and the rate at which they come "
      "while\n"
      "the model waits is compared with the disk's.\n"
      "Examples:\n"
      "  minke bench decode --model cut --tokens 32\n"
      "  minke bench decode --model cut --sequences 16 --json\n"
      "  minke bench decode --model cut --weights-ram 4GiB");
}

void AddPrefill(CLI::App& bench, BenchPrefillFlags* flags) {
  CLI::App* command = bench.add_subcommand(
      "prefill", "Tokens per second of a prompt, against the multiply-adds that it needs");
  AddModel(*command, flags);
  command->add_option("--rows", flags->rows, "Tokens of a call")
      ->check(CLI::Range(int64_t{1}, kBenchRowsMax))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--tokens", flags->tokens, "Tokens of the prompt (default: one call)")
      ->check(CLI::Range(int64_t{1}, kBenchPromptTokensMax))
      ->type_name("N");
  command
      ->add_option("--context", flags->context, "Tokens before them, whose cached rows are random")
      ->check(CLI::Range(int64_t{0}, kContextTokensMax))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--prefill", flags->prefill,
                   "exact; replay, which takes only the last window of tokens through the upper "
                   "layers; or both, and how their times compare")
      ->check(CLI::IsMember({"exact", "replay", "both"}))
      ->type_name("MODE")
      ->capture_default_str();
  AddRounds(*command, &flags->rounds);
  command->footer(
      "bound: multiply-adds of all products, of attention and of the index, over the float32 peak\n"
      "measured between the prompts. \"all layers and head\" adds up the layers of the model that\n"
      "was cut, and so does the comparison of replay with exact.\n"
      "Examples:\n"
      "  minke bench prefill --model cut\n"
      "  minke bench prefill --model cut --tokens 4096 --prefill both --rounds 1");
}

void AddContext(CLI::App& bench, BenchContextFlags* flags) {
  CLI::App* command = bench.add_subcommand(
      "context", "How the time of a token grows with the context, by kind of layer");
  AddModel(*command, flags);
  AddTokens(*command, &flags->tokens);
  command
      ->add_option("--contexts", flags->contexts,
                   "Tokens of the contexts, whose cached rows are random, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{0}, kContextTokensMax))
      ->type_name("LIST")
      ->capture_default_str();
  command->add_option("--plot", flags->plot, "Write a plot, SVG: share of the bound over contexts")
      ->type_name("FILE");
  command->footer(
      "Contexts are measured in turn, a token each. The released model's cache takes 890 bytes a\n"
      "token, so a million tokens 0.9 GB.\n"
      "Examples:\n"
      "  minke bench context --model cut\n"
      "  minke bench context --model cut --contexts 16384,1048000 --tokens 20 --json");
}

}  // namespace

int RunBench(const CLI::App& bench, const BenchFlags& flags) {
  if (bench.got_subcommand("machine")) return RunBenchMachine(flags.machine);
  if (bench.got_subcommand("synth")) return RunBenchSynth(flags.synth);
  if (bench.got_subcommand("decode")) return RunBenchDecode(flags.decode);
  if (bench.got_subcommand("context")) return RunBenchContext(flags.context);
  if (bench.got_subcommand("prefill")) return RunBenchPrefill(flags.prefill);
  return RunBenchKernels(flags.kernels);
}

CLI::App* AddBench(CLI::App& app, BenchFlags* flags) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure speed: of the machine, and of the engine against it");
  bench->require_subcommand(1);
  AddMachine(*bench, &flags->machine);
  AddKernels(*bench, &flags->kernels);
  AddSynth(*bench, &flags->synth);
  AddDecode(*bench, &flags->decode);
  AddPrefill(*bench, &flags->prefill);
  AddContext(*bench, &flags->context);
  bench->footer("minke bench COMMAND --help tells more of each, with examples.");
  return bench;
}

}  // namespace minke
