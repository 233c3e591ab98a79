#include "core/processors.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <system_error>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace minke {
namespace {

// A cpu_set_t has 1,024 bits, and larger machines exist.
using ProcessorMask = std::array<cpu_set_t, kProcessorsMax / CPU_SETSIZE>;

std::vector<int> ReadProcessorList(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return ParseProcessorList(line);
}

// One of [0, kProcessorsMax), or -1.
int ParseProcessorId(std::string_view text) {
  int id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && id >= 0 && id < kProcessorsMax ? id : -1;
}

}  // namespace

std::vector<int> AllowedProcessors() {
  ProcessorMask mask = {};
  if (::sched_getaffinity(0, sizeof mask, mask.data()) != 0) return {};
  std::vector<int> ids;
  for (int id = 0; id < kProcessorsMax; ++id) {
    if (CPU_ISSET_S(static_cast<size_t>(id), sizeof mask, mask.data())) ids.push_back(id);
  }
  return ids;
}

std::vector<int> ParseProcessorList(std::string_view text) {
  std::vector<int> ids;
  while (!text.empty()) {
    const std::string_view range = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), range.size() + 1));
    const size_t dash = range.find('-');
    const int first = ParseProcessorId(range.substr(0, dash));
    const int last =
        dash == std::string_view::npos ? first : ParseProcessorId(range.substr(dash + 1));
    if (first < 0 || last < first || (!ids.empty() && first <= ids.back())) return {};
    for (int id = first; id <= last; ++id) ids.push_back(id);
  }
  return ids;
}

std::vector<Processor> LocateProcessors(std::span<const int> ids, const std::string& system_dir) {
  std::map<int, int> nodes;
  for (const int node : ReadProcessorList(system_dir + "/node/online")) {
    for (const int id :
         ReadProcessorList(fmt::format("{}/node/node{}/cpulist", system_dir, node))) {
      nodes.emplace(id, node);
    }
  }
  std::vector<Processor> processors;
  for (const int id : ids) {
    const std::vector<int> siblings = ReadProcessorList(
        fmt::format("{}/cpu/cpu{}/topology/thread_siblings_list", system_dir, id));
    const auto node = nodes.find(id);
    processors.push_back({.id = id,
                          .node = node == nodes.end() ? 0 : node->second,
                          .core = siblings.empty() ? id : siblings.front()});
  }
  return processors;
}

std::vector<int> PlaceThreads(std::span<const Processor> processors, int threads) {
  if (threads > static_cast<int>(processors.size())) return {};
  struct Node {
    std::vector<std::pair<int, int>> order;  // how many of its core come before it, and its id
    size_t taken = 0;
  };
  std::map<int, Node> nodes;
  std::map<int, int> seen;  // of a core
  for (const Processor& processor : processors) {
    nodes[processor.node].order.emplace_back(seen[processor.core]++, processor.id);
  }
  for (int thread = 0; thread < threads; ++thread) {
    Node* least = nullptr;
    for (auto& [id, node] : nodes) {
      if (node.taken == node.order.size()) continue;
      if (least == nullptr || node.taken < least->taken) least = &node;
    }
    ++least->taken;
  }
  std::vector<int> placement;
  for (auto& [id, node] : nodes) {
    std::sort(node.order.begin(), node.order.end());
    for (size_t i = 0; i < node.taken; ++i) placement.push_back(node.order[i].second);
  }
  return placement;
}

Status BindThread(pthread_t thread, std::span<const int> processors) {
  ProcessorMask mask = {};
  for (const int id : processors) {
    CHECK(id >= 0 && id < kProcessorsMax);
    CPU_SET_S(static_cast<size_t>(id), sizeof mask, mask.data());
  }
  const int error = ::pthread_setaffinity_np(thread, sizeof mask, mask.data());
  if (error == 0) return {};
  return Fail(ErrorCode::kIo,
              fmt::format("a thread cannot be bound to processor {}: {}",
                          fmt::join(processors, ", "), std::generic_category().message(error)));
}

}  // namespace minke
