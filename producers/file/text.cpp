#include "producers/file/text.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "producers/file/part.hpp"

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

}  // namespace

TextProducer::TextProducer(const FileBytesPtr& file, const TextOptions& options) {
  make_vocabulary(*file, options.vocabulary);
  encode(*file);
  count_samples(*file, options);
}

void TextProducer::make_vocabulary(const FileBytes& file, const std::string& given) {
  if (given.empty()) {
    vocabulary_ = characters_of(file.name(), file.text());
    std::sort(vocabulary_.begin(), vocabulary_.end());
  } else {
    vocabulary_ = characters_of("vocabulary=", given);
  }
  for (const char32_t c : vocabulary_) info_.symbols.push_back(utf8(c));
  info_.classes = static_cast<int64_t>(vocabulary_.size());
}

void TextProducer::encode(const FileBytes& file) {
  std::unordered_map<char32_t, uint32_t> index;
  for (uint32_t i = 0; i < vocabulary_.size(); ++i) index[vocabulary_[i]] = i;
  const bool narrow = vocabulary_.size() <= 256;
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
    if (narrow)
      narrow_.push_back(static_cast<uint8_t>(found->second));
    else
      wide_.push_back(found->second);
    ++length_;
  }
}

void TextProducer::count_samples(const FileBytes& file, const TextOptions& options) {
  const auto [first, last] = part_of(options.part, length_, file.name());
  first_ = first;
  length_ = last - first;
  window_ = std::max<uint64_t>(options.window, 1);
  shift_ = options.shift ? options.shift : window_;
  if (window_ > length_)
    refuse_file(file.name(),
                "has " + std::to_string(length_) + " characters" +
                    (options.part.empty() ? "" : " in part=" + options.part) + ", fewer than the window of " +
                    std::to_string(window_),
                "give a smaller window=");
  info_.dtype = DType::I32;
  if (options.window) {
    info_.sample = Shape{static_cast<int64_t>(window_)};
    info_.position_axes = 1;
  }
  info_.size = (length_ - window_) / shift_ + 1;
}

void TextProducer::copy(uint64_t sample, int32_t* to) const {
  const uint64_t from = first_ + sample * shift_;
  if (wide_.empty())
    std::copy_n(narrow_.begin() + static_cast<std::ptrdiff_t>(from), window_, to);
  else
    std::copy_n(wide_.begin() + static_cast<std::ptrdiff_t>(from), window_, to);
}

HTensor TextProducer::next() {
  if (at_ == info_.size) return {};
  HTensor sample(DType::I32, info_.sample);
  copy(at_++, sample.mutable_data<int32_t>());
  return sample;
}

bool TextProducer::read_at(const uint64_t* numbers, uint64_t n, void* to) {
  for (uint64_t i = 0; i < n; ++i) copy(numbers[i], static_cast<int32_t*>(to) + i * window_);
  return true;
}

int64_t TextProducer::read(uint64_t n, void* to) {
  n = std::min(n, info_.size - at_);
  for (uint64_t i = 0; i < n; ++i) copy(at_++, static_cast<int32_t*>(to) + i * window_);
  return static_cast<int64_t>(n);
}

}  // namespace harmonics
