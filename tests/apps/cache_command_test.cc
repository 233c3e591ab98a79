// minke cache: its tables and JSON, over directories that minke itself has written.
#include "apps/cache_command.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/json.h"
#include "prefix_cache/record_format.h"
#include "tests/apps/process.h"

namespace minke {
namespace {

using testing::Finished;
using testing::RunMinke;
using testing::TemporaryFolder;

const std::string kMini = std::string(MINKE_SOURCE_DIR) + "/models/mini";
constexpr int64_t kMinuteUs = 60000000;

// ---- tables ----

CacheKey Numbered(uint8_t number) {
  CacheKey key;
  key.bytes[0] = number;
  return key;
}

ListedRecord Record(RecordKind kind, uint8_t key, uint8_t parent, int64_t end, int64_t used_us) {
  ListedRecord record;
  record.info.kind = kind;
  record.info.key = Numbered(key);
  record.info.parent = Numbered(parent);
  record.info.tenant = TenantKey("alice");
  record.info.end_position = end;
  record.info.payload_bytes = kind == RecordKind::kBlock ? 1000 : 10;
  record.last_used_us = used_us;
  return record;
}

// Root 100: block 1, then blocks 2 and 3; snapshot 11 after 1 and 12 after 2; and snapshot 13 of a
// chain without blocks.
std::vector<ListedRecord> SomeRecords() {
  return {Record(RecordKind::kBlock, 1, 100, 128, 50),
          Record(RecordKind::kBlock, 2, 1, 256, 40),
          Record(RecordKind::kSnapshot, 12, 2, 300, 30),
          Record(RecordKind::kBlock, 3, 1, 256, 70),
          Record(RecordKind::kSnapshot, 11, 1, 140, 20),
          Record(RecordKind::kSnapshot, 13, 100, 90, 10)};
}

TEST(CacheListing, ChainsHaveAllThatStandsOnTheirWay) {
  const auto records = SomeRecords();
  const auto chains = ChainsOf(records);
  ASSERT_EQ(chains.size(), 3u);
  EXPECT_EQ(chains[0].end, &records[3]);
  EXPECT_EQ(chains[0].tokens, 256);
  EXPECT_EQ(chains[0].blocks, 2);
  EXPECT_EQ(chains[0].snapshots, 1);
  EXPECT_EQ(chains[0].bytes, 2010);
  EXPECT_EQ(chains[0].last_used_us, 70);
  EXPECT_EQ(chains[1].end, &records[1]);
  EXPECT_EQ(chains[1].tokens, 300);
  EXPECT_EQ(chains[1].snapshots, 2);
  EXPECT_EQ(chains[2].end, &records[5]);
  EXPECT_EQ(chains[2].tokens, 90);
  EXPECT_EQ(chains[2].blocks, 0);
  EXPECT_EQ(chains[2].bytes, 10);
}

TEST(CacheListing, ARecordThatIsItsOwnParentEndsTheChain) {
  const std::vector<ListedRecord> ring = {Record(RecordKind::kBlock, 1, 2, 128, 1),
                                          Record(RecordKind::kBlock, 2, 1, 128, 1),
                                          Record(RecordKind::kBlock, 3, 2, 256, 1)};
  const auto chains = ChainsOf(ring);
  ASSERT_EQ(chains.size(), 1u);
  EXPECT_EQ(chains[0].blocks, 2);
}

TEST(CacheListing, SharesAreSumsByModelAndTenant) {
  auto records = SomeRecords();
  records[5].info.tenant = TenantKey("");
  const auto shares = SharesOf(records);
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0].tenant, TenantKey("alice"));
  EXPECT_EQ(shares[0].blocks, 3);
  EXPECT_EQ(shares[0].row_bytes, 3000);
  EXPECT_EQ(shares[0].snapshots, 2);
  EXPECT_EQ(shares[0].snapshot_bytes, 20);
  EXPECT_EQ(shares[0].last_used_us, 70);
  EXPECT_EQ(shares[1].snapshots, 1);
  const std::string text = SharesText(shares, kMinuteUs);
  EXPECT_NE(text.find("00000000  e226102b           384"), std::string::npos) << text;
  EXPECT_NE(text.find("00000000  -  "), std::string::npos) << text;
}

TEST(CacheListing, LongListsAreCutAndSaySo) {
  const auto records = SomeRecords();
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines(RecordsText(records, 0, 0)), 7);
  EXPECT_EQ(lines(RecordsText(records, 6, 0)), 7);
  const std::string cut = RecordsText(records, 2, 0);
  EXPECT_EQ(lines(cut), 4);
  EXPECT_NE(cut.find("... and 4 more records"), std::string::npos);
  EXPECT_NE(ChainsText(ChainsOf(records), 1, 0).find("... and 2 more chains"), std::string::npos);
}

