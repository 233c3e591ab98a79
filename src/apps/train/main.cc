// minke-train: makes small models of the released architecture. Flags and their help; the one file
// of the program that includes CLI11, and the edge at which libtorch's exceptions end.
#include <csignal>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "apps/train/commands.h"

namespace minke::train {
namespace {

constexpr size_t kHelpColumnWidth = 28;
constexpr int64_t kTokensMax = 1 << 20;
constexpr int64_t kSeedMax = int64_t{1} << 53;  // exact in every JSON reader

constexpr const char* kDescription =
    "Trains small models of the architecture from scratch, on this machine's processors.\n"
    "\n"
    "  tools/make_corpus.sh DIR                                text, from Debian packages\n"
    "  minke-train tokenizer --corpus DIR --out models/nano    its tokenizer\n"
    "  minke-train run --model models/nano --corpus DIR --run RUN\n"
    "                                                          train; Ctrl-C keeps the state\n"
    "  minke-train run --run RUN --resume                      continue\n"
    "  minke-train evaluate --model RUN                        what it can do so far\n"
    "  minke-train export --run RUN --out DIR                  a model for minke\n"
    "  minke-train compare --model DIR                         minke's answers against its own\n"
    "  minke-train ablate --plan FILE --trunk RUN ...          variants of it, compared\n"
    "\n"
    "Config, seed and corpus determine a run. docs/nano.md tells the recipe.\n";

CLI::Option* Text(CLI::App& command, const char* name, std::string* value, const char* type,
                  const char* help) {
  return command.add_option(name, *value, help)->type_name(type);
}

void AddTokenizer(CLI::App& app, TokenizerFlags* flags) {
  CLI::App* command = app.add_subcommand("tokenizer", "Train a tokenizer on a corpus");
  Text(*command, "--corpus", &flags->corpus, "DIR", "Folder that `corpus` has made")->required();
  Text(*command, "--out", &flags->out, "DIR", "Gets tokenizer.json and tokenizer_config.json")
      ->required();
  command->add_option("--vocab-size", flags->vocab_size, "Tokens, control tokens included")
      ->check(CLI::Range(int64_t{512}, kTokensMax))
      ->type_name("N");
}

void AddCorpus(CLI::App& app, CorpusFlags* flags) {
  CLI::App* command = app.add_subcommand(
      "corpus", "Clean unpacked Debian packages to a corpus (called by tools/make_corpus.sh)");
  CLI::Option* list =
      command->add_flag("--list", flags->list, "Name the packages, one a line, and do nothing");
  CLI::Option* packages =
      Text(*command, "--packages", &flags->packages, "DIR", "Folder of unpacked packages");
  CLI::Option* out = Text(*command, "--out", &flags->out, "DIR", "Gets the text and its manifest");
  packages->needs(out)->excludes(list);
  out->needs(packages)->excludes(list);
  command->require_option(1, 2);
}

void AddRun(CLI::App& app, RunFlags* flags) {
  CLI::App* command = app.add_subcommand("run", "Train, or continue a training run");
  Text(*command, "--run", &flags->run, "DIR", "The run's folder: state, log, its own inputs")
      ->required();
  Text(*command, "-m,--model", &flags->model, "DIR",
       "Folder with config.json, tokenizer.json, tokenizer_config.json");
  Text(*command, "--config", &flags->config, "FILE",
       "The stages (default: training.json of that folder)");
  Text(*command, "--corpus", &flags->corpus, "DIR", "Folder that `corpus` has made");
  command->add_option("--seed", flags->seed, "Instead of the config's")
      ->check(CLI::Range(int64_t{0}, kSeedMax))
      ->type_name("N");
  command
      ->add_option("--replicas", flags->replicas,
                   "Threads, each with its share of a step's rows; part of what determines the "
                   "run (default: one per processor)")
      ->check(CLI::Range(1, 64))
      ->type_name("N");
  CLI::Option* const init =
      Text(*command, "--init", &flags->init, "DIR", "Start from the weights of an exported model");
  CLI::Option* const branch =
      Text(*command, "--branch-from", &flags->branch, "FILE",
           "Start from a state of another run, e.g. its stage-2.state, with this run's stages")
          ->excludes(init);
  CLI::Option* const stage =
      Text(*command, "--stage", &flags->stage, "NAME", "Start with this stage of the config");
  // A run that goes on has its weights and its place.
  for (CLI::Option* const option :
       {command->add_flag("--resume", flags->resume, "Continue the run in the folder"),
        command->add_flag("--resume-previous", flags->resume_previous,
                          "Continue from the state before the last one")}) {
    option->excludes(init)->excludes(branch)->excludes(stage);
  }
  command->add_flag("--accept-changes", flags->accept_changes,
                    "Continue although config, corpus or replicas differ");
  command->add_flag("--allow-slow-blas", flags->allow_slow_blas,
                    "Train although matrix products are slow");
}

void AddExport(CLI::App& app, ExportFlags* flags) {
  CLI::App* command =
      app.add_subcommand("export", "Write a model in the released checkpoint format");
  Text(*command, "--run", &flags->run, "DIR", "A run's folder")->required();
  Text(*command, "--state", &flags->state, "NAME",
       "One of its states, e.g. stage-2.state (default: the last)");
  Text(*command, "--out", &flags->out, "DIR", "A new folder for the model")->required();
}

void AddWeights(CLI::App& command, WeightsFlags* flags) {
  Text(command, "-m,--model,--run", &flags->model, "DIR", "A run's folder or an exported model")
      ->required();
  Text(command, "--state", &flags->state, "NAME", "One of a run's states, e.g. stage-2.state");
  command.add_option("--attention", flags->attention, "Which compressed rows are seen")
      ->check(CLI::IsMember({"dense", "sparse", "sparse+pool"}))
      ->type_name("KIND")
      ->capture_default_str();
  command.add_option("--quantization", flags->quantization, "What is rounded as in the engine")
      ->check(CLI::IsMember({"none", "all"}))
      ->type_name("KIND")
      ->capture_default_str();
  command.add_flag("--mask-compressed", flags->mask, "Control: window rows alone");
  command.add_flag("--no-engram", flags->no_engram, "Control: leave the Engram out");
  command.add_flag("--replay", flags->replay, "The decoder sees a replayed window only");
}

void AddLengths(CLI::App& command, std::vector<int64_t>* lengths, const char* help) {
  command.add_option("--lengths", *lengths, help)
      ->delimiter(',')
      ->check(CLI::Range(int64_t{128}, kTokensMax))
      ->type_name("N,...");
}

template <typename Flags>
void AddCases(CLI::App& command, Flags* flags) {
  command.add_option("--cases", flags->cases, "Questions of each length")
      ->check(CLI::Range(int64_t{1}, kTokensMax))
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--seed", flags->seed, "Of the cases; never shared with training")
      ->check(CLI::Range(int64_t{0}, kSeedMax))
      ->type_name("N")
      ->capture_default_str();
  Text(command, "--filler", &flags->filler, "FILE",
       "Text between the facts (default: neutral sentences)");
}

void AddEvaluate(CLI::App& app, EvaluateFlags* flags) {
  CLI::App* command =
      app.add_subcommand("evaluate", "Recall by length, and bits per byte, as JSON");
  AddWeights(*command, &flags->weights);
  AddCases(*command, flags);
  AddLengths(*command, &flags->lengths, "Tokens of the prompts");
  command->add_flag("--unseen-keys", flags->held_out_keys, "Keys that training never has");
  Text(*command, "--text", &flags->text, "FILE", "Held-out text, for bits per byte");
  command->add_option("--text-tokens", flags->text_tokens, "Tokens of it")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 40))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--window", flags->window, "Tokens of context when reading it")
      ->check(CLI::Range(int64_t{16}, kTokensMax))
      ->type_name("N")
      ->capture_default_str();
}

