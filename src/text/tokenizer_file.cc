#include "text/tokenizer_file.h"

#include <fmt/format.h>

#include <unordered_map>

#include "core/json.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace minke {

namespace {

// The byte-level alphabet: printable Latin-1 bytes are the character of that number, the others
// the characters from U+0100 on, in order.
bool IsPrintableByte(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

std::array<uint32_t, 256> ByteCharacters() {
  std::array<uint32_t, 256> characters{};
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    characters[byte] = IsPrintableByte(byte) ? byte : next++;
  }
  return characters;
}

// The inverse: byte of each character below U+0144, or -1.
constexpr uint32_t kAlphabetEnd = 0x144;
std::array<int, kAlphabetEnd> CharacterBytes() {
  std::array<int, kAlphabetEnd> bytes{};
  bytes.fill(-1);
  const std::array<uint32_t, 256> characters = ByteCharacters();
  for (int byte = 0; byte < 256; ++byte) bytes[characters[static_cast<size_t>(byte)]] = byte;
  return bytes;
}

// Reads one file; members are the parts that several fields need.
class FileReader {
 public:
  FileReader(const Json& root, std::string_view what) : root_(root), what_(what) {}

  Result<TokenizerFile> Read() {
    if (!root_.is_object()) return Refuse("the file", "an object", root_.TypeName());
    TRY_STATUS(CheckPipeline());
    TRY_STATUS(ReadSplits());
    const Json* model = root_.Find("model");
    if (model == nullptr || !model->is_object()) {
      return Refuse("model", "an object", model == nullptr ? "nothing" : model->TypeName());
    }
    TRY_STATUS(CheckModel(*model));
    TRY_STATUS(ReadVocabulary(*model));
    TRY_STATUS(ReadAddedTokens());
    TRY_STATUS(ReadByteIds());
    TRY_STATUS(ReadMerges(*model));
    return std::move(file_);
  }

 private:
  tl::unexpected<Error> Refuse(std::string_view field, std::string_view expected,
                               std::string_view found) const {
    return Fail(
        fmt::format("{}: {} must be {}, but it is {}; this is not a tokenizer.json of the "
                    "DeepSeek-V4.1 family.",
                    what_, field, expected, found));
  }
  tl::unexpected<Error> RefuseLimit(std::string_view field, size_t limit, size_t found) const {
    return Fail(ErrorCode::kLimit,
                fmt::format("{}: {} is {}; at most {} is supported.", what_, field, found, limit));
  }

  // A field that must be absent, null, false or "" because its effect is not implemented.
  Status MustBeOff(const Json& object, std::string_view path, std::string_view key) const {
    const Json* value = object.Find(key);
    const bool off = value == nullptr || value->is_null() ||
                     (value->is_bool() && !value->as_bool()) ||
                     (value->is_string() && value->as_string().empty());
    if (off) return {};
    return Refuse(fmt::format("{}{}", path, key), "off", DumpShort(*value));
  }
  Status MustHaveType(const Json& object, std::string_view path, std::string_view type) const {
    const Json* value = object.Find("type");
    if (value != nullptr && value->is_string() && value->as_string() == type) return {};
    return Refuse(fmt::format("{}.type", path), fmt::format("\"{}\"", type),
                  value == nullptr ? "missing" : DumpShort(*value));
  }
  static std::string DumpShort(const Json& value) {
    constexpr size_t kShownBytesMax = 60;
    std::string text = DumpJson(value, JsonStyle::kCompact);
    if (text.size() <= kShownBytesMax) return text;
    return fmt::format("{} of {} bytes", value.TypeName(), text.size());
  }

  Status CheckPipeline() {
    TRY_STATUS(MustBeOff(root_, "", "truncation"));
    TRY_STATUS(MustBeOff(root_, "", "padding"));
    const Json* normalizer = root_.Find("normalizer");
    if (normalizer != nullptr && !normalizer->is_null()) {
      TRY_STATUS(MustHaveType(*normalizer, "normalizer", "Sequence"));
      const Json* steps = normalizer->Find("normalizers");
      if (steps == nullptr || !steps->is_array() || !steps->as_array().empty()) {
        return Refuse("normalizer.normalizers", "empty",
                      steps == nullptr ? "missing" : DumpShort(*steps));
      }
    }
    const Json* decoder = root_.Find("decoder");
    if (decoder == nullptr) return Refuse("decoder", "of type ByteLevel", "missing");
    TRY_STATUS(MustHaveType(*decoder, "decoder", "ByteLevel"));
    // The ByteLevel post-processor only moves offsets, which nobody here asks for.
    const Json* post = root_.Find("post_processor");
    if (post == nullptr || post->is_null()) return {};
    return MustHaveType(*post, "post_processor", "ByteLevel");
  }

