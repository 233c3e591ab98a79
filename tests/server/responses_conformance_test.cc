// The rules of a Responses stream, one by one, over an answer with everything in it. A report on
// another server (serving.md 6.F 86, vllm#56285) found 11 of 26 such rules broken: ids that changed
// between the events of an item, custom tools that came as functions.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/server/agent_support.h"

namespace minke {
namespace {

using testing::At;
using testing::CanonicalJson;
using testing::GoldenIdsOfAnswer;
using testing::StreamEvents;
using testing::TextAt;
using testing::TypeOf;
using Kind = AnswerPiece::Kind;

std::string WriteResponse(bool stream, const std::vector<AnswerPiece>& pieces,
                          AnswerFinish finish) {
  const ApiRequest request =
      testing::MustRead(ReadResponsesRequest, testing::RequestWithAllTools(stream));
  const auto writer = NewResponsesWriter(request, GoldenIdsOfAnswer());
  return testing::WriteAnswer(writer.get(), pieces, finish);
}

class Vllm56285Conformance : public ::testing::Test {
 protected:
  Vllm56285Conformance()
      : events_(
            StreamEvents(WriteResponse(true, testing::SplitPieces(testing::PiecesOfAllKinds(), 7),
                                       AnswerFinish::kToolCalls))) {}

  std::vector<Json> OfType(std::string_view type) const {
    std::vector<Json> found;
    for (const Json& event : events_) {
      if (TypeOf(event) == type) found.push_back(event);
    }
    return found;
  }
  const Json& Completed() const { return At(events_.back(), "response"); }
  // The deltas of an item, joined.
  std::string Joined(std::string_view type, std::string_view item_id) const {
    std::string text;
    for (const Json& event : OfType(type)) {
      if (TextAt(event, "item_id") == item_id) text += TextAt(event, "delta");
    }
    return text;
  }
  Json DoneItem(size_t index) const {
    return At(OfType("response.output_item.done").at(index), "item");
  }

