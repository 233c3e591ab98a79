// The state file: what is written comes back, and nothing of a damaged file does.
#include "train/training_state.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/temp_directory.h"

namespace minke::train {
namespace {

using testing::TempDirectory;

struct Content {
  std::vector<Parameter> parameters;
  std::vector<Moments> moments;
};

Content Make(double fill) {
  Content content;
  content.parameters = {
      {"a.weight", torch::full({3, 4}, fill), ParameterGroup::kMuon, false, false},
      {"b.weight", torch::full({5}, fill + 1), ParameterGroup::kAdam, false, false}};
  content.moments = {{torch::full({3, 4}, fill + 2), torch::Tensor(), 7},
                     {torch::full({5}, fill + 3), torch::full({5}, fill + 4), 8}};
  return content;
}

StateFile MakeState() {
  StateFile state;
  state.identity = {"config", "model", "tokenizer", "corpus", 11, 2};
  state.position = {42, 4242, 0.1 + 0.2, 1, {7, 700, 1.0 / 3}, 0.875};
  return state;
}

std::string Bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

bool Same(const Content& a, const Content& b) {
  bool same = true;
  for (size_t i = 0; i < a.parameters.size(); ++i) {
    same = same && a.parameters[i].value.equal(b.parameters[i].value) &&
           a.moments[i].first.equal(b.moments[i].first) && a.moments[i].steps == b.moments[i].steps;
  }
  return same && a.moments[1].second.equal(b.moments[1].second);
}

TEST(TrainingState, ComesBackExactly) {
  const TempDirectory directory;
  const std::string path = directory.Path("state");
  const Content written = Make(0.1);
  ASSERT_TRUE(WriteState(path, MakeState(), written.parameters, written.moments, OldState::kKeep));
  Content read = Make(5);
  const Result<StateFile> state = ReadState(path, read.parameters, read.moments);
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_TRUE(Same(written, read));
  EXPECT_EQ(state->position.step, 42);
  EXPECT_EQ(state->position.in_stage.tokens, 700);
  EXPECT_EQ(state->position.seconds, 0.1 + 0.2);
  EXPECT_EQ(state->position.in_stage.seconds, 1.0 / 3);
  EXPECT_EQ(state->position.gate_first, 0.875);
  EXPECT_TRUE(CheckIdentity(path, state->identity, MakeState().identity));
}

TEST(TrainingState, KeepsTheOneBefore) {
  const TempDirectory directory;
  const std::string path = directory.Path("state");
  for (const double fill : {1.0, 2.0, 3.0}) {
    const Content content = Make(fill);
    ASSERT_TRUE(
        WriteState(path, MakeState(), content.parameters, content.moments, OldState::kKeep));
  }
  Content last = Make(0);
  Content previous = Make(0);
  ASSERT_TRUE(ReadState(path, last.parameters, last.moments));
  ASSERT_TRUE(ReadState(PreviousStatePath(path), previous.parameters, previous.moments));
  EXPECT_TRUE(Same(last, Make(3)));
  EXPECT_TRUE(Same(previous, Make(2)));
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    files += entry.exists() ? 1 : 0;
  }
  EXPECT_EQ(files, 2u);  // no temporary name is left
}

TEST(TrainingState, ADamagedOneDoesNotReplaceTheOneBefore) {
  const TempDirectory directory;
  const std::string path = directory.Path("state");
  for (const double fill : {1.0, 2.0}) {
    const Content content = Make(fill);
    ASSERT_TRUE(
        WriteState(path, MakeState(), content.parameters, content.moments, OldState::kKeep));
  }
  directory.Write("state", "damaged");
  const Content third = Make(3);
  ASSERT_TRUE(WriteState(path, MakeState(), third.parameters, third.moments, OldState::kDrop));
  Content last = Make(0);
  Content previous = Make(0);
  ASSERT_TRUE(ReadState(path, last.parameters, last.moments));
  ASSERT_TRUE(ReadState(PreviousStatePath(path), previous.parameters, previous.moments));
  EXPECT_TRUE(Same(last, Make(3)));
  EXPECT_TRUE(Same(previous, Make(1)));
}

TEST(TrainingState, UnfinishedOnesAreRemovedAndCopiesStay) {
  using std::filesystem::perms;
  const TempDirectory directory;
  const std::string path = directory.Path("training.state");
  const Content content = Make(1);
  ASSERT_TRUE(WriteState(path, MakeState(), content.parameters, content.moments, OldState::kKeep));
  const std::string bytes = Bytes(path);
  for (const char* name : {"training.state.aB3xYz", "stage-2.state.abcdef",
                           "training.state.previous.linked", "training.state.previous.Abc123"}) {
    directory.Write(name, bytes.substr(0, bytes.size() / 2));
  }
  directory.Write("training.state.wHoLe1", bytes);
  std::filesystem::permissions(directory.Path("training.state.wHoLe1"),
                               perms::owner_read | perms::owner_write);
  const std::vector<std::string> kept = {"training.state", "training.state.backup",
                                         "training.state.previous", "notes.txt.aB3xYz"};
  for (const std::string& name : kept) directory.Write(name, bytes);
  ASSERT_TRUE(RemoveUnfinishedStates(directory.path()));
  for (const std::string& name : kept) {
    EXPECT_TRUE(std::filesystem::exists(directory.Path(name))) << name;
  }
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    files += entry.exists() ? 1 : 0;
  }
  EXPECT_EQ(files, kept.size());
}