  Status ReadSplits() {
    const Json* pre = root_.Find("pre_tokenizer");
    if (pre == nullptr) return Refuse("pre_tokenizer", "of type Sequence", "missing");
    TRY_STATUS(MustHaveType(*pre, "pre_tokenizer", "Sequence"));
    const JsonArray* steps =
        TRY(JsonList(*pre, "pretokenizers", fmt::format("{}: pre_tokenizer", what_)));
    for (size_t i = 0; i < steps->size(); ++i) {
      const Json& step = (*steps)[i];
      const std::string path = fmt::format("pre_tokenizer.pretokenizers[{}]", i);
      if (i + 1 == steps->size()) {
        TRY_STATUS(MustHaveType(step, path, "ByteLevel"));
        TRY_STATUS(MustBeFalse(step, path, "add_prefix_space"));
        return MustBeFalse(step, path, "use_regex");
      }
      TRY_STATUS(MustHaveType(step, path, "Split"));
      const std::string behavior = TRY(JsonString(step, "behavior", what_));
      if (behavior != "Isolated") return Refuse(path + ".behavior", "\"Isolated\"", behavior);
      TRY_STATUS(MustBeOff(step, path + ".", "invert"));
      const Json* pattern = step.Find("pattern");
      const Json* regex = pattern == nullptr ? nullptr : pattern->Find("Regex");
      if (regex == nullptr || !regex->is_string()) {
        return Refuse(path + ".pattern", "{\"Regex\": text}",
                      pattern == nullptr ? "missing" : DumpShort(*pattern));
      }
      file_.split_patterns.push_back(regex->as_string());
    }
    return Refuse("pre_tokenizer.pretokenizers", "a list that ends with ByteLevel", "empty");
  }
  // For flags whose absence means true.
  Status MustBeFalse(const Json& object, std::string_view path, std::string_view key) const {
    const Json* value = object.Find(key);
    if (value != nullptr && value->is_bool() && !value->as_bool()) return {};
    return Refuse(fmt::format("{}.{}", path, key), "false",
                  value == nullptr ? "missing" : DumpShort(*value));
  }

