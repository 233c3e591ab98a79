// The command line: every flag, its limits and its help; those about the cache are in
// cache_flags.cc. The one other place that includes CLI11.
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "apps/bench_command.h"
#include "apps/cache_command.h"
#include "apps/commands.h"
#include "apps/common.h"
#include "apps/cost_command.h"
#include "apps/eval_command.h"
#include "apps/flag_checks.h"
#include "apps/serve_command.h"
#include "apps/terminal.h"

namespace minke {
namespace {

constexpr size_t kHelpColumnWidth = 30;  // columns before the descriptions
constexpr size_t kHelpTextWidth = 66;    // columns of the descriptions, after which they wrap

// Help for reading: descriptions wrapped, and of the checks only what a person has to type.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kHelpColumnWidth); }

  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text;
    const std::string type = option->get_type_name();  // "N:INT in [0 - 20]"
    if (option->get_type_size() != 0) text += " " + type.substr(0, type.find(':'));
    if (!option->get_default_str().empty()) text += " (" + option->get_default_str() + ")";
    if (option->get_required()) text += " (required)";
    return text;
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::istringstream words(option->get_description());
    std::string text;
    size_t column = 0;
    for (std::string word; words >> word;) {
      const bool fits = column + 1 + word.size() <= kHelpTextWidth;
      if (column > 0) text += fits ? ' ' : '\n';
      column = column > 0 && fits ? column + 1 + word.size() : word.size();
      text += word;
    }
    return text;
  }
};

void AddMaxTokens(CLI::App& command, int64_t* max_tokens, const char* help) {
  command.add_option("-n,--max-tokens", *max_tokens, help)
      ->check(CLI::Range(int64_t{0}, kTokensMax))
      ->type_name("N");
}

void AddSamplingFlags(CLI::App& command, SamplingOptions* sampling, std::optional<uint64_t>* seed) {
  const auto number = [&](const char* name, double* value, double low, double high,
                          const char* help) {
    command.add_option(name, *value, help)
        ->check(NumberIn(low, high))
        ->type_name("X")
        ->capture_default_str();
  };
  number("--temperature", &sampling->temperature, 0, 100, "0 always takes the best token");
  command.add_option("--top-k", sampling->top_k, "Only the N best tokens; 0: all")
      ->check(CLI::Range(int64_t{0}, kTokensMax))
      ->type_name("N")
      ->capture_default_str();
  number("--top-p", &sampling->top_p, 1e-9, 1, "Only the best tokens that hold this probability");
  number("--min-p", &sampling->min_p, 0, 1, "Only tokens with this share of the best one's");
  number("--repetition-penalty", &sampling->repetition_penalty, 1e-3, 100,
         "Above 1: tokens of prompt and answer become less likely");
  number("--presence-penalty", &sampling->presence_penalty, -2, 2,
         "Taken from the logit of every token of the answer");
  number("--frequency-penalty", &sampling->frequency_penalty, -2, 2,
         "The same, for each time that it occurred");
  command
      .add_option("--seed", *seed,
                  "The same seed gives the same answer (default: chosen and reported)")
      ->type_name("N");
}

void AddChatFormatFlags(CLI::App& command, std::string* system, std::string* thinking,
                        std::string* effort) {
  if (system != nullptr) {
    command.add_option("--system", *system, "What the system message says")->type_name("TEXT");
  }
  command
      .add_option("--thinking", *thinking,
                  "Whether the model thinks before it answers (default: on, or what the messages "
                  "file says)")
      ->check(CLI::IsMember({"on", "off"}))
      ->type_name("on|off");
  command
      .add_option("--effort", *effort,
                  "How thoroughly it thinks: 1 to 100, low, high or max (default: high)")
      ->type_name("EFFORT");
}

CLI::Option* AddDocument(CLI::App& command, std::string* document, const char* help) {
  return command.add_option("--document", *document, help)
      ->check(NotEmpty("the name of a file"))
      ->type_name("FILE");
}

void AddPromptFlags(CLI::App& command, PromptFlags* flags) {
  CLI::Option* prompt =
      command.add_option("-p,--prompt", flags->prompt, "A question")->type_name("TEXT");
  command
      .add_option("--messages", flags->messages,
                  "A JSON file, - for standard input: an array of messages, or an object with "
                  "messages, tools, thinking_mode, reasoning_effort, response_format")
      ->type_name("FILE")
      ->excludes(prompt);
  CLI::Option* document = AddDocument(command, &flags->document,
                                      "A text that the question is about, put before it; - for "
                                      "standard input")
                              ->needs(prompt);
  command
      .add_flag("--raw", flags->raw, "The prompt is a text to continue, not a question to answer")
      ->needs(prompt)
      ->excludes(document);
  AddChatFormatFlags(command, &flags->system, &flags->thinking, &flags->effort);
}