TEST(TrainingState, RefusesEveryTruncation) {
  const TempDirectory directory;
  const std::string path = directory.Path("state");
  const Content content = Make(1);
  ASSERT_TRUE(WriteState(path, MakeState(), content.parameters, content.moments, OldState::kKeep));
  const std::string bytes = Bytes(path);
  Content read = Make(5);
  for (size_t size = 0; size < bytes.size(); size += size < 64 ? 1 : 7) {
    directory.Write("cut", std::string_view(bytes).substr(0, size));
    const Result<StateFile> state = ReadState(directory.Path("cut"), read.parameters, read.moments);
    ASSERT_FALSE(state) << size;
    EXPECT_NE(state.error().message.find(directory.Path("cut")), std::string::npos);
    EXPECT_NE(state.error().message.find("stage-N.state"), std::string::npos);
  }
  EXPECT_TRUE(Same(read, Make(5)));
  const Result<StateFile> other_way =
      ReadState(directory.Path("cut"), read.parameters, read.moments, "Go that way.");
  ASSERT_FALSE(other_way);
  EXPECT_TRUE(other_way.error().message.ends_with("Go that way.")) << other_way.error().message;
  directory.Write("cut", bytes + "x");
  EXPECT_FALSE(ReadState(directory.Path("cut"), read.parameters, read.moments));
}

TEST(TrainingState, RefusesEveryFlippedBit) {
  const TempDirectory directory;
  const std::string path = directory.Path("state");
  const Content content = Make(1);
  ASSERT_TRUE(WriteState(path, MakeState(), content.parameters, content.moments, OldState::kKeep));
  const std::string bytes = Bytes(path);
  Content read = Make(5);
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 13) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    directory.Write("flipped", damaged);
    EXPECT_FALSE(ReadState(directory.Path("flipped"), read.parameters, read.moments)) << bit;
  }
  EXPECT_TRUE(Same(read, Make(5)));
}

TEST(TrainingState, RefusesAnotherModelAndAnotherRun) {
  const TempDirectory directory;
  const std::string path = directory.Path("state");
  const Content content = Make(1);
  ASSERT_TRUE(WriteState(path, MakeState(), content.parameters, content.moments, OldState::kKeep));
  Content wider = Make(2);
  wider.parameters[1].value = torch::zeros({6});
  const Result<StateFile> state = ReadState(path, wider.parameters, wider.moments);
  ASSERT_FALSE(state);
  EXPECT_NE(state.error().message.find("b.weight with 6 values"), std::string::npos);
  RunIdentity other = MakeState().identity;
  other.corpus = "another";
  const Status checked = CheckIdentity(path, MakeState().identity, other);
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().message.find("another corpus"), std::string::npos)
      << checked.error().message;
}

TEST(TrainingState, IsNoPlainTextOrMissingFile) {
  const TempDirectory directory;
  directory.Write("text", "this is no state, but it is long enough to look like one: 0123456789");
  Content read = Make(5);
  EXPECT_FALSE(ReadState(directory.Path("text"), read.parameters, read.moments));
  const auto missing = ReadState(directory.Path("none"), read.parameters, read.moments);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace minke::train
