// Fetches what is packed next while a block is multiplied. Private to the including translation unit.
#pragma once

#include "rounded_product.hpp"

namespace harmonics::cpu {
namespace {

// Fetches the lines in shares of equal size, because a burst would delay the loads of the product.
class Ahead {
 public:
  Ahead(const RoundedBlock& x, int64_t shares)
      : x_(x), each_((x.fetched_rows * x.fetched_lines + shares - 1) / shares) {}
  [[gnu::always_inline]] void fetch_share() {
    for (int64_t i = 0; i < each_ && row_ < x_.fetched_rows; ++i) {
      __builtin_prefetch(x_.fetched + row_ * x_.fetched_stride + line_ * 64, 0, 2);
      if (++line_ == x_.fetched_lines) line_ = 0, ++row_;
    }
  }

 private:
  const RoundedBlock& x_;
  int64_t each_, row_ = 0, line_ = 0;
};

}  // namespace
}  // namespace harmonics::cpu
