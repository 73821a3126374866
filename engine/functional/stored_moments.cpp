#include "engine/functional/stored_moments.hpp"

namespace harmonics::engine::reference {
namespace {

constexpr int kFractionBits = 23, kCodeFraction = 3, kShift = kFractionBits - kCodeFraction;

// Returns the number of exponents of a format. It is also the lowest scale: from there on all exponents are valid in
// f32.
int64_t exponents_of(MomentKind kind) { return kind == MomentKind::mean ? 16 : 32; }
constexpr double kMostMean = 127;                                                     // without the sign
constexpr double kMagnitude = 0x7fffffff, kInfinity = 0x7f800000, kNaN = 0x7fc00000;  // bits of f32

// A tensor as a matrix: the first axis by all others.
struct Grid {
  int64_t rows, columns, down, across;  // down, across: numbers of blocks
  explicit Grid(const Shape& shape)
      : rows(shape[0]),
        columns(rows > 0 ? shape.count() / rows : 0),
        down((rows + kMomentBlock - 1) / kMomentBlock),
        across((columns + kMomentBlock - 1) / kMomentBlock) {}
  Shape whole() const { return {down * kMomentBlock, across * kMomentBlock}; }
  Shape blocks() const { return {down, kMomentBlock, across, kMomentBlock}; }
};

// Returns a hash of 32 bits, a bijection in which every bit of the result depends on every bit of x.
HTensor mixed(HTensor x) {
  x = bit_xor(x, shift_right_logical(x, 16)) * 0x7feb352d;
  x = bit_xor(x, shift_right_logical(x, 15)) * 0x846ca68b;
  return bit_xor(x, shift_right_logical(x, 16));
}

// Returns `count` random bits per element. Bits of one element are independent from step to step; bits of all elements
// in one step are evenly distributed. A mean and a square of one element get different bits.
HTensor random_bits(MomentKind kind, const Shape& shape, const HTensor& step, int count) {
  const HTensor places = reshape(iota(DType::U32, {shape.count()}, 0), shape);
  const HTensor bits = places * 0x9e3779b1 + mixed(cast(step, DType::U32));
  return kind == MomentKind::mean ? shift_right_logical(bits, 32 - count)
                                  : bit_and(bits, static_cast<double>((1 << count) - 1));
}

// NaN is not rounded: the sum with its bits could wrap around to zero, or lose them and give an infinity.
HTensor to_bf16(const HTensor& x, const HTensor& random) {
  const HTensor bits = bit_and(bitcast(x, DType::U32) + random, 0xffff0000);
  return cast(select(equal(x, x), bitcast(bits, DType::F32), x), DType::BF16);
}

// Returns for each element the bits of f32 to which the bits of its code are added.
HTensor bases(const HTensor& scale, const Grid& grid, int64_t exponents) {
  const HTensor scales = maximum(cast(scale, DType::I32), static_cast<double>(exponents));  // 0 before the first step
  const HTensor lowest = shift_left(scales - static_cast<double>(exponents - 1), kFractionBits);
  const HTensor blocks = broadcast(reshape(lowest, {grid.down, 1, grid.across, 1}), grid.blocks());
  return slice(reshape(blocks, grid.whole()), {0, 0}, {grid.rows, grid.columns});
}

HTensor magnitudes(const HTensor& codes, const HTensor& bases) {
  return bitcast(shift_left(codes, kShift) + bases, DType::F32);
}

// Replaces every NaN by the one whose code stands for NaN under the scale that it gives its block. The codes of others
// overflow, or are those of an infinity.
HTensor with_one_nan(const HTensor& x) {
  const HTensor bits = bitcast(x, DType::I32);
  const HTensor is_nan = less(kInfinity, bit_and(bits, kMagnitude));
  return bitcast(select(is_nan, detail::number_like(bits, kNaN), bits), DType::F32);
}

// Returns the scales of the blocks: exponents that leave room for rounding the largest magnitude up.
HTensor scales_of(const HTensor& magnitude, const Grid& grid, int64_t exponents) {
  const HTensor whole = pad(magnitude, {0, 0}, {grid.whole()[0] - grid.rows, grid.whole()[1] - grid.columns});
  const HTensor most = reduce_max(reshape(whole, grid.blocks()), {1, 3});
  const HTensor bits = minimum(bit_and(bitcast(most, DType::I32), kMagnitude), kNaN);  // a device may give another NaN
  const HTensor reach = bits + static_cast<double>((1 << kShift) - 1);
  return cast(maximum(shift_right_logical(reach, kFractionBits), static_cast<double>(exponents)), DType::U8);
}

// Returns the codes of magnitudes as I32.
HTensor codes_of(const HTensor& magnitude, const HTensor& bases, const HTensor& random) {
  const HTensor above = maximum(bitcast(magnitude, DType::I32) - bases, 0);
  return shift_right_logical(above + cast(random, DType::I32), kShift);
}

StoredMoment quantise(MomentKind kind, const HTensor& moment, const HTensor& step) {
  const Shape shape = moment.shape();
  const Grid grid(shape);
  const Shape matrix{grid.rows, grid.columns};
  const int64_t exponents = exponents_of(kind);
  const HTensor x = with_one_nan(reshape(moment, matrix)), size = kind == MomentKind::mean ? abs(x) : x;
  const HTensor scale = scales_of(size, grid, exponents);
  HTensor codes = codes_of(size, bases(scale, grid, exponents), random_bits(kind, matrix, step, kShift));
  if (kind == MomentKind::mean)
    codes =
        codes + select(less(bitcast(x, DType::I32), 0), detail::number_like(codes, kMostMean + 1), zeros_like(codes));
  return {reshape(cast(codes, DType::U8), shape), scale};
}

}  // namespace

HTensor read_moment(MomentKind kind, const HTensor& stored, const HTensor& scale) {
  if (!scale) return cast(stored, DType::F32);
  const Shape shape = stored.shape();
  const Grid grid(shape);
  const HTensor codes = cast(reshape(stored, {grid.rows, grid.columns}), DType::I32),
                lowest = bases(scale, grid, exponents_of(kind));
  if (kind == MomentKind::square) return reshape(magnitudes(codes, lowest), shape);
  const HTensor size = bit_and(codes, kMostMean);
  HTensor mean = magnitudes(size, lowest);
  mean = select(less(kMostMean, codes), neg(mean), mean);
  return reshape(select(equal(size, 0), zeros_like(mean), mean), shape);
}

StoredMoment store_moment(MomentKind kind, const HTensor& moment, const HTensor& step, DType type) {
  if (type == DType::U8) return quantise(kind, moment, step);
  return {to_bf16(moment, random_bits(kind, moment.shape(), step, 16)), {}};
}

}  // namespace harmonics::engine::reference
