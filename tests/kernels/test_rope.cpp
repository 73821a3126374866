// Rotary positions known at run time, pairings and partial widths; rows appended to caches.
#include <algorithm>
#include <array>
#include <tuple>

#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

struct Turned {
  Dims dims;  // [B, heads, T, D], or [B, T, heads, D]
  bool positions_first, interleaved, own_positions, frequencies;
  int64_t rotary = 0;
};

std::vector<double> turned_by_definition(const Turned& c, const Tensor& x, const Tensor& positions,
                                         const Tensor& frequencies) {
  std::vector<double> y;
  const int64_t width = c.dims[3], turned = c.rotary ? c.rotary : width, half = turned / 2;
  const int64_t sequence = c.positions_first ? c.dims[1] : c.dims[2];
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t row = i / width, d = i % width, b = row / (c.dims[1] * c.dims[2]);
    const int64_t t = c.positions_first ? row / c.dims[2] % sequence : row % sequence;
    const int64_t pair = c.interleaved ? d / 2 : d % half;
    const int64_t left = row * width + (c.interleaved ? 2 * pair : pair), right = left + (c.interleaved ? 1 : half);
    const double rate = c.frequencies ? frequencies[std::min(pair, half - 1)]
                                      : std::pow(10000.0, -static_cast<double>(pair) / static_cast<double>(half));
    const double angle = positions.data<int32_t>()[c.own_positions ? b * sequence + t : t] * rate;
    const bool is_left = c.interleaved ? d % 2 == 0 : d < half;
    y.push_back(d >= turned ? x[i]
                : is_left   ? x[left] * std::cos(angle) - x[right] * std::sin(angle)
                            : x[right] * std::cos(angle) + x[left] * std::sin(angle));
  }
  return y;
}

}  // namespace

TEST_CASE("rope: positions and frequencies given at run time, both pairings, part of a width") {
  Random random(285);
  for (const bool interleaved : {false, true})
    for (const bool own : {false, true})
      for (const bool given : {false, true})
        for (const auto& [dims, first, rotary] : {std::tuple<Dims, bool, int64_t>{{2, 3, 5, 22}, false, 0},
                                                  {{3, 4, 2, 34}, true, 0},
                                                  {{2, 3, 7, 40}, true, 18},
                                                  {{1, 1, 1, 2}, true, 0},
                                                  {{2, 33, 9, 66}, true, 64}}) {
          const Turned c{dims, first, interleaved, own, given, rotary};
          const int64_t t = first ? dims[1] : dims[2], half = (rotary ? rotary : dims[3]) / 2;
          const Tensor x = random.floats(dims), frequencies = random.floats({half}, 0, 1);
          const Tensor positions = random.integers<int32_t>(own ? Dims{dims[0], t} : Dims{t}, 0, 100000);
          for (const bool in_place : {false, true}) {
            KernelCall call("rope");
            call.set("positions_first", first ? 1 : 0).set("pairing", interleaved ? "interleaved" : "half");
            if (rotary) call.set("rotary_dims", rotary);
            call.set("operands", given ? "positions,frequencies" : "positions").in(x).in(positions);
            if (given) call.in(frequencies);
            call.out(dims);
            if (in_place) call.alias(0, 0);
            require_close(call.run_one(), turned_by_definition(c, x, positions, frequencies), 1e-6, 1e-6);
            CHECK(call.in_place() == 1);
          }
        }
}

TEST_CASE("rope: positions from offset on have the values of the offset, alone or in a chunk") {
  Random random(286);
  const Dims dims{1, 40, 3, 128};
  const Tensor x = random.floats(dims);
  std::vector<int32_t> at;
  for (int32_t i = 0; i < 40; ++i) at.push_back(70000 + i);
  KernelCall by_offset("rope"), by_position("rope");
  const Tensor a = by_offset.set("positions_first", 1).set("offset", 70000).in(x).out(dims).run_one();
  by_position.set("positions_first", 1).set("operands", "positions").in(x).in({{40}, at});
  const Tensor b = by_position.out(dims).run_one();
  std::vector<double> values;
  for (int64_t i = 0; i < a.size(); ++i) values.push_back(a[i]);
  require_close(b, values, 2e-7, 2e-7);
  const int64_t row = 3 * 128;
  for (const int64_t t : {0, 17, 39}) {
    const std::vector<float> alone(x.data<float>() + t * row, x.data<float>() + (t + 1) * row);
    KernelCall one("rope");
    one.set("positions_first", 1).set("operands", "positions");
    one.in({{1, 1, 3, 128}, alone}).in({{1, 1}, std::vector<int32_t>{at[static_cast<size_t>(t)]}});
    const Tensor y = one.out({1, 1, 3, 128}).run_one();
    CHECK(std::memcmp(y.bytes.data(), b.data<float>() + t * row, y.bytes.size()) == 0);
  }
}

TEST_CASE("rope: inputs without their names and an odd part are declined") {
  const Tensor x = Tensor::zeros({2, 3, 8}), positions({3}, std::vector<int32_t>{0, 1, 2});
  KernelCall unnamed("rope"), odd("rope"), other("rope");
  CHECK_FALSE(unnamed.in(x).in(positions).out(x.dims).served());
  CHECK_FALSE(odd.set("rotary_dims", 3).in(x).out(x.dims).served());
  CHECK_FALSE(other.set("operands", "scales").in(x).in(positions).out(x.dims).served());
}