TEST(CacheListing, TimesAreToldInTheirLargestUnit) {
  EXPECT_EQ(AgoText(0, 59999999), "59 s ago");
  EXPECT_EQ(AgoText(0, kMinuteUs), "1 min ago");
  EXPECT_EQ(AgoText(0, 60 * kMinuteUs - 1), "59 min ago");
  EXPECT_EQ(AgoText(0, 60 * kMinuteUs), "1 h ago");
  EXPECT_EQ(AgoText(0, 48 * 60 * kMinuteUs), "2 d ago");
  EXPECT_EQ(AgoText(kMinuteUs, 0), "0 s ago");  // a clock that was set back
}

// ---- the command ----

Json Cache(const std::vector<std::string>& arguments, int exit_code = 0) {
  std::vector<std::string> all = {"cache"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  all.emplace_back("--json");
  const Finished run = RunMinke(all);
  EXPECT_EQ(run.exit_code, exit_code) << run.err;
  Result<Json> json = ParseJson(run.out, "output");
  EXPECT_TRUE(json.has_value()) << run.out << run.err;
  return json.value_or(Json());
}

int64_t Number(const Json& json, const char* key) {
  const Json* value = json.Find(key);
  EXPECT_TRUE(value != nullptr && value->is_integer()) << key;
  return value != nullptr && value->is_integer() ? value->as_int() : -1;
}

// A prompt of a few blocks for alice, and a short one for nobody.
class CacheCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string question = "Add up";
    for (int i = 100; i < 200; ++i) question += " " + std::to_string(i);
    Generate(question, {"--tenant", "alice"});
    Generate("Hello", {});
  }
  void Generate(const std::string& prompt, const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"generate",  "--model", kMini,       "--prompt", prompt,
                                    "-n",        "4",       "--seed",    "1",        "--ignore-eos",
                                    "--kv-disk", directory, "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    const Finished run = RunMinke(all);
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }

  TemporaryFolder folder;
  std::string directory = folder.Path("cache");
};

TEST_F(CacheCommand, StatsAndListAgree) {
  const Json stats = Cache({"stats", "--kv-disk", directory});
  const int64_t blocks = Number(stats, "blocks");
  EXPECT_GE(blocks, 2);
  EXPECT_EQ(Number(stats, "tokens"), 128 * blocks);
  EXPECT_EQ(stats.Find("shares")->as_array().size(), 2u);
  EXPECT_GE(Number(stats, "disk_bytes"),
            Number(stats, "row_bytes") + Number(stats, "snapshot_bytes"));
  const Json records = Cache({"ls", "--records", "--limit", "0", "--kv-disk", directory});
  EXPECT_EQ(Number(records, "count"), blocks + Number(stats, "snapshots"));
  EXPECT_EQ(static_cast<int64_t>(records.Find("records")->as_array().size()),
            Number(records, "count"));
  const Json alice = Cache({"ls", "--tenant", "alice", "--kv-disk", directory});
  int64_t longest = 0;
  for (const Json& chain : alice.Find("chains")->as_array()) {
    longest = std::max(longest, Number(chain, "tokens"));
    EXPECT_EQ(chain.Find("tenant")->as_string(), KeyText(TenantKey("alice")));
  }
  EXPECT_GT(longest, 128 * blocks);  // up to the snapshot at the answer's end
  EXPECT_EQ(Number(Cache({"ls", "--tenant", "eve", "--kv-disk", directory}), "count"), 0);
  const Finished table = RunMinke({"cache", "stats", "--kv-disk", directory});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_NE(table.out.find("e226102b"), std::string::npos) << table.out;
}

TEST_F(CacheCommand, ExportsAndImports) {
  const std::string file = folder.Path("records.seg");
  const std::string other = folder.Path("other");
  const int64_t records =
      Number(Cache({"export", file, "--tenant", "alice", "--kv-disk", directory}), "records");
  EXPECT_GE(records, 3);
  const Json first = Cache({"import", file, "--kv-disk", other});
  EXPECT_EQ(Number(first, "records"), records);
  EXPECT_EQ(Number(first, "damaged"), 0);
  const Json second = Cache({"import", file, "--kv-disk", other});
  EXPECT_EQ(Number(second, "records"), 0);
  EXPECT_EQ(Number(second, "known"), records);
  EXPECT_EQ(Cache({"stats", "--kv-disk", other}).Find("shares")->as_array().size(), 1u);
}