// What is wrong with the flags of a prompt, or nothing.
std::string PromptProblem(const PromptFlags& flags, const char* command) {
  if (!flags.prompt.has_value() && !flags.messages.has_value()) {
    return std::string(command) + " needs --prompt TEXT or --messages FILE";
  }
  if (flags.messages.has_value() && !flags.system.empty()) {
    return "--system goes with --prompt; a messages file has its own";
  }
  return {};
}

CLI::App* AddGenerate(CLI::App& app, GenerateFlags* flags) {
  CLI::App* command = app.add_subcommand("generate", "Answer one prompt");
  AddPromptFlags(*command, flags);
  AddMaxTokens(*command, &flags->max_tokens,
               "Most tokens of the answer (default: 8192, with thinking 65536)");
  AddSamplingFlags(*command, &flags->sampling, &flags->seed);
  command->add_option("--stop", flags->stop, "End the answer before this text; may be repeated")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  command->add_option("--stop-token", flags->stop_tokens, "End the answer at this token id")
      ->allow_extra_args(false)
      ->type_name("ID");
  command->add_flag("--ignore-eos", flags->ignore_eos,
                    "Go on after the end-of-sequence token, up to --max-tokens");
  command->add_flag("--json", flags->json,
                    "Write one JSON object at the end: prompt_ids, ids, text, reasoning_content, "
                    "content, tool_calls, finish_reason, usage, timings, cache, seed");
  command
      ->add_option("--logprobs", flags->sampling.logprobs,
                   "With --json: the log probability of each token and of the N best")
      ->check(CLI::Range(0, kLogprobsMax))
      ->type_name("N");
  command->add_flag("--stats", flags->stats, "Say speed and memory on stderr");
  command
      ->add_option("--logits-out", flags->logits_out,
                   "Write the logits that each token was drawn from: float32 little-endian rows, "
                   "the first after the last prompt token")
      ->type_name("FILE");
  AddModelFlags(*command, &flags->model);
  AddContextFlags(*command, &flags->model);
  AddCacheFlags(*command, &flags->cache);
  command->footer(
      "Examples:\n"
      "  minke generate --prompt \"Why is the sky blue?\"\n"
      "  minke generate --document notes.txt --prompt \"What is the pin of the library safe?\"\n"
      "  minke generate --model DIR --messages chat.json --temperature 1 --top-p 0.95 --seed 7\n"
      "  minke generate --raw --prompt \"Once upon a time\" --max-tokens 50 --json\n"
      "  echo '[{\"role\":\"user\",\"content\":\"Hello\"}]' | minke generate --messages - --stats");
  return command;
}

void AddExplain(CLI::App& cache, ExplainFlags* flags) {
  CLI::App* command = cache.add_subcommand(
      "explain", "What of a prompt is known, and why not more, without running the model");
  AddPromptFlags(*command, flags);
  AddModelFlags(*command, &flags->model);
  AddCacheIdentityFlags(*command, &flags->cache);
  command->get_option("--kv-disk")->required();
  command->add_flag(
      "--json", flags->json,
      "For programs: prompt_tokens, cached_tokens, ram_tokens, disk_tokens, "
      "replayed_tokens, computed_tokens, tier, reason, first_difference, explanation, around");
  command->footer(
      "It may run beside a process that uses the directory.\n"
      "Example:\n"
      "  minke cache explain --model DIR --kv-disk cache --messages chat.json");
}

CLI::App* AddChat(CLI::App& app, ChatFlags* flags) {
  flags->sampling.temperature = 1.0;  // the model card's recommendation (architecture.md 11)
  flags->sampling.top_p = 0.95;
  CLI::App* command = app.add_subcommand(
      "chat", "Talk to the model in the terminal, or send it one question per line");
  CLI::Option* document =
      AddDocument(*command, &flags->document, "A text that the first question is about")
          ->check([](const std::string& path) {
            return path == "-" ? "standard input has the questions" : std::string();
          });
  AddChatFormatFlags(*command, &flags->system, &flags->thinking, &flags->effort);
  AddMaxTokens(*command, &flags->max_tokens,
               "Most tokens of an answer (default: as many as the context has room for)");
  AddSamplingFlags(*command, &flags->sampling, &flags->seed);
  AddModelFlags(*command, &flags->model);
  AddContextFlags(*command, &flags->model);
  command->add_flag("--stats", flags->stats, "Say speed and memory of every answer on stderr");
  AddCacheFlags(*command, &flags->cache);
  command
      ->add_flag("--resume", flags->resume,
                 "Go on with the last conversation of --kv-disk, without reading it again")
      ->needs("--kv-disk")
      ->excludes("--system")
      ->excludes(document)
      ->group("Cache");
  command->footer(
      "Ctrl-C stops the answer, /help lists the commands, Ctrl-D leaves.\n"
      "Examples:\n"
      "  minke chat --model DIR\n"
      "  minke chat --model DIR --system \"Answer in French.\" --thinking off\n"
      "  minke chat --document notes.txt --thinking off --temperature 0\n"
      "  minke chat --model DIR --kv-disk cache     and later: minke chat ... --resume\n"
      "  minke chat --seed 1 < questions.txt > answers.txt");
  return command;
}

