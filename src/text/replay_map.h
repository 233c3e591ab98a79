// What a model wrote for a turn, kept by the ids that its client sends back: a client that writes a
// call's JSON in its own way, or loses blank lines, would otherwise change the prompt's ids, and
// with them everything after is computed anew (serving.md 6.E 68, 7.7 item 8).
//
// A turn is found by the id of one of its calls, by the id of its answer, or, where the client
// sends no id, by its text together with the conversation before it. It is used only if the
// client's turn says the same as what was written; a turn that the client has edited is rendered as
// it stands.
//
// Not thread-safe: the owner has a mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "text/chat_encoding.h"

namespace minke {

inline constexpr size_t kReplayBytesDefault = size_t{64} << 20;  // memory of a map
inline constexpr size_t kReplayTurnBytesMax = size_t{8} << 20;   // of one turn; more is not kept
inline constexpr size_t kReplayIdsMax = 256;                     // ids that find one turn

// One answer as it was written and read.
struct WrittenTurn {
  // Between the header of the turn and its end-of-sequence token: WrittenIds().
  std::vector<int32_t> ids;
  bool thinking = false;  // the header opened the reasoning
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;  // arguments: the JSON text that the client got, as a string
};

struct TurnTokens {
  int32_t assistant = 0;  // `<｜Assistant｜>`
  int32_t think_end = 0;  // `</think>`
  int32_t eos = 0;
};

// WrittenTurn::ids from a prompt and what was drawn after it: what of the prompt follows the header
// (an opened block of calls, or the beginning of a continued answer) and what was drawn, but for
// the end-of-sequence token, which the encoder writes. Where the answer ended inside its reasoning
// and called nothing, the reasoning is closed. Empty if the prompt ends in no header.
std::vector<int32_t> WrittenIds(std::span<const int32_t> prompt, std::span<const int32_t> drawn,
                                const TurnTokens& tokens, bool thinking, bool has_calls);

// Stands for everything said so far. Of two conversations with one digest, one can be taken for the
// other; it is no defence against a client that wants that among its own turns.
class ConversationDigest {
 public:
  void Add(const ChatMessage& message);
  std::string Text() const;  // 16 bytes

 private:
  void Add(std::string_view bytes);

  uint64_t first_ = 0xCBF29CE484222325ULL;
  uint64_t second_ = 0x9E3779B97F4A7C15ULL;
};
// Of all messages of a request, those of its context first.
ConversationDigest DigestOf(const ChatRequest& request);

// What ReplayMap::Apply() made of a request.
struct ReplayReport {
  int64_t found = 0;                // assistant messages that got their exact ids
  int64_t missing = 0;              // those that did not
  ConversationDigest conversation;  // DigestOf() the request
};

class ReplayMap {
 public:
  explicit ReplayMap(size_t bytes_max = kReplayBytesDefault) : bytes_max_(bytes_max) {}
  ReplayMap(ReplayMap&&) = default;
  ReplayMap& operator=(ReplayMap&&) = default;

  // Keeps a turn that answered `conversation`. `answer_ids`: what identifies it beside its calls
  // (ids of the response, its message and its reasoning; the signature of its thinking). The least
  // recently used turns make room. Not to be called with a turn of which the client saw less than
  // the ids say: one that a stop string cut.
  void Put(std::string_view tenant, const ConversationDigest& conversation,
           const std::vector<std::string>& answer_ids, WrittenTurn turn);

  // Gives each assistant message that says what a model wrote here the exact ids of that.
  ReplayReport Apply(std::string_view tenant, ChatRequest* request);

  size_t turns() const { return turns_.size(); }
  size_t bytes() const { return bytes_; }  // of memory, at most bytes_max

  // The map as bytes (docs/formats/replay_map.md). `model`: what the ids belong to.
  std::string Save(std::string_view model) const;
  // Errors: bytes that are damaged, of another version or of another model. As many turns are kept
  // as bytes_max allows, the most recently used ones.
  static Result<ReplayMap> Load(std::string_view bytes, std::string_view model,
                                size_t bytes_max = kReplayBytesDefault);

 private:
  struct Kept {
    WrittenTurn turn;
    std::vector<std::string> keys;
    size_t bytes = 0;
  };
  using Turns = std::list<Kept>;  // most recently used first

  void Insert(std::vector<std::string> keys, WrittenTurn turn);
  void Evict(Turns::iterator turn);
  const WrittenTurn* Find(const std::string& key);
  // `after`: of the conversation up to the message and with it.
  const WrittenTurn* FindFor(std::string_view tenant, const ConversationDigest& after,
                             const ChatMessage& message);

  size_t bytes_max_;
  size_t bytes_ = 0;
  Turns turns_;
  std::unordered_map<std::string, Turns::iterator> by_key_;
};

// Whether a client's message says what was written: the same calls with the same arguments as JSON
// values, the same text and, where the client sent reasoning, the same reasoning, all but for white
// space at their ends.
bool SaysTheSame(const WrittenTurn& turn, const ChatMessage& message);

}  // namespace minke
