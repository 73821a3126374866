#include "tokens/charsmap.hpp"

#include <cstring>

#include <harmonics/error.hpp>

#include "formats/utf8.hpp"

namespace harmonics::tokens {

namespace {

// Fields of a unit of the double array: label, whether a leaf follows, and offset of the children. A leaf's unit is its
// value.
uint32_t label_of(uint32_t unit) { return unit & (0x80000000u | 0xFFu); }
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & (1u << 9)) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view compiled) {
  uint32_t size = 0;
  if (compiled.size() < sizeof size) throw Error(ErrorKind::Weights, "the table of characters is truncated");
  std::memcpy(&size, compiled.data(), sizeof size);
  if (size % sizeof(uint32_t) != 0 || size > compiled.size() - sizeof size || size == 0)
    throw Error(ErrorKind::Weights, "the table of characters says that its trie has " + std::to_string(size) +
                                        " bytes; " + std::to_string(compiled.size() - sizeof size) + " follow");
  units_.resize(size / sizeof(uint32_t));
  std::memcpy(units_.data(), compiled.data() + sizeof size, size);
  texts_ = compiled.substr(sizeof size + size);
}

size_t Charsmap::longest(std::string_view text, std::string_view& replacement) const {
  size_t found = 0;
  uint32_t node = offset_of(unit(0));
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    const uint32_t here = unit(node);
    if (label_of(here) != byte) break;
    node ^= offset_of(here);
    if (!has_leaf(here)) continue;
    const uint32_t at = unit(node) & 0x7FFFFFFFu;
    if (at >= texts_.size()) break;
    replacement = std::string_view(texts_).substr(at);
    replacement = replacement.substr(0, replacement.find('\0'));
    found = i + 1;
  }
  return found;
}

std::string Charsmap::operator()(std::string_view text) const {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    std::string_view replacement;
    if (const size_t length = longest(text.substr(at), replacement); length != 0) {
      out += replacement;
      at += length;
      continue;
    }
    const size_t length = decode_utf8(text, at).length;
    out += text.substr(at, length);
    at += length;
  }
  return out;
}

}  // namespace harmonics::tokens
