// A document with facts in it, and a conversation about them in the released chat format, cut to a
// number of tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "recall/facts.h"
#include "recall/filler.h"
#include "text/chat_encoding.h"
#include "text/tokenizer.h"

namespace minke {

// Where the document stands.
enum class DocumentPlace {
  kUser,        // in the first question's message, before the question
  kSystem,      // in the system message
  kPartOfUser,  // in a message part of its own, as clients send attached files
};

struct CaseOptions {
  // At most so many tokens, and as many as whole words allow: at least 4 fewer unless the filler
  // has longer words. REQUIRES room for the facts and the questions without any filler.
  int64_t tokens = 1024;
  FactOptions facts;
  ThinkingMode thinking_mode = ThinkingMode::kChat;
  int reasoning_effort = kReasoningEffortDefault;
  DocumentPlace place = DocumentPlace::kUser;
  std::string system;  // "": no system message, or with kSystem only the document
  // Questions follow each other as turns, all answered but the last; answer_last: that one too, as
  // a training row wants it.
  bool answer_last = false;
  // Each question is the only one of a conversation of its own about the same document: see
  // AskedAbout(). `tokens` then holds for each conversation.
  bool separate_questions = false;
};

struct RecallCase {
  FactSet facts;
  std::string document;
  ChatRequest request;
  // Of the whole conversation; of separate ones, that with the longest question. At most `tokens`.
  std::vector<int32_t> ids;
  // By question: the index in `ids` of the token that the fact's value ends with; none of a
  // training row (answer_last), which has no use for them. Exact where the tokenizer never joins
  // the value to what follows it.
  std::vector<int64_t> value_positions;
};

// Takes the filler's sentences from a random one on, in order, and puts the facts between them at
// random places, all before the first question. An error where the facts and questions alone are
// longer than `tokens`, naming both numbers.
Result<RecallCase> MakeRecallCase(const CaseOptions& options, const Filler& filler,
                                  const Tokenizer& tokenizer, Random& random);

// The conversation with that question alone, unanswered.
ChatRequest AskedAbout(const RecallCase& recall, const CaseOptions& options, size_t question);

}  // namespace minke
