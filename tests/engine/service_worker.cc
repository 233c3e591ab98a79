// Holds conversations until it is killed: service_worker MODEL_DIR DISK_DIR TRANSCRIPTS. Lines of
// its output: "R" once it is ready, "T conversation id id ..." for the answer of each turn,
// "F conversation turns" once so many turns of it are on disk.
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/service_traffic.h"

namespace minke::testing {
namespace {

class Talk {
 public:
  Talk(Service& service, Transcripts transcripts)
      : service_(service), transcripts_(std::move(transcripts)) {}

  void Ask(int conversation) {
    const std::vector<int32_t>& answers = transcripts_[static_cast<size_t>(conversation)];
    std::vector<int32_t> prompt =
        TurnPrompt(conversation, answers, answers.size() / kTurnAnswerTokens);
    const auto id = service_.Submit(TurnRequest(std::move(prompt)),
                                    std::make_unique<Sink>(*this, conversation));
    if (!id) std::fprintf(stderr, "service_worker: %s\n", id.error().message.c_str());
  }

  std::array<size_t, kConversations> Turns() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return turns_;
  }
  void Say(const std::string& line) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::puts(line.c_str());
    std::fflush(stdout);
  }

 private:
  class Sink : public AnswerSink {
   public:
    Sink(Talk& talk, int conversation) : talk_(talk), conversation_(conversation) {}
    AnswerVerdict OnToken(const ServiceToken& token) override {
      ids_.push_back(token.id);
      return AnswerVerdict::kGoOn;
    }
    void OnEnd(const Result<ServiceResult>& result) override {
      if (!result) {
        std::fprintf(stderr, "service_worker: %s\n", result.error().message.c_str());
        return;
      }
      talk_.Heard(conversation_, ids_);
    }

   private:
    Talk& talk_;
    int conversation_;
    std::vector<int32_t> ids_;
  };

  // On the engine's thread, as every Ask() after the first ones.
  void Heard(int conversation, const std::vector<int32_t>& ids) {
    std::vector<int32_t>& answers = transcripts_[static_cast<size_t>(conversation)];
    answers.insert(answers.end(), ids.begin(), ids.end());
    std::string line = "T " + std::to_string(conversation);
    for (const int32_t id : ids) line += " " + std::to_string(id);
    Say(line);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      turns_[static_cast<size_t>(conversation)] = answers.size() / kTurnAnswerTokens;
    }
    Ask(conversation);
  }

  Service& service_;
  Transcripts transcripts_;
  std::mutex mutex_;  // guards turns_ and the output
  std::array<size_t, kConversations> turns_ = {};
};

int Run(char** argv) {
  EngineOptions options;
  options.model_dir = argv[1];
  options.threads = 1;
  options.cache.disk_dir = argv[2];
  auto engine = Engine::Open(options);
  if (!engine) {
    std::fprintf(stderr, "service_worker: %s\n", engine.error().message.c_str());
    return 1;
  }
  ServiceOptions service_options;
  service_options.running_max = 4;
  service_options.step_rows_max = 64;
  auto service = Service::Start(std::move(engine).value(), service_options);
  if (!service) return 1;
  Talk talk(**service, ReadTranscripts(argv[3]));
  talk.Say("R");
  // All at once: afterwards the transcripts belong to the engine's thread.
  for (int i = 0; i < kConversations; ++i) talk.Ask(i);
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto turns = talk.Turns();
    (*service)->engine().FlushCache();
    for (int i = 0; i < kConversations; ++i) {
      const size_t count = turns[static_cast<size_t>(i)];
      if (count > 0) talk.Say("F " + std::to_string(i) + " " + std::to_string(count));
    }
  }
}

}  // namespace
}  // namespace minke::testing

int main(int argc, char** argv) {
  return argc == 4 ? minke::testing::Run(argv) : 2;
}