CLI::App* AddTokenize(CLI::App& app, TokenizeFlags* flags) {
  CLI::App* command =
      app.add_subcommand("tokenize", "Text to token ids, messages to ids, ids to text");
  CLI::Option* text = command->add_option("text", flags->text, "The text (default: standard input)")
                          ->type_name("TEXT");
  CLI::Option* file =
      command->add_option("--file", flags->file, "A file of text, - for standard input")
          ->type_name("FILE")
          ->excludes(text);
  CLI::Option* chat =
      command->add_option("--chat", flags->chat, "A JSON file of messages, as generate takes it")
          ->type_name("FILE")
          ->excludes(text)
          ->excludes(file);
  command
      ->add_option("--decode", flags->decode,
                   "Ids to text: a list like \"0 480 421\", a file of ids, or - for standard "
                   "input")
      ->type_name("IDS")
      ->excludes(text)
      ->excludes(file)
      ->excludes(chat);
  AddChatFormatFlags(*command, nullptr, &flags->thinking, &flags->effort);
  command->add_flag("--json", flags->json, "Write ids, count, tokens and text as JSON");
  AddModelDir(*command, &flags->model_dir);
  command->footer(
      "Control tokens come from --chat alone: text that spells one is plain text.\n"
      "Examples:\n"
      "  minke tokenize \"Hello, world!\"\n"
      "  minke tokenize --file book.txt --json\n"
      "  minke tokenize --chat messages.json --thinking off\n"
      "  minke tokenize --decode \"0 480 421\"");
  return command;
}

CLI::App* AddInspect(CLI::App& app, InspectFlags* flags) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Layers, parameters, file and cache sizes of a model, without loading it");
  AddModelDir(*command, &flags->model_dir);
  command
      ->add_option("--config", flags->config,
                   "A config.json alone, for a checkpoint that is not here")
      ->type_name("FILE")
      ->excludes("--model");
  command->add_flag("--json", flags->json,
                    "For programs: tensors, tensor_bytes, parameters, kv_bytes_per_token, "
                    "window_state_bytes, layers and more");
  command->footer(
      "Examples:\n"
      "  minke inspect --model DIR\n"
      "  minke inspect --config config.json --json");
  return command;
}

CLI::App* AddLogits(CLI::App& app, LogitsFlags* flags) {
  CLI::App* command =
      app.add_subcommand("logits", "Token ids to one row of logits per position, for comparison");
  command
      ->add_option("--tokens", flags->tokens,
                   "Token ids: a JSON array, or separated by blanks; - for standard input")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--out", flags->out,
                   "Receives float32 little-endian rows of vocab_size values, one per position")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--chunk", flags->chunk,
                   "Tokens per call; 0: all in one. The results do not depend on it")
      ->check(CLI::Range(int64_t{0}, kTokensMax))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--decode-from", flags->decode_from, "One token per call from this position on")
      ->check(CLI::Range(int64_t{0}, kTokensMax))
      ->type_name("N");
  command
      ->add_option("--dump", flags->dump,
                   "Write every intermediate tensor to this folder: NAME.LAYER.f32 or .i32, and "
                   "index.json with names and shapes")
      ->type_name("DIR");
  command->add_flag("--json", flags->json, "Say what was written, as JSON on stdout");
  AddModelFlags(*command, &flags->model);
  command->footer(
      "Examples:\n"
      "  minke logits --model DIR --tokens ids.json --out logits.bin\n"
      "  minke logits --model DIR --tokens ids.txt --out l.bin --numerics f32 --dump tensors\n"
      "  echo 0 480 421 | minke logits --tokens - --out l.bin --decode-from 1");
  return command;
}

// The deepest command that was named, and its name: "cache gc", empty for minke itself.
const CLI::App& NamedCommand(const CLI::App& app, std::string* name) {
  const std::vector<CLI::App*> used = app.get_subcommands();
  if (used.empty()) return app;
  *name += (name->empty() ? "" : " ") + used.front()->get_name();
  return NamedCommand(*used.front(), name);
}

