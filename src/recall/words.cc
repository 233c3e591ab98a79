#include "recall/words.h"

#include <algorithm>
#include <iterator>

namespace minke {

namespace {

constexpr std::string_view kPlaces[] = {
    "harbour", "school",  "library", "museum", "station", "airport",  "hotel",    "market",
    "garden",  "castle",  "bridge",  "tower",  "church",  "theatre",  "hospital", "factory",
    "bakery",  "cinema",  "stadium", "office", "kitchen", "cellar",   "attic",    "garage",
    "studio",  "gallery", "chapel",  "palace", "farm",    "orchard",  "mill",     "barn",
    "stable",  "forest",  "river",   "lake",   "island",  "beach",    "valley",   "mountain",
    "desert",  "village", "city",    "county", "border",  "eastern",  "western",  "northern",
    "upper",   "lower",   "central", "main",   "old",     "new",      "red",      "green",
    "blue",    "white",   "black",   "silver", "golden",  "copper",   "wooden",   "stone",
    "hidden",  "private", "public",  "royal",  "summer",  "winter",   "morning",  "evening",
    "night",   "tunnel",  "quarry",  "pier",   "dock",    "ferry",    "railway",  "embassy",
    "academy", "clinic",  "temple",  "arena",  "depot",   "workshop",
};
constexpr std::string_view kPlacesHeldOut[] = {
    "southern", "vineyard", "canyon",  "laboratory", "lighthouse", "monastery",
    "brewery",  "meadow",   "citadel", "marina",     "pavilion",   "nursery",
};
constexpr std::string_view kThings[] = {
    "gate",     "door",      "safe",     "locker", "cabinet", "vault",    "shed",    "boiler",
    "pump",     "engine",    "printer",  "server", "radio",   "camera",   "scanner", "lift",
    "alarm",    "clock",     "lamp",     "desk",   "drawer",  "box",      "chest",   "trunk",
    "crate",    "barrel",    "tank",     "meter",  "sensor",  "switch",   "panel",   "console",
    "terminal", "piano",     "organ",    "bell",   "statue",  "fountain", "archive", "ledger",
    "map",      "globe",     "boat",     "truck",  "tractor", "trailer",  "wagon",   "bicycle",
    "crane",    "generator", "furnace",  "oven",   "freezer", "ladder",   "window",  "hatch",
    "kiosk",    "booth",     "cupboard", "room",
};
constexpr std::string_view kThingsHeldOut[] = {
    "telescope", "compressor", "turbine",  "elevator", "microscope",
    "shutter",   "antenna",    "aquarium", "carousel", "projector",
};
constexpr std::string_view kAttributes[] = {
    "access code",  "serial number", "pin",          "password",   "locker number",
    "gate code",    "phone number",  "badge number", "box number", "account number",
    "order number", "key code",      "code word",    "reference",
};
constexpr std::string_view kValueWords[] = {
    "amber",   "violet",  "scarlet", "indigo",  "ivory",   "cedar",   "maple",  "willow",
    "birch",   "walnut",  "falcon",  "raven",   "otter",   "badger",  "heron",  "salmon",
    "tiger",   "eagle",   "dolphin", "mango",   "cherry",  "lemon",   "olive",  "pepper",
    "ginger",  "saffron", "vanilla", "granite", "marble",  "quartz",  "topaz",  "ruby",
    "emerald", "pearl",   "mercury", "saturn",  "jupiter", "neptune", "comet",  "anchor",
    "beacon",  "compass", "lantern", "hammer",  "velvet",  "cotton",  "linen",  "canvas",
    "thunder", "breeze",  "meteor",  "pilgrim", "captain", "dragon",  "rocket", "shadow",
};

// The value always follows the key: the row that holds the value's tokens can then hold what key
// they belong to, while one that comes before its key cannot.
constexpr std::string_view kFacts[] = {
    "The {a} of {k} is {v}.",
    "For {k}, the {a} is {v}.",
    "{K} has the {a} {v}.",
    "Remember: {k} uses {a} {v}.",
    "{K} has {a} {v}.",
    "Note that the {a} for {k} is {v}.",
    "At {k} the {a} reads {v}.",
    "The {a} of {k} was set to {v}.",
    "Anyone who asks about {k} is told that its {a} is {v}.",
    "About {k} we know that the {a} is {v}.",
    "Please note the {a} of {k}: {v}.",
};
constexpr std::string_view kFactsHeldOut[] = {
    "As of today the {a} of {k} stands at {v}.",
    "{K} was given the {a} {v}.",
    "In the register {k} appears with the {a} {v}.",
};
constexpr std::string_view kQuestions[] = {
    "What is the {a} of {k}?",  "Which {a} does {k} have?",
    "Tell me the {a} of {k}.",  "What {a} is given for {k}?",
    "I need the {a} for {k}.",  "Please look up {k}: what is its {a}?",
    "{K} has which {a}?",       "Do you remember the {a} of {k}?",
    "What is the {a} for {k}?",
};
constexpr std::string_view kQuestionsHeldOut[] = {
    "What does the text say about the {a} of {k}?",
    "Could you give me the {a} that {k} has?",
    "Find the {a} that belongs to {k}.",
};
constexpr std::string_view kFollowUps[] = {
    "And the {a} of {k}?",
    "And what about {k}?",
    "And {k}?",
    "Now the {a} of {k}, please.",
};
constexpr std::string_view kLists[] = {
    " {n}: {v};",    " {n} is {v}.", " {n} = {v},", " {k} has {v}.", " The {a} of {k} is {v}.",
    "{a} {n} {v}\n",
};
constexpr std::string_view kSystems[] = {
    "You are a helpful assistant.",           "Answer briefly.",
    "You answer questions about the text.",   "Answer the question with what the document says.",
    "You are a careful assistant. Be exact.", "Use only the text that the user gives you.",
};

constexpr std::string_view kOnsets[] = {"b", "br", "d", "dr", "f",  "g", "h",  "k", "kl", "l", "m",
                                        "n", "p",  "r", "s",  "st", "t", "tr", "v", "w",  "z"};
constexpr std::string_view kVowels[] = {"a", "e", "i", "o", "u", "ai", "ou"};
constexpr std::string_view kCodas[] = {"", "l", "n", "r", "s", "m", "th", "ck"};

template <typename List>
bool Contains(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

}  // namespace

std::span<const std::string_view> PlaceWords(WordSplit split) {
  if (split == WordSplit::kHeldOut) return kPlacesHeldOut;
  return kPlaces;
}
std::span<const std::string_view> ThingWords(WordSplit split) {
  if (split == WordSplit::kHeldOut) return kThingsHeldOut;
  return kThings;
}
std::span<const std::string_view> AttributeWords() {
  return kAttributes;
}
std::span<const std::string_view> ValueWords() {
  return kValueWords;
}
std::span<const std::string_view> FactTemplates(WordSplit split) {
  if (split == WordSplit::kHeldOut) return kFactsHeldOut;
  return kFacts;
}
std::span<const std::string_view> QuestionTemplates(WordSplit split) {
  if (split == WordSplit::kHeldOut) return kQuestionsHeldOut;
  return kQuestions;
}
std::span<const std::string_view> FollowUpTemplates() {
  return kFollowUps;
}
std::span<const std::string_view> ListTemplates() {
  return kLists;
}
std::span<const std::string_view> SystemMessages() {
  return kSystems;
}

std::string InventedName(Random& random) {
  constexpr int64_t kSyllablesMin = 2;
  constexpr int64_t kSyllablesMax = 3;
  std::string name;
  const int64_t syllables = random.Between(kSyllablesMin, kSyllablesMax);
  for (int64_t i = 0; i < syllables; ++i) {
    name += random.Pick(kOnsets);
    name += random.Pick(kVowels);
  }
  name += random.Pick(kCodas);
  name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name;
}

bool IsHeldOutWord(std::string_view word) {
  return Contains(kPlacesHeldOut, word) || Contains(kThingsHeldOut, word);
}

}  // namespace minke
