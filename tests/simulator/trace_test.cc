// Both formats of traces, their limits, and what a broken or hostile file is told.
#include "simulator/trace.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/simulator/trace_support.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

using Blocks = std::vector<TraceBlock>;

Blocks BlocksOf(const Trace& trace, size_t request) {
  const auto blocks = trace.Blocks(trace.requests[request]);
  return {blocks.begin(), blocks.end()};
}

TEST(Trace, MooncakeLinesBecomeChains) {
  const Trace trace = ReadTrace(
      R"({"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 7, 9]})"
      "\r\n\n"
      R"({"timestamp": 1500, "input_length": 1024, "output_length": 6, "hash_ids": [0, 8]})");
  EXPECT_EQ(trace.block_tokens, 512);
  ASSERT_EQ(trace.requests.size(), 2U);
  EXPECT_EQ(trace.requests[1].arrival_us, 1'500'000);
  EXPECT_EQ(trace.requests[1].duration_us, 0);
  EXPECT_EQ(trace.input_tokens, 2124);
  EXPECT_EQ(trace.output_tokens, 11);
  EXPECT_EQ(BlocksOf(trace, 0), (Blocks{0, 1, 2}));
  EXPECT_EQ(BlocksOf(trace, 1), (Blocks{0, 3}));
  EXPECT_EQ(trace.parents, (Blocks{kNoTraceBlock, 0, 1, 0}));
  EXPECT_EQ(trace.next_uses,
            (std::vector<int32_t>{1, kNoNextUse, kNoNextUse, kNoNextUse, kNoNextUse}));
  EXPECT_EQ(trace.TokensOf(trace.requests[0], 2), 1024);
  EXPECT_EQ(trace.TokensOf(trace.requests[0], 3), 1100);  // the last block is not full
}

TEST(Trace, TheSameIdBehindAnotherPrefixIsAnotherBlock) {
  const Trace trace = ReadTrace(MooncakeText({{1, 5}, {2, 5}, {5}, {1, 1}}));
  EXPECT_EQ(trace.parents, (Blocks{kNoTraceBlock, 0, kNoTraceBlock, 2, kNoTraceBlock, 0}));
}

TEST(Trace, RequestsAreOrderedByTheirTimes) {
  const Trace trace =
      ReadTrace(MooncakeLine(20, {1}) + MooncakeLine(10, {2}) + MooncakeLine(20, {3}));
  EXPECT_EQ(BlocksOf(trace, 0), Blocks{1});
  EXPECT_EQ(BlocksOf(trace, 1), Blocks{0});  // before the other one of its time
  EXPECT_EQ(BlocksOf(trace, 2), Blocks{2});
}

// One session with a sub-agent, as one line or as many.
std::string Session(std::string_view agent_times) {
  const char* format = R"({{
  "id": "s", "block_size": 64, "tool_tokens": 10, "system_tokens": 20,
  "requests": [
    {{"t": 0.0, "type": "n", "in": 130, "out": 3, "hash_ids": [1, 2], "api_time": 2.5}},
    {{"t": 10.0, "type": "subagent", "agent_id": "a", "requests": [
      {{"t": {}, "type": "n", "in": 70, "out": 1, "hash_ids": [1], "api_time": 1}}]}},
    {{"t": 11.0, "type": "s", "in": 200, "out": 4, "hash_ids": [1, 2, 3], "think_time": 1}}
  ]
}})";
  return fmt::format(fmt::runtime(format), agent_times);
}

TEST(Trace, AgentSessionsHaveDurationsAndSubAgents) {
  const Trace trace = ReadTrace(Session("10.5"));
  EXPECT_EQ(trace.block_tokens, 64);
  ASSERT_EQ(trace.requests.size(), 3U);
  EXPECT_EQ(trace.requests[0].duration_us, 2'500'000);
  EXPECT_EQ(trace.requests[1].arrival_us, 10'500'000);
  EXPECT_EQ(trace.requests[2].duration_us, 0);  // a streamed one does not say it
  EXPECT_EQ(trace.timed_requests, 2);
  EXPECT_EQ(BlocksOf(trace, 1), Blocks{0});  // the session's own first block
  EXPECT_EQ(BlocksOf(trace, 2), (Blocks{0, 1, 2}));
  EXPECT_EQ(trace.input_tokens, 400);
}

