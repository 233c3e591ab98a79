#include "core/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

namespace minke {

namespace {

// Errors may be logged, and a request may hold a person's words: an error shows a glimpse only.
constexpr size_t kExcerptBytes = 40;
constexpr size_t kContextBytes = 16;  // shown before the place of a syntax error

std::string Excerpt(std::string_view text) {
  const bool cut = text.size() > kExcerptBytes;
  std::string shown(text.substr(0, kExcerptBytes));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  }
  return cut ? shown + "..." : shown;
}

// Feeds the parser and remembers how far it has read, which the SAX interface does not tell.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* position, const char** furthest) : position_(position), furthest_(furthest) {}
  reference operator*() const { return *position_; }
  Cursor& operator++() {
    *furthest_ = ++position_;
    return *this;
  }
  Cursor operator++(int) {
    Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return position_ == other.position_; }
  bool operator!=(const Cursor& other) const { return position_ != other.position_; }

 private:
  const char* position_;
  const char** furthest_;
};

// Positions of the members by key, equal keys in input order.
std::vector<size_t> SortedByKey(const JsonObject& members) {
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&members](size_t a, size_t b) {
    const int compared = members[a].first.compare(members[b].first);
    return compared != 0 ? compared < 0 : a < b;
  });
  return order;
}

// Keeps the last value of every key in the place of the first.
void MergeDuplicates(JsonObject& members, const std::vector<size_t>& order) {
  std::vector<char> dropped(members.size(), 0);
  size_t first = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    if (members[order[i]].first != members[order[first]].first) {
      first = i;
      continue;
    }
    members[order[first]].second = std::move(members[order[i]].second);
    dropped[order[i]] = 1;
  }
  size_t kept = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    if (dropped[i] != 0) continue;
    if (kept != i) members[kept] = std::move(members[i]);
    ++kept;
  }
  members.resize(kept);
}

// Builds a Json from parser events. The parser itself does not recurse, so counting the open
// containers here is what bounds the depth of the value and of everything that walks it.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, std::string_view what, const JsonParseOptions& options)
      : text_(text), what_(what), options_(options), furthest_(text.data()) {}

  const char** furthest() { return &furthest_; }
  Json TakeRoot() { return std::move(root_); }
  const std::string& error() const { return error_; }

  bool null() override { return Add(Json()); }
  bool boolean(bool value) override { return Add(Json(value)); }
  bool number_integer(number_integer_t value) override { return Add(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (value <= kLargest) return Add(Json(static_cast<int64_t>(value)));
    return Add(Json(uint64_t{value}));
  }
  bool number_float(number_float_t value, const string_t&) override { return Add(Json(value)); }
  bool string(string_t& value) override { return Add(Json(std::move(value))); }
  bool binary(binary_t&) override { return Refuse("binary values are not JSON"); }
  bool start_object(size_t) override { return Open(Json(JsonObject())); }
  bool start_array(size_t) override { return Open(Json(JsonArray())); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool end_object() override {
    JsonObject& members = open_.back()->as_object();
    open_.pop_back();
    const std::vector<size_t> order = SortedByKey(members);
    const auto twin = std::adjacent_find(order.begin(), order.end(), [&](size_t a, size_t b) {
      return members[a].first == members[b].first;
    });
    if (twin == order.end()) return true;
    if (options_.reject_duplicate_keys) {
      return Refuse(fmt::format("the object that ends here has the key \"{}\" twice",
                                Excerpt(members[*twin].first)));
    }
    MergeDuplicates(members, order);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& ex) override {
    constexpr int kNumberOverflow = 406;
    if (ex.id == kNumberOverflow) return Refuse("a number is too large for a double");
    // The library's text goes on with the whole token read so far; only the reason is kept.
    std::string_view reason = ex.what();
    const size_t from = reason.find("syntax error");
    if (from != std::string_view::npos) reason.remove_prefix(from);
    reason = reason.substr(0, reason.find("; last read"));
    const size_t context = std::min(Offset(), kContextBytes);
    return Refuse(fmt::format("{}, after \"{}\"", reason,
                              Excerpt(text_.substr(Offset() - context, context))));
  }

 private:
  size_t Offset() const { return static_cast<size_t>(furthest_ - text_.data()); }

  bool Refuse(std::string_view reason) {
    error_ = fmt::format("{} is not usable JSON at byte {}: {}", what_, Offset(), reason);
    return false;
  }
  // Pointers into open containers stay valid: only the innermost one grows.
  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.as_array().push_back(std::move(value));
      return &parent.as_array().back();
    }
    parent.as_object().emplace_back(std::move(key_), std::move(value));
    return &parent.as_object().back().second;
  }
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(Json container) {
    if (open_.size() >= static_cast<size_t>(kJsonDepthLimit)) {
      return Refuse(fmt::format("values are nested deeper than {} levels", kJsonDepthLimit));
    }
    open_.push_back(Place(std::move(container)));
    return true;
  }

  std::string_view text_;
  std::string_view what_;
  JsonParseOptions options_;
  const char* furthest_;
  Json root_;
  std::vector<Json*> open_;
  std::string key_;
  std::string error_;
};

