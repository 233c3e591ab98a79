#include "bench/serve_load_clients.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "tests/serve/family_answers.h"
#include "text/control_tokens.h"
#include "text/tokenizer.h"

namespace minke::bench {
namespace {

using std::chrono::steady_clock;

constexpr std::string_view kLetterOrder =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
constexpr size_t kAnswerPeriod = 512;  // tokens of a timeline at which answers end
constexpr float kLetterLogit = 20.0f;
constexpr int64_t kConversations = 2000;  // that are asked again and again
constexpr int kRequestsOfAConnection = 10;
constexpr int kAbortLettersMax = 100;
constexpr double kBucketsOfASecond = 10'000;
constexpr size_t kBuckets = 600'000;

double Seconds(steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string QuestionOf(int64_t asked) {
  const int64_t conversation = asked * 7919 % kConversations;
  std::string question = fmt::format("Conversation {} asks", conversation);
  for (int64_t word = 0; word < 10 + conversation % 60; ++word) question += " more";
  return question;
}

// Before the letters of an event, and nowhere else in a stream that ends well.
std::string_view LetterMark(ApiFamily family) {
  switch (family) {
    case ApiFamily::kChat:
      return "\"content\":\"";
    case ApiFamily::kCompletions:
    case ApiFamily::kMessages:
      return "\"text\":\"";
    case ApiFamily::kResponses:
      return "\"delta\":\"";
  }
  return {};
}

std::string_view LettersOf(ApiFamily family, std::string_view line) {
  const std::string_view mark = LetterMark(family);
  const size_t at = line.find(mark);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + mark.size());
  return line.substr(0, line.find('"'));
}

// The last count of tokens that the line names; -1: none.
int64_t TokensSaid(std::string_view line) {
  for (const std::string_view name : {"\"completion_tokens\":", "\"output_tokens\":"}) {
    const size_t at = line.rfind(name);
    if (at == std::string_view::npos) continue;
    return std::atoll(std::string(line.substr(at + name.size(), 12)).c_str());
  }
  return -1;
}

}  // namespace

Result<std::unique_ptr<StepLetters>> StepLetters::Create(const std::string& model_dir) {
  const Tokenizer tokenizer = TRY(Tokenizer::Load(JoinPath(model_dir, "tokenizer.json")));
  std::unique_ptr<StepLetters> letters(new StepLetters());  // NOLINT: private constructor
  for (size_t i = 0; i < kLetters; ++i) {
    const std::vector<int32_t> ids = tokenizer.EncodePlain(kLetterOrder.substr(i, 1));
    if (ids.size() != 1) return minke::Fail("a letter is no token of " + model_dir);
    letters->ids_[i] = ids.front();
    letters->ends_[i] = LoadTime();
  }
  letters->eos_ = tokenizer.ControlToken(kEosToken).value_or(0);
  return letters;
}

ForwardFunction StepLetters::function(double row_seconds) {
  return [this, row_seconds](std::span<const ForwardSequence> sequences) -> Status {
    const size_t letter = step_++ % kLetters;
    int64_t rows = 0;
    for (const ForwardSequence& sequence : sequences) {
      rows += sequence.new_tokens;
      if (sequence.logits.empty()) continue;
      std::fill(sequence.logits.begin(), sequence.logits.end(), 0.0f);
      const bool last = sequence.history.size() % kAnswerPeriod == 0;
      sequence.logits[static_cast<size_t>(last ? eos_ : ids_[letter])] = kLetterLogit;
    }
    std::this_thread::sleep_for(
        std::chrono::duration<double>(row_seconds * static_cast<double>(rows)));
    ends_[letter] = steady_clock::now();
    return {};
  };
}

double StepLetters::SecondsSince(char letter, LoadTime now) const {
  const size_t at = kLetterOrder.find(letter);
  return at == std::string_view::npos ? -1 : Seconds(now - ends_[at].load());
}

void DelayCounts::Add(double seconds) {
  if (counts_.empty()) counts_.resize(kBuckets);
  const double bucket = std::clamp(seconds * kBucketsOfASecond, 0.0, double{kBuckets - 1});
  ++counts_[static_cast<size_t>(bucket)];
  ++count_;
  max_ = std::max(max_, seconds);
}

double DelayCounts::Quantile(double part) const {
  if (part >= 1) return max_;
  const auto wanted = static_cast<int64_t>(static_cast<double>(count_) * part);
  int64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen > wanted) return static_cast<double>(i + 1) / kBucketsOfASecond;
  }
  return max_;
}

LoadClients::LoadClients(uint16_t port, const LoadOptions& options, const StepLetters* letters)
    : port_(port),
      options_(options),
      letters_(letters),
      poll_(epoll_create1(EPOLL_CLOEXEC)),
      streams_(static_cast<size_t>(options.streams)) {}

LoadClients::~LoadClients() {
  CloseAll();
  close(poll_);
}