TEST_F(CacheCommand, ForgetsATenantAndNobodyElse) {
  const int64_t before = Number(Cache({"ls", "--records", "--kv-disk", directory}), "count");
  const int64_t erased =
      Number(Cache({"forget", "--tenant", "alice", "--kv-disk", directory}), "records");
  EXPECT_GE(erased, 3);
  EXPECT_LT(erased, before);
  EXPECT_EQ(Number(Cache({"ls", "--records", "--kv-disk", directory}), "count"), before - erased);
  EXPECT_EQ(Number(Cache({"forget", "--tenant", "", "--kv-disk", directory}), "records"),
            before - erased);
  EXPECT_GE(Number(Cache({"gc", "--kv-disk", directory}), "freed_bytes"), 0);
}

TEST_F(CacheCommand, VerifyFindsDamageAndRemovesItOnce) {
  const Json sound = Cache({"verify", "--kv-disk", directory});
  EXPECT_EQ(Number(sound, "records_damaged"), 0);
  EXPECT_EQ(Number(sound, "segments_damaged"), 0);
  EXPECT_EQ(Number(sound, "orphan_bytes"), 0);
  const Json records = Cache({"ls", "--records", "--tenant", "alice", "--kv-disk", directory});
  const Json& first = records.Find("records")->as_array().front();
  const std::string path = directory + "/" + first.Find("segment")->as_string();
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  // In the payload, whose middle every record has behind its header.
  const int64_t at = Number(first, "offset") + 600 + Number(first, "bytes") / 2;
  file.seekg(at);
  const auto byte = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(byte);
  file.close();
  const Json found = Cache({"verify", "--kv-disk", directory}, 1);
  EXPECT_EQ(Number(found, "records_damaged"), 1);
  EXPECT_EQ(found.Find("problems")->as_array().size(), 1u);
  EXPECT_EQ(Number(found, "removed"), 0);
  EXPECT_EQ(Number(Cache({"verify", "--remove", "--kv-disk", directory}), "removed"), 1);
  EXPECT_EQ(Number(Cache({"verify", "--kv-disk", directory}), "records_damaged"), 0);
}

TEST_F(CacheCommand, VerifyRemovesAsManyRecordsOfACutSegmentAsItFound) {
  const std::string segment = directory + "/segment-00000001.mks";
  std::filesystem::resize_file(segment, std::filesystem::file_size(segment) * 2 / 3);
  const int64_t damaged = Number(Cache({"verify", "--kv-disk", directory}, 1), "records_damaged");
  EXPECT_GT(damaged, 0);
  EXPECT_EQ(Number(Cache({"verify", "--remove", "--kv-disk", directory}), "removed"), damaged);
  EXPECT_EQ(Number(Cache({"verify", "--kv-disk", directory}), "records_damaged"), 0);
}

TEST_F(CacheCommand, VerifyFailsForASegmentOfAnotherVersion) {
  std::fstream file(directory + "/segment-00000001.mks",
                    std::ios::in | std::ios::out | std::ios::binary);
  const SegmentHeaderBytes header =
      EncodeSegmentHeader({.version = kStoreFormatVersion + 1, .number = 1, .created_us = 1});
  file.write(reinterpret_cast<const char*>(header.data()), header.size());
  file.close();
  const Json found = Cache({"verify", "--kv-disk", directory}, 1);
  EXPECT_EQ(Number(found, "segments_damaged"), 1);
  EXPECT_EQ(Number(found, "records_damaged"), 0);
  EXPECT_EQ(found.Find("problems")->as_array().size(), 1u);
}

TEST_F(CacheCommand, GcTellsTheSameSizeAsStatsAndFreesOnce) {
  const int64_t before = Number(Cache({"stats", "--kv-disk", directory}), "disk_bytes");
  const Json first = Cache({"gc", "--kv-disk", directory});
  const int64_t after = Number(Cache({"stats", "--kv-disk", directory}), "disk_bytes");
  EXPECT_EQ(Number(first, "disk_bytes"), after);
  EXPECT_EQ(Number(first, "freed_bytes"), std::max<int64_t>(before - after, 0));
  EXPECT_EQ(Number(Cache({"gc", "--kv-disk", directory}), "freed_bytes"), 0);
}