// ---- writing -------------------------------------------------------------------------------

void AppendString(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

// The shortest digits that read back as the same double, laid out as Python's repr() does:
// positional for exponents -4 ... 15, and always with a fraction or an exponent.
void AppendDouble(double value, bool python, std::string& out) {
  if (!std::isfinite(value)) {
    if (!python) {
      out += "null";  // JSON has no such number
    } else {
      out += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
    }
    return;
  }
  constexpr int kSmallestPositional = -4;
  constexpr int kFirstExponential = 16;
  char buffer[400];
  auto written = std::to_chars(buffer, std::end(buffer), value, std::chars_format::scientific);
  std::string_view digits(buffer, static_cast<size_t>(written.ptr - buffer));
  int exponent = 0;
  const size_t mark = digits.find('e');
  const size_t sign = digits[mark + 1] == '+' ? 1 : 0;  // from_chars takes no plus sign
  std::from_chars(digits.data() + mark + 1 + sign, digits.data() + digits.size(), exponent);
  if (exponent >= kSmallestPositional && exponent < kFirstExponential) {
    written = std::to_chars(buffer, std::end(buffer), value, std::chars_format::fixed);
    digits = std::string_view(buffer, static_cast<size_t>(written.ptr - buffer));
    out += digits;
    if (digits.find('.') == std::string_view::npos) out += ".0";
    return;
  }
  out += digits;
}

struct Writer {
  JsonStyle style;
  std::string out;

  void Break(int depth) {
    if (style != JsonStyle::kPretty) return;
    out += '\n';
    out.append(static_cast<size_t>(depth) * 2, ' ');
  }
  void Separator(bool first, int depth) {
    if (!first) out += style == JsonStyle::kPython ? ", " : ",";
    Break(depth);
  }
  void Value(const Json& value, int depth) {
    if (value.is_array()) return Array(value.as_array(), depth);
    if (value.is_object()) return Object(value.as_object(), depth);
    if (value.is_string()) return AppendString(value.as_string(), out);
    if (value.is_null()) {
      out += "null";
    } else if (value.is_bool()) {
      out += value.as_bool() ? "true" : "false";
    } else if (const auto* signed_value = std::get_if<int64_t>(&value.value())) {
      out += fmt::format("{}", *signed_value);
    } else if (const auto* unsigned_value = std::get_if<uint64_t>(&value.value())) {
      out += fmt::format("{}", *unsigned_value);
    } else {
      AppendDouble(value.as_double(), style == JsonStyle::kPython, out);
    }
  }
  void Array(const JsonArray& values, int depth) {
    out += '[';
    for (size_t i = 0; i < values.size(); ++i) {
      Separator(i == 0, depth + 1);
      Value(values[i], depth + 1);
    }
    if (!values.empty()) Break(depth);
    out += ']';
  }
  void Object(const JsonObject& members, int depth) {
    out += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      Separator(i == 0, depth + 1);
      AppendString(members[i].first, out);
      out += style == JsonStyle::kCompact ? ":" : ": ";
      Value(members[i].second, depth + 1);
    }
    if (!members.empty()) Break(depth);
    out += '}';
  }
};

Result<const Json*> Member(const Json& object, std::string_view key, std::string_view what) {
  const Json* member = object.Find(key);
  if (member == nullptr) {
    return Fail(fmt::format("{}: the required key \"{}\" is missing", what, key));
  }
  return member;
}

tl::unexpected<Error> WrongType(const Json& found, const char* expected, std::string_view key,
                                std::string_view what) {
  return Fail(fmt::format("{}: \"{}\" must be {}, but it is {}", what, key, expected,
                          found.is_null() ? "null" : fmt::format("of type {}", found.TypeName())));
}

}  // namespace

// ---- the value -------------------------------------------------------------------------------

