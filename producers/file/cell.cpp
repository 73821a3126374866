#include <charconv>

#include "producers/file/table.hpp"

namespace harmonics {

std::string lower(std::string_view word) {
  std::string text(word);
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::string text_of(const Cell& cell) {
  if (!cell.text.empty() || cell.kind == Cell::Kind::Word || cell.kind == Cell::Kind::Missing)
    return std::string(cell.text);
  if (cell.kind == Cell::Kind::Integer) return std::to_string(cell.integer);
  if (cell.large > 0) return std::to_string(cell.large);
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, cell.number).ptr;
  return std::string(text, end);
}

}  // namespace harmonics
