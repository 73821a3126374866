#include "kernel_call.hpp"

#include "engine/tensor/half.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <type_traits>

namespace harmonics::engine::kernel_tests {

TEST_CASE("gather: any axis, out-of-range indices are clamped") {
  Random random(91);
  const Tensor x = random.floats({4, 9, 5});
  for (int64_t axis : {0, 1, 2}) {
    const int64_t size = x.dims[static_cast<size_t>(axis)], inner = axis == 0 ? 45 : axis == 1 ? 5 : 1;
    const Tensor ids = random.integers<int32_t>({2, 3}, -2, size + 2);
    Dims out = x.dims;
    out[static_cast<size_t>(axis)] = 2;
    out.insert(out.begin() + axis + 1, 3);
    const Tensor y = KernelCall("gather").set("axis", axis).in(x).in(ids).out(out).run_one();
    for (int64_t i = 0; i < y.size(); ++i) {
      const int64_t id = std::clamp<int64_t>(ids.data<int32_t>()[i / inner % 6], 0, size - 1);
      REQUIRE(y[i] == x[(i / inner / 6 * size + id) * inner + i % inner]);
    }
  }
}

TEST_CASE("embedding and its gradient") {
  Random random(92);
  for (const auto& [rows, width, count] : {std::array<int64_t, 3>{65, 128, 3000}, {1000, 8, 5000}, {3, 1, 10}}) {
    const Tensor table = random.floats({rows, width}), dy = random.floats({count, width});
    const Tensor ids = random.integers<int64_t>({count}, 0, rows);
    const Tensor y = KernelCall("embedding").in(table).in(ids).out({count, width}).run_one();
    KernelCall gradient("embedding_grad");
    const Tensor d = gradient.set("rows", rows).in(ids).in(dy).out({rows, width}).run_one();
    std::vector<float> e(static_cast<size_t>(rows * width));
    for (int64_t i = 0; i < count * width; ++i) {
      const int64_t at = ids.data<int64_t>()[i / width] * width + i % width;
      REQUIRE(y[i] == table[at]);
      e[static_cast<size_t>(at)] += dy[i];  // in index order, so bitwise equal
    }
    REQUIRE(d.values<float>() == e);
  }
}

TEST_CASE("scatter_add adds in index order, in place when asked") {
  Random random(93);
  const Tensor x = random.floats({3, 50, 40}), updates = random.floats({3, 200, 40});
  const Tensor ids = random.integers<uint8_t>({200}, 0, 50);
  KernelCall call("scatter_add");
  const Tensor y = call.set("axis", 1).in(x).in(ids).in(updates).out(x.dims).alias(0, 0).run_one();
  CHECK(call.in_place() == 1);
  std::vector<float> e = x.values<float>();
  for (int64_t i = 0; i < updates.size(); ++i)
    e[static_cast<size_t>((i / 8000 * 50 + ids.data<uint8_t>()[i / 40 % 200]) * 40 + i % 40)] += updates[i];
  REQUIRE(y.values<float>() == e);
}

TEST_CASE("scatter_add: whole numbers wrap, 16-bit floats are summed in f32 and rounded once") {
  Random random(94);
  const Tensor ids = random.integers<int32_t>({200}, 0, 50);
  const auto place = [&](int64_t i) {
    return static_cast<size_t>((i / 1000 * 50 + ids.data<int32_t>()[i / 5 % 200]) * 5 + i % 5);
  };
  for (const bool in_place : {false, true}) {
    const auto sum = [&](const Tensor& x, const Tensor& updates) {
      KernelCall call("scatter_add");
      call.set("axis", 1).in(x).in(ids).in(updates).out(x.dims, x.dtype);
      if (in_place) call.alias(0, 0);
      return call.run_one();
    };
    const Tensor bytes = random.integers<uint8_t>({3, 50, 5}, 0, 256),
                 more = random.integers<uint8_t>({3, 200, 5}, 0, 256);
    std::vector<uint8_t> wrapped = bytes.values<uint8_t>();
    for (int64_t i = 0; i < more.size(); ++i)
      wrapped[place(i)] = static_cast<uint8_t>(wrapped[place(i)] + more.data<uint8_t>()[i]);
    CHECK(sum(bytes, more).values<uint8_t>() == wrapped);
    const Tensor halves = as_half(random.floats({3, 50, 5})), updates = as_half(random.floats({3, 200, 5}));
    std::vector<float> sums;
    for (int64_t i = 0; i < halves.size(); ++i) sums.push_back(half_to_float(halves.data<uint16_t>()[i]));
    for (int64_t i = 0; i < updates.size(); ++i) sums[place(i)] += half_to_float(updates.data<uint16_t>()[i]);
    const Tensor found = sum(halves, updates);
    for (size_t i = 0; i < sums.size(); ++i) REQUIRE(found.data<uint16_t>()[i] == float_to_half(sums[i]));
  }
}

namespace {

// Gathers or scatters at random positions, some out of range; `join(old, update)` is the new element.
template <typename T, typename Join>
void check_positions(uint32_t seed, const char* reduction, Join join) {
  Random random(seed);
  for (int round = 0; round < 40; ++round) {
    const auto batch = static_cast<size_t>(random.below(2)), k = static_cast<size_t>(1 + random.below(2));
    Dims whole(batch + k + static_cast<size_t>(random.below(3)));
    for (int64_t& d : whole) d = 1 + random.below(round % 8 ? 6 : 40);
    Dims places(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(batch));
    places.push_back(1 + random.below(round % 8 ? 9 : 300));
    Dims indices = places, updates = places;
    indices.push_back(static_cast<int64_t>(k));
    updates.insert(updates.end(), whole.begin() + static_cast<std::ptrdiff_t>(batch + k), whole.end());
    const Tensor x = random.integers<T>(whole, 0, 100), update = random.integers<T>(updates, 0, 120);
    const Tensor ids = random.integers<int32_t>(indices, -1, 8);
    const int64_t inner = elements(updates) / elements(places), batches = elements(places) / places.back();
    std::vector<T> y = x.values<T>(), taken(static_cast<size_t>(elements(updates)));
    for (int64_t p = 0; p < elements(places); ++p) {
      int64_t row = p / (elements(places) / batches);
      for (size_t i = 0; i < k; ++i)
        row = row * whole[batch + i] +
              std::clamp<int64_t>(ids.data<int32_t>()[p * static_cast<int64_t>(k) + static_cast<int64_t>(i)], 0,
                                  whole[batch + i] - 1);
      for (int64_t i = 0; i < inner; ++i) {
        taken[static_cast<size_t>(p * inner + i)] = x.data<T>()[row * inner + i];
        T& to = y[static_cast<size_t>(row * inner + i)];
        to = join(to, update.data<T>()[p * inner + i]);
      }
    }
    KernelCall gather("gather_nd");
    gather.set("batch_axes", static_cast<int64_t>(batch)).in(x).in(ids).out(updates, x.dtype);
    REQUIRE(gather.run_one().template values<T>() == taken);
    for (bool in_place : {false, true}) {
      KernelCall scatter("scatter_nd");
      scatter.set("batch_axes", static_cast<int64_t>(batch)).set("reduction", reduction);
      scatter.in(x).in(ids).in(update).out(whole, x.dtype);
      if (in_place) scatter.alias(0, 0);
      REQUIRE(scatter.run_one().template values<T>() == y);
      CHECK(scatter.in_place() == 1);
    }
  }
}

}  // namespace

TEST_CASE("gather_nd and scatter_nd: every reduction and width, in place when asked") {
  check_positions<float>(201, "set", [](float, float b) { return b; });
  check_positions<uint16_t>(202, "set", [](uint16_t, uint16_t b) { return b; });
  check_positions<float>(203, "add", [](float a, float b) { return a + b; });
  check_positions<uint8_t>(204, "add", [](uint8_t a, uint8_t b) { return static_cast<uint8_t>(a + b); });
  check_positions<double>(205, "max", [](double a, double b) { return std::max(a, b); });
  check_positions<int64_t>(206, "min", [](int64_t a, int64_t b) { return std::min(a, b); });
}

TEST_CASE("scatter_nd: 16-bit floats are joined in f32 and rounded once, in place when asked") {
  Random random(207);
  const Dims whole{7, 3, 5}, updates{40, 5}, indices{40, 2};
  const Tensor x = as_half(random.floats(whole)), update = as_half(random.floats(updates)),
               ids = random.integers<int64_t>(indices, -1, 8);
  for (const char* reduction : {"add", "max", "min"}) {
    std::vector<float> expected;
    for (int64_t i = 0; i < x.size(); ++i) expected.push_back(half_to_float(x.data<uint16_t>()[i]));
    for (int64_t p = 0; p < 40; ++p) {
      const int64_t *at = ids.data<int64_t>() + 2 * p,
                    row = std::clamp<int64_t>(at[0], 0, 6) * 3 + std::clamp<int64_t>(at[1], 0, 2);
      for (int64_t i = 0; i < 5; ++i) {
        float& to = expected[static_cast<size_t>(row * 5 + i)];
        const float u = half_to_float(update.data<uint16_t>()[p * 5 + i]);
        to = reduction[0] == 'a' ? to + u : reduction[1] == 'a' ? std::max(to, u) : std::min(to, u);
      }
    }
    for (const bool in_place : {false, true}) {
      KernelCall call("scatter_nd");
      call.set("batch_axes", 0).set("reduction", reduction).in(x).in(ids).in(update).out(whole, HX_F16);
      if (in_place) call.alias(0, 0);
      const Tensor y = call.run_one();
      for (int64_t i = 0; i < x.size(); ++i)
        REQUIRE(y.data<uint16_t>()[i] == float_to_half(expected[static_cast<size_t>(i)]));
    }
  }
}

namespace {

// Calls visit(whole, block) with the element offsets of a block at `starts`, which are clamped so that it fits.
template <typename Visit>
void for_block(const Dims& whole, const Dims& block, const std::vector<int64_t>& starts, Visit visit) {
  for (int64_t i = 0; i < elements(block); ++i) {
    int64_t at = 0, rest = i, stride = 1;
    for (size_t axis = whole.size(); axis-- > 0;) {
      const int64_t start = std::clamp<int64_t>(starts[axis], 0, whole[axis] - block[axis]);
      at += (start + rest % block[axis]) * stride;
      rest /= block[axis];
      stride *= whole[axis];
    }
    visit(at, i);
  }
}

template <typename T>
std::vector<T> with_block(std::vector<T> whole, const Dims& dims, const Tensor& block,
                          const std::vector<int64_t>& starts) {
  for_block(dims, block.dims, starts,
            [&](int64_t at, int64_t i) { whole[static_cast<size_t>(at)] = block.data<T>()[i]; });
  return whole;
}

template <typename T, typename Start>
void check_slices(uint32_t seed) {
  Random random(seed);
  for (int round = 0; round < 40; ++round) {
    Dims whole(static_cast<size_t>(1 + random.below(5))), block;
    for (int64_t& d : whole) d = 1 + random.below(round % 8 ? 6 : 19);
    for (int64_t d : whole) block.push_back(random.below(3) ? 1 + random.below(d) : d);
    const Tensor x = random.integers<T>(whole, 0, 100), update = random.integers<T>(block, 100, 200);
    // A start of an unsigned type cannot be negative.
    const int64_t low = std::is_unsigned_v<Start> ? 0 : -3;
    const Tensor starts = random.integers<Start>({static_cast<int64_t>(whole.size())}, low, 9);
    const std::vector<Start> given = starts.values<Start>();
    const std::vector<int64_t> at(given.begin(), given.end());

    std::vector<T> taken(static_cast<size_t>(elements(block)));
    for_block(whole, block, at, [&](int64_t from, int64_t i) { taken[static_cast<size_t>(i)] = x.data<T>()[from]; });
    KernelCall slice("dynamic_slice");
    REQUIRE(slice.set("sizes", block).in(x).in(starts).out(block, x.dtype).run_one().template values<T>() == taken);

    const std::vector<T> expected = with_block(x.values<T>(), whole, update, at);
    for (bool in_place : {false, true}) {
      KernelCall call("update_slice");
      call.in(x).in(update).in(starts).out(whole, x.dtype);
      if (in_place) call.alias(0, 0);
      REQUIRE(call.run_one().template values<T>() == expected);
      CHECK(call.in_place() == 1);
    }
  }
}

}  // namespace

TEST_CASE("slices at positions known at run time: every width of element, update_slice in place when asked") {
  check_slices<float, int64_t>(94);
  check_slices<double, int32_t>(95);
  check_slices<uint8_t, int64_t>(96);
  check_slices<uint16_t, uint8_t>(97);
}

TEST_CASE("slices of many runs are divided into parts") {
  Random random(98);
  const Dims whole = {300, 5, 400}, block = {300, 2, 400};
  const Tensor x = random.floats(whole), update = random.floats(block);
  const Tensor starts({3}, std::vector<int64_t>{7, 2, -1});
  KernelCall call("update_slice");
  const Tensor y = call.in(x).in(update).in(starts).out(whole).alias(0, 0).run_one();
  CHECK(call.parts() > 2);
  CHECK(y.values<float>() == with_block(x.values<float>(), whole, update, {7, 2, -1}));
}

namespace {

// Returns the upper halves, which contain the test's numbers.
Tensor as_brain(const Tensor& x) {
  std::vector<uint16_t> halves;
  for (int64_t i = 0; i < x.size(); ++i) {
    uint32_t all;
    std::memcpy(&all, x.data<float>() + i, sizeof all);
    halves.push_back(static_cast<uint16_t>(all >> 16));
  }
  return {x.dims, halves};
}

}  // namespace

TEST_CASE("top_k: falling, NaN first, the lowest index first among equals") {
  Random random(99);
  for (const auto& [rows, size, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {7, 13, 1}, {3, 40, 40}, {5, 33, 12}, {64, 1000, 9}, {1, 32000, 40}}) {
    const Tensor whole = random.integers<int32_t>({rows, size}, -20, 20);
    std::vector<float> values(static_cast<size_t>(rows * size));
    for (size_t i = 0; i < values.size(); ++i) {
      const int32_t v = whole.data<int32_t>()[i];  // many ties; some NaN and infinite
      values[i] = v == 19 ? NAN : v == 18 ? INFINITY : v == -20 ? -INFINITY : static_cast<float>(v);
    }
    const Tensor numbers({rows, size}, values);
    for (const Tensor& x : {numbers, as_half(numbers), as_brain(numbers),
                            Tensor({rows, size}, std::vector<double>(values.begin(), values.end()))}) {
      INFO("type " << x.dtype);
      KernelCall call("top_k");
      const std::vector<Tensor> r = call.set("k", k).in(x).out({rows, k}, x.dtype).out({rows, k}, HX_I64).run();
      const size_t bytes = x.bytes.size() / values.size();
      for (int64_t row = 0; row < rows; ++row) {
        const float* of = values.data() + row * size;
        std::vector<int64_t> order(static_cast<size_t>(size));
        for (int64_t i = 0; i < size; ++i) order[static_cast<size_t>(i)] = i;
        std::stable_sort(order.begin(), order.end(),
                         [&](int64_t a, int64_t b) { return std::isnan(of[a]) ? !std::isnan(of[b]) : of[a] > of[b]; });
        for (int64_t i = 0; i < k; ++i) {
          const int64_t expected = order[static_cast<size_t>(i)];
          REQUIRE(r[1].data<int64_t>()[row * k + i] == expected);
          REQUIRE(std::memcmp(r[0].bytes.data() + static_cast<size_t>(row * k + i) * bytes,
                              x.bytes.data() + static_cast<size_t>(row * size + expected) * bytes, bytes) == 0);
        }
      }
    }
  }
}

namespace {

// Sorts x along every axis in both directions; `less` is the ascending order.
template <typename T, typename Less>
void check_sort(const Tensor& x, Less less) {
  for (size_t axis = 0; axis < x.dims.size(); ++axis)
    for (bool descending : {false, true}) {
      const int64_t size = x.dims[axis];
      int64_t inner = 1;
      for (size_t i = axis + 1; i < x.dims.size(); ++i) inner *= x.dims[i];
      KernelCall call("sort");
      call.set("axis", static_cast<int64_t>(axis)).set("descending", descending ? 1 : 0);
      const std::vector<Tensor> r = call.in(x).out(x.dims, x.dtype).out(x.dims, HX_I64).run();
      for (int64_t line = 0; line < x.size() / size; ++line) {
        const int64_t first = line / inner * size * inner + line % inner;
        const auto at = [&](int64_t i) { return x.data<T>()[first + i * inner]; };
        std::vector<int64_t> order(static_cast<size_t>(size));
        for (int64_t i = 0; i < size; ++i) order[static_cast<size_t>(i)] = i;
        std::stable_sort(order.begin(), order.end(),
                         [&](int64_t a, int64_t b) { return descending ? less(at(b), at(a)) : less(at(a), at(b)); });
        for (int64_t i = 0; i < size; ++i) {
          const int64_t to = first + i * inner, from = order[static_cast<size_t>(i)];
          REQUIRE(r[1].data<int64_t>()[to] == from);
          REQUIRE(std::memcmp(&r[0].data<T>()[to], &x.data<T>()[first + from * inner], sizeof(T)) == 0);
        }
      }
    }
}

template <typename T>
void check_float_sort(uint32_t seed) {
  Random random(seed);
  for (const Dims& dims : {Dims{1}, Dims{3, 40}, Dims{41}, Dims{5, 67, 3}, Dims{2, 3000}, Dims{300, 50}}) {
    const Tensor whole = random.integers<int32_t>(dims, -60, 60);
    std::vector<T> values;
    for (int32_t v : whole.values<int32_t>())  // many ties; NaN of both signs, infinities, both zeros
      values.push_back(v > 57    ? static_cast<T>(v == 58 ? NAN : -NAN)
                       : v > 55  ? static_cast<T>(INFINITY)
                       : v < -57 ? static_cast<T>(-INFINITY)
                       : v == 1  ? static_cast<T>(-0.0)
                                 : static_cast<T>(v) / 7);
    check_sort<T>(Tensor(dims, values), [](T a, T b) { return std::isnan(b) ? !std::isnan(a) : a < b; });
  }
}

template <typename T>
void check_whole_sort(uint32_t seed, int64_t low, int64_t high) {
  Random random(seed);
  for (const Dims& dims : {Dims{7, 30}, Dims{2, 700}, Dims{130, 4}})
    check_sort<T>(random.integers<T>(dims, low, high), std::less<T>());
}

}  // namespace

TEST_CASE("sort: stable in both directions along any axis, NaN is the largest, zeros are equal") {
  check_float_sort<float>(101);
  check_float_sort<double>(102);
  check_whole_sort<uint8_t>(103, 0, 256);
  check_whole_sort<int8_t>(104, -128, 128);
  check_whole_sort<int16_t>(105, -32768, 32768);
  check_whole_sort<int32_t>(106, INT32_MIN, INT32_MAX);
  check_whole_sort<uint32_t>(107, 0, UINT32_MAX);
  check_whole_sort<int64_t>(108, INT64_MIN, INT64_MAX);
  check_whole_sort<uint64_t>(109, 0, INT64_MAX);
}

TEST_CASE("sort: 16-bit floats in the order of their numbers") {
  Random random(110);
  Tensor half = random.integers<uint16_t>({3, 400}, 0, 65536);
  const auto number = [](uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                        : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                       : std::ldexp(mantissa, -24);
    return bits >> 15 ? -size : size;
  };
  const auto wide = [](uint16_t bits) {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float x;
    std::memcpy(&x, &word, sizeof x);
    return static_cast<double>(x);
  };
  const auto ordered = [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
  check_sort<uint16_t>(half, [&](uint16_t a, uint16_t b) { return ordered(wide(a), wide(b)); });
  half.dtype = HX_F16;
  check_sort<uint16_t>(half, [&](uint16_t a, uint16_t b) { return ordered(number(a), number(b)); });
}

TEST_CASE("bitcast keeps the bytes") {
  Random random(111);
  const Tensor x = random.floats({37, 5});
  CHECK(KernelCall("bitcast").in(x).out({37, 5}, HX_U32).run_one().bytes == x.bytes);
  CHECK(KernelCall("bitcast").in(x).out({37, 5, 4}, HX_U8).run_one().bytes == x.bytes);
}

}  // namespace harmonics::engine::kernel_tests
