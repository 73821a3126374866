// Overflow-checked products and sums of lengths from files, messages, addresses and flows.
#pragma once

#include <optional>
#include <type_traits>

namespace harmonics {

namespace lengths {
// std::type_identity, for plugins in C++17: the type of the second operand is deduced from the first.
template <typename T>
struct As {
  using type = T;
};
}  // namespace lengths

// Returns a * b; nullopt on overflow.
template <typename T>
[[nodiscard]] constexpr std::optional<T> checked_product(T a, typename lengths::As<T>::type b) {
  T result{};
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// Returns a + b; nullopt on overflow.
template <typename T>
[[nodiscard]] constexpr std::optional<T> checked_sum(T a, typename lengths::As<T>::type b) {
  T result{};
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// Returns the product of a range of lengths; nullopt on overflow or a negative length. A length of 0 counts as 1 in
// intermediate products, so that the product of any subrange fits as well.
template <typename T, typename Range>
[[nodiscard]] constexpr std::optional<T> checked_count(const Range& lengths) {
  T count = 1, zero = 1;
  for (const auto length : lengths) {
    if constexpr (std::is_signed_v<std::decay_t<decltype(length)>>)
      if (length < 0) return std::nullopt;
    if (length == 0)
      zero = 0;
    else if (__builtin_mul_overflow(count, length, &count))
      return std::nullopt;
  }
  return count * zero;
}

}  // namespace harmonics