  std::vector<Json> events_;
};

TEST_F(Vllm56285Conformance, C01CreatedIsTheFirstEvent) {
  EXPECT_EQ(TypeOf(events_.at(0)), "response.created");
  EXPECT_EQ(OfType("response.created").size(), 1U);
}

TEST_F(Vllm56285Conformance, C02InProgressFollows) {
  EXPECT_EQ(TypeOf(events_.at(1)), "response.in_progress");
}

TEST_F(Vllm56285Conformance, C03CompletedIsTheLastEvent) {
  EXPECT_EQ(TypeOf(events_.back()), "response.completed");
  EXPECT_EQ(OfType("response.completed").size(), 1U);
}

TEST_F(Vllm56285Conformance, C04SequenceNumbersCountFromZero) {
  for (size_t i = 0; i < events_.size(); ++i) {
    EXPECT_EQ(At(events_[i], "sequence_number").as_int(), static_cast<int64_t>(i));
  }
}

TEST_F(Vllm56285Conformance, C05NothingFollowsTheLastEvent) {
  const std::string bytes =
      WriteResponse(true, testing::PiecesOfAllKinds(), AnswerFinish::kToolCalls);
  EXPECT_EQ(bytes.find("[DONE]"), std::string::npos);
  EXPECT_EQ(bytes.substr(bytes.size() - 3), "}\n\n");
}

TEST_F(Vllm56285Conformance, C06TheResponseKeepsItsId) {
  const std::string id = "resp_" + GoldenIdsOfAnswer().id;
  for (const Json& event : events_) {
    if (event.Find("response") == nullptr) continue;
    EXPECT_EQ(TextAt(event, "response.id"), id);
  }
}

TEST_F(Vllm56285Conformance, C07TheResponseBeginsEmpty) {
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(TextAt(events_[i], "response.status"), "in_progress");
    EXPECT_TRUE(At(events_[i], "response.output").as_array().empty());
    EXPECT_TRUE(At(events_[i], "response.usage").is_null());
  }
}

TEST_F(Vllm56285Conformance, C08TheResponseEndsCompleted) {
  EXPECT_EQ(TextAt(Completed(), "status"), "completed");
  EXPECT_TRUE(At(Completed(), "error").is_null());
  EXPECT_TRUE(At(Completed(), "incomplete_details").is_null());
}

TEST_F(Vllm56285Conformance, C09OutputIndicesCountFromZero) {
  const std::vector<Json> added = OfType("response.output_item.added");
  const std::vector<Json> done = OfType("response.output_item.done");
  ASSERT_EQ(added.size(), 5U);
  ASSERT_EQ(done.size(), 5U);
  for (size_t i = 0; i < added.size(); ++i) {
    EXPECT_EQ(At(added[i], "output_index").as_int(), static_cast<int64_t>(i));
    EXPECT_EQ(At(done[i], "output_index").as_int(), static_cast<int64_t>(i));
  }
}

TEST_F(Vllm56285Conformance, C10ItemsKeepTheirIdsFromAddedToDone) {
  const std::vector<Json> added = OfType("response.output_item.added");
  for (size_t i = 0; i < added.size(); ++i) {
    EXPECT_EQ(TextAt(added[i], "item.id"), TextAt(DoneItem(i), "id"));
    EXPECT_EQ(TextAt(added[i], "item.type"), TextAt(DoneItem(i), "type"));
  }
}

TEST_F(Vllm56285Conformance, C11EventsOfAnItemHaveItsIdAndIndex) {
  std::string id;
  int64_t index = -1;
  size_t inner = 0;
  for (const Json& event : events_) {
    if (TypeOf(event) == "response.output_item.added") {
      EXPECT_EQ(id, "") << "an item within another";
      id = TextAt(event, "item.id");
      index = At(event, "output_index").as_int();
    } else if (TypeOf(event) == "response.output_item.done") {
      id.clear();
    } else if (event.Find("item_id") != nullptr) {
      EXPECT_EQ(TextAt(event, "item_id"), id);
      EXPECT_EQ(At(event, "output_index").as_int(), index);
      ++inner;
    }
  }
  EXPECT_GT(inner, 20U);
}

TEST_F(Vllm56285Conformance, C12TheLastEventRepeatsTheItems) {
  const JsonArray& output = At(Completed(), "output").as_array();
  ASSERT_EQ(output.size(), 5U);
  for (size_t i = 0; i < output.size(); ++i) {
    EXPECT_EQ(CanonicalJson(output[i]), CanonicalJson(DoneItem(i)));
  }
}

TEST_F(Vllm56285Conformance, C13ItemIdsAreUniqueAndTellTheKind) {
  const std::vector<std::string> prefixes = {"rs_", "msg_", "fc_", "fc_", "ctc_"};
  std::set<std::string> ids;
  for (size_t i = 0; i < prefixes.size(); ++i) {
    const std::string id = TextAt(DoneItem(i), "id");
    EXPECT_TRUE(ids.insert(id).second) << id;
    EXPECT_EQ(id.substr(0, prefixes[i].size()), prefixes[i]);
  }
}

TEST_F(Vllm56285Conformance, C14AddedItemsAreEmptyAndInProgress) {
  for (const Json& event : OfType("response.output_item.added")) {
    const Json& item = At(event, "item");
    EXPECT_EQ(TextAt(item, "status"), "in_progress");
    for (const char* key : {"arguments", "input"}) {
      if (item.Find(key) == nullptr) continue;
      EXPECT_EQ(TextAt(item, key), "");
    }
    if (item.Find("content") == nullptr) continue;
    EXPECT_TRUE(At(item, "content").as_array().empty());
  }
}

TEST_F(Vllm56285Conformance, C15DoneItemsAreCompleted) {
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(TextAt(DoneItem(i), "status"), "completed");
}

TEST_F(Vllm56285Conformance, C16ReasoningIsReasoningTextWithoutSummary) {
  const std::string text = testing::PiecesOfAllKinds()[0].text;
  const Json item = DoneItem(0);
  EXPECT_EQ(TextAt(item, "type"), "reasoning");
  EXPECT_TRUE(At(item, "summary").as_array().empty());
  EXPECT_EQ(TextAt(item, "content.0.type"), "reasoning_text");
  EXPECT_EQ(TextAt(item, "content.0.text"), text);
  EXPECT_EQ(Joined("response.reasoning_text.delta", TextAt(item, "id")), text);
  EXPECT_EQ(TextAt(OfType("response.reasoning_text.done").at(0), "text"), text);
}

TEST_F(Vllm56285Conformance, C17TextIsOutputText) {
  const std::string text = testing::PiecesOfAllKinds()[1].text;
  const Json item = DoneItem(1);
  EXPECT_EQ(TextAt(item, "type"), "message");
  EXPECT_EQ(TextAt(item, "role"), "assistant");
  EXPECT_EQ(TextAt(item, "content.0.type"), "output_text");
  EXPECT_EQ(TextAt(item, "content.0.text"), text);
  EXPECT_TRUE(At(item, "content.0.annotations").as_array().empty());
  EXPECT_EQ(Joined("response.output_text.delta", TextAt(item, "id")), text);
  EXPECT_EQ(TextAt(OfType("response.output_text.done").at(0), "text"), text);
}

TEST_F(Vllm56285Conformance, C18PartsStandBetweenAddedAndDone) {
  // The place of each type within its item.
  const std::map<std::string, int> places = {
      {"response.output_item.added", 0},    {"response.content_part.added", 1},
      {"response.reasoning_text.delta", 2}, {"response.output_text.delta", 2},
      {"response.reasoning_text.done", 3},  {"response.output_text.done", 3},
      {"response.content_part.done", 4},    {"response.output_item.done", 5}};
  size_t parts = 0;
  int place = 5;
  for (const Json& event : events_) {
    if (event.Find("response") != nullptr) continue;
    if (TypeOf(event) == "response.output_item.added" &&
        TextAt(event, "item.type") != "reasoning" && TextAt(event, "item.type") != "message") {
      break;  // calls have no parts
    }
    const int next = places.at(TypeOf(event));
    EXPECT_TRUE(next == (place + 1) % 6 || (next == 2 && place == 2)) << TypeOf(event);
    place = next;
    parts += next == 1 ? 1 : 0;
    if (next < 1 || next > 4) continue;
    EXPECT_EQ(At(event, "content_index").as_int(), 0);
  }
  EXPECT_EQ(parts, 2U);
}

TEST_F(Vllm56285Conformance, C19PartsBeginEmptyAndEndWhole) {
  const std::vector<Json> added = OfType("response.content_part.added");
  const std::vector<Json> done = OfType("response.content_part.done");
  ASSERT_EQ(added.size(), 2U);
  ASSERT_EQ(done.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(TextAt(added[i], "part.text"), "");
    EXPECT_EQ(CanonicalJson(At(done[i], "part")), CanonicalJson(At(DoneItem(i), "content.0")));
  }
}

TEST_F(Vllm56285Conformance, C20ArgumentsAreTheirDeltasAndJson) {
  for (const size_t i : {2, 3}) {
    const Json item = DoneItem(i);
    EXPECT_EQ(TextAt(item, "type"), "function_call");
    const std::string arguments = TextAt(item, "arguments");
    EXPECT_EQ(Joined("response.function_call_arguments.delta", TextAt(item, "id")), arguments);
    EXPECT_EQ(TextAt(OfType("response.function_call_arguments.done").at(i - 2), "arguments"),
              arguments);
    EXPECT_TRUE(testing::MustParseJson(arguments).is_object());
  }
}

TEST_F(Vllm56285Conformance, C21CustomToolsGetPlainText) {
  const std::string input = "*** \"ä\"\n\\🎈\t🎈";
  const Json item = DoneItem(4);
  EXPECT_EQ(TextAt(item, "type"), "custom_tool_call");
  EXPECT_EQ(TextAt(item, "name"), "apply_patch");
  EXPECT_EQ(TextAt(item, "input"), input);
  EXPECT_EQ(item.Find("arguments"), nullptr);
  EXPECT_EQ(Joined("response.custom_tool_call_input.delta", TextAt(item, "id")), input);
  EXPECT_EQ(TextAt(OfType("response.custom_tool_call_input.done").at(0), "input"), input);
}

TEST_F(Vllm56285Conformance, C22NamespacesAreApart) {
  EXPECT_EQ(DoneItem(2).Find("namespace"), nullptr);
  EXPECT_EQ(TextAt(DoneItem(3), "namespace"), "team");
  EXPECT_EQ(TextAt(DoneItem(3), "name"), "ask");
  EXPECT_EQ(TextAt(OfType("response.output_item.added").at(3), "item.namespace"), "team");
}

TEST_F(Vllm56285Conformance, C23CallIdsAreKeptAndUnique) {
  std::set<std::string> ids;
  for (const size_t i : {2, 3, 4}) {
    const std::string id = TextAt(DoneItem(i), "call_id");
    EXPECT_EQ(id, "call_" + GoldenIdsOfAnswer().id + "_" + std::to_string(i - 2));
    EXPECT_EQ(TextAt(OfType("response.output_item.added").at(i), "item.call_id"), id);
    EXPECT_TRUE(ids.insert(id).second);
  }
}

TEST_F(Vllm56285Conformance, C24AMessageBeforeACallIsCommentary) {
  EXPECT_EQ(TextAt(DoneItem(1), "phase"), "commentary");
  const std::vector<Json> plain = StreamEvents(
      WriteResponse(true, {testing::TextPiece(Kind::kContent, "a")}, AnswerFinish::kStop));
  EXPECT_EQ(TextAt(plain.back(), "response.output.0.phase"), "final_answer");
}

TEST_F(Vllm56285Conformance, C25UsageIsWholeNumbers) {
  for (const char* path :
       {"usage.input_tokens", "usage.input_tokens_details.cached_tokens", "usage.output_tokens",
        "usage.output_tokens_details.reasoning_tokens", "usage.total_tokens"}) {
    EXPECT_TRUE(At(Completed(), path).is_integer()) << path;
  }
  EXPECT_EQ(At(Completed(), "usage.total_tokens").as_int(),
            At(Completed(), "usage.input_tokens").as_int() +
                At(Completed(), "usage.output_tokens").as_int());
}

TEST_F(Vllm56285Conformance, C26TheStreamEndsWithTheBodyOfAPlainAnswer) {
  const std::string body =
      WriteResponse(false, testing::PiecesOfAllKinds(), AnswerFinish::kToolCalls);
  EXPECT_EQ(CanonicalJson(testing::MustParseJson(body)), CanonicalJson(Completed()));
}

TEST_F(Vllm56285Conformance, AnyCutOfTheAnswerGivesTheSameEnd) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const std::vector<Json> events = StreamEvents(WriteResponse(
        true, testing::SplitPieces(testing::PiecesOfAllKinds(), seed), AnswerFinish::kToolCalls));
    ASSERT_EQ(CanonicalJson(At(events.back(), "response")), CanonicalJson(Completed()).c_str());
  }
}

TEST_F(Vllm56285Conformance, OtherEndsAreTold) {
  const std::vector<AnswerPiece> pieces = {testing::TextPiece(Kind::kReasoning, "Hm")};
  const std::vector<Json> cut = StreamEvents(WriteResponse(true, pieces, AnswerFinish::kLength));
  EXPECT_EQ(TypeOf(cut.back()), "response.incomplete");
  EXPECT_EQ(TextAt(cut.back(), "response.incomplete_details.reason"), "max_output_tokens");
  EXPECT_EQ(TextAt(cut.back(), "response.output.0.status"), "incomplete");
  const std::vector<Json> failed =
      StreamEvents(WriteResponse(true, pieces, AnswerFinish::kOverloaded));
  EXPECT_EQ(TypeOf(failed.back()), "response.failed");
  EXPECT_EQ(TextAt(failed.back(), "response.status"), "failed");
}

}  // namespace
}  // namespace minke
