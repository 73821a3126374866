// A fast parser for decimal numbers of at most 15 digits, the usual case in tables.
#pragma once

#include <cstdint>

namespace harmonics {

// Reads digits with an optional sign and point from p on and returns the end. Returns null for other notations (no
// digit, too many, an exponent), which need a general parser. The value is rounded once to double and once to float, as
// by std::from_chars: an integer below 10^15 and a power of ten up to 10^15 are exact, so their quotient is the
// correctly rounded double.
inline const char* plain_number(const char* p, const char* end, float& value) {
  static constexpr double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  const bool negative = p < end && *p == '-';
  p += negative;
  uint64_t digits = 0;
  const auto pass_digits = [&] {
    const char* const begin = p;
    for (unsigned digit; p < end && (digit = static_cast<unsigned char>(*p) - unsigned{'0'}) < 10; ++p)
      digits = digits * 10 + digit;
    return p - begin;
  };
  auto count = pass_digits(), behind_point = decltype(count){0};
  if (p < end && *p == '.') {
    ++p;
    behind_point = pass_digits();
    count += behind_point;
  }
  if (count == 0 || count > 15 || (p < end && (*p == 'e' || *p == 'E'))) return nullptr;
  const double whole = static_cast<double>(static_cast<int64_t>(digits));
  const double number = behind_point ? whole / powers[behind_point] : whole;
  value = static_cast<float>(negative ? -number : number);
  return p;
}

}  // namespace harmonics
