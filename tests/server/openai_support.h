// Shared by the tests of the OpenAI families: golden cases, a client that reads streams, and
// canonical JSON.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "server/api.h"

namespace minke::testing {

// Members of objects sorted, so that texts of equal values are equal.
std::string CanonicalJson(const Json& value);
Json MustParseJson(std::string_view text);

// What every golden answer has in common.
AnswerIds GoldenIdsOfAnswer();
Usage GoldenUsage();
ApiError GoldenStreamError(std::string message);

// Reads server-sent events as a client does, from bytes cut anywhere.
class SseReader {
 public:
  void Push(std::string_view bytes);
  // The data of the events so far.
  const std::vector<std::string>& events() const { return events_; }
  // Their names, "" for those without.
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& comments() const { return comments_; }
  // Nothing is left of an event that has not ended.
  bool at_border() const { return line_.empty() && name_.empty() && data_.empty(); }

 private:
  void EndLine();

  std::string line_;
  std::string name_;
  std::string data_;
  std::vector<std::string> events_;
  std::vector<std::string> names_;
  std::vector<std::string> comments_;
};

using ReadFunction = ApiResult<ApiRequest> (*)(const Json& body, const ApiReadOptions& options);
using WriterFunction = std::unique_ptr<AnswerWriter> (*)(const ApiRequest& request,
                                                         const AnswerIds& ids);

// A request that must be in order.
ApiRequest MustRead(ReadFunction read, const Json& body);

// Plays one case of an answers.json and compares what is written.
void ExpectGoldenAnswer(const Json& golden, ReadFunction read, WriterFunction make);
// Plays every case of an errors.json.
void ExpectGoldenErrors(const std::string& path, ReadFunction read);

// The bytes of a whole answer whose pieces are these.
std::string WriteAnswer(AnswerWriter* writer, const std::vector<AnswerPiece>& pieces,
                        AnswerFinish finish);

// Cuts the texts of pieces at random, between characters.
std::vector<AnswerPiece> SplitPieces(const std::vector<AnswerPiece>& pieces, unsigned seed);

}  // namespace minke::testing
