#include "server/answer_task.h"

#include <algorithm>
#include <utility>

namespace minke {
namespace {

// What a client that was turned away should wait before it asks again.
constexpr double kRetryAfterSeconds = 5;

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::unique_ptr<AnswerWriter> NewWriter(const ApiRequest& request, const AnswerIds& ids) {
  switch (request.family) {
    case ApiFamily::kChat:
      return NewChatWriter(request, ids);
    case ApiFamily::kCompletions:
      return NewCompletionsWriter(request, ids);
    case ApiFamily::kResponses:
      return NewResponsesWriter(request, ids);
    case ApiFamily::kMessages:
      return NewMessagesWriter(request, ids);
  }
  return nullptr;
}

AnswerOutcome OutcomeOf(AnswerFinish finish) {
  switch (finish) {
    case AnswerFinish::kStop:
    case AnswerFinish::kStopString:
      return AnswerOutcome::kStop;
    case AnswerFinish::kLength:
      return AnswerOutcome::kLength;
    case AnswerFinish::kToolCalls:
      return AnswerOutcome::kToolCalls;
    case AnswerFinish::kOverloaded:
      return AnswerOutcome::kError;
  }
  return AnswerOutcome::kError;
}

// The functions as the model was shown them; with a named tool_choice that one alone.
std::vector<Json> CallableTools(const ApiRequest& request) {
  const ToolChoice& choice = request.chat.options.tool_choice;
  std::vector<Json> functions;
  for (const ChatMessage& message : request.chat.messages) {
    for (const Json& function : message.tools) {
      const Json* name = function.Find("name");
      const bool meant = choice.kind != ToolChoice::Kind::kNamed ||
                         (name != nullptr && name->is_string() && name->as_string() == choice.name);
      if (meant) functions.push_back(function);
    }
  }
  return functions;
}

AnswerParserOptions ParserOptions(const ApiRequest& request) {
  AnswerParserOptions options;
  options.stop_strings = request.stop_strings;
  if (request.family == ApiFamily::kCompletions) {
    options.continues_text = true;
    return options;
  }
  options.thinking = request.opens_reasoning();
  options.continues_text = !request.chat.messages.empty() && request.chat.messages.back().wo_eos;
  options.tools = request.tools;
  if (request.tools) DeclareTools(CallableTools(request), &options);
  options.in_calls = request.in_calls();
  options.json_mode = request.json_mode;
  return options;
}

// The engine's error as an answer. What the client can do is in the message.
ApiError ErrorOf(const Error& error) {
  ApiError api;
  api.message = error.message;
  switch (error.code) {
    case ErrorCode::kInvalidInput:
    case ErrorCode::kNotFound:
      break;
    case ErrorCode::kCancelled:
      // Whoever reads it has not gone away, so it is the server that goes.
      api.message = "The server is shutting down; send the request again.";
      [[fallthrough]];
    case ErrorCode::kLimit:
      api.status = 503;
      api.type = api.code = "overloaded_error";
      api.retry_after_seconds = kRetryAfterSeconds;
      break;
    case ErrorCode::kModel:
      api.status = 500;
      api.type = api.code = "internal_error";
      break;
    case ErrorCode::kIo:
      // The text may name files, which are no business of a client.
      api.status = 500;
      api.type = api.code = "internal_error";
      api.message = "The server could not complete the request; its log says why.";
      break;
  }
  return api;
}

}  // namespace

AnswerTask::AnswerTask(AnswerHost& host, AnswerJob job, std::shared_ptr<HttpExchange> exchange)
    : host_(host),
      job_(std::move(job)),
      exchange_(std::move(exchange)),
      writer_(NewWriter(job_.request, job_.ids)),
      parser_(ParserOptions(job_.request)),
      last_sent_(Clock::now()) {
  usage_.prompt_tokens = usage_.miss_tokens = job_.prompt_tokens;
}

AnswerTask::~AnswerTask() = default;

void AnswerTask::StartHead(int status) {
  HttpHeaders headers = job_.headers;
  if (job_.request.stream) {
    headers.emplace_back("content-type", "text/event-stream; charset=utf-8");
    headers.emplace_back("cache-control", "no-cache");
    headers.emplace_back("x-accel-buffering", "no");  // proxies hold streams back otherwise
  } else {
    headers.emplace_back("content-type", "application/json");
  }
  exchange_->Start(status, std::move(headers));
  head_sent_ = true;
}

void AnswerTask::Send(std::string bytes) {
  if (bytes.empty()) return;
  exchange_->Send(std::move(bytes));
  last_sent_ = Clock::now();
}

void AnswerTask::Begin() {
  const std::scoped_lock lock(mutex_);
  if (over_ || head_sent_ || !job_.request.stream) return;
  StartHead(200);
}

void AnswerTask::Tick(Clock::time_point now) {
  const std::scoped_lock lock(mutex_);
  if (over_ || job_.keep_alive_seconds <= 0) return;
  if (Seconds(now - last_sent_) < job_.keep_alive_seconds) return;
  // A JSON answer has to commit itself to 200 here: later errors stand in its body
  // (serving.md 1.7).
  if (!head_sent_) StartHead(200);
  Send(writer_->KeepAlive(job_.keep_alive_comments));
  last_sent_ = now;
  host_.OnKeepAlive();
}

void AnswerTask::OnStart(const CacheUse& use) {
  const std::scoped_lock lock(mutex_);
  started_at_ = Clock::now();
  prompt_done_ = use.cached_tokens;
  usage_.cache = use;
  usage_.hit_tokens = use.cached_tokens;
  usage_.miss_tokens = usage_.prompt_tokens - use.cached_tokens;
  const std::string bytes = writer_->Start(usage_);
  if (job_.request.stream && !head_sent_) StartHead(200);
  Send(bytes);
}

void AnswerTask::OnPrefill(int64_t done) {
  const std::scoped_lock lock(mutex_);
  prompt_done_ = done;
}

void AnswerTask::WritePieces() {
  std::string bytes;
  for (const AnswerPiece& piece : pieces_) {
    bytes += writer_->Piece(piece);
    if (job_.place.kept) recorder_.AddPiece(piece);
  }
  pieces_.clear();
  Send(std::move(bytes));
}

AnswerVerdict AnswerTask::OnToken(const ServiceToken& token) {
  const std::scoped_lock lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (usage_.completion_tokens == 0) {
    first_token_ = now;
  } else {
    host_.OnInterTokenSeconds(Seconds(now - last_token_));
  }
  last_token_ = now;
  ++usage_.completion_tokens;
  if (job_.place.kept) recorder_.AddToken(token.id);
  if (token.is_stop) return AnswerVerdict::kGoOn;
  const bool in_reasoning = parser_.in_reasoning();
  if (in_reasoning) ++usage_.reasoning_tokens;
  if (token.logprob != nullptr) {
    ApiLogprob logprob{std::string(token.bytes), token.logprob->logprob, {}};
    for (const TokenLogprob& one : token.alternatives) {
      logprob.alternatives.emplace_back(host_.TokenBytes(one.id), one.logprob);
    }
    writer_->Logprob(logprob, in_reasoning);
  }
  parser_.Push(token.bytes, token.is_control, &pieces_);
  WritePieces();
  return parser_.finished() ? AnswerVerdict::kEnough : AnswerVerdict::kGoOn;
}

AnswerEnd AnswerTask::EndOf(const ServiceResult& result, bool complete) {
  usage_.cache = result.cache;
  usage_.hit_tokens = result.cache.cached_tokens;
  usage_.miss_tokens = usage_.prompt_tokens - usage_.hit_tokens;
  usage_.completion_tokens = result.answer_tokens;
  usage_.queue_seconds = result.queue_seconds;
  usage_.prefill_seconds = result.prefill_seconds;
  usage_.decode_seconds = result.decode_seconds;
  host_.Price(&usage_);
  AnswerEnd end{.finish = AnswerFinish::kStop, .stop_string = {}, .usage = usage_};
  if (result.finish_reason == FinishReason::kLength && !complete) {
    end.finish = AnswerFinish::kLength;  // also where it cut a call short
  } else if (parser_.tool_calls() > 0) {
    end.finish = AnswerFinish::kToolCalls;
  } else if (!parser_.stop_string().empty()) {
    end.finish = AnswerFinish::kStopString;
    end.stop_string = parser_.stop_string();
  }
  return end;
}

void AnswerTask::CountWork() {
  CacheUse& cache = usage_.cache;
  usage_.prompt_tokens = prompt_done_;
  usage_.hit_tokens = cache.cached_tokens;
  usage_.miss_tokens = usage_.prompt_tokens - usage_.hit_tokens;
  cache.replayed_tokens = std::min(cache.replayed_tokens, usage_.miss_tokens);
  cache.computed_tokens = usage_.miss_tokens - cache.replayed_tokens;
  const Clock::time_point now = Clock::now();
  const bool wrote = usage_.completion_tokens > 0;
  usage_.queue_seconds = Seconds(started_at_.value_or(now) - job_.arrived);
  if (started_at_) usage_.prefill_seconds = Seconds((wrote ? first_token_ : now) - *started_at_);
  if (wrote) usage_.decode_seconds = Seconds(last_token_ - first_token_);
}

void AnswerTask::Fail(const ApiError& error) {
  if (head_sent_) {
    Send(writer_->Error(error));
    exchange_->Close();
    return;
  }
  Respond(error.status, ErrorBody(job_.request.family, error, job_.request_id),
          error.retry_after_seconds);
}

void AnswerTask::Respond(int status, std::string body, double retry_after_seconds) {
  HttpHeaders headers = job_.headers;
  headers.emplace_back("content-type", "application/json");
  if (retry_after_seconds > 0) {
    headers.emplace_back("retry-after", std::to_string(static_cast<int>(retry_after_seconds)));
  }
  exchange_->Respond(status, std::move(headers), std::move(body));
}

void AnswerTask::Refuse(const ApiError& error) {
  const std::scoped_lock lock(mutex_);
  over_ = true;
  Fail(error);
  CountWork();
  Report(AnswerOutcome::kError, error.message);
}

void AnswerTask::OnEnd(const Result<ServiceResult>& result) {
  const std::scoped_lock lock(mutex_);
  over_ = true;
  if (exchange_->gone()) {
    // What was computed is counted even if nobody reads it.
    if (result) {
      EndOf(*result, parser_.finished());
    } else {
      CountWork();
      host_.Price(&usage_);
    }
    Report(AnswerOutcome::kCancelled, {});
    return;
  }
  if (!result) {
    Fail(ErrorOf(result.error()));
    CountWork();
    Report(AnswerOutcome::kError, result.error().message);
    return;
  }
  const bool complete = parser_.finished();  // before the end of the input makes it so
  parser_.Finish(&pieces_);
  WritePieces();
  const AnswerEnd end = EndOf(*result, complete);
  std::string bytes = writer_->End(end);
  KeepTurn(end.finish);  // the client may come back as soon as it has read the end
  if (head_sent_) {
    Send(std::move(bytes));
    exchange_->Close();
  } else {
    Respond(200, std::move(bytes));
  }
  Report(OutcomeOf(end.finish), {});
}

// Only what the client got whole: not what a stop string cut, nor a call that the limit cut, and
// what the parser threw away stands in the ids alone.
void AnswerTask::KeepTurn(AnswerFinish finish) {
  const bool whole = finish == AnswerFinish::kStop || finish == AnswerFinish::kToolCalls ||
                     (finish == AnswerFinish::kLength && parser_.tool_calls() == 0);
  if (!job_.place.kept || !whole || parser_.recoveries().dropped > 0) return;
  host_.KeepTurn(job_.place, recorder_.Finish(job_.place, job_.request));
}

void AnswerTask::Report(AnswerOutcome outcome, std::string error) {
  AnswerRecord record;
  record.request_id = job_.request_id;
  record.family = job_.request.family;
  record.model = job_.ids.model;
  record.key_name = job_.key_name;
  record.conversation = job_.conversation;
  record.outcome = outcome;
  record.error = std::move(error);
  record.usage = usage_;
  record.recoveries = parser_.recoveries();
  record.gone = exchange_->gone();
  if (usage_.completion_tokens > 0) {
    record.first_token_seconds = Seconds(first_token_ - job_.arrived);
  }
  record.seconds = Seconds(Clock::now() - job_.arrived);
  host_.OnAnswerEnd(record);
}

namespace {

class TaskSink : public AnswerSink {
 public:
  explicit TaskSink(std::shared_ptr<AnswerTask> task) : task_(std::move(task)) {}
  void OnStart(const CacheUse& use) override { task_->OnStart(use); }
  void OnPrefill(int64_t done, int64_t /*total*/) override { task_->OnPrefill(done); }
  AnswerVerdict OnToken(const ServiceToken& token) override { return task_->OnToken(token); }
  void OnEnd(const Result<ServiceResult>& result) override { task_->OnEnd(result); }

 private:
  const std::shared_ptr<AnswerTask> task_;
};

}  // namespace

std::unique_ptr<AnswerSink> SinkOf(std::shared_ptr<AnswerTask> task) {
  return std::make_unique<TaskSink>(std::move(task));
}

}  // namespace minke