void AddGreedy(CLI::App& app, GreedyFlags* flags) {
  CLI::App* command =
      app.add_subcommand("greedy", "Greedy answers to recall cases, a JSON object a line");
  AddWeights(*command, &flags->weights);
  AddCases(*command, flags);
  command->add_option("--length", flags->length, "Tokens of the prompts")
      ->check(CLI::Range(int64_t{128}, kTokensMax))
      ->type_name("N")
      ->capture_default_str();
}

void AddCompare(CLI::App& app, CompareFlags* flags) {
  CLI::App* command = app.add_subcommand(
      "compare",
      "Greedy answers of the trainer's model, rounded as stored, and of minke's engine; exit "
      "status 1 where they differ");
  Text(*command, "-m,--model", &flags->model, "DIR", "An exported model")->required();
  AddCases(*command, flags);
  AddLengths(*command, &flags->lengths, "Tokens of the prompts (default: 512)");
  command
      ->add_option("--numerics", flags->numerics,
                   "Of the engine; f32-cachequant has activations in float32, as the trainer has "
                   "them, and rounds what is cached")
      ->check(CLI::IsMember({"official", "f32-cachequant"}))
      ->type_name("MODE")
      ->capture_default_str();
  command->add_flag("--json", flags->json,
                    "For programs: results by length (cases, same, close_calls, different, tokens, "
                    "lead_change, replay_same), and differences");
  command->footer(
      "A token whose logit leads by less than 0.05 ends the comparison of an answer: a close "
      "call.\n"
      "lead change: how much the engine's lead differs from the trainer's, mean of equal tokens.\n"
      "replay same: answers of the engine that are the same after a replay prefill.");
}