// CLI11 asks for what is missing before it says what is there and unknown.
std::string ProblemOf(const CLI::ParseError& error, const CLI::App& command) {
  const std::vector<std::string> unknown = command.remaining();
  if (dynamic_cast<const CLI::RequiredError*>(&error) == nullptr || unknown.empty()) {
    return error.what();
  }
  const std::string& word = unknown.front();
  const bool flag = word.starts_with('-') || command.get_require_subcommand_min() == 0;
  return (flag ? "The following argument was not expected: " : "There is no command ") +
         EscapeForTerminal(word);
}

// The command line in words that say where to look.
int UsageError(const std::string& message, const std::string& command) {
  const std::string help = command.empty() ? "minke --help" : "minke " + command + " --help";
  std::cerr << "minke: error: " << message << " (" << help << " shows what there is)\n";
  return kExitUsage;
}

struct AllFlags {
  GenerateFlags generate;
  ChatFlags chat;
  TokenizeFlags tokenize;
  InspectFlags inspect;
  LogitsFlags logits;
  SimulateFlags simulate;
  EvalFlags eval;
  CostFlags cost;
  ServeFlags serve;
  CacheCommandFlags cache;
  ExplainFlags explain;
  BenchFlags bench;
};

int Dispatch(const CLI::App& app, const AllFlags& flags) {
  if (app.got_subcommand("generate")) {
    const std::string problem = PromptProblem(flags.generate, "generate");
    if (!problem.empty()) return UsageError(problem, "generate");
    return RunGenerate(flags.generate);
  }
  if (app.got_subcommand("chat")) return RunChat(flags.chat);
  if (app.got_subcommand("tokenize")) return RunTokenize(flags.tokenize);
  if (app.got_subcommand("inspect")) return RunInspect(flags.inspect);
  if (app.got_subcommand("simulate")) return RunSimulate(flags.simulate);
  if (app.got_subcommand("cost")) return RunCost(flags.cost);
  if (app.got_subcommand("serve")) return RunServe(flags.serve);
  if (app.got_subcommand("bench")) return RunBench(*app.get_subcommand("bench"), flags.bench);
  if (app.got_subcommand("eval")) {
    const bool recall = app.get_subcommand("eval")->got_subcommand("recall");
    return recall ? RunEvalRecall(flags.eval.recall) : RunEvalPerplexity(flags.eval.perplexity);
  }
  if (app.got_subcommand("cache")) {
    if (!app.get_subcommand("cache")->got_subcommand("explain")) return RunCache(flags.cache);
    const std::string problem = PromptProblem(flags.explain, "cache explain");
    if (!problem.empty()) return UsageError(problem, "cache explain");
    return RunExplain(flags.explain);
  }
  return RunLogits(flags.logits);
}

// The exit status of a command that returned `status`, once its output is written.
int AfterOutput(int status) {
  std::cout.flush();
  const bool written = std::cout.good() && std::fflush(stdout) == 0;
  if (written || status != kExitSuccess) return status;
  return PrintError(Error{ErrorCode::kIo,
                          "Not all of the output could be written to standard "
                          "output; is its disk full, or its size limited?"});
}

}  // namespace

int RunCommandLine(int argc, const char* const* argv) {
  CLI::App app("Minke runs DeepSeek-V4.1-Flash checkpoints, with the numbers of the reference.",
               "minke");
  app.set_version_flag("--version", "minke " MINKE_VERSION);
  app.formatter(std::make_shared<HelpFormatter>());  // CLI11 keeps formatters so
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  minke chat --model DIR\n"
      "  minke serve\n"
      "  minke generate --prompt \"Why is the sky blue?\"\n"
      "  minke inspect --model DIR\n"
      "minke COMMAND --help tells more of each.");
  AllFlags flags;
  AddGenerate(app, &flags.generate);
  AddChat(app, &flags.chat);
  AddTokenize(app, &flags.tokenize);
  AddInspect(app, &flags.inspect);
  AddLogits(app, &flags.logits);
  AddSimulate(app, &flags.simulate);
  AddEval(app, &flags.eval);
  AddBench(app, &flags.bench);
  AddServe(app, &flags.serve);
  AddCost(app, &flags.cost);
  AddExplain(*AddCache(app, &flags.cache), &flags.explain);
  if (argc <= 1) {
    std::cout << app.help();
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are not errors; CLI11 reports them in the same way.
    if (error.get_exit_code() == 0) return AfterOutput(app.exit(error));
    std::string name;
    const CLI::App& command = NamedCommand(app, &name);
    return UsageError(ProblemOf(error, command), name);
  }
  return AfterOutput(Dispatch(app, flags));
}

}  // namespace minke
