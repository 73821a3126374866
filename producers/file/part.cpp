#include "producers/file/part.hpp"

#include <charconv>
#include <cmath>

#include <harmonics/error.hpp>

namespace harmonics {
namespace {

bool read_fraction(const char*& at, const char* end, double& value) {
  const auto [stop, error] = std::from_chars(at, end, value, std::chars_format::fixed);
  at = stop;
  return error == std::errc() && value >= 0 && value <= 1;
}

}  // namespace

std::pair<uint64_t, uint64_t> part_of(const std::string& text, uint64_t count, const std::string& file) {
  if (text.empty()) return {0, count};
  const char *at = text.data(), *end = at + text.size();
  double from = 0, to = 0;
  const bool read =
      read_fraction(at, end, from) && at != end && *at == '-' && read_fraction(++at, end, to) && at == end;
  if (!read || from >= to)
    throw Error(ErrorKind::Usage, "part=" + text + " is not a part of '" + file +
                                      "'; write two rising fractions of 1, for example part=0-0.9");
  // Decimal fractions are inexact in binary: 0.07 * 100 is slightly above 7, 0.29 * 100 slightly below 29.
  const auto place = [&](double fraction) {
    const double x = fraction * static_cast<double>(count), near = std::round(x);
    return static_cast<uint64_t>(std::abs(x - near) < 1e-6 ? near : std::floor(x));
  };
  const std::pair<uint64_t, uint64_t> range{place(from), to >= 1 ? count : place(to)};
  if (range.first >= range.second)
    throw Error(ErrorKind::Usage, "part=" + text + " of the " + std::to_string(count) + " in '" + file +
                                      "' is empty; take a larger part");
  return range;
}

}  // namespace harmonics