void AddAblate(CLI::App& app, AblateFlags* flags) {
  CLI::App* command = app.add_subcommand(
      "ablate", "Train and evaluate variants of a model by a plan, and print tables of them");
  CLI::Option* results = Text(*command, "--results", &flags->results, "FILE",
                              "JSON lines; appended to, and what it has already is not run again");
  CLI::Option* tables =
      command->add_flag("--tables", flags->tables, "Print the results as tables, run nothing");
  tables->needs(results);
  CLI::Option* plan = Text(*command, "--plan", &flags->plan, "FILE",
                           "The rows, e.g. "
                           "models/nano/ablations.json");
  CLI::Option* trunk =
      Text(*command, "--trunk", &flags->trunk, "DIR", "The run whose states rows branch off");
  CLI::Option* corpus =
      Text(*command, "--corpus", &flags->corpus, "DIR", "Folder that `corpus` has made");
  CLI::Option* work =
      Text(*command, "--work", &flags->work, "DIR", "Gets a folder for each row and seed");
  for (CLI::Option* option : {trunk, corpus, work}) plan->needs(option);
  for (CLI::Option* option : {plan, trunk, corpus, work}) option->excludes(tables);
  Text(*command, "--row", &flags->row, "NAME", "One row of the plan (default: all)")->needs(plan);
  command->add_option("--seed", flags->seed, "One seed of the rows (default: all)")
      ->check(CLI::Range(int64_t{0}, kSeedMax))
      ->type_name("N");
  command->add_option("--replicas", flags->replicas, "Training threads of a row")
      ->check(CLI::Range(int64_t{1}, int64_t{64}))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--steps", flags->steps, "Of every stage, instead of the plan's lengths")
      ->check(CLI::Range(int64_t{1}, kTokensMax))
      ->type_name("N");
  command->add_option("--cases", flags->cases, "Questions of each length, instead of the plan's")
      ->check(CLI::Range(int64_t{1}, kTokensMax))
      ->type_name("N");
  AddLengths(*command, &flags->lengths, "Tokens of the prompts, instead of the plan's");
}

int UsageError(const std::string& message, const std::string& command) {
  const std::string help = command.empty() ? "--help" : command + " --help";
  std::cerr << "minke-train: error: " << message << " (minke-train " << help
            << " shows what there is)\n";
  return kExitUsage;
}

int RunCommandLine(int argc, const char* const* argv) {
  CLI::App app(kDescription, "minke-train");
  app.set_version_flag("--version", MINKE_VERSION);
  app.get_formatter()->column_width(kHelpColumnWidth);
  TokenizerFlags tokenizer;
  CorpusFlags corpus;
  RunFlags run;
  ExportFlags exported;
  EvaluateFlags evaluate;
  GreedyFlags greedy;
  CompareFlags compare;
  AblateFlags ablate;
  AddCorpus(app, &corpus);
  AddTokenizer(app, &tokenizer);
  AddRun(app, &run);
  AddExport(app, &exported);
  AddEvaluate(app, &evaluate);
  AddGreedy(app, &greedy);
  AddCompare(app, &compare);
  AddAblate(app, &ablate);
  app.require_subcommand(0, 1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are not errors; CLI11 reports them in the same way.
    if (error.get_exit_code() == 0) return app.exit(error);
    const std::vector<CLI::App*> used = app.get_subcommands();
    return UsageError(error.what(), used.empty() ? "" : used.front()->get_name());
  }
  try {
    if (app.got_subcommand("corpus")) return RunCorpus(corpus);
    if (app.got_subcommand("tokenizer")) return RunTokenizer(tokenizer);
    if (app.got_subcommand("run")) return RunTraining(run);
    if (app.got_subcommand("export")) return RunExport(exported);
    if (app.got_subcommand("evaluate")) return RunEvaluate(evaluate);
    if (app.got_subcommand("greedy")) return RunGreedy(greedy);
    if (app.got_subcommand("compare")) return RunCompare(compare);
    if (app.got_subcommand("ablate")) {
      if (ablate.tables || !ablate.plan.empty()) return RunAblate(ablate);
      return UsageError("ablate needs --plan FILE, or --tables --results FILE", "ablate");
    }
  } catch (const std::exception& error) {
    return PrintError(Error{ErrorCode::kInvalidInput, error.what()});
  }
  std::cerr << app.help();
  return kExitUsage;
}

}  // namespace

int PrintError(const Error& error) {
  std::cerr << "minke-train: error: " << error.message << '\n';
  return kExitFailure;
}

void PrintNote(const std::string& sentence) {
  std::cerr << "minke-train: note: " << sentence << '\n';
}

}  // namespace minke::train

int main(int argc, char** argv) {
  // A limit on the size of files is an error like a full disk, not the end of the program.
  std::signal(SIGXFSZ, SIG_IGN);
  return minke::train::RunCommandLine(argc, argv);
}
