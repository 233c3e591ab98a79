#include "recall/words.h"

#include <algorithm>
#include <array>

namespace minke {

namespace {

using namespace std::string_view_literals;

constexpr std::array kPlaces = {
    "harbour"sv,  "school"sv,   "library"sv, "museum"sv,  "station"sv,  "airport"sv,  "hotel"sv,
    "market"sv,   "garden"sv,   "castle"sv,  "bridge"sv,  "tower"sv,    "church"sv,   "theatre"sv,
    "hospital"sv, "factory"sv,  "bakery"sv,  "cinema"sv,  "stadium"sv,  "office"sv,   "kitchen"sv,
    "cellar"sv,   "attic"sv,    "garage"sv,  "studio"sv,  "gallery"sv,  "chapel"sv,   "palace"sv,
    "farm"sv,     "orchard"sv,  "mill"sv,    "barn"sv,    "stable"sv,   "forest"sv,   "river"sv,
    "lake"sv,     "island"sv,   "beach"sv,   "valley"sv,  "mountain"sv, "desert"sv,   "village"sv,
    "city"sv,     "county"sv,   "border"sv,  "eastern"sv, "western"sv,  "northern"sv, "upper"sv,
    "lower"sv,    "central"sv,  "main"sv,    "old"sv,     "new"sv,      "red"sv,      "green"sv,
    "blue"sv,     "white"sv,    "black"sv,   "silver"sv,  "golden"sv,   "copper"sv,   "wooden"sv,
    "stone"sv,    "hidden"sv,   "private"sv, "public"sv,  "royal"sv,    "summer"sv,   "winter"sv,
    "morning"sv,  "evening"sv,  "night"sv,   "tunnel"sv,  "quarry"sv,   "pier"sv,     "dock"sv,
    "ferry"sv,    "railway"sv,  "embassy"sv, "academy"sv, "clinic"sv,   "temple"sv,   "arena"sv,
    "depot"sv,    "workshop"sv,
};
constexpr std::array kPlacesHeldOut = {
    "southern"sv, "vineyard"sv, "canyon"sv,  "laboratory"sv, "lighthouse"sv, "monastery"sv,
    "brewery"sv,  "meadow"sv,   "citadel"sv, "marina"sv,     "pavilion"sv,   "nursery"sv,
};
constexpr std::array kThings = {
    "gate"sv,      "door"sv,    "safe"sv,     "locker"sv,  "cabinet"sv,  "vault"sv,   "shed"sv,
    "boiler"sv,    "pump"sv,    "engine"sv,   "printer"sv, "server"sv,   "radio"sv,   "camera"sv,
    "scanner"sv,   "lift"sv,    "alarm"sv,    "clock"sv,   "lamp"sv,     "desk"sv,    "drawer"sv,
    "box"sv,       "chest"sv,   "trunk"sv,    "crate"sv,   "barrel"sv,   "tank"sv,    "meter"sv,
    "sensor"sv,    "switch"sv,  "panel"sv,    "console"sv, "terminal"sv, "piano"sv,   "organ"sv,
    "bell"sv,      "statue"sv,  "fountain"sv, "archive"sv, "ledger"sv,   "map"sv,     "globe"sv,
    "boat"sv,      "truck"sv,   "tractor"sv,  "trailer"sv, "wagon"sv,    "bicycle"sv, "crane"sv,
    "generator"sv, "furnace"sv, "oven"sv,     "freezer"sv, "ladder"sv,   "window"sv,  "hatch"sv,
    "kiosk"sv,     "booth"sv,   "cupboard"sv, "room"sv,
};
constexpr std::array kThingsHeldOut = {
    "telescope"sv, "compressor"sv, "turbine"sv,  "elevator"sv, "microscope"sv,
    "shutter"sv,   "antenna"sv,    "aquarium"sv, "carousel"sv, "projector"sv,
};
constexpr std::array kAttributes = {
    "access code"sv,  "serial number"sv, "pin"sv,          "password"sv,   "locker number"sv,
    "gate code"sv,    "phone number"sv,  "badge number"sv, "box number"sv, "account number"sv,
    "order number"sv, "key code"sv,      "code word"sv,    "reference"sv,
};
constexpr std::array kValueWords = {
    "amber"sv,   "violet"sv,  "scarlet"sv, "indigo"sv,  "ivory"sv,   "cedar"sv,   "maple"sv,
    "willow"sv,  "birch"sv,   "walnut"sv,  "falcon"sv,  "raven"sv,   "otter"sv,   "badger"sv,
    "heron"sv,   "salmon"sv,  "tiger"sv,   "eagle"sv,   "dolphin"sv, "mango"sv,   "cherry"sv,
    "lemon"sv,   "olive"sv,   "pepper"sv,  "ginger"sv,  "saffron"sv, "vanilla"sv, "granite"sv,
    "marble"sv,  "quartz"sv,  "topaz"sv,   "ruby"sv,    "emerald"sv, "pearl"sv,   "mercury"sv,
    "saturn"sv,  "jupiter"sv, "neptune"sv, "comet"sv,   "anchor"sv,  "beacon"sv,  "compass"sv,
    "lantern"sv, "hammer"sv,  "velvet"sv,  "cotton"sv,  "linen"sv,   "canvas"sv,  "thunder"sv,
    "breeze"sv,  "meteor"sv,  "pilgrim"sv, "captain"sv, "dragon"sv,  "rocket"sv,  "shadow"sv,
};

// The value always follows the key: the row that holds the value's tokens can then hold what key
// they belong to, while one that comes before its key cannot.
constexpr std::array kFacts = {
    "The {a} of {k} is {v}."sv,
    "For {k}, the {a} is {v}."sv,
    "{K} has the {a} {v}."sv,
    "Remember: {k} uses {a} {v}."sv,
    "{K} has {a} {v}."sv,
    "Note that the {a} for {k} is {v}."sv,
    "At {k} the {a} reads {v}."sv,
    "The {a} of {k} was set to {v}."sv,
    "Anyone who asks about {k} is told that its {a} is {v}."sv,
    "About {k} we know that the {a} is {v}."sv,
    "Please note the {a} of {k}: {v}."sv,
};
constexpr std::array kFactsHeldOut = {
    "As of today the {a} of {k} stands at {v}."sv,
    "{K} was given the {a} {v}."sv,
    "In the register {k} appears with the {a} {v}."sv,
};
constexpr std::array kQuestions = {
    "What is the {a} of {k}?"sv,  "Which {a} does {k} have?"sv,
    "Tell me the {a} of {k}."sv,  "What {a} is given for {k}?"sv,
    "I need the {a} for {k}."sv,  "Please look up {k}: what is its {a}?"sv,
    "{K} has which {a}?"sv,       "Do you remember the {a} of {k}?"sv,
    "What is the {a} for {k}?"sv,
};
constexpr std::array kQuestionsHeldOut = {
    "What does the text say about the {a} of {k}?"sv,
    "Could you give me the {a} that {k} has?"sv,
    "Find the {a} that belongs to {k}."sv,
};
constexpr std::array kFollowUps = {
    "And the {a} of {k}?"sv,
    "And what about {k}?"sv,
    "And {k}?"sv,
    "Now the {a} of {k}, please."sv,
};
constexpr std::array kLists = {
    " {n}: {v};"sv,
    " {n} is {v}."sv,
    " {n} = {v},"sv,
    " {k} has {v}."sv,
    " The {a} of {k} is {v}."sv,
    "{a} {n} {v}\n"sv,
};
constexpr std::array kSystems = {
    "You are a helpful assistant."sv,
    "Answer briefly."sv,
    "You answer questions about the text."sv,
    "Answer the question with what the document says."sv,
    "You are a careful assistant. Be exact."sv,
    "Use only the text that the user gives you."sv,
};

constexpr std::array kOnsets = {"b"sv, "br"sv, "d"sv, "dr"sv, "f"sv, "g"sv, "h"sv,
                                "k"sv, "kl"sv, "l"sv, "m"sv,  "n"sv, "p"sv, "r"sv,
                                "s"sv, "st"sv, "t"sv, "tr"sv, "v"sv, "w"sv, "z"sv};
constexpr std::array kVowels = {"a"sv, "e"sv, "i"sv, "o"sv, "u"sv, "ai"sv, "ou"sv};
constexpr std::array kCodas = {""sv, "l"sv, "n"sv, "r"sv, "s"sv, "m"sv, "th"sv, "ck"sv};

template <typename List>
bool Contains(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
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
