// Kernels of typed_weights.cpp.
#pragma once

#include <harmonics/abi.h>

#include "eight_bits.hpp"
#include "packed.hpp"
#include "typed_products.hpp"
#if defined(__AVX512F__)
#include "typed_tiles.hpp"
#endif

namespace harmonics::cpu::HM_ISA {
namespace {

// Calls `then` with an object of the type's class. Returns false for types with blocks of 256.
template <typename Then>
HM_INLINE bool with_type(uint32_t dtype, Then then) {
  switch (dtype) {
    case HX_BF16:
      return then(BFloats{}), true;
    case HX_F16:
      return then(Float16s{}), true;
    case HX_Q8_0:
      return then(Blocks<EightBits>{}), true;
    case HX_Q4_0:
      return then(Blocks<FourBits>{}), true;
    case HX_Q4_1:
      return then(ShortBlocks<FourAndLeast>{}), true;
    case HX_Q5_0:
      return then(ShortBlocks<FiveBits>{}), true;
    case HX_Q5_1:
      return then(ShortBlocks<FiveAndLeast>{}), true;
    case HX_IQ4_NL:
      return then(ShortBlocks<UnevenFour>{}), true;
    case HX_MXFP4:
      return then(ShortBlocks<HalfStepFour>{}), true;
    case HX_F8_E4M3:
      return then(Narrow<LoadE4M3>{}), true;
    case HX_F8_E5M2:
      return then(Narrow<LoadE5M2>{}), true;
    case HX_NF4:
      return then(Narrow<LoadQuantiles>{}), true;
    case HX_I4:
      return then(Narrow<LoadFourBitIntegers>{}), true;
    case HX_NF4_64:
      return then(ScaledBlocks<LoadQuantiles>{}), true;
    case HX_FP4_64:
      return then(ScaledBlocks<LoadFourBitFloats>{}), true;
    case HX_E4M3_64:
      return then(ScaledBlocks<LoadE4M3>{}), true;
    default:
      return false;
  }
}

int64_t typed_index(const void* ids, uint32_t dtype, int64_t i) {
  if (dtype == HX_I64) return static_cast<const int64_t*>(ids)[i];
  if (dtype == HX_I32) return static_cast<const int32_t*>(ids)[i];
  return static_cast<const uint8_t*>(ids)[i];
}

void round_blocks(const float* x, float* to, int64_t blocks) {
  char bytes[kEightBytes];
  for (int64_t i = 0; i < kEightBlock * blocks; i += kEightBlock) {
    narrow_q8_0(x + i, bytes, kEightBlock);
    widen_q8_0(bytes, to + i, kEightBlock);
  }
}

// Fetches a piece of a row that is decoded later: the processor does not fetch short pieces of distant rows itself.
HM_INLINE void fetch_row(const TypedContext& c, const char* w) {
  constexpr int64_t kAhead = 16;  // rows
  for (int64_t at = 0; at < c.slice_bytes; at += 64) __builtin_prefetch(w + kAhead * c.row_bytes + at);
}

// Decodes `depth` rows of at most kDecodedColumns elements into panels of kColumns columns.
void decode_along(const TypedContext& c, const char* w, int64_t columns, int64_t depth, float* to) {
  alignas(64) float row[kDecodedColumns] = {};
  for (int64_t r = 0; r < depth; ++r, w += c.row_bytes) {
    fetch_row(c, w);
    decode_typed(c.dtype, w, row, columns);
    for (int64_t j = 0; j < columns; j += kColumns)
      __builtin_memcpy(to + j * depth + r * kColumns, row + j, kColumns * sizeof(float));
  }
}

// Decodes `columns` rows of at most kDecodedDepth elements into panels of kColumns columns, which these rows become.
void decode_across(const TypedContext& c, const char* w, int64_t columns, int64_t depth, float* to) {
  constexpr int64_t kRow = kDecodedDepth + 16;  // rows map to different sets of the L1 cache
  alignas(64) float rows[kColumns * kRow];
  for (int64_t j = 0; j < columns; j += kColumns, to += depth * kColumns) {
    const int64_t used = columns - j < kColumns ? columns - j : kColumns;
    for (int64_t i = 0; i < used; ++i, w += c.row_bytes) {
      fetch_row(c, w);
      decode_typed(c.dtype, w, rows + i * kRow, depth);
    }
    if (used < kColumns) __builtin_memset(to, 0, static_cast<size_t>(depth * kColumns) * sizeof(float));
    transpose(rows, kRow, to, kColumns, used, depth);
  }
}

// Computes one part of a product with panels of the decoded weight, which are on the stack as in by_panels().
void typed_panels(const TypedContext& c, void* const* buffers, uint32_t part) {
  const Product& p = c.product;
  const uint32_t row_part = part / c.column_parts, column_part = part % c.column_parts;
  const int64_t i = slice_begin(p.m, kRowGranule, c.row_parts, row_part),
                rows = slice_begin(p.m, kRowGranule, c.row_parts, row_part + 1) - i,
                begin = slice_begin(p.n, kDecodedColumns, c.column_parts, column_part),
                end = slice_begin(p.n, kDecodedColumns, c.column_parts, column_part + 1);
  const float* a = static_cast<const float*>(buffers[p.a]) + i * p.k;
  float* y = static_cast<float*>(buffers[p.c]) + i * p.n;
  alignas(64) float room[kDecodedColumns * kDecodedDepth];
  for (int64_t j = begin; j < end; j += kDecodedColumns) {
    const int64_t columns = end - j < kDecodedColumns ? end - j : kDecodedColumns;
    const char* const w = static_cast<const char*>(buffers[p.b]);
    for (int64_t d = 0; d < p.k; d += kDecodedDepth) {
      const int64_t depth = p.k - d < kDecodedDepth ? p.k - d : kDecodedDepth;
      if (c.transposed)
        decode_along(c, w + d * c.row_bytes + j / kDecodedColumns * c.slice_bytes, columns, depth, room);
      else
        decode_across(c, w + j * c.row_bytes + d / kDecodedDepth * c.slice_bytes, columns, depth, room);
      multiply_rows<PanelOrder::by_rows>(a + d, p.k, p.k, rows, room, depth * kColumns, columns, depth, y + j, p.n,
                                         {d > 0 ? y + j : nullptr, 1}, {});
    }
  }
  end_product(p, buffers, i, i + rows, begin, end);
}

}  // namespace

void multiply_typed(const TypedContext& c, const float* a, const char* w, float* y, int64_t rows, int64_t columns) {
  if (!with_type(c.dtype, [&](auto type) { typed_block<decltype(type)>(c, a, w, y, rows, columns); }))
    multiply_long_blocks(c, a, w, y, rows, columns);
}

void decode_typed(uint32_t dtype, const char* row, float* to, int64_t width) {
  if (!with_type(dtype, [&](auto type) { decode_row<decltype(type)>(row, to, width); }))
    decode_long_blocks(dtype, row, to, width);
}

void typed_linear(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const TypedContext*>(context);
  if (c.in_panels) return typed_panels(c, buffers, part);
  const Product& p = c.product;
  const float* x = static_cast<const float*>(buffers[p.a]);
  if (c.round_parts) {
    float* const room = static_cast<float*>(buffers[p.c + 1]);
    if (phase == 0) {
      const Range blocks = share(p.m * p.k / kEightBlock, c.round_parts, part);
      return round_blocks(x + blocks.begin * kEightBlock, room + blocks.begin * kEightBlock, blocks.end - blocks.begin);
    }
    x = room;
  }
#if defined(__AVX512F__)
  if (c.copy_parts) {
    float* const room = static_cast<float*>(buffers[p.c + 1]);
    if (phase == 0) return copy_to_tiles(p, x, room, share(RowTiles(p).steps, c.copy_parts, part));
    const int64_t j = slice_begin(p.n, kTypedColumnGranule, c.column_parts, part),
                  end = slice_begin(p.n, kTypedColumnGranule, c.column_parts, part + 1);
    const char* const w = static_cast<const char*>(buffers[p.b]) + j * c.row_bytes;
    float* const y = static_cast<float*>(buffers[p.c]) + j;
    if (c.dtype == HX_F16)
      by_tiles<Float16s>(c, room, w, y, end - j);
    else
      by_tiles<BFloats>(c, room, w, y, end - j);
    return end_product(p, buffers, 0, p.m, j, end);
  }
#endif
  const uint32_t row_part = part / c.column_parts, column_part = part % c.column_parts;
  const int64_t i = slice_begin(p.m, kRowGranule, c.row_parts, row_part),
                j = slice_begin(p.n, kTypedColumnGranule, c.column_parts, column_part);
  const int64_t rows = slice_begin(p.m, kRowGranule, c.row_parts, row_part + 1) - i,
                columns = slice_begin(p.n, kTypedColumnGranule, c.column_parts, column_part + 1) - j;
  const float* a = x + i * p.k;
  const char* w = static_cast<const char*>(buffers[p.b]) + j * c.row_bytes;
  multiply_typed(c, a, w, static_cast<float*>(buffers[p.c]) + i * p.n + j, rows, columns);
  end_product(p, buffers, i, i + rows, j, j + columns);
}

// Gathers and decodes rows of a table. Out-of-range indices are clamped, as in gather.
void typed_embedding(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const TypedRowsContext*>(context);
  const Range range = share(c.rows, c.parts, part);
  for (int64_t r = range.begin; r < range.end; ++r) {
    const int64_t id = typed_index(buffers[1], c.index_dtype, r), row = id < 0 ? 0 : id < c.size ? id : c.size - 1;
    const char* from = static_cast<const char*>(buffers[0]) + row * c.row_bytes;
    float* to = static_cast<float*>(buffers[2]) + r * c.width;
    decode_typed(c.dtype, from, to, c.width);
  }
}

void typed_cast(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const TypedRowsContext*>(context);
  const Range range = share(c.rows, c.parts, part);
  for (int64_t r = range.begin; r < range.end; ++r)
    decode_typed(c.dtype, static_cast<const char*>(buffers[0]) + r * c.row_bytes,
                 static_cast<float*>(buffers[1]) + r * c.width, c.width);
}

}  // namespace harmonics::cpu::HM_ISA
