#include "engine/functional/stored_moments.hpp"

namespace harmonics::engine::reference {
namespace {

constexpr int kFractionBits = 23, kCodeFraction = 3, kShift = kFractionBits - kCodeFraction;

// Exponents of a code's format; also the lowest scale, from which on all of them are exponents of f32.
constexpr int64_t kMeanExponents = 16, kSquareExponents = 32;
constexpr double kMostMean = 127;  // without its sign

// As a matrix: the first axis by all others.
struct Grid {
  int64_t rows, columns, down, across;  // down, across: blocks
  explicit Grid(const Shape& shape)
      : rows(shape[0]),
        columns(rows > 0 ? shape.count() / rows : 0),
        down((rows + kMomentBlock - 1) / kMomentBlock),
        across((columns + kMomentBlock - 1) / kMomentBlock) {}
  Shape whole() const { return {down * kMomentBlock, across * kMomentBlock}; }
  Shape blocks() const { return {down, kMomentBlock, across, kMomentBlock}; }
};

// A bijection of 32 bits in which every bit of the result depends on every bit of x.
HTensor mixed(HTensor x) {
  x = bit_xor(x, shift_right_logical(x, 16)) * 0x7feb352d;
  x = bit_xor(x, shift_right_logical(x, 15)) * 0x846ca68b;
  return bit_xor(x, shift_right_logical(x, 16));
}

// `count` random bits for each element's mean, and as many for its square: of one element independent from step to
// step, of the elements in one step evenly spread.
struct RandomBits {
  HTensor mean, square;
  RandomBits(const Shape& shape, const HTensor& step, int count) {
    const HTensor places = reshape(iota(DType::U32, {shape.count()}, 0), shape);
    const HTensor bits = places * 0x9e3779b1 + mixed(cast(step, DType::U32));
    mean = shift_right_logical(bits, 32 - count);
    square = bit_and(bits, static_cast<double>((1 << count) - 1));
  }
};

HTensor to_bf16(const HTensor& x, const HTensor& random) {
  const HTensor bits = bit_and(bitcast(x, DType::U32) + random, 0xffff0000);
  return cast(bitcast(bits, DType::F32), DType::BF16);
}

// The bits of f32 that a code's bits are added to, for each element.
HTensor bases(const HTensor& scale, const Grid& grid, int64_t exponents) {
  const HTensor scales = maximum(cast(scale, DType::I32), static_cast<double>(exponents));  // 0 before the first step
  const HTensor lowest = shift_left(scales - static_cast<double>(exponents - 1), kFractionBits);
  const HTensor blocks = broadcast(reshape(lowest, {grid.down, 1, grid.across, 1}), grid.blocks());
  return slice(reshape(blocks, grid.whole()), {0, 0}, {grid.rows, grid.columns});
}

HTensor magnitudes(const HTensor& codes, const HTensor& bases) {
  return bitcast(shift_left(codes, kShift) + bases, DType::F32);
}

// Exponents that leave room for rounding the largest magnitude up.
HTensor scales_of(const HTensor& magnitude, const Grid& grid, int64_t exponents) {
  const HTensor whole = pad(magnitude, {0, 0}, {grid.whole()[0] - grid.rows, grid.whole()[1] - grid.columns});
  const HTensor most = reduce_max(reshape(whole, grid.blocks()), {1, 3});
  const HTensor reach = bitcast(most, DType::I32) + static_cast<double>((1 << kShift) - 1);
  return cast(maximum(shift_right_logical(reach, kFractionBits), static_cast<double>(exponents)), DType::U8);
}

// Codes of magnitudes, I32.
HTensor codes_of(const HTensor& magnitude, const HTensor& bases, const HTensor& random) {
  const HTensor above = maximum(bitcast(magnitude, DType::I32) - bases, 0);
  return shift_right_logical(above + cast(random, DType::I32), kShift);
}

}  // namespace

Moments read_moments(const Moments& stored, const Moments& scales) {
  if (!scales.mean) return {cast(stored.mean, DType::F32), cast(stored.square, DType::F32)};
  const Shape shape = stored.mean.shape();
  const Grid grid(shape);
  const auto matrix = [&](const HTensor& codes) { return cast(reshape(codes, {grid.rows, grid.columns}), DType::I32); };
  const HTensor codes = matrix(stored.mean), size = bit_and(codes, kMostMean);
  HTensor mean = magnitudes(size, bases(scales.mean, grid, kMeanExponents));
  mean = select(equal(size, 0), zeros_like(mean), mean);
  mean = select(less(kMostMean, codes), neg(mean), mean);
  const HTensor square = magnitudes(matrix(stored.square), bases(scales.square, grid, kSquareExponents));
  return {reshape(mean, shape), reshape(square, shape)};
}

Moments round_moments(const Moments& moments, const HTensor& step) {
  const RandomBits random(moments.mean.shape(), step, 16);
  return {to_bf16(moments.mean, random.mean), to_bf16(moments.square, random.square)};
}

Moments quantise_moments(const Moments& moments, const HTensor& step, Moments& scales) {
  const Shape shape = moments.mean.shape();
  const Grid grid(shape);
  const Shape matrix{grid.rows, grid.columns};
  const HTensor mean = reshape(moments.mean, matrix), square = reshape(moments.square, matrix), size = abs(mean);
  const RandomBits random(matrix, step, kShift);
  scales = {scales_of(size, grid, kMeanExponents), scales_of(square, grid, kSquareExponents)};
  const HTensor means = codes_of(size, bases(scales.mean, grid, kMeanExponents), random.mean);
  const HTensor signs =
      select(less(bitcast(mean, DType::I32), 0), detail::number_like(means, kMostMean + 1), zeros_like(means));
  const HTensor squares = codes_of(square, bases(scales.square, grid, kSquareExponents), random.square);
  return {reshape(cast(means + signs, DType::U8), shape), reshape(cast(squares, DType::U8), shape)};
}

}  // namespace harmonics::engine::reference
