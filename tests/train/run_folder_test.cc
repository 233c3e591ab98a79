// A new run's folder: nothing of somebody else's is written over, and one process works in it.
#include "train/run_folder.h"

#include <gtest/gtest.h>

#include <string>

#include "core/file.h"
#include "tests/support/temp_directory.h"
#include "train/stage_config.h"

namespace minke::train {
namespace {

using testing::TempDirectory;

std::string ErrorOf(const Status& status) {
  return status ? "" : status.error().message;
}

TEST(RunFolder, MayBeNewOrEmptyOrHaveOtherFiles) {
  const TempDirectory directory;
  EXPECT_EQ(ErrorOf(CheckNewRunFolder(directory.Path("none"))), "");
  EXPECT_EQ(ErrorOf(CheckNewRunFolder(directory.path())), "");
  directory.Write("output.txt", "what a shell has put there");
  EXPECT_EQ(ErrorOf(CheckNewRunFolder(directory.path())), "");
  EXPECT_FALSE(FileExists(directory.Path(kRunLockFile)));  // checking leaves nothing
}

TEST(RunFolder, OfAModelOrARunIsRefused) {
  for (const char* weights :
       {"model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json"}) {
    const TempDirectory directory;
    directory.Write(weights, "x");
    // Also where an earlier program has locked it.
    for (int i = 0; i < 2; ++i) {
      const std::string error = ErrorOf(CheckNewRunFolder(directory.path()));
      EXPECT_NE(error.find("holds a model already"), std::string::npos) << error;
      EXPECT_NE(error.find(weights), std::string::npos) << error;
      EXPECT_NE(error.find("new folder"), std::string::npos) << error;
      directory.Write(kRunLockFile, "");
    }
  }
  const TempDirectory directory;
  directory.Write(kRunFile, "{}");
  EXPECT_NE(ErrorOf(CheckNewRunFolder(directory.path())).find("--resume"), std::string::npos);
}

TEST(RunFolder, OthersFilesAreNotReplacedButThoseOfAFailedStartAre) {
  const TempDirectory directory;
  directory.Write("config.json", "{}");
  const std::string error = ErrorOf(CheckNewRunFolder(directory.path()));
  EXPECT_NE(error.find("config.json"), std::string::npos) << error;
  directory.Write(kRunLockFile, "");
  EXPECT_EQ(ErrorOf(CheckNewRunFolder(directory.path())), "");
}

TEST(RunFolder, TellsItsOriginAgain) {
  const TempDirectory directory;
  const Json older(JsonObject{{"steps", 7}});
  const Json begun_from(JsonObject{{"steps", 3}, {kBegunFrom, older}});
  const RunOrigin origin{"corpus", uint64_t{kTrainingSeedMax}, 2, begun_from};
  ASSERT_TRUE(WriteRunOrigin(directory.path(), origin));
  const Result<RunOrigin> read = ReadRunOrigin(directory.path());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->corpus, "corpus");
  EXPECT_EQ(read->seed, uint64_t{kTrainingSeedMax});
  EXPECT_EQ(read->replicas, 2);
  EXPECT_EQ(DumpJson(read->begun_from, JsonStyle::kCompact),
            R"({"steps":3,"begun_from":{"steps":7}})");
}

TEST(RunFolder, ADamagedOriginIsRefusedWithItsNameAndAWayOut) {
  std::string nested = "{}";
  for (int i = 0; i < kOriginsMax; ++i) nested = R"({"begun_from": )" + nested + "}";
  const auto with = [](const std::string& begun_from) {
    return R"({"corpus": "c", "seed": 1, "replicas": 1, "begun_from": )" + begun_from + "}";
  };
  for (const std::string& text :
       {std::string(), std::string("{\"corpus\": \"c\","), std::string(R"({"corpus": "c"})"),
        std::string(R"({"corpus": "c", "seed": -1, "replicas": 1})"),
        std::string(R"({"corpus": "c", "seed": 9007199254740993, "replicas": 1})"),
        std::string(R"({"corpus": "c", "seed": 1, "replicas": 0})"),
        std::string(R"({"corpus": "c", "seed": 1, "replicas": 65})"), with("[]"),
        with(R"({"steps": [1]})"), with(nested)}) {
    const TempDirectory directory;
    directory.Write(kRunFile, text);
    const Result<RunOrigin> read = ReadRunOrigin(directory.path());
    ASSERT_FALSE(read) << text;
    EXPECT_NE(read.error().message.find(kRunFile), std::string::npos) << read.error().message;
    EXPECT_NE(read.error().message.find("write it again"), std::string::npos);
  }
}

TEST(RunFolder, OneAtATimeHasTheLock) {
  const TempDirectory directory;
  {
    const Result<StorageFile> lock = LockRunFolder(directory.path());
    ASSERT_TRUE(lock) << lock.error().message;
    const Result<StorageFile> second = LockRunFolder(directory.path());
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().message.find(directory.path()), std::string::npos);
  }
  EXPECT_TRUE(LockRunFolder(directory.path()));
}

}  // namespace
}  // namespace minke::train
