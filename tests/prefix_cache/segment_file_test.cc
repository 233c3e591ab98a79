// Searching segments for records: whatever lies between them, and wherever they are cut.
#include "prefix_cache/segment_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/storage_system.h"
#include "tests/prefix_cache/store_rig.h"

namespace minke {
namespace {

using testing::BlockOf;
using testing::MemoryDirectory;
using testing::PayloadOf;
using testing::SnapshotOf;

std::string RecordText(const RecordInfo& info) {
  const std::vector<std::byte> payload = PayloadOf(info.key, info.payload_bytes);
  const RecordHeaderBytes header = EncodeRecordHeader(info, 1, payload);
  std::string text(reinterpret_cast<const char*>(header.data()), header.size());
  text.append(reinterpret_cast<const char*>(info.tokens.data()), info.tokens.size() * 4);
  text.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  text.resize(static_cast<size_t>(
      RecordBytes(static_cast<int64_t>(info.tokens.size()), info.payload_bytes)));
  return text;
}

struct Scan {
  std::vector<int64_t> offsets;
  int64_t intact = 0;
  ScanOutcome outcome;
};

class SegmentFileTest : public ::testing::Test {
 protected:
  Scan Search(const std::string& bytes, int64_t begin = 0) {
    const std::string path = directory_.Path("segment");
    std::filesystem::remove(path);
    const auto file = MakePosixStorage()->OpenFile(path, OpenMode::kCreate);
    EXPECT_TRUE(file);
    const auto part = std::as_bytes(std::span(bytes));
    EXPECT_TRUE(MakePosixStorage()->WriteAt(*file, 0, std::span(&part, 1)));
    Scan scan;
    const auto outcome = ScanRecords(*MakePosixStorage(), *file,
                                     {.begin = begin, .end = static_cast<int64_t>(bytes.size())},
                                     true, [&scan](const FoundRecord& record) -> Status {
                                       scan.offsets.push_back(record.offset);
                                       scan.intact += record.intact ? 1 : 0;
                                       return {};
                                     });
    EXPECT_TRUE(outcome);
    scan.outcome = *outcome;
    return scan;
  }

  MemoryDirectory directory_;
};

TEST_F(SegmentFileTest, NamesRoundTripAndOthersAreNotOurs) {
  for (const int64_t number :
       {int64_t{0}, int64_t{1}, int64_t{12345678}, int64_t{999999999}, kSegmentNumberMax}) {
    EXPECT_EQ(ParseSegmentName(SegmentName(number)), number);
  }
  EXPECT_EQ(SegmentName(1), "segment-00000001.mks");
  for (const char* name :
       {"segment-1.mks", "segment-00000001.mk", "segment--0000001.mks", "segment-.mks",
        "segment-000000001.mks", "xsegment-00000001.mks", "", "segment-00000001.mks.tmp",
        "segment-2147483648.mks", "segment-0000000a.mks", "segment-99999999999999999999.mks"}) {
    EXPECT_FALSE(ParseSegmentName(name)) << name;
  }
}

TEST_F(SegmentFileTest, FindsRecordsBetweenZerosAndLitter) {
  const std::string a = RecordText(BlockOf(1, 0));
  const std::string b = RecordText(SnapshotOf(1, 0, 9, {.payload_bytes = 0}));
  const std::string c = RecordText(BlockOf(1, 1, {.payload_bytes = 200000}));  // beyond a window
  const std::string zeros(64 * 3000, '\0');
  const std::string litter(640, 'x');
  const Scan scan = Search(zeros + a + litter + b + zeros + c + zeros);
  ASSERT_EQ(scan.offsets.size(), 3U);
  EXPECT_EQ(scan.intact, 3);
  EXPECT_EQ(scan.offsets[0], static_cast<int64_t>(zeros.size()));
  EXPECT_EQ(scan.outcome.damaged, 1);
  ASSERT_EQ(scan.outcome.litter.size(), 1U);
  EXPECT_EQ(scan.outcome.litter[0].begin, static_cast<int64_t>(zeros.size() + a.size()));
  EXPECT_EQ(scan.outcome.litter[0].end, scan.offsets[1]);
  EXPECT_TRUE(scan.outcome.torn_tail);
  EXPECT_FALSE(Search(a + b).outcome.torn_tail);
  EXPECT_EQ(Search(a + b, static_cast<int64_t>(a.size())).offsets.size(), 1U);
}

TEST_F(SegmentFileTest, EveryCutIsFound) {
  const std::string a = RecordText(SnapshotOf(1, 0, 9, {.payload_bytes = 10}));
  const std::string b = RecordText(SnapshotOf(1, 0, 10, {.payload_bytes = 77}));
  const std::string both = a + b;
  for (size_t size = 0; size <= both.size(); ++size) {
    const Scan scan = Search(both.substr(0, size));
    const bool first = size >= a.size();
    const bool second = size == both.size();
    EXPECT_EQ(scan.intact, (first ? 1 : 0) + (second ? 1 : 0)) << size;
    const bool whole = size == 0 || size == a.size() || second;
    EXPECT_EQ(scan.outcome.torn_tail, !whole) << size;
    EXPECT_EQ(scan.outcome.damaged, whole ? 0 : 1) << size;
  }
}

TEST_F(SegmentFileTest, EveryFlippedBitLosesThatRecordAlone) {
  const std::string a = RecordText(SnapshotOf(1, 0, 8, {.payload_bytes = 10}));
  const std::string c = RecordText(SnapshotOf(1, 0, 10, {.payload_bytes = 77}));
  for (const RecordInfo& info :
       {SnapshotOf(1, 0, 9, {.payload_bytes = 10}), BlockOf(1, 0, {.payload_bytes = 64})}) {
    const std::string b = RecordText(info);
    const size_t used = static_cast<size_t>(kRecordHeaderBytes) + info.tokens.size() * 4 +
                        static_cast<size_t>(info.payload_bytes);
    for (size_t bit = 0; bit < used * 8; ++bit) {
      std::string damaged = b;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      const Scan scan = Search(a + damaged + c);
      ASSERT_EQ(scan.intact, 2) << "bit " << bit;
    }
  }
}

}  // namespace
}  // namespace minke
