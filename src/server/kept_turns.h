// The replay map of the server (text/replay_map.h): shared by its threads, and kept in a file.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/replay_map.h"

namespace minke {

// A server that is killed loses what it put into the map during so many seconds.
inline constexpr std::chrono::seconds kKeptTurnsSaveInterval{10};

// Thread-safe.
class KeptTurns {
 public:
  // `file`: where the turns are kept, readable by its owner alone; empty: nowhere. `model`: what
  // their ids belong to. A file that cannot be used leaves the map empty and gives a warning, a
  // whole sentence; otherwise the returned text is empty.
  // `bytes_max`: of the map.
  std::string Open(std::string file, std::string model, size_t bytes_max);

  // As ReplayMap. Put() does not wait for a file that is being written: answers end on the engine's
  // thread, and all others would wait with it.
  void Put(std::string_view tenant, const ConversationDigest& conversation,
           const std::vector<std::string>& answer_ids, WrittenTurn turn);
  ReplayReport Apply(std::string_view tenant, ChatRequest* request);

  // Writes the file if there is something new. Errors name it.
  Status Save();

 private:
  struct PutTurn {
    std::string tenant;
    ConversationDigest conversation;
    std::vector<std::string> answer_ids;
    WrittenTurn turn;
  };
  // Moves what was put into the map. With mutex_ held.
  void TakePut();

  std::string file_;
  std::string model_;
  std::mutex save_mutex_;  // one writer of the file; locked before mutex_
  std::mutex mutex_;       // of what follows; locked before put_mutex_
  ReplayMap map_;
  bool changed_ = false;
  std::mutex put_mutex_;      // of what follows
  std::vector<PutTurn> put_;  // not in the map yet: at most what ended since a request was read
};

}  // namespace minke
