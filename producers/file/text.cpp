#include "producers/file/text.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace harmonics {
namespace {

// The character at `at`, which moves behind it. Refuses what Unicode does not allow: overlong forms, surrogates, cut
// ends.
char32_t next_character(const std::string& name, std::string_view text, size_t& at) {
  const size_t start = at;
  const auto lead = static_cast<uint8_t>(text[at++]);
  if (lead == 0)
    refuse_file(name, "is no text: byte " + std::to_string(start) + " is zero", "use format= to say what it is");
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 && lead <= 0xF4 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t c = lead & (0x3F >> more);
  bool good = lead >= 0xC2 && lead <= 0xF4;
  for (int i = 0; i < more && good; ++i) {
    good = at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
    if (good) c = c << 6 | (static_cast<uint8_t>(text[at++]) & 0x3F);
  }
  const char32_t least[] = {0, 0x80, 0x800, 0x10000};
  good = good && c >= least[more] && c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
  if (!good)
    refuse_file(name, "is not UTF-8: byte " + std::to_string(start) + " begins no character",
                "convert it, for example with iconv -t UTF-8");
  return c;
}

std::string utf8(char32_t c) {
  std::string s;
  if (c < 0x80) return s += static_cast<char>(c);
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  s += static_cast<char>((0xF0 << (3 - more) & 0xFF) | c >> (6 * more));
  for (int i = more; i-- > 0;) s += static_cast<char>(0x80 | (c >> (6 * i) & 0x3F));
  return s;
}

std::vector<char32_t> characters_of(const std::string& name, std::string_view text) {
  std::vector<bool> seen(0x110000);
  std::vector<char32_t> characters;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(name, text, at);
    if (!seen[c]) characters.push_back(c);
    seen[c] = true;
  }
  return characters;
}

std::vector<char32_t> vocabulary_of(const FileBytes& file, const std::string& given) {
  if (!given.empty()) return characters_of("vocabulary=", given);
  std::vector<char32_t> vocabulary = characters_of(file.name(), file.text());
  std::sort(vocabulary.begin(), vocabulary.end());
  return vocabulary;
}

// Each character as its index, in one byte while 256 symbols are enough, else in four.
SymbolRow encoded(const FileBytes& file, const std::vector<char32_t>& vocabulary) {
  std::unordered_map<char32_t, uint32_t> index;
  for (uint32_t i = 0; i < vocabulary.size(); ++i) index[vocabulary[i]] = i;
  const size_t width = vocabulary.size() <= 256 ? 1 : 4;
  const auto bytes = FileBytes::reserve(file.name(), file.size() * width);
  uint8_t* to = bytes->writable();
  size_t line = 1;
  for (size_t at = 0; at < file.size();) {
    const size_t start = at;
    const char32_t c = next_character(file.name(), file.text(), at);
    const auto found = index.find(c);
    if (found == index.end())
      refuse_file(file.name(),
                  "has the character '" + utf8(c) + "' at byte " + std::to_string(start) + ", line " +
                      std::to_string(line) + ", which vocabulary= does not hold",
                  "add it there, or leave vocabulary= out");
    if (c == '\n') ++line;
    std::memcpy(to, &found->second, width);
    to += width;
  }
  bytes->shrink(static_cast<size_t>(to - bytes->data()));
  return {bytes, 0, width};
}

}  // namespace

std::shared_ptr<Producer> read_text(const FileBytesPtr& file, const TextOptions& options) {
  const std::vector<char32_t> vocabulary = vocabulary_of(*file, options.vocabulary);
  std::vector<std::string> symbols;
  for (const char32_t c : vocabulary) symbols.push_back(utf8(c));
  return std::make_shared<WindowProducer>(encoded(*file, vocabulary), options.windows, "characters",
                                          static_cast<int64_t>(vocabulary.size()), std::move(symbols));
}

}  // namespace harmonics
