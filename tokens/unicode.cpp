#include "tokens/unicode.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/utf8.hpp"

namespace harmonics::tokens {

namespace {

constexpr char32_t kHangul = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28, kSyllables = kLeads * kVowels * kTails;

struct Record {
  char32_t first = 0, more = 0;
  std::u32string values = {};
};

template <typename Take>
void read_records(const char* table, Take take) {
  const char* const end = table + std::strlen(table);
  const auto number = [&](const char*& at) {
    uint32_t value = 0;
    at = std::from_chars(at, end, value, 16).ptr;
    return static_cast<char32_t>(value);
  };
  for (const char* at = table; at < end; ++at) {  // skip the space
    Record record;
    record.first = number(at);
    if (*at == '+') record.more = number(++at);
    while (*at == '=' || *at == ',') record.values += number(++at);
    take(record);
  }
}

using Mapping = std::unordered_map<char32_t, std::u32string>;

Mapping mapping_of(const char* table) {
  Mapping mapping;
  read_records(table, [&](const Record& record) {
    for (char32_t i = 0; i <= record.more; ++i) {
      std::u32string values = record.values;
      values[0] += i;
      mapping.emplace(record.first + i, std::move(values));
    }
  });
  return mapping;
}

// Ranges of code points, each with a number.
class Rows {
 public:
  explicit Rows(const char* table) {
    read_records(table, [&](const Record& record) {
      rows_.push_back({record.first, record.first + record.more, record.values.empty() ? 1 : record.values[0]});
    });
    std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return a.first < b.first; });
  }
  uint32_t operator[](char32_t c) const {  // 0: in no range
    const auto after =
        std::upper_bound(rows_.begin(), rows_.end(), c, [](char32_t code, const Row& row) { return code < row.first; });
    return after == rows_.begin() || std::prev(after)->last < c ? 0 : std::prev(after)->number;
  }

 private:
  struct Row {
    char32_t first, last;
    uint32_t number;
  };
  std::vector<Row> rows_;
};

struct Forms {
  Mapping canonical = mapping_of(unicode::kCanonical), compatible = mapping_of(unicode::kCompatible);
  Rows classes{unicode::kClasses};
  std::map<std::pair<char32_t, char32_t>, char32_t> pairs;

  Forms() {
    const Rows excluded(unicode::kExcluded);
    std::vector<std::pair<std::u32string, char32_t>> composed;  // sorted by length: pairs before triples
    for (const auto& [code, parts] : canonical)
      if (parts.size() > 1 && !excluded[code]) composed.emplace_back(parts, code);
    std::sort(composed.begin(), composed.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first.size(), a.first) < std::pair(b.first.size(), b.first);
    });
    for (const auto& [parts, code] : composed) {
      char32_t first = parts[0];
      for (size_t i = 1; i + 1 < parts.size(); ++i) first = pairs.at({first, parts[i]});
      pairs.emplace(std::pair(first, parts.back()), code);
    }
  }
};

const Forms& forms() {
  static const Forms all;
  return all;
}

void decompose(char32_t c, bool compatible, std::u32string& out) {
  if (c >= kHangul && c < kHangul + kSyllables) {
    const char32_t index = c - kHangul, tail = index % kTails;
    out.push_back(kLead + index / (kVowels * kTails));
    out.push_back(kVowel + index / kTails % kVowels);
    if (tail) out.push_back(kTail + tail);
    return;
  }
  if (compatible)
    if (const auto at = forms().compatible.find(c); at != forms().compatible.end()) {
      out += at->second;
      return;
    }
  if (const auto at = forms().canonical.find(c); at != forms().canonical.end())
    out += at->second;
  else
    out += c;
}

char32_t composed(char32_t a, char32_t b) {  // 0: no composition
  if (a >= kLead && a < kLead + kLeads && b >= kVowel && b < kVowel + kVowels)
    return kHangul + ((a - kLead) * kVowels + (b - kVowel)) * kTails;
  if (a >= kHangul && a < kHangul + kSyllables && (a - kHangul) % kTails == 0 && b > kTail && b < kTail + kTails)
    return a + (b - kTail);
  const auto at = forms().pairs.find({a, b});
  return at == forms().pairs.end() ? 0 : at->second;
}

// Sorts runs of combining marks by their combining class.
void order_marks(std::u32string& text) {
  const Rows& classes = forms().classes;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && classes[text[end]] != 0) ++end;
    std::stable_sort(text.begin() + static_cast<ptrdiff_t>(at), text.begin() + static_cast<ptrdiff_t>(end),
                     [&](char32_t a, char32_t b) { return classes[a] < classes[b]; });
    at = std::max(end, at + 1);
  }
}

void compose(std::u32string& text) {
  const Rows& classes = forms().classes;
  std::u32string out;
  size_t starter = std::u32string::npos;  // index in `out` of the last character of class 0
  uint32_t last = 0;                      // class of the last character of `out`
  for (const char32_t c : text) {
    const uint32_t own = classes[c];
    const bool blocked = starter == std::u32string::npos || (starter + 1 < out.size() && last >= own);
    if (!blocked)
      if (const char32_t joined = composed(out[starter], c)) {
        out[starter] = joined;
        continue;
      }
    if (own == 0) starter = out.size();
    last = own;
    out += c;
  }
  text = std::move(out);
}

std::string encoded(const std::u32string& text) {
  std::string out;
  for (const char32_t c : text) append(out, c);
  return out;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

void append(std::string& text, char32_t c) {
  const auto byte = [&](char32_t value) { text += static_cast<char>(value); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) {
    byte(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      byte(0xE0 | c >> 12);
    } else {
      byte(0xF0 | c >> 18);
      byte(0x80 | (c >> 12 & 0x3F));
    }
    byte(0x80 | (c >> 6 & 0x3F));
  }
  byte(0x80 | (c & 0x3F));
}

std::u32string characters(std::string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    out += point.value;
    at += point.length;
  }
  return out;
}

std::string normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  std::u32string out;
  for (const char32_t c : characters(text)) decompose(c, form == NormalForm::nfkc || form == NormalForm::nfkd, out);
  order_marks(out);
  if (form == NormalForm::nfc || form == NormalForm::nfkc) compose(out);
  return encoded(out);
}

std::string lowercase(std::string_view text) {
  static const Mapping lower = mapping_of(unicode::kLower);
  std::u32string out;
  for (const char32_t c : characters(text))
    if (const auto at = lower.find(c); at != lower.end())
      out += at->second;
    else
      out += c;
  return encoded(out);
}

bool is_nonspacing_mark(char32_t c) {
  static const Rows rows(unicode::kMarks);
  return rows[c] != 0;
}
bool is_mark(char32_t c) {
  static const Rows others(unicode::kOtherMarks);
  return is_nonspacing_mark(c) || others[c] != 0;
}
bool is_punctuation(char32_t c) {
  static const Rows rows(unicode::kPunctuation);
  return rows[c] != 0;
}
bool is_punctuation_of_bert(char32_t c) {
  if (c < 0x80) return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7F);
  return is_punctuation(c);
}
bool is_other(char32_t c) {
  static const Rows rows(unicode::kOther);
  return rows[c] != 0;
}
bool is_number(char32_t c) {
  static const Rows rows(unicode::kNumbers);
  return rows[c] != 0;
}

bool is_of_word(char32_t c) {
  static const Rows rows(unicode::kWord);
  return rows[c] != 0;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

}  // namespace harmonics::tokens
