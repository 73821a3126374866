#include "producers/file/text.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include <harmonics/quantity.hpp>

#include "producers/file/characters.hpp"

namespace harmonics {
namespace {

// Returns the character at `at` and advances.
char32_t next_character(const std::string& name, std::string_view text, size_t& at) {
  const size_t start = at;
  if (text[at] == '\0')
    refuse_file(name, "is not text: byte " + std::to_string(start) + " is zero", "use format= to set its format");
  const std::optional<char32_t> c = character_at(text, at);
  if (!c)
    refuse_file(name, "is not UTF-8: byte " + std::to_string(start) + " does not begin a character", convert_to_utf8);
  return *c;
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

using CharacterIndex = std::unordered_map<char32_t, uint32_t>;

// Calls take() with the index of each character. Rejects characters that are not in the vocabulary.
template <typename Take>
void each_index(const FileBytes& file, const CharacterIndex& index, bool learned, Take take) {
  size_t line = 1;
  for (size_t at = 0; at < file.size();) {
    const size_t start = at;
    const char32_t c = next_character(file.name(), file.text(), at);
    const auto found = index.find(c);
    if (found == index.end())
      refuse_file(
          file.name(),
          "has the character '" + utf8(c) + "' at byte " + std::to_string(start) + ", line " + std::to_string(line) +
              (learned ? ", which is unknown to the weights" : ", which vocabulary= does not hold"),
          learned
              ? "they know " + quantity(index.size(), "character") + ": replace it, or train on text that contains it"
              : "add it there, or leave vocabulary= out");
    if (c == '\n') ++line;
    take(found->second);
  }
}

// Encodes each character as its index. ASCII text is not copied but mapped on reading; other text is copied, with the
// fewest bytes per character that the vocabulary needs.
SymbolRow encoded(const FileBytesPtr& file, const std::vector<char32_t>& vocabulary, bool learned) {
  CharacterIndex index;
  for (uint32_t i = 0; i < vocabulary.size(); ++i) index[vocabulary[i]] = i;
  if (std::all_of(vocabulary.begin(), vocabulary.end(), [](char32_t c) { return c < 0x80; })) {
    SymbolRow row{file, 0, 1, std::make_shared<SymbolRow::Table>()};
    row.table->fill(SymbolRow::no_symbol);
    for (const auto& [character, i] : index) (*row.table)[character] = static_cast<uint8_t>(i);
    each_index(*file, index, learned, [](uint32_t) {});
    return row;
  }
  const size_t width = vocabulary.size() <= 0x100 ? 1 : vocabulary.size() <= 0x10000 ? 2 : 4;
  const auto begins = [](char c) { return (c & 0xC0) != 0x80; };
  const auto characters = std::count_if(file->text().begin(), file->text().end(), begins);
  const size_t size = static_cast<size_t>(characters) * width;  // less than 4 bytes per byte of the file
  const auto bytes = FileBytes::reserve(file->name(), size, file->budget());
  bytes->charge(size, "the numbers of its characters");
  uint8_t* to = bytes->writable();
  each_index(*file, index, learned, [&](uint32_t i) {
    std::memcpy(to, &i, width);
    to += width;
  });
  return {bytes, 0, width, nullptr};
}

}  // namespace

std::shared_ptr<Producer> read_text(const FileBytesPtr& file, const TextOptions& options) {
  const std::vector<char32_t> vocabulary = vocabulary_of(*file, options.vocabulary);
  std::vector<std::string> symbols;
  for (const char32_t c : vocabulary) symbols.push_back(utf8(c));
  return std::make_shared<WindowProducer>(encoded(file, vocabulary, options.learned), options.windows, "characters",
                                          static_cast<int64_t>(vocabulary.size()), std::move(symbols));
}

}  // namespace harmonics