TEST_F(CacheCommand, DirectoriesWithoutAnIndexAreExplained) {
  std::filesystem::remove(directory + "/index.sqlite");
  for (const char* action : {"stats", "ls", "verify"}) {
    const Finished run = RunMinke({"cache", action, "--kv-disk", directory});
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_NE(run.err.find("index.sqlite cannot be used: it is missing"), std::string::npos)
        << run.err;
    EXPECT_NE(run.err.find("minke cache gc --kv-disk " + directory), std::string::npos) << run.err;
  }
  Cache({"gc", "--kv-disk", directory});
  EXPECT_GE(Number(Cache({"stats", "--kv-disk", directory}), "blocks"), 2);
  const std::string empty = folder.Path("empty");
  std::filesystem::create_directory(empty);
  std::filesystem::permissions(empty, std::filesystem::perms::owner_all);
  EXPECT_EQ(Number(Cache({"stats", "--kv-disk", empty}), "blocks"), 0);
  EXPECT_EQ(Number(Cache({"ls", "--kv-disk", empty}), "count"), 0);
  EXPECT_TRUE(std::filesystem::is_empty(empty));
}

TEST_F(CacheCommand, WhatCannotBeIsSaid) {
  const Finished gone = RunMinke({"cache", "stats", "--kv-disk", folder.Path("nowhere")});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_NE(gone.err.find("There is no directory"), std::string::npos) << gone.err;
  EXPECT_FALSE(std::filesystem::exists(folder.Path("nowhere")));
  EXPECT_EQ(RunMinke({"cache", "gc", "--kv-disk", folder.Path("nowhere")}).exit_code, 1);
  EXPECT_FALSE(std::filesystem::exists(folder.Path("nowhere")));
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"cache"},
           {"cache", "stats"},
           {"cache", "forget", "--kv-disk", directory},
           {"cache", "gc", "--kv-disk", directory, "--kv-disk-budget", "much"},
           {"cache", "ls", "--kv-disk", directory, "--limit", "-1"},
           {"cache", "export", "--kv-disk", directory}}) {
    const Finished run = RunMinke(wrong);
    EXPECT_EQ(run.exit_code, 2) << wrong.back();
    EXPECT_TRUE(run.err.starts_with("minke: error: ")) << run.err;
  }
  const Finished import =
      RunMinke({"cache", "import", folder.Path("no.seg"), "--kv-disk", directory});
  EXPECT_EQ(import.exit_code, 1);
  EXPECT_NE(import.err.find("no.seg"), std::string::npos) << import.err;
  const std::string fresh = folder.Path("fresh");
  EXPECT_EQ(RunMinke({"cache", "import", folder.Path("no.seg"), "--kv-disk", fresh}).exit_code, 1);
  EXPECT_FALSE(std::filesystem::exists(fresh)) << "made for a file that is not there";
}

TEST(CacheImport, OfAWrongFileLeavesADirectoryAsItWas) {
  const TemporaryFolder folder;
  const std::string empty = folder.Path("empty");
  std::filesystem::create_directory(empty);
  std::filesystem::permissions(empty, std::filesystem::perms::owner_all);
  const SegmentHeaderBytes newer =
      EncodeSegmentHeader({.version = kStoreFormatVersion + 1, .number = 0, .created_us = 1});
  const struct {
    std::string file;
    const char* says;
  } cases[] = {
      {folder.Write("text.seg", "not an export"), "does not begin like an exported cache"},
      {folder.Write("short.seg", ""), "does not begin like an exported cache"},
      {folder.Write("newer.seg", {reinterpret_cast<const char*>(newer.data()), newer.size()}),
       "has format 2"},
      {folder.Path("empty"), "empty"}};
  for (const auto& wrong : cases) {
    for (const std::string& directory : {empty, folder.Path("fresh")}) {
      const Finished run = RunMinke({"cache", "import", wrong.file, "--kv-disk", directory});
      EXPECT_EQ(run.exit_code, 1) << wrong.file;
      EXPECT_NE(run.err.find(wrong.says), std::string::npos) << run.err;
    }
    EXPECT_TRUE(std::filesystem::is_empty(empty)) << wrong.file;
    EXPECT_FALSE(std::filesystem::exists(folder.Path("fresh"))) << wrong.file;
  }
}

TEST(CacheHelp, EveryActionTeaches) {
  for (const char* action : {"stats", "ls", "verify", "gc", "export", "import", "forget"}) {
    const Finished run = RunMinke({"cache", action, "--help"});
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_NE(run.out.find("--kv-disk DIR (required)"), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("--json"), std::string::npos);
  }
  const Finished help = RunMinke({"cache", "--help"});
  EXPECT_NE(help.out.find("Examples:\n  minke cache stats"), std::string::npos) << help.out;
}

}  // namespace
}  // namespace minke
