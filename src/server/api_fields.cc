#include "server/api_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <optional>
#include <utility>

namespace minke {

namespace {

constexpr std::pair<unsigned, std::string_view> kBodyTypeNames[] = {
    {kBodyText, "a string"},   {kBodyFlag, "a boolean"}, {kBodyInteger, "an integer"},
    {kBodyNumber, "a number"}, {kBodyList, "a list"},    {kBodyObject, "an object"},
};

// "a string, a list or an object"
std::string DescribeBodyTypes(unsigned types) {
  std::vector<std::string_view> names;
  for (const auto& [type, name] : kBodyTypeNames) {
    if ((types & type) != 0) names.push_back(name);
  }
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

unsigned BodyTypesOf(const Json& value) {
  if (value.is_string()) return kBodyText;
  if (value.is_bool()) return kBodyFlag;
  if (value.is_integer()) return kBodyInteger | kBodyNumber;
  if (value.is_number()) return kBodyNumber;
  if (value.is_array()) return kBodyList;
  if (value.is_object()) return kBodyObject;
  return 0;
}

std::string JoinBodyPath(std::string_view place, std::string_view key) {
  return place.empty() ? std::string(key) : fmt::format("{}.{}", place, key);
}

// Walks along the rest of a rule's path from `value`, which stands at `place`.
ApiStatus CheckBodyRule(const Json& value, const std::string& place, std::string_view rest,
                        unsigned types) {
  if (rest.empty()) {
    if ((BodyTypesOf(value) & types) != 0) return {};
    ApiError error;
    error.status = 422;
    error.param = place;
    error.message = fmt::format("{} must be {}, but it is of type {}.", place,
                                DescribeBodyTypes(types), value.TypeName());
    return tl::unexpected(std::move(error));
  }
  if (rest.substr(0, 2) == "[]") {
    if (!value.is_array()) return {};
    rest.remove_prefix(2);
    if (!rest.empty() && rest[0] == '.') rest.remove_prefix(1);
    for (size_t i = 0; i < value.as_array().size(); ++i) {
      TRY_STATUS(CheckBodyRule(value.as_array()[i], fmt::format("{}[{}]", place, i), rest, types));
    }
    return {};
  }
  const size_t end = std::min(rest.find_first_of(".["), rest.size());
  const std::string_view key = rest.substr(0, end);
  const Json* member = BodyMember(value, key);
  if (member == nullptr) return {};
  rest.remove_prefix(end);
  if (!rest.empty() && rest[0] == '.') rest.remove_prefix(1);
  return CheckBodyRule(*member, JoinBodyPath(place, key), rest, types);
}

// An integer beyond int64 is beyond every range, too.
std::optional<int64_t> BodyInt64(const Json& value) {
  const auto* number = std::get_if<int64_t>(&value.value());
  if (number == nullptr) return std::nullopt;
  return *number;
}

}  // namespace

ApiStatus CheckBodyTypes(const Json& body, std::span<const BodyTypeRule> rules) {
  if (!body.is_object()) {
    ApiError error;
    error.status = 422;
    error.message =
        fmt::format("The body must be an object, but it is of type {}.", body.TypeName());
    return tl::unexpected(std::move(error));
  }
  for (const BodyTypeRule& rule : rules) {
    TRY_STATUS(CheckBodyRule(body, "", rule.path, rule.types));
  }
  return {};
}

tl::unexpected<ApiError> RefuseBody(std::string_view param, std::string message) {
  ApiError error;
  error.param = std::string(param);
  error.message = std::move(message);
  return tl::unexpected(std::move(error));
}

const Json* BodyMember(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

ApiStatus ReadBodyNumber(const Json& body, std::string_view key, const BodyRange& range,
                         double* value) {
  const Json* member = BodyMember(body, key);
  if (member == nullptr) return {};
  const double number = member->as_double();
  const bool inside =
      (range.above_min ? number > range.min : number >= range.min) && number <= range.max;
  if (!inside) {
    return RefuseBody(key, fmt::format("Invalid {} value, the valid range of {} is {}{}, {}]", key,
                                       key, range.above_min ? '(' : '[', range.min, range.max));
  }
  *value = number;
  return {};
}

ApiStatus ReadBodyInteger(const Json& body, std::string_view key, int64_t min, int64_t max,
                          int64_t* value) {
  const Json* member = BodyMember(body, key);
  if (member == nullptr) return {};
  const std::optional<int64_t> number = BodyInt64(*member);
  if (!number.has_value() || *number < min || *number > max) {
    return RefuseBody(key, fmt::format("Invalid {} value, the valid range of {} is [{}, {}]", key,
                                       key, min, max));
  }
  *value = *number;
  return {};
}

bool BodyFlag(const Json& body, std::string_view key) {
  const Json* member = BodyMember(body, key);
  return member != nullptr && member->as_bool();
}

ApiStatus ReadBodySampling(const Json& body, bool thinking, ApiRequest* request) {
  SamplingOptions asked;
  asked.temperature = 1;
  SamplingOptions& sampling = request->sampling;
  sampling = asked;
  TRY_STATUS(ReadBodyNumber(body, "temperature", {0, 2}, &asked.temperature));
  TRY_STATUS(ReadBodyNumber(body, "top_p", {0, 1, true}, &asked.top_p));
  TRY_STATUS(ReadBodyNumber(body, "presence_penalty", {-2, 2}, &asked.presence_penalty));
  TRY_STATUS(ReadBodyNumber(body, "frequency_penalty", {-2, 2}, &asked.frequency_penalty));
  int64_t seed = 0;
  TRY_STATUS(ReadBodyInteger(body, "seed", std::numeric_limits<int64_t>::min(),
                             std::numeric_limits<int64_t>::max(), &seed));
  if (thinking) {
    sampling.top_p = asked.top_p;
  } else {
    sampling = asked;
  }
  sampling.seed = static_cast<uint64_t>(seed);
  request->has_seed = BodyMember(body, "seed") != nullptr;
  return {};
}

ApiStatus ReadBodyMaxTokens(const Json& body, std::initializer_list<std::string_view> keys,
                            ApiRequest* request) {
  for (const std::string_view key : keys) {
    if (BodyMember(body, key) == nullptr) continue;
    return ReadBodyInteger(body, key, 1, kApiMaxTokensMax, &request->max_tokens);
  }
  return {};
}

ApiStatus ReadBodyStop(const Json& body, std::string_view key, std::vector<std::string>* strings) {
  const Json* member = BodyMember(body, key);
  if (member == nullptr) return {};
  const auto add = [&](const std::string& text) -> ApiStatus {
    if (text.size() > kStopStringBytesMax) {
      return RefuseBody(key, fmt::format("{} holds a text of {} bytes; at most {} are accepted.",
                                         key, text.size(), kStopStringBytesMax));
    }
    if (!text.empty()) strings->push_back(text);
    return {};
  };
  if (member->is_string()) return add(member->as_string());
  if (member->as_array().size() > kApiStopStringsMax) {
    return RefuseBody(key, fmt::format("{} has {} entries; at most {} are accepted.", key,
                                       member->as_array().size(), kApiStopStringsMax));
  }
  for (const Json& text : member->as_array()) TRY_STATUS(add(text.as_string()));
  return {};
}

ApiStatus ReadBodyStream(const Json& body, ApiRequest* request) {
  request->stream = BodyFlag(body, "stream");
  const Json* options = BodyMember(body, "stream_options");
  if (options == nullptr) return {};
  if (!request->stream) {
    return RefuseBody("stream_options", "stream_options should be set along with stream = true");
  }
  request->include_usage = BodyFlag(*options, "include_usage");
  return {};
}

ApiStatus ReadBodyUser(const Json& body, std::initializer_list<std::string_view> keys,
                       ApiRequest* request) {
  for (const std::string_view key : keys) {
    const Json* member = BodyMember(body, key);
    if (member == nullptr) continue;
    if (member->as_string().size() > kTenantBytesMax) {
      return RefuseBody(key, fmt::format("{} has {} bytes; at most {} are accepted.", key,
                                         member->as_string().size(), kTenantBytesMax));
    }
    request->user_id = member->as_string();
    return {};
  }
  return {};
}

ApiStatus RefuseSeveralAnswers(const Json& body, std::string_view key) {
  const Json* member = BodyMember(body, key);
  if (member == nullptr || BodyInt64(*member) == int64_t{1}) return {};
  return RefuseBody(key,
                    fmt::format("Invalid {} value, the only valid value of {} is 1", key, key));
}

ApiStatus RefuseImages(const ChatRequest& chat) {
  for (const ChatMessage& message : chat.messages) {
    for (const ContentPart& part : message.content) {
      if (part.kind != ContentPart::Kind::kImage) continue;
      return RefuseBody("messages",
                        "This server reads no images: send the conversation without its image "
                        "blocks, or describe the images in words.");
    }
  }
  return {};
}

bool MentionsJson(const std::vector<ChatMessage>& messages) {
  constexpr std::string_view kWord = "json";
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  for (const ChatMessage& message : messages) {
    for (const ContentPart& part : message.content) {
      if (part.kind != ContentPart::Kind::kText) continue;
      const auto found =
          std::search(part.text.begin(), part.text.end(), kWord.begin(), kWord.end(), same);
      if (found != part.text.end()) return true;
    }
  }
  return false;
}

}  // namespace minke
