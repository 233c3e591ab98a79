#include "train/tokenizer_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "recall/facts.h"
#include "recall/filler.h"
#include "text/compressed_vocabulary.h"
#include "text/control_tokens.h"
#include "text/tokenizer_file.h"
#include "text/tokenizer_splitter.h"
#include "train/corpus.h"

namespace minke::train {

namespace {

constexpr int64_t kFirstTokens = 3;  // bos, eos, pad
constexpr int64_t kByteTokens = 256;

// Words with the blank before them, endings as in "it's", single digits, runs of other characters,
// and white space, whose last blank goes with the word behind it. Digits stand alone so that a
// number is as many tokens as it has digits, whatever stands around it.
constexpr std::string_view kSplitPattern =
    R"('(?:s|t|re|ve|m|ll|d)(?!\p{L})| ?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// A distinct piece of the texts as tokens, and how often it occurs.
struct Piece {
  std::vector<int32_t> ids;
  int64_t count = 0;
};

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

class Merger {
 public:
  explicit Merger(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
    for (int32_t byte = 0; byte < kByteTokens; ++byte) {
      token_bytes_.emplace_back(1, static_cast<char>(byte));
      known_.emplace(token_bytes_.back(), byte);
    }
    for (size_t piece = 0; piece < pieces_.size(); ++piece) {
      const std::vector<int32_t>& ids = pieces_[piece].ids;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        Count(ids[i], ids[i + 1], pieces_[piece].count, piece);
      }
    }
  }

  // Merges the most frequent pair; the one of smaller ids where two are equally frequent. False:
  // no pair occurs twice.
  bool MergeBest() {
    constexpr int64_t kCountMin = 2;
    uint64_t best = 0;
    int64_t best_count = 0;
    for (const auto& [pair, count] : counts_) {
      if (count > best_count || (count == best_count && pair < best)) {
        best = pair;
        best_count = count;
      }
    }
    if (best_count < kCountMin) return false;
    Merge(static_cast<int32_t>(best >> 32), static_cast<int32_t>(best & 0xFFFFFFFF));
    return true;
  }

  // The tokens of a text under the merges so far. Earlier merges go first, as in any BPE.
  std::vector<int32_t> Encode(std::string_view text) const {
    std::vector<int32_t> ids;
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    while (true) {
      size_t at = ids.size();
      size_t best_rank = merges_.size();
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto found = ranks_.find(PairKey(ids[i], ids[i + 1]));
        if (found != ranks_.end() && found->second < best_rank) {
          best_rank = found->second;
          at = i;
        }
      }
      if (at == ids.size()) return ids;
      ids[at] = known_.at(token_bytes_[static_cast<size_t>(ids[at])] +
                          token_bytes_[static_cast<size_t>(ids[at + 1])]);
      ids.erase(ids.begin() + static_cast<int64_t>(at) + 1);
    }
  }

  // Merges that make each of the pieces one token, from left to right.
  int64_t MissingMerges(const std::vector<std::string>& required) const {
    std::set<std::string> added;
    for (const std::string& piece : required) {
      std::string made;
      for (const int32_t id : Encode(piece)) {
        const bool first = made.empty();
        made += token_bytes_[static_cast<size_t>(id)];
        if (!first && known_.find(made) == known_.end()) added.insert(made);
      }
    }
    return static_cast<int64_t>(added.size());
  }
  void MergeRequired(const std::vector<std::string>& required) {
    for (const std::string& piece : required) {
      for (std::vector<int32_t> ids = Encode(piece); ids.size() > 1; ids = Encode(piece)) {
        Merge(ids[0], ids[1]);
      }
    }
  }

  const std::vector<std::pair<int32_t, int32_t>>& merges() const { return merges_; }
  // By id: the bytes, the merged tokens after the single ones.
  const std::vector<std::string>& token_bytes() const { return token_bytes_; }