TEST(Trace, ASubAgentMayCountFromItsOwnStart) {
  const Trace trace = ReadTrace(Session("0.25"));
  EXPECT_EQ(trace.requests[1].arrival_us, 10'250'000);
}

TEST(Trace, AFormattedSessionEqualsOneOnALine) {
  std::string line = Session("10.5");
  std::erase(line, '\n');
  const Trace a = ReadTrace(line);
  const Trace b = ReadTrace(Session("10.5"));
  EXPECT_EQ(a.uses, b.uses);
  EXPECT_EQ(a.input_tokens, b.input_tokens);
}

TEST(Trace, FilesShareNoBlocksAndMayBeginLater) {
  TraceReader reader;
  ASSERT_TRUE(reader.AddText(MooncakeText({{1}, {1}}), "a", 0).has_value());
  ASSERT_TRUE(reader.AddText(MooncakeText({{1}}), "b", 500'000).has_value());
  const Trace trace = std::move(*reader.Finish());
  EXPECT_EQ(BlocksOf(trace, 0), Blocks{0});
  EXPECT_EQ(BlocksOf(trace, 1), Blocks{1});
  EXPECT_EQ(BlocksOf(trace, 2), Blocks{0});
  EXPECT_EQ(trace.requests[1].arrival_us, 500'000);
}

TEST(Trace, FilesOfDifferentBlocksDoNotMix) {
  TraceReader reader;
  ASSERT_TRUE(reader.AddText(MooncakeText({{1}}), "a.jsonl", 0).has_value());
  const Status status = reader.AddText(Session("10.5"), "b.json", 0);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message,
            "b.json has blocks of 64 tokens, but a.jsonl has blocks of 512; simulate them one "
            "after the other.");
}

TEST(Trace, AnEmptySessionHasNothingToSimulate) {
  TraceReader reader;
  ASSERT_TRUE(reader.AddText(R"({"block_size": 64, "requests": []})", "a", 0).has_value());
  const auto trace = reader.Finish();
  ASSERT_FALSE(trace.has_value());
  EXPECT_EQ(trace.error().message, "The trace files have no request.");
}

TEST(Trace, MissingFilesAreNamed) {
  TempDirectory folder;
  TraceReader reader;
  const Status status = reader.AddFile(folder.Path("none.jsonl"), 0);
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("none.jsonl"), std::string::npos);
}

std::string Line(std::string_view members) {
  return MooncakeLine(0, {1}) + fmt::format("{{{}}}", members);
}

TEST(Trace, MooncakeErrorsNameLineAndField) {
  const std::string rest = R"("output_length": 1, "hash_ids": [1])";
  EXPECT_EQ(TraceError(Line(R"("timestamp": -1, "input_length": 9, )" + rest)),
            "t.json, line 2: \"timestamp\" must be 0 to 1e+09 seconds, but it is -0.001.");
  EXPECT_EQ(TraceError(Line(R"("timestamp": 0, "input_length": -9, )" + rest)),
            "t.json, line 2: \"input_length\" must be 0 to 4294967296 tokens, but it is -9.");
  EXPECT_EQ(TraceError(Line(R"("timestamp": 0, "input_length": 4294967297, )" + rest)),
            "t.json, line 2: \"input_length\" must be 0 to 4294967296 tokens, but it is "
            "4294967297.");
  EXPECT_EQ(TraceError(Line(R"("timestamp": 0, "input_length": 4294967296, )" + rest)), "");
  const std::string before = R"("timestamp": 0, "input_length": 9, "output_length": 1, )";
  EXPECT_EQ(TraceError(Line(before + R"("hash_ids": [1, 2])")),
            "t.json, line 2: \"hash_ids\" has 2 entries, but 9 input tokens make at most 1 blocks "
            "of 512.");
  EXPECT_EQ(TraceError(Line(before + R"("hash_ids": ["x"])")),
            "t.json, line 2: \"hash_ids\" entry 0 must be an integer of 0 to 9e18, found a value "
            "of type string.");
  for (const char* id : {"-1", "18446744073709551615"}) {
    EXPECT_EQ(TraceError(Line(before + fmt::format("\"hash_ids\": [{}]", id))),
              "t.json, line 2: \"hash_ids\" entry 0 must be an integer of 0 to 9e18, found one out "
              "of that range.");
  }
  const std::string missing = TraceError(Line(R"("timestamp": 0, "input_length": 9)"));
  EXPECT_NE(missing.find("line 2"), std::string::npos) << missing;
  EXPECT_NE(missing.find("output_length"), std::string::npos) << missing;
  const std::string cut = TraceError(MooncakeLine(0, {1}) + R"({"timestamp": 0, "inp)");
  EXPECT_EQ(cut.find("t.json, line 2"), 0U) << cut;
  EXPECT_EQ(TraceError(MooncakeLine(0, {1}) + "[1]"),
            "t.json, line 2: a request must be an object, found a value of type array.");
}

TEST(Trace, SessionErrorsNameTheRequest) {
  const auto session = [](std::string_view requests, std::string_view size) {
    return fmt::format(R"({{"block_size": {}, "requests": {}}})", size, requests);
  };
  EXPECT_EQ(TraceError(session("[]", "0")), "t.json: \"block_size\" must be at least 1 token.");
  EXPECT_EQ(TraceError(session("[]", "1048577")),
            "t.json: \"block_size\" must be 0 to 1048576 tokens, but it is 1048577.");
  EXPECT_EQ(TraceError(session("[3]", "64")),
            "t.json: \"requests\" entry 0 must be an object, found a value of type integer.");
  EXPECT_EQ(TraceError(session(R"([{"t": 1e10, "in": 1, "out": 1, "hash_ids": []}])", "64")),
            "t.json: \"requests\" entry 0: \"t\" must be 0 to 1e+09 seconds, but it is 1e+10.");
  EXPECT_EQ(TraceError(session(R"([{"t": 1, "requests": [{"t": 1, "in": "x", "out": 1}]}])", "64"))
                .find("t.json: \"requests\" entry 0: \"requests\" entry 0: \"in\""),
            0U);
  EXPECT_NE(TraceError(session("7", "64")).find("requests"), std::string::npos);
}

TEST(Trace, SubAgentsHaveADepth) {
  const auto nested = [](int depth) {
    std::string text = R"({"t": 0, "in": 64, "out": 0, "hash_ids": [1]})";
    for (int i = 0; i < depth; ++i) {
      text = R"({"t": 0, "requests": [)" + text + "]}";
    }
    return R"({"block_size": 64, "requests": [)" + text + "]}";
  };
  EXPECT_EQ(TraceError(nested(kTraceSubAgentDepthMax)), "");
  EXPECT_NE(TraceError(nested(kTraceSubAgentDepthMax + 1)).find("nested more than 16 deep"),
            std::string::npos);
}

TEST(Trace, OtherFilesAreNoTraces) {
  EXPECT_EQ(TraceError(" \n\n"), "t.json has no request: it is empty.");
  EXPECT_EQ(TraceError("{}"),
            "t.json is no trace: it has neither lines with \"hash_ids\" (Mooncake) nor an object "
            "with \"requests\" (agent session).");
  EXPECT_EQ(TraceError("[1, 2]"), TraceError("{}"));
  const std::string text = TraceError("a,b\n1,2\n");
  EXPECT_EQ(text.find("t.json is no trace: it has to be lines of JSON with \"hash_ids\""), 0U)
      << text;
  EXPECT_LT(text.size(), 400U);
}

}  // namespace
}  // namespace minke::testing
