// Reads tokenizer.json: normalizers, divisions, post-processing and decoding.
#include <algorithm>
#include <set>

#include <harmonics/error.hpp>

#include "tokenizer_files.hpp"

namespace huggingface {

using namespace harmonics;
using namespace harmonics::tokens;

namespace {

constexpr const char* kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr size_t kMostRules = 64;

// Calls `each` for the rule, or for each rule of a sequence.
template <typename Body>
void for_each_rule(const Node& node, const char* list, const Body& each) {
  if (!node.has()) return;
  if (node["type"].text() != "Sequence") return each(node);
  const Node rules = node[list];
  if (!rules.is_list() || rules.size() > kMostRules) rules.fail("is not a list of up to 64 rules");
  for (size_t i = 0; i < rules.size(); ++i) for_each_rule(rules[i], list, each);
}

[[noreturn]] void unknown_rule(const Node& node) {
  node["type"].fail("is " + node["type"].shown() + ", which is not known");
}

std::string decoded(const Node& node) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : node.text()) {
    if (c == '=') break;
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) node.fail("is not base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((count += 6) >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  return bytes;
}

// Reads {"String": TEXT} or {"Regex": EXPRESSION}.
std::string pattern_of(const Node& pattern, bool& literal) {
  literal = pattern["String"].has();
  return std::string(literal ? pattern["String"].text() : pattern["Regex"].text());
}

void add_normalizer(const Node& node, Vocabulary& to) {
  const std::string_view type = node["type"].text();
  Normalizer n;
  if (type == "NFC") {
    n.kind = NormalizerKind::nfc;
  } else if (type == "NFD") {
    n.kind = NormalizerKind::nfd;
  } else if (type == "NFKC") {
    n.kind = NormalizerKind::nfkc;
  } else if (type == "NFKD") {
    n.kind = NormalizerKind::nfkd;
  } else if (type == "Lowercase") {
    n.kind = NormalizerKind::lowercase;
  } else if (type == "StripAccents") {
    n.kind = NormalizerKind::strip_accents;
  } else if (type == "Strip") {
    n.kind = NormalizerKind::strip;
    n.left = node["strip_left"].truth(true);
    n.right = node["strip_right"].truth(true);
  } else if (type == "Prepend") {
    n.kind = NormalizerKind::prepend;
    n.text = node["prepend"].text();
  } else if (type == "Replace") {
    n.kind = NormalizerKind::replace;
    bool literal = true;
    n.text = pattern_of(node["pattern"], literal);
    n.expression = !literal;
    n.with = node["content"].text();
  } else if (type == "BertNormalizer") {
    n.kind = NormalizerKind::bert;
    n.clean = node["clean_text"].truth(true);
    n.chinese = node["handle_chinese_chars"].truth(true);
    n.lowercase = node["lowercase"].truth(true);
    n.accents = node["strip_accents"].truth(n.lowercase);
  } else if (type == "Precompiled") {
    n.kind = NormalizerKind::charsmap;
    n.text = decoded(node["precompiled_charsmap"]);
    if (n.text.empty()) return;
  } else {
    unknown_rule(node);
  }
  to.normalizers.push_back(std::move(n));
}

Behaviour behaviour_of(const Node& node) {
  const std::string_view text = node.text("Isolated");
  for (const auto& [name, behaviour] :
       {std::pair("Isolated", Behaviour::isolated), std::pair("Removed", Behaviour::removed),
        std::pair("MergedWithPrevious", Behaviour::with_previous), std::pair("MergedWithNext", Behaviour::with_next),
        std::pair("Contiguous", Behaviour::contiguous)})
    if (text == name) return behaviour;
  node.fail("is " + node.shown() + ", which is not known");
}

Prepend prepend_of(const Node& node) {
  const Node scheme = node["prepend_scheme"];
  if (!scheme.has()) return node["add_prefix_space"].truth(true) ? Prepend::always : Prepend::never;
  if (scheme.text() == "always") return Prepend::always;
  if (scheme.text() == "first") return Prepend::first;
  if (scheme.text() == "never") return Prepend::never;
  scheme.fail("is " + scheme.shown() + ", which is not known");
}

void add_division(const Node& node, Vocabulary& to) {
  const std::string_view type = node["type"].text();
  Division d;
  if (type == "Split") {
    d.kind = DivisionKind::split;
    d.pattern = pattern_of(node["pattern"], d.literal);
    d.behaviour = behaviour_of(node["behavior"]);
    d.invert = node["invert"].truth(false);
  } else if (type == "CharDelimiterSplit") {
    d.kind = DivisionKind::split;
    d.pattern = node["delimiter"].text();
    d.literal = true;
    d.behaviour = Behaviour::removed;
  } else if (type == "ByteLevel") {
    d.kind = DivisionKind::byte_level;
    d.prefix = node["add_prefix_space"].truth(true);
    d.words = node["use_regex"].truth(true);
    to.byte_alphabet = true;
  } else if (type == "Metaspace") {
    d.kind = DivisionKind::metaspace;
    d.mark = node["replacement"].text(kSpaceMark);
    d.prepend = prepend_of(node);
    d.words = node["split"].truth(true);
  } else if (type == "BertPreTokenizer") {
    d.kind = DivisionKind::bert;
  } else if (type == "Digits") {
    d.kind = DivisionKind::digits;
    d.individual = node["individual_digits"].truth(false);
  } else if (type == "Punctuation") {
    d.kind = DivisionKind::punctuation;
    d.behaviour = behaviour_of(node["behavior"]);
  } else if (type == "Whitespace") {
    d.kind = DivisionKind::whitespace;
  } else if (type == "WhitespaceSplit") {
    d.kind = DivisionKind::whitespace_split;
  } else if (type == "FixedLength") {
    d.kind = DivisionKind::length;
    const int64_t count = node["length"].integer();
    if (count < 1 || count > 1 << 20) node["length"].fail("is " + node["length"].shown());
    d.count = static_cast<uint32_t>(count);
  } else {
    unknown_rule(node);
  }
  to.divisions.push_back(std::move(d));
}

int32_t token_id(const Node& id, const Vocabulary& vocabulary) {
  const int64_t number = id.integer();
  if (number < 0 || static_cast<size_t>(number) >= vocabulary.tokens.size())
    id.fail("is " + id.shown() + ", not a token");
  return static_cast<int32_t>(number);
}

void set_begin(const Node& node, int32_t id, Vocabulary& to) {
  if (to.adds_bos) node.fail("adds several tokens before a text, which is not implemented");
  to.bos = id;
  to.adds_bos = true;
}

void set_end(const Node& node, int32_t id, Vocabulary& to) {
  if (to.adds_eos) node.fail("adds several tokens after a text, which is not implemented");
  to.eos = id;
  to.adds_eos = true;
}

void add_template(const Node& node, Vocabulary& to) {
  const Node single = node["single"];
  bool behind = false;
  for (size_t i = 0; i < single.size(); ++i) {
    if (single[i]["Sequence"].has()) {
      behind = true;
      continue;
    }
    const Node ids = node["special_tokens"][single[i]["SpecialToken"]["id"].text()]["ids"];
    for (size_t k = 0; k < ids.size(); ++k)
      behind ? set_end(single, token_id(ids[k], to), to) : set_begin(single, token_id(ids[k], to), to);
  }
}

void add_ends(const Node& node, Vocabulary& to) {
  const std::string_view type = node["type"].text();
  if (type == "ByteLevel") return;  // affects offsets only
  if (type == "TemplateProcessing") return add_template(node, to);
  if (type != "BertProcessing" && type != "RobertaProcessing") unknown_rule(node);
  set_begin(node, token_id(node["cls"][size_t{1}], to), to);
  set_end(node, token_id(node["sep"][size_t{1}], to), to);
}

void add_decoding(const Node& node, Vocabulary& to) {
  const std::string_view type = node["type"].text();
  if (type == "ByteLevel" || type == "ByteFallback" || type == "Fuse") return;
  if (type == "Replace") {
    bool literal = true;
    to.space_mark = pattern_of(node["pattern"], literal);
    if (!literal || node["content"].text() != " ") node.fail("replaces other characters than space markers");
  } else if (type == "Strip") {
    if (node["content"].text() != " " || node["start"].integer() > 1 || node["stop"].integer() != 0)
      node.fail("strips something other than one leading space");
    to.drops_first_space = node["start"].integer() == 1;
  } else if (type == "Metaspace") {
    to.space_mark = node["replacement"].text(kSpaceMark);
    to.drops_first_marks = prepend_of(node) != Prepend::never;
  } else if (type == "WordPiece") {
    to.cleans_up = node["cleanup"].truth(true);
  } else if (type != "BPEDecoder") {
    unknown_rule(node);
  }
}

}  // namespace

void read_rules(const Node& root, Vocabulary& to) {
  for_each_rule(root["normalizer"], "normalizers", [&](const Node& n) { add_normalizer(n, to); });
  for_each_rule(root["pre_tokenizer"], "pretokenizers", [&](const Node& n) { add_division(n, to); });
  for_each_rule(root["post_processor"], "processors", [&](const Node& n) { add_ends(n, to); });
  for_each_rule(root["decoder"], "decoders", [&](const Node& n) { add_decoding(n, to); });
}

}  // namespace huggingface