 private:
  void Count(int32_t left, int32_t right, int64_t count, size_t piece) {
    const uint64_t pair = PairKey(left, right);
    counts_[pair] += count;
    if (count > 0) where_[pair].push_back(static_cast<uint32_t>(piece));
  }

  void Merge(int32_t left, int32_t right) {
    const std::string bytes =
        token_bytes_[static_cast<size_t>(left)] + token_bytes_[static_cast<size_t>(right)];
    // Two pairs may spell the same token.
    const auto [found, inserted] = known_.emplace(bytes, static_cast<int32_t>(token_bytes_.size()));
    if (inserted) token_bytes_.push_back(bytes);
    const uint64_t pair = PairKey(left, right);
    ranks_.emplace(pair, merges_.size());
    merges_.emplace_back(left, right);
    const std::vector<uint32_t> places = std::move(where_[pair]);
    where_.erase(pair);
    for (const uint32_t piece : places) MergeIn(piece, left, right, found->second);
    counts_.erase(pair);
  }

  void MergeIn(size_t index, int32_t left, int32_t right, int32_t merged) {
    Piece& piece = pieces_[index];
    std::vector<int32_t>& ids = piece.ids;
    bool has = false;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      has = has || (ids[i] == left && ids[i + 1] == right);
    if (!has) return;
    for (size_t i = 0; i + 1 < ids.size(); ++i) Count(ids[i], ids[i + 1], -piece.count, index);
    std::vector<int32_t> joined;
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool here = i + 1 < ids.size() && ids[i] == left && ids[i + 1] == right;
      joined.push_back(here ? merged : ids[i]);
      if (here) ++i;
    }
    ids = std::move(joined);
    for (size_t i = 0; i + 1 < ids.size(); ++i) Count(ids[i], ids[i + 1], piece.count, index);
  }

  std::vector<Piece> pieces_;
  std::vector<std::string> token_bytes_;
  std::unordered_map<std::string, int32_t> known_;
  std::vector<std::pair<int32_t, int32_t>> merges_;
  std::unordered_map<uint64_t, size_t> ranks_;
  std::unordered_map<uint64_t, int64_t> counts_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> where_;  // pieces, some of them no longer
};