[[gnu::noinline]] Json::Json(const Json& other) = default;
[[gnu::noinline]] Json::Json(Json&& other) noexcept = default;
[[gnu::noinline]] Json& Json::operator=(const Json& other) = default;
[[gnu::noinline]] Json& Json::operator=(Json&& other) noexcept = default;
[[gnu::noinline]] Json::~Json() = default;

bool Json::is_integer() const {
  return std::holds_alternative<int64_t>(value_) || std::holds_alternative<uint64_t>(value_);
}

bool Json::is_number() const {
  return is_integer() || std::holds_alternative<double>(value_);
}

int64_t Json::as_int() const {
  if (const auto* value = std::get_if<uint64_t>(&value_)) {
    CHECK(*value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
    return static_cast<int64_t>(*value);
  }
  return std::get<int64_t>(value_);
}

double Json::as_double() const {
  if (const auto* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<uint64_t>(&value_)) return static_cast<double>(*value);
  return std::get<double>(value_);
}

const Json* Json::Find(std::string_view key) const {
  const auto* members = std::get_if<JsonObject>(&value_);
  if (members == nullptr) return nullptr;
  for (const JsonMember& member : *members) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

void Json::Set(std::string key, Json value) {
  if (is_null()) value_ = JsonObject();
  JsonObject& members = as_object();
  for (JsonMember& member : members) {
    if (member.first != key) continue;
    member.second = std::move(value);
    return;
  }
  members.emplace_back(std::move(key), std::move(value));
}

const char* Json::TypeName() const {
  if (is_null()) return "null";
  if (is_bool()) return "boolean";
  if (is_integer()) return "integer";
  if (is_number()) return "number";
  if (is_string()) return "string";
  return is_array() ? "array" : "object";
}

// ---- functions -------------------------------------------------------------------------------

Result<Json> ParseJson(std::string_view text, std::string_view what,
                       const JsonParseOptions& options) {
  // The library takes a NUL for the end of the input and would ignore whatever follows it.
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    return Fail(fmt::format("{} is not usable JSON at byte {}: it contains a NUL byte", what, nul));
  }
  Builder builder(text, what, options);
  const Cursor begin(text.data(), builder.furthest());
  const Cursor end(text.data() + text.size(), builder.furthest());
  try {
    const bool parsed = nlohmann::json::sax_parse(begin, end, &builder);
    if (!parsed) return Fail(builder.error());
  } catch (const std::exception& ex) {
    return Fail(fmt::format("{} is not usable JSON: {}", what, Excerpt(ex.what())));
  }
  return builder.TakeRoot();
}

std::string DumpJson(const Json& value, JsonStyle style) {
  Writer writer{style, {}};
  writer.Value(value, 0);
  return std::move(writer.out);
}

Result<int64_t> JsonInt(const Json& object, std::string_view key, std::string_view what) {
  const Json* member = TRY(Member(object, key, what));
  if (!member->is_integer()) return WrongType(*member, "an integer", key, what);
  if (std::holds_alternative<uint64_t>(member->value()) &&
      std::get<uint64_t>(member->value()) >
          static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Fail(fmt::format("{}: \"{}\" must fit a signed 64-bit integer, but it is {}", what, key,
                            std::get<uint64_t>(member->value())));
  }
  return member->as_int();
}

Result<double> JsonDouble(const Json& object, std::string_view key, std::string_view what) {
  const Json* member = TRY(Member(object, key, what));
  if (!member->is_number()) return WrongType(*member, "a number", key, what);
  return member->as_double();
}

Result<bool> JsonBool(const Json& object, std::string_view key, std::string_view what) {
  const Json* member = TRY(Member(object, key, what));
  if (!member->is_bool()) return WrongType(*member, "true or false", key, what);
  return member->as_bool();
}

Result<std::string> JsonString(const Json& object, std::string_view key, std::string_view what) {
  const Json* member = TRY(Member(object, key, what));
  if (!member->is_string()) return WrongType(*member, "a string", key, what);
  return member->as_string();
}

Result<const JsonArray*> JsonList(const Json& object, std::string_view key, std::string_view what) {
  const Json* member = TRY(Member(object, key, what));
  if (!member->is_array()) return WrongType(*member, "an array", key, what);
  return &member->as_array();
}

Result<const JsonObject*> JsonMembers(const Json& object, std::string_view key,
                                      std::string_view what) {
  const Json* member = TRY(Member(object, key, what));
  if (!member->is_object()) return WrongType(*member, "an object", key, what);
  return &member->as_object();
}

}  // namespace minke
