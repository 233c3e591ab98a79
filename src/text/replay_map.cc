#include "text/replay_map.h"

#include <iterator>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

namespace minke {

namespace {

constexpr size_t kTurnOverheadBytes = 256;  // of a kept turn beside its texts
constexpr size_t kKeyOverheadBytes = 128;   // of a key, twice its bytes aside

// The tenant stands in every key, whole, so that no id finds another tenant's turn.
std::string KeyOf(std::string_view tenant, char kind, std::string_view id) {
  return fmt::format("{}:{}{}{}", tenant.size(), tenant, kind, id);
}

ChatMessage MessageOf(const WrittenTurn& turn) {
  ChatMessage message;
  message.role = Role::kAssistant;
  ContentPart part;
  part.text = turn.content;
  message.content.push_back(std::move(part));
  message.tool_calls = turn.tool_calls;
  return message;
}

// `after`: of the conversation up to the turn and with it.
std::string TextKey(std::string_view tenant, const ConversationDigest& after) {
  return KeyOf(tenant, 't', after.Text());
}

size_t BytesOf(const WrittenTurn& turn, const std::vector<std::string>& keys) {
  size_t bytes = kTurnOverheadBytes + turn.ids.size() * sizeof(int32_t) + turn.reasoning.size() +
                 turn.content.size();
  for (const ToolCall& call : turn.tool_calls) {
    bytes +=
        sizeof(ToolCall) + call.id.size() + call.name.size() + call.arguments.as_string().size();
  }
  for (const std::string& key : keys) bytes += 2 * key.size() + kKeyOverheadBytes;
  return bytes;
}

}  // namespace

void ReplayMap::Put(std::string_view tenant, const ConversationDigest& conversation,
                    const std::vector<std::string>& answer_ids, WrittenTurn turn) {
  ConversationDigest after = conversation;
  after.Add(MessageOf(turn));
  std::vector<std::string> keys = {TextKey(tenant, after)};
  for (ToolCall& call : turn.tool_calls) {
    if (!call.id.empty()) keys.push_back(KeyOf(tenant, 'c', call.id));
    if (!call.arguments.is_string()) {
      call.arguments = DumpJson(call.arguments, JsonStyle::kPython);
    }
  }
  for (const std::string& id : answer_ids) {
    if (!id.empty()) keys.push_back(KeyOf(tenant, 'a', id));
  }
  if (keys.size() > kReplayIdsMax) keys.resize(kReplayIdsMax);
  Insert(std::move(keys), std::move(turn));
}

void ReplayMap::Insert(std::vector<std::string> keys, WrittenTurn turn) {
  const size_t bytes = BytesOf(turn, keys);
  if (turn.ids.empty() || bytes > kReplayTurnBytesMax || bytes > bytes_max_) return;
  // What grew token by token has room for twice as much.
  turn.ids.shrink_to_fit();
  turn.reasoning.shrink_to_fit();
  turn.content.shrink_to_fit();
  // A turn of which a key is taken over may keep its other keys.
  turns_.push_front({std::move(turn), std::move(keys), bytes});
  for (const std::string& key : turns_.front().keys) by_key_[key] = turns_.begin();
  bytes_ += bytes;
  while (bytes_ > bytes_max_) Evict(std::prev(turns_.end()));
}

void ReplayMap::Evict(Turns::iterator turn) {
  for (const std::string& key : turn->keys) {
    const auto found = by_key_.find(key);
    if (found != by_key_.end() && found->second == turn) by_key_.erase(found);
  }
  bytes_ -= turn->bytes;
  turns_.erase(turn);
}

const WrittenTurn* ReplayMap::Find(const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  turns_.splice(turns_.begin(), turns_, found->second);
  return &found->second->turn;
}

const WrittenTurn* ReplayMap::FindFor(std::string_view tenant, const ConversationDigest& after,
                                      const ChatMessage& message) {
  std::vector<std::string> keys;
  for (const ToolCall& call : message.tool_calls) {
    if (!call.id.empty()) keys.push_back(KeyOf(tenant, 'c', call.id));
    if (keys.size() == 1) break;  // all calls of a turn find the same one
  }
  if (!message.turn_id.empty()) keys.push_back(KeyOf(tenant, 'a', message.turn_id));
  keys.push_back(TextKey(tenant, after));
  for (const std::string& key : keys) {
    const WrittenTurn* turn = Find(key);
    if (turn != nullptr && SaysTheSame(*turn, message)) return turn;
  }
  return nullptr;
}

ReplayReport ReplayMap::Apply(std::string_view tenant, ChatRequest* request) {
  ReplayReport report;
  for (std::vector<ChatMessage>* messages : {&request->context, &request->messages}) {
    for (ChatMessage& message : *messages) {
      report.conversation.Add(message);
      if (message.role != Role::kAssistant) continue;
      if (const WrittenTurn* turn = FindFor(tenant, report.conversation, message)) {
        message.exact_ids = turn->ids;
        message.exact_thinking = turn->thinking;
        ++report.found;
      } else if (!message.wo_eos) {  // that one is still to be written
        ++report.missing;
      }
    }
  }
  return report;
}

}  // namespace minke