// Sorted, so that nothing depends on the order of a hash table.
Result<std::vector<Piece>> CountPieces(const std::vector<std::string_view>& texts) {
  const TokenizerSplitter splitter = TRY(
      TokenizerSplitter::Compile({std::string(kSplitPattern)}, "the pattern of the new tokenizer"));
  std::map<std::string, int64_t, std::less<>> counts;
  for (const std::string_view text : texts) {
    std::unordered_map<std::string, int64_t> local;
    splitter.Split(text, [&local](std::string_view piece) { ++local[std::string(piece)]; });
    for (const auto& [piece, count] : local) counts[piece] += count;
  }
  std::vector<Piece> pieces;
  for (const auto& [text, count] : counts) {
    Piece piece;
    for (const char byte : text) piece.ids.push_back(static_cast<unsigned char>(byte));
    piece.count = count;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

Json ControlToken(const std::string& content, int64_t id) {
  return Json(JsonObject{{"id", id},
                         {"content", content},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
}

Json ByteLevel() {
  return Json(JsonObject{{"type", "ByteLevel"},
                         {"add_prefix_space", false},
                         {"trim_offsets", true},
                         {"use_regex", false}});
}

Json TokenizerJson(const Merger& merger, int64_t vocab_size) {
  const std::vector<std::string> controls = ReleasedControlTokens();
  const auto tail = static_cast<int64_t>(controls.size()) - kFirstTokens;
  JsonArray added;
  for (size_t i = 0; i < controls.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    added.push_back(ControlToken(
        controls[i], index < kFirstTokens ? index : vocab_size - tail + index - kFirstTokens));
  }
  JsonObject vocabulary;
  std::vector<std::string> spellings;
  for (const std::string& bytes : merger.token_bytes()) {
    spellings.push_back(ByteSpelling(bytes));
    vocabulary.emplace_back(spellings.back(),
                            kFirstTokens + static_cast<int64_t>(vocabulary.size()));
  }
  JsonArray merges;
  for (const auto& [left, right] : merger.merges()) {
    merges.push_back(
        Json(spellings[static_cast<size_t>(left)] + " " + spellings[static_cast<size_t>(right)]));
  }
  const Json split(JsonObject{{"type", "Split"},
                              {"pattern", Json(JsonObject{{"Regex", std::string(kSplitPattern)}})},
                              {"behavior", "Isolated"},
                              {"invert", false}});
  return Json(JsonObject{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       Json(JsonObject{{"type", "Sequence"}, {"pretokenizers", JsonArray{split, ByteLevel()}}})},
      {"post_processor", ByteLevel()},
      {"decoder", ByteLevel()},
      {"model", Json(JsonObject{{"type", "BPE"},
                                {"dropout", nullptr},
                                {"unk_token", nullptr},
                                {"continuing_subword_prefix", nullptr},
                                {"end_of_word_suffix", nullptr},
                                {"fuse_unk", false},
                                {"byte_fallback", false},
                                {"vocab", std::move(vocabulary)},
                                {"merges", std::move(merges)}})}});
}

// A text of a corpus. Without any words in it a tokenizer could be made of the lines of facts, but
// no run would take it.
Result<std::string> ReadText(const std::string& corpus_dir, std::string_view name) {
  const std::string path = JoinPath(corpus_dir, std::string(name));
  std::string text = TRY(ReadFile(path, kFillerBytesMax));
  if (text.find_first_not_of(" \t\r\n\f") != std::string::npos) return text;
  return Fail(
      fmt::format("{} has no text in it; name a folder that tools/make_corpus.sh has made.", path));
}

}  // namespace

std::vector<std::string> ReleasedControlTokens() {
  std::vector<std::string> tokens;
  for (const std::string_view token :
       {kBosToken, kEosToken, kPadToken, kUserToken, kAssistantToken, kSystemToken,
        kThinkStartToken, kThinkEndToken, kDsmlToken, kLatestReminderToken, kImageToken}) {
    tokens.emplace_back(token);
  }
  // Of the internal tasks: "<｜task｜>" (serving.md 2.2).
  for (const char* task : {"action", "query", "authority", "domain", "title", "read_url"}) {
    tokens.push_back(fmt::format("<｜{}｜>", task));
  }
  for (const std::string_view token : kGroundingTokens) tokens.emplace_back(token);
  return tokens;
}

Result<std::string> TrainTokenizer(const std::vector<std::string_view>& texts,
                                   const TokenizerTrainingOptions& options) {
  const auto controls = static_cast<int64_t>(ReleasedControlTokens().size());
  const int64_t merged_tokens = options.vocab_size - controls - kByteTokens;
  if (merged_tokens < 0 || options.vocab_size > kTrainedVocabularyMax) {
    return Fail(
        ErrorCode::kLimit,
        fmt::format("The vocabulary must have from {} tokens (all bytes and control tokens) "
                    "to {}, but {} are asked for.",
                    controls + kByteTokens, kTrainedVocabularyMax, options.vocab_size));
  }
  Merger merger(TRY(CountPieces(texts)));
  const auto made = [&merger] {
    return static_cast<int64_t>(merger.token_bytes().size()) - kByteTokens;
  };
  // Frequent pairs as long as the required pieces have room after them. A merge may take one of
  // them nearer, never further by more than one token each.
  while (made() + merger.MissingMerges(options.required_pieces) < merged_tokens) {
    if (!merger.MergeBest()) {
      return Fail(
          fmt::format("The texts are too short for {} tokens: after {} no two tokens stand "
                      "together twice. Give more text or ask for fewer tokens.",
                      options.vocab_size, made() + controls + kByteTokens));
    }
  }
  merger.MergeRequired(options.required_pieces);
  while (made() < merged_tokens && merger.MergeBest()) continue;
  if (made() != merged_tokens) {
    return Fail(ErrorCode::kLimit,
                fmt::format("The required pieces need more than the {} tokens of the vocabulary.",
                            options.vocab_size));
  }
  return DumpJson(TokenizerJson(merger, options.vocab_size), JsonStyle::kPretty) + "\n";
}

Result<TokenizerReport> MakeTokenizer(const std::string& corpus_dir, const std::string& out_dir,
                                      int64_t vocab_size) {
  constexpr int64_t kRecallLines = 3'000;  // groups of lines; about 3 % of the corpus
  constexpr uint64_t kRecallSeed = 1;
  const std::string text = TRY(ReadText(corpus_dir, kCorpusTextFile));
  const std::string held_out = TRY(ReadText(corpus_dir, kHeldOutTextFile));
  const std::string lines = RecallLines(kRecallLines, kRecallSeed);
  TokenizerTrainingOptions options;
  options.vocab_size = vocab_size;
  options.required_pieces = RecallPieces();
  const std::string json = TRY(TrainTokenizer({text, lines}, options));
  const Tokenizer tokenizer = TRY(Tokenizer::Parse(json, "the new tokenizer.json"));
  const std::string config = TokenizerConfigText();
  TRY_STATUS(WriteFile(JoinPath(out_dir, "tokenizer.json"), std::as_bytes(std::span(json))));
  TRY_STATUS(
      WriteFile(JoinPath(out_dir, "tokenizer_config.json"), std::as_bytes(std::span(config))));
  TokenizerReport report;
  report.vocab_size = tokenizer.vocab_size();
  const std::vector<int32_t> classes = CompressVocabulary(tokenizer);
  report.compressed_vocab_size = *std::max_element(classes.begin(), classes.end()) + 1;
  const auto tokens = static_cast<double>(tokenizer.EncodePlain(held_out).size());
  report.bytes_per_token = tokens > 0 ? static_cast<double>(held_out.size()) / tokens : 0;
  return report;
}

std::vector<std::string> RecallPieces() {
  std::set<std::string> pieces;
  for (const std::string_view word : PlaceWords(WordSplit::kTraining)) {
    pieces.insert(" " + std::string(word));
  }
  for (const std::string_view word : ThingWords(WordSplit::kTraining)) {
    pieces.insert(" " + std::string(word));
  }
  for (const std::string_view attribute : AttributeWords()) {
    for (size_t at = 0; at < attribute.size();) {
      const size_t end = std::min(attribute.find(' ', at), attribute.size());
      pieces.insert(" " + std::string(attribute.substr(at, end - at)));
      at = end + 1;
    }
  }
  return {pieces.begin(), pieces.end()};
}

std::string RecallLines(int64_t count, uint64_t seed) {
  FactOptions options;
  options.facts = 4;
  options.questions = 4;
  options.invented_key_share = 0.1;
  options.word_value_share = 0.1;
  std::string lines;
  for (int64_t i = 0; i < count; ++i) {
    Random random({kTrainingDomain, seed, static_cast<uint64_t>(i)});
    const FactSet set = MakeFacts(options, random);
    for (const Fact& fact : set.facts) lines += fact.sentence + "\n";
    for (const Question& question : set.questions) {
      lines += question.text + "\n" + question.answer + "\n";
    }
  }
  return lines;
}

std::string TokenizerConfigText() {
  constexpr int64_t kModelLengthMax = 131'072;  // tokens, as max_position_embeddings
  const Json config(JsonObject{{"tokenizer_class", "PreTrainedTokenizerFast"},
                               {"add_bos_token", false},
                               {"add_eos_token", false},
                               {"bos_token", std::string(kBosToken)},
                               {"eos_token", std::string(kEosToken)},
                               {"pad_token", std::string(kPadToken)},
                               {"model_max_length", kModelLengthMax}});
  return DumpJson(config, JsonStyle::kPretty) + "\n";
}

}  // namespace minke::train