void LoadClients::Connect(Stream& stream) {
  stream.descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  setsockopt(stream.descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (connect(stream.descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
      0) {
    return Fail(stream, "the server took no connection");
  }
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u32 = static_cast<uint32_t>(&stream - streams_.data());
  epoll_ctl(poll_, EPOLL_CTL_ADD, stream.descriptor, &event);
  stream.requests_left = kRequestsOfAConnection;
}

void LoadClients::Ask(Stream& stream) {
  if (stream.descriptor < 0) Connect(stream);
  if (stream.descriptor < 0) return;
  const int64_t number = asked_++;
  stream.family = testing::kFamilies[static_cast<size_t>(number) % testing::kFamilies.size()];
  stream.letters = 0;
  stream.tokens_said = -1;
  stream.head_seen = false;
  stream.asked = steady_clock::now();
  const bool leaves = std::uniform_real_distribution<double>()(random_) < options_.abort_share;
  stream.abort_at = leaves ? 1 + static_cast<int64_t>(random_() % kAbortLettersMax) : -1;
  --stream.requests_left;
  const std::string body = testing::QuestionBody(stream.family, QuestionOf(number), true);
  const std::string request =
      fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                  testing::PathOf(stream.family), body.size(), body);
  const ssize_t sent = send(stream.descriptor, request.data(), request.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(request.size())) Fail(stream, "the request could not be sent");
}

void LoadClients::RunFor(double seconds) {
  constexpr int kEventsAtOnce = 256;
  constexpr int kWaitMilliseconds = 10;
  const LoadTime end = steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(
                                                 std::chrono::duration<double>(seconds));
  std::array<epoll_event, kEventsAtOnce> events = {};
  while (steady_clock::now() < end) {
    for (Stream& stream : streams_) {
      if (stream.descriptor < 0) Ask(stream);
    }
    const int count = epoll_wait(poll_, events.data(), kEventsAtOnce, kWaitMilliseconds);
    for (int i = 0; i < count; ++i) Read(streams_[events[static_cast<size_t>(i)].data.u32]);
  }
}

void LoadClients::Read(Stream& stream) {
  std::array<char, 32768> bytes;
  if (stream.descriptor < 0) return;
  const ssize_t count = recv(stream.descriptor, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return Fail(stream, "the connection ended in an answer");
  stream.rest.append(bytes.data(), static_cast<size_t>(count));
  const LoadTime now = steady_clock::now();
  size_t begin = 0;
  for (size_t end = stream.rest.find('\n'); end != std::string::npos;
       end = stream.rest.find('\n', begin)) {
    const std::string line = stream.rest.substr(begin, end - begin);
    begin = end + 1;
    if (!ReadLine(stream, line, now)) return;
  }
  stream.rest.erase(0, begin);
}

bool LoadClients::ReadLine(Stream& stream, std::string_view line, LoadTime now) {
  if (!stream.head_seen) {
    if (line == "\r") return true;  // of the answer before
    stream.head_seen = line.starts_with("HTTP/1.1 200");
    if (!stream.head_seen) Fail(stream, line);
    return stream.head_seen;
  }
  if (line == "0\r") {
    EndAnswer(stream);
    return false;
  }
  if (!line.starts_with("data: ")) return true;
  if (line.find("\"error\":{") != std::string_view::npos) {
    Fail(stream, line);
    return false;
  }
  stream.tokens_said = std::max(stream.tokens_said, TokensSaid(line));
  for (const char letter : LettersOf(stream.family, line)) {
    const double delay = letters_->SecondsSince(letter, now);
    if (delay < 0) continue;
    if (stream.letters == 0) counts_.first.Add(Seconds(now - stream.asked));
    ++stream.letters;
    ++counts_.events;
    counts_.delays.Add(delay);
  }
  if (stream.letters != stream.abort_at) return true;
  ++counts_.aborted;
  Close(stream, /*reset=*/random_() % 2 == 0);
  return false;
}

void LoadClients::EndAnswer(Stream& stream) {
  // The last token ends the answer and is no letter.
  if (stream.tokens_said != stream.letters + 1) {
    return Fail(stream, fmt::format("{} letters came of {} tokens in family {}", stream.letters,
                                    stream.tokens_said, static_cast<int>(stream.family)));
  }
  ++counts_.ended;
  stream.rest.clear();
  if (stream.requests_left <= 0) return Close(stream, /*reset=*/false);
  Ask(stream);
}

void LoadClients::Fail(Stream& stream, std::string_view what) {
  if (counts_.errors++ == 0) counts_.first_error = what;
  Close(stream, /*reset=*/false);
}

void LoadClients::Close(Stream& stream, bool reset) {
  if (stream.descriptor < 0) return;
  const linger at_once = {1, 0};
  if (reset) setsockopt(stream.descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(stream.descriptor);
  stream.descriptor = -1;
  stream.rest.clear();
}

void LoadClients::CloseAll() {
  for (Stream& stream : streams_) Close(stream, /*reset=*/false);
}

}  // namespace minke::bench
