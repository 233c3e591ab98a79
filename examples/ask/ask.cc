// Asks the model in a directory one question and streams the answer:
//   ask MODEL_DIR QUESTION
#include <minke/engine.h>

#include <iostream>
#include <string>

namespace {

constexpr int64_t kAnswerTokensMax = 64;

// The question as a JSON string: quotes, backslashes and control characters escaped.
std::string Quoted(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    json += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return json + "\"";
}

minke::Status Ask(const std::string& model_dir, const std::string& question) {
  minke::EngineOptions options;
  options.model_dir = model_dir;
  const auto engine = TRY(minke::Engine::Open(options));

  minke::ChatOptions chat;
  chat.thinking = false;
  const std::string messages = "[{\"role\": \"user\", \"content\": " + Quoted(question) + "}]";
  const minke::ChatPrompt prompt = TRY(engine->EncodeChat(messages, "the question", chat));

  minke::GenerationOptions generation;
  generation.max_tokens = kAnswerTokensMax;
  generation.on_token = [](const minke::TokenEvent& event) {
    std::cout << event.text << std::flush;
  };
  const auto session = engine->NewSession();
  TRY(engine->Generate(*session, prompt.ids, generation));
  std::cout << '\n';
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "Usage: ask MODEL_DIR QUESTION\n";
    return 2;
  }
  const minke::Status status = Ask(argv[1], argv[2]);
  if (!status) std::cerr << "ask: " << status.error().message << '\n';
  return status ? 0 : 1;
}
