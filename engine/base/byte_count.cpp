#include "engine/base/byte_count.hpp"

#include <charconv>

namespace harmonics::engine {

std::optional<uint64_t> parse_byte_count(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(end, text.data() + text.size());
  if (unit.size() > 1 && (unit.substr(1) == "i" || unit.substr(1) == "iB")) unit.resize(1);
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : unit == "T" ? 40 : -1;
  if (error != std::errc() || value == 0 || shift < 0 || value > (uint64_t{1} << 60 >> shift)) return std::nullopt;
  return value << shift;
}

}  // namespace harmonics::engine
