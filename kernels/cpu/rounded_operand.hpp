// Operands of products that round them: f32, or a weight of 16-bit floats as it is stored.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

enum class StoredFloat : uint8_t { f32, f16, bf16 };
[[gnu::always_inline]] static constexpr int64_t bytes_of(StoredFloat type) { return type == StoredFloat::f32 ? 4 : 2; }

// Rows of A, or columns of B, with their strides in elements; one of the strides is 1. Only B may be stored.
struct RoundedOperand {
  const void* from;
  int64_t stride, depth_stride;
  int64_t count, depth;
  bool is_b;
  StoredFloat type = StoredFloat::f32;

  [[gnu::always_inline]] const float* at(int64_t i) const { return static_cast<const float*>(from) + i * stride; }
  // Moves the operand to row or column `i`, term `k`.
  [[gnu::always_inline]] void advance(int64_t i, int64_t k) {
    from = static_cast<const char*>(from) + (i * stride + k * depth_stride) * bytes_of(type);
  }
};

}  // namespace harmonics::cpu