  Status CheckModel(const Json& model) const {
    // Old files omit the type; "merges" below tells them from the other models.
    if (model.Find("type") != nullptr) TRY_STATUS(MustHaveType(model, "model", "BPE"));
    for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix",
                            "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges"}) {
      TRY_STATUS(MustBeOff(model, "model.", key));
    }
    return {};
  }

  Status AddToken(std::string_view spelling, const Json& id_json, std::string_view field) {
    if (!id_json.is_integer()) return Refuse(field, "an integer id", id_json.TypeName());
    const bool fits = std::holds_alternative<int64_t>(id_json.value()) && id_json.as_int() >= 0 &&
                      id_json.as_int() < static_cast<int64_t>(kVocabularyEntriesMax);
    if (!fits) {
      return Refuse(field, fmt::format("an id below {}", kVocabularyEntriesMax),
                    DumpShort(id_json));
    }
    if (spelling.empty()) return Refuse(field, "a token with text", "empty");
    if (spelling.size() > kTokenBytesMax) {
      return RefuseLimit(fmt::format("{}, in bytes,", field), kTokenBytesMax, spelling.size());
    }
    const auto id = static_cast<size_t>(id_json.as_int());
    if (file_.spellings.size() <= id) {
      file_.spellings.resize(id + 1);
      file_.is_control.resize(id + 1, 0);
    }
    if (!file_.spellings[id].empty() && file_.spellings[id] != spelling) {
      return Refuse(field, "the only token of its id",
                    fmt::format("a second token with id {}", id));
    }
    const auto [found, inserted] = ids_.emplace(spelling, static_cast<int32_t>(id));
    if (!inserted && found->second != static_cast<int32_t>(id)) {
      return Refuse(field, "listed under one id",
                    fmt::format("listed under {} and {}", found->second, id));
    }
    file_.spellings[id] = spelling;
    return {};
  }

  Status ReadVocabulary(const Json& model) {
    const JsonObject* vocabulary =
        TRY(JsonMembers(model, "vocab", fmt::format("{}: model", what_)));
    if (vocabulary->size() > kVocabularyEntriesMax) {
      return RefuseLimit("the size of model.vocab", kVocabularyEntriesMax, vocabulary->size());
    }
    ids_.reserve(vocabulary->size());
    size_t index = 0;
    for (const JsonMember& member : *vocabulary) {
      TRY_STATUS(
          AddToken(member.first, member.second, fmt::format("entry {} of model.vocab", index++)));
    }
    return {};
  }

  Status ReadAddedTokens() {
    const JsonArray* tokens = TRY(JsonList(root_, "added_tokens", what_));
    for (size_t i = 0; i < tokens->size(); ++i) {
      const std::string path = fmt::format("added_tokens[{}]", i);
      const std::string where = fmt::format("{}: {}", what_, path);
      const Json& token = (*tokens)[i];
      if (!token.is_object()) return Refuse(path, "an object", token.TypeName());
      const std::string content = TRY(JsonString(token, "content", where));
      const int64_t id = TRY(JsonInt(token, "id", where));
      for (const char* key : {"single_word", "lstrip", "rstrip"}) {
        TRY_STATUS(MustBeOff(token, path + ".", key));
      }
      TRY_STATUS(AddToken(content, Json(id), path));
      file_.is_control[static_cast<size_t>(id)] = 1;
    }
    return {};
  }

  Status ReadByteIds() {
    const std::array<uint32_t, 256> characters = ByteCharacters();
    for (size_t byte = 0; byte < characters.size(); ++byte) {
      std::string spelling;
      AppendUtf8(characters[byte], &spelling);
      const auto found = ids_.find(spelling);
      if (found == ids_.end()) {
        return Refuse("model.vocab", "complete over single bytes",
                      fmt::format("without byte 0x{:02x}", byte));
      }
      if (file_.is_control[static_cast<size_t>(found->second)] != 0) {
        return Refuse("added_tokens", "apart from the single bytes",
                      fmt::format("naming byte 0x{:02x}", byte));
      }
      file_.byte_ids[byte] = found->second;
    }
    return {};
  }

  // The two halves of a merge: "a b" or ["a", "b"].
  Status SplitMerge(const Json& merge, std::string_view path, std::string_view* left,
                    std::string_view* right) const {
    if (merge.is_string()) {
      const std::string_view text = merge.as_string();
      const size_t blank = text.find(' ');
      if (blank != std::string_view::npos && text.find(' ', blank + 1) == std::string_view::npos) {
        *left = text.substr(0, blank);
        *right = text.substr(blank + 1);
        return {};
      }
    } else if (merge.is_array() && merge.as_array().size() == 2 &&
               merge.as_array()[0].is_string() && merge.as_array()[1].is_string()) {
      *left = merge.as_array()[0].as_string();
      *right = merge.as_array()[1].as_string();
      return {};
    }
    return Refuse(path, "two tokens", DumpShort(merge));
  }

  Status ReadMerges(const Json& model) {
    const JsonArray* merges = TRY(JsonList(model, "merges", fmt::format("{}: model", what_)));
    if (merges->size() > kVocabularyEntriesMax) {
      return RefuseLimit("the number of model.merges", kVocabularyEntriesMax, merges->size());
    }
    std::unordered_map<uint64_t, size_t> first_rank;
    file_.merges.reserve(merges->size());
    for (size_t rank = 0; rank < merges->size(); ++rank) {
      const std::string path = fmt::format("model.merges[{}]", rank);
      std::string_view left;
      std::string_view right;
      TRY_STATUS(SplitMerge((*merges)[rank], path, &left, &right));
      BpeMerge merge;
      TRY_STATUS(FindToken(left, path, &merge.left));
      TRY_STATUS(FindToken(right, path, &merge.right));
      TRY_STATUS(FindToken(std::string(left) + std::string(right), path, &merge.merged));
      if (file_.is_control[static_cast<size_t>(merge.merged)] != 0) {
        return Refuse(path, "a merge to an ordinary token", "a way to spell a control token");
      }
      const uint64_t pair =
          uint64_t{static_cast<uint32_t>(merge.left)} << 32 | static_cast<uint32_t>(merge.right);
      const auto [found, inserted] = first_rank.emplace(pair, rank);
      if (!inserted) {
        return Refuse(path, "the only merge of its pair",
                      fmt::format("a repetition of model.merges[{}]", found->second));
      }
      file_.merges.push_back(merge);
    }
    return {};
  }
  Status FindToken(std::string_view spelling, std::string_view path, int32_t* id) const {
    const auto found = ids_.find(std::string(spelling));
    if (found == ids_.end()) {
      return Refuse(path, "made of tokens of model.vocab", "one with an unknown token");
    }
    *id = found->second;
    return {};
  }

  const Json& root_;
  std::string_view what_;
  TokenizerFile file_;
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace

Result<TokenizerFile> ParseTokenizerFile(std::string_view json, std::string_view what) {
  const Json root = TRY(ParseJson(json, what));
  return FileReader(root, what).Read();
}

std::string ByteSpelling(std::string_view bytes) {
  static const std::array<uint32_t, 256> kCharacters = ByteCharacters();
  std::string spelling;
  for (const char byte : bytes)
    AppendUtf8(kCharacters[static_cast<unsigned char>(byte)], &spelling);
  return spelling;
}

std::string SpelledBytes(std::string_view spelling) {
  static const std::array<int, kAlphabetEnd> kBytes = CharacterBytes();
  std::string bytes;
  std::string_view rest = spelling;
  while (!rest.empty()) {
    const Utf8Step step = ReadUtf8(rest);
    if (step.kind != Utf8Step::Kind::kCharacter || step.code_point >= kAlphabetEnd ||
        kBytes[step.code_point] < 0) {
      return std::string(spelling);
    }
    bytes += static_cast<char>(kBytes[step.code_point]);
    rest.remove_prefix(static_cast<size_t>(step.bytes));
  }
  return bytes;
}

}  // namespace minke
