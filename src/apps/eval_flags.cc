// The command line of minke eval.
#include <CLI/CLI.hpp>

#include "apps/eval_command.h"
#include "apps/flag_checks.h"

namespace minke {
namespace {

void AddRecall(CLI::App& eval, EvalRecallFlags* flags) {
  CLI::App* command = eval.add_subcommand(
      "recall", "Facts in long documents and questions about them: how many answers are exact");
  AddModelFlags(*command, &flags->model);
  command->add_option("--lengths", flags->lengths, "Tokens of a prompt, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(kEvalLengthMin, kEvalLengthMax))
      ->type_name("LIST")
      ->capture_default_str();
  command->add_option("--cases", flags->cases, "Questions of each length")
      ->check(CLI::Range(int64_t{1}, kEvalCasesMax))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--questions", flags->questions,
                   "Questions about each document, every one in a conversation of its own")
      ->check(CLI::Range(1, 16))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--seed", flags->seed,
                   "Which documents; none of them is ever a training row, whatever the seed")
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--require", flags->require,
                   "Exit with 1 unless so many digits are exact, as 1024=0.95,2048=0.85")
      ->type_name("LIST");
  command->add_option("--thinking", flags->thinking, "The header of the answers")
      ->check(CLI::IsMember({"on", "off"}))
      ->type_name("on|off")
      ->capture_default_str();
  command
      ->add_option("--filler", flags->filler,
                   "Plain text between the facts (default: eval_text.txt of the model, else "
                   "made-up sentences)")
      ->type_name("FILE")
      ->check(NotEmpty("the name of a file"));
  command->add_option("--prefill", flags->prefill, "exact, or replay: as elsewhere")
      ->check(CLI::IsMember({"exact", "replay"}))
      ->type_name("MODE")
      ->capture_default_str();
  command->add_flag("--json", flags->json,
                    "For programs: results, unseen_keys, unseen_phrasing and word_values, each a "
                    "list of length, distance, digits_exact, answer_exact, cases");
  command->add_option("--plot", flags->plot, "Draw digits_exact over the length")
      ->type_name("SVG")
      ->check(NotEmpty("the name of a file"));
  command->footer(
      "distance: tokens from the value to the end of the prompt, rounded up to a power of two.\n"
      "Besides the cases of --cases a quarter as many have keys that no training\n"
      "row has, as many ways of saying that none has, and as many words for values.\n"
      "Examples:\n"
      "  minke eval recall --model DIR --cases 400\n"
      "  minke eval recall --model DIR --lengths 512,1024 --seed 7 --json --plot recall.svg\n"
      "  minke eval recall --model DIR --lengths 1024 --require 1024=0.95 || echo too low");
}

void AddPerplexity(CLI::App& eval, EvalPerplexityFlags* flags) {
  CLI::App* command =
      eval.add_subcommand("perplexity", "How well the model foresees a text, token by token");
  AddModelFlags(*command, &flags->model);
  command->add_option("--file", flags->file, "The text, - for standard input")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--window", flags->window,
                   "Tokens that are read together, after a begin-of-sequence token; a longer text "
                   "is cut, and nothing is remembered across cuts")
      ->check(CLI::Range(int64_t{16}, kEvalLengthMax))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--json", flags->json,
                    "For programs: nats_per_token, bits_per_byte, perplexity, tokens, bytes, "
                    "windows, documents");
  command->footer(
      "A line with a form feed alone ends a document; the next one is read from its beginning.\n"
      "Examples:\n"
      "  minke eval perplexity --model DIR --file DIR/eval_text.txt\n"
      "  minke eval perplexity --model DIR --file book.txt --window 4096 --json");
}

}  // namespace

CLI::App* AddEval(CLI::App& app, EvalFlags* flags) {
  CLI::App* eval = app.add_subcommand("eval", "Measure a model: recall of facts, or perplexity");
  eval->require_subcommand(1);
  AddRecall(*eval, &flags->recall);
  AddPerplexity(*eval, &flags->perplexity);
  eval->footer("minke eval recall --help and minke eval perplexity --help have examples.");
  return eval;
}

}  // namespace minke
