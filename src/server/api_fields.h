// Members of request bodies that several API families have: types, ranges, sampling, stop strings.
// A member of a wrong JSON type is a 422, everything else that is wrong a 400 (serving.md 1.6).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "engine/engine.h"
#include "server/api.h"

namespace minke {

// JSON types that a member may have; null counts as not there, but for entries of lists.
enum BodyTypes : unsigned {
  kBodyText = 1,
  kBodyFlag = 2,
  kBodyInteger = 4,
  kBodyNumber = 8,  // integers too
  kBodyList = 16,
  kBodyObject = 32,
};

// `path`: members joined by dots, "[]" for every entry of a list: "messages[].content". A rule says
// nothing where what stands before its last member is missing or of a type without members.
struct BodyTypeRule {
  std::string_view path;
  unsigned types = 0;
};

// The first rule that the body breaks, in the order of the rules, as a 422 that names the place.
ApiStatus CheckBodyTypes(const Json& body, std::span<const BodyTypeRule> rules);

tl::unexpected<ApiError> RefuseBody(std::string_view param, std::string message);

// A member that is there and not null; nullptr otherwise.
const Json* BodyMember(const Json& object, std::string_view key);

struct BodyRange {
  double min = 0;
  double max = 0;
  bool above_min = false;  // the lower end is not part of it
};
// Members that may be missing, which leaves the value as it is. REQUIRES that their types were
// checked. Errors: "Invalid top_p value, the valid range of top_p is (0, 1]".
ApiStatus ReadBodyNumber(const Json& body, std::string_view key, const BodyRange& range,
                         double* value);
ApiStatus ReadBodyInteger(const Json& body, std::string_view key, int64_t min, int64_t max,
                          int64_t* value);
bool BodyFlag(const Json& body, std::string_view key);  // false where missing

// temperature, top_p, presence_penalty, frequency_penalty and seed. All are checked; in thinking
// mode temperature and penalties are then left at what they are without being asked for, as the
// hosted service does (serving.md 1.4).
ApiStatus ReadBodySampling(const Json& body, bool thinking, ApiRequest* request);

// The first of the keys that is there, from 1 to kApiMaxTokensMax.
ApiStatus ReadBodyMaxTokens(const Json& body, std::initializer_list<std::string_view> keys,
                            ApiRequest* request);

// A text or a list of texts. Empty ones match nothing and are left out.
ApiStatus ReadBodyStop(const Json& body, std::string_view key, std::vector<std::string>* strings);

// "stream", and "stream_options", which needs it.
ApiStatus ReadBodyStream(const Json& body, ApiRequest* request);

// The first of the keys that is there. REQUIRES that it is a text.
ApiStatus ReadBodyUser(const Json& body, std::initializer_list<std::string_view> keys,
                       ApiRequest* request);

// More than one answer a request is not offered.
ApiStatus RefuseSeveralAnswers(const Json& body, std::string_view key);

// Pictures need eyes that the engine does not have.
ApiStatus RefuseImages(const ChatRequest& chat);

// Whether "json", in any case, occurs in the text of a message, without which a model in JSON mode
// may write blanks for ever.
bool MentionsJson(const std::vector<ChatMessage>& messages);

}  // namespace minke
