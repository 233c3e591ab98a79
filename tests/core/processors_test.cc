#include "core/processors.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

using Ids = std::vector<int>;

TEST(Processors, ReadsListsAsLinuxWritesThem) {
  EXPECT_EQ(ParseProcessorList("0"), (Ids{0}));
  EXPECT_EQ(ParseProcessorList("0-3"), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(ParseProcessorList("1,4-5,8191"), (Ids{1, 4, 5, 8191}));
  for (const char* wrong : {"", "8192", "-1", "3-2", "a", "0-", "1,,2", "2,1", "0 ", "0-3-4"}) {
    EXPECT_EQ(ParseProcessorList(wrong), Ids{}) << wrong;
  }
}

// A machine with two nodes of four cores, each of two processors, numbered as on most servers.
class FakeMachine {
 public:
  FakeMachine() {
    Write("node/online", "0-1");
    Write("node/node0/cpulist", "0-3,8-11");
    Write("node/node1/cpulist", "4-7,12-15");
    for (int id = 0; id < 16; ++id) {
      const int core = id % 8;
      Write("cpu/cpu" + std::to_string(id) + "/topology/thread_siblings_list",
            std::to_string(core) + "," + std::to_string(core + 8));
    }
  }
  std::vector<Processor> Locate(const Ids& ids) const {
    return LocateProcessors(ids, folder_.path());
  }

 private:
  void Write(const std::string& name, const std::string& line) const {
    const std::filesystem::path path = std::filesystem::path(folder_.path()) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << line << '\n';
  }
  TempDirectory folder_;
};

TEST(Processors, KnowTheirNodeAndTheirCore) {
  const std::vector<Processor> found = FakeMachine().Locate({0, 5, 10, 15});
  const Ids nodes = {found[0].node, found[1].node, found[2].node, found[3].node};
  const Ids cores = {found[0].core, found[1].core, found[2].core, found[3].core};
  EXPECT_EQ(nodes, (Ids{0, 1, 0, 1}));
  EXPECT_EQ(cores, (Ids{0, 5, 2, 7}));
}

TEST(Processors, WithoutWordOfTheSystemAreOneNodeOfCores) {
  const std::vector<Processor> found = LocateProcessors(Ids{3, 6}, "/nonexistent");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].id, 6);
  EXPECT_EQ(found[1].node, 0);
  EXPECT_EQ(found[1].core, 6);
}

TEST(Processors, ThreadsAreSpreadOverNodesAndCores) {
  const FakeMachine machine;
  Ids all;
  for (int id = 0; id < 16; ++id) all.push_back(id);
  const std::vector<Processor> processors = machine.Locate(all);
  EXPECT_EQ(PlaceThreads(processors, 1), (Ids{0}));
  EXPECT_EQ(PlaceThreads(processors, 2), (Ids{0, 4}));
  EXPECT_EQ(PlaceThreads(processors, 3), (Ids{0, 1, 4}));
  EXPECT_EQ(PlaceThreads(processors, 8), (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(PlaceThreads(processors, 10), (Ids{0, 1, 2, 3, 8, 4, 5, 6, 7, 12}));
  EXPECT_EQ(PlaceThreads(processors, 16).size(), 16u);
  EXPECT_EQ(PlaceThreads(processors, 17), Ids{});
}

// A mask with holes, as of taskset: one node has fewer, and of one core only the second is there.
TEST(Processors, HolesOfTheMaskAreNobodysPlace) {
  const std::vector<Processor> processors = FakeMachine().Locate({1, 3, 5, 9, 10});
  EXPECT_EQ(PlaceThreads(processors, 2), (Ids{1, 5}));
  EXPECT_EQ(PlaceThreads(processors, 3), (Ids{1, 3, 5}));
  EXPECT_EQ(PlaceThreads(processors, 4), (Ids{1, 3, 10, 5}));
  EXPECT_EQ(PlaceThreads(processors, 5), (Ids{1, 3, 10, 9, 5}));
  EXPECT_EQ(PlaceThreads(processors, 6), Ids{});
}

TEST(Processors, AThreadStaysWhereItIsBound) {
  const Ids allowed = AllowedProcessors();
  ASSERT_FALSE(allowed.empty());
  std::jthread([&] {
    EXPECT_TRUE(BindThread(::pthread_self(), {&allowed.back(), 1}));
    EXPECT_EQ(AllowedProcessors(), (Ids{allowed.back()}));
    EXPECT_TRUE(BindThread(::pthread_self(), allowed));
    EXPECT_EQ(AllowedProcessors(), allowed);
  });
  const int absent = kProcessorsMax - 1;
  const Status bound = BindThread(::pthread_self(), {&absent, 1});
  ASSERT_FALSE(bound);
  EXPECT_NE(bound.error().message.find("processor 8191"), std::string::npos);
}

}  // namespace
}  // namespace minke::testing