TEST_CASE("cache_append writes the rows of each batch item from its start on, in place when asked") {
  Random random(287);
  for (const auto& [batch, capacity, rows, heads, width] :
       {std::array<int64_t, 5>{2, 9, 1, 3, 5}, {3, 40, 7, 2, 33}, {1, 4, 4, 1, 1}, {5, 64, 1, 8, 128}})
    for (const uint32_t type : {HX_F32, HX_F16, HX_BF16})
      for (const bool narrows : {false, true}) {
        if (narrows && type == HX_F32) continue;
        const Tensor wide = random.floats({batch, capacity, heads, width}),
                     added = random.floats({batch, rows, heads, width}, -2, 2);
        const auto stored = [&](const Tensor& x) {
          return type == HX_F16 ? as_half(x) : type == HX_BF16 ? as_bfloat(x) : x;
        };
        const Tensor cache = stored(wide), block = stored(added);
        const Tensor start = random.integers<int32_t>({batch}, -2, capacity + 2);
        std::vector<char> expected = cache.bytes;
        const auto row = static_cast<int64_t>(block.bytes.size()) / (batch * rows);
        for (int64_t b = 0; b < batch; ++b) {
          const int64_t at = std::clamp<int64_t>(start.data<int32_t>()[b], 0, capacity - rows);
          std::memcpy(expected.data() + (b * capacity + at) * row, block.bytes.data() + b * rows * row,
                      static_cast<size_t>(rows * row));
        }
        for (const bool in_place : {false, true}) {
          KernelCall call("cache_append");
          call.in(cache).in(narrows ? added : block).in(start).out(cache.dims, cache.dtype);
          if (in_place) call.alias(0, 0);
          CHECK(call.run_one().bytes == expected);
          CHECK(call.in_place() == 1);
        }
      }
}

TEST_CASE("cache_append quantises to q8_0 as casts do") {
  Random random(289);
  constexpr int64_t kRows = 60, kWidth = 96;
  std::vector<float> values = random.floats({kRows, kWidth}, -3, 3).values<float>();
  const auto set = [&](size_t row, size_t column, float value) { values[row * kWidth + column] = value; };
  for (size_t i = 0; i < 32; ++i) {
    set(1, i, 0);                             // an all-zero block
    set(2, i, static_cast<float>(i) + 0.5f);  // with the 127 below: steps of one half
    set(3, i, -static_cast<float>(i) - 0.49999997f);
    set(4, i, 1e-9f * static_cast<float>(i));  // a scale below the smallest f16
    set(5, i, 3e6f * static_cast<float>(i));
  }
  set(2, 31, 127), set(3, 31, -127), set(6, 40, INFINITY), set(7, 90, std::nanf("")), set(8, 0, -1e9f);
  for (size_t row = 9; row < kRows; ++row)
    for (size_t i = 0; i < kWidth; ++i)
      values[row * kWidth + i] *= std::pow(2.0f, static_cast<float>(random.below(20)) - 15);
  const Tensor narrow({2, kRows / 2, 1, kWidth}, values);
  KernelCall call("cache_append");
  call.in(Tensor::zeros(narrow.dims, HX_Q8_0)).in(narrow).in({{2}, std::vector<int32_t>{0, 0}});
  CHECK(call.out(narrow.dims, HX_Q8_0).run_one().bytes == as_eight_bits(narrow).bytes);
  const Tensor cache = as_eight_bits(random.floats({2, 9, 2, 64})), two = random.floats({2, 2, 2, 64});
  KernelCall some("cache_append");
  some.in(cache).in(two).in({{2}, std::vector<int32_t>{5, 8}}).out(cache.dims, HX_Q8_0).alias(0, 0);
  const Tensor added = as_eight_bits(two);
  std::vector<char> expected = cache.bytes;
  const int64_t row = 2 * 68;
  std::memcpy(expected.data() + 5 * row, added.bytes.data(), 2 * row);
  std::memcpy(expected.data() + (9 + 7) * row, added.bytes.data() + 2 * row, 2 * row);
  CHECK(some.run_one().bytes == expected);
}

TEST_CASE("cache_append rounds to 16-bit floats as casts do") {
  std::vector<float> values{0.0f,     -0.0f,    1e-8f,    -3e-8f, 2.9e-8f,  5.96e-8f,       6.1e-5f,        6.0975e-5f,
                            65504.0f, 65519.0f, 65520.0f, -1e9f,  INFINITY, 1.00048828125f, 1.00146484375f, 0.333333f};
  Random random(288);
  for (int i = 0; i < 500; ++i)
    values.push_back(random.floats({1}, -1, 1)[0] * std::pow(2.0f, static_cast<float>(random.below(45)) - 28));
  const auto n = static_cast<int64_t>(values.size());
  for (const uint32_t type : {HX_F16, HX_BF16}) {
    KernelCall call("cache_append");
    call.in(Tensor::zeros({1, 1, n}, type)).in({{1, 1, n}, values}).in({{1}, std::vector<int32_t>{0}});
    const Tensor expected = type == HX_F16 ? as_half({{n}, values}) : as_bfloat({{n}, values});
    CHECK(call.out({1, 1, n}, type).run_one().bytes == expected.bytes);
    values.push_back(std::nanf(""));  // stays NaN; not compared bit by bit
    KernelCall unordered("cache_append");
    unordered.in(Tensor::zeros({1, 1, 1}, type)).in({{1, 1, 1}, std::vector<float>{values.back()}});
    const Tensor kept = unordered.in({{1}, std::vector<int32_t>{0}}).out({1, 1, 1}, type).run_one();
    CHECK((*kept.data<uint16_t>() & 0x7fff) > (type == HX_F16 ? 0x7c00 : 0x7f80));
    values.pop_back();
  }
}

}  // namespace harmonics::engine::kernel_tests
