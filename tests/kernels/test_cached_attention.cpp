// Attention over caches: lengths known at run time, windows, capped scores, f16 caches, chunks of queries.
#include <algorithm>
#include <limits>

#include "engine/tensor/half.hpp"
#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct CachedCase {
  int64_t batch, shared, group, queries, capacity, width, value_width;
  bool causal = true;
  int64_t window = 0;
  double softcap = 0;
  uint32_t cache = HX_F32;
  bool sinks = false, positions_first = true;

  int64_t heads() const { return shared * group; }
  Dims rows(int64_t n, int64_t h, int64_t w) const {
    return positions_first ? Dims{batch, n, h, w} : Dims{batch, h, n, w};
  }
  // Returns the index of element d in row t of a head.
  int64_t at(int64_t b, int64_t h, int64_t t, int64_t d, int64_t n, int64_t all, int64_t w) const {
    return (positions_first ? (b * n + t) * all + h : (b * all + h) * n + t) * w + d;
  }
  std::string text() const {
    return std::to_string(batch) + " x " + std::to_string(shared) + " x " + std::to_string(group) + " heads, " +
           std::to_string(queries) + " queries, capacity " + std::to_string(capacity) + ", width " +
           std::to_string(width) + ", window " + std::to_string(window) + ", cap " + std::to_string(softcap) +
           (causal ? ", causal" : "") +
           (cache == HX_F16    ? ", f16"
            : cache == HX_BF16 ? ", bf16"
            : cache == HX_Q8_0 ? ", q8_0"
                               : "") +
           (sinks ? ", sinks" : "") + (positions_first ? "" : ", heads first");
  }
};

Tensor stored(const CachedCase& c, const Tensor& x) {
  return c.cache == HX_F16 ? as_half(x) : c.cache == HX_BF16 ? as_bfloat(x) : c.cache == HX_Q8_0 ? as_eight_bits(x) : x;
}
// Returns the values as stored in the cache's type.
Tensor rounded(const CachedCase& c, const Tensor& x) {
  if (c.cache == HX_Q8_0) return from_eight_bits(as_eight_bits(x));
  if (c.cache == HX_BF16) return from_bfloat(as_bfloat(x));
  if (c.cache == HX_F32) return x;
  std::vector<float> values;
  for (int64_t i = 0; i < x.size(); ++i) values.push_back(half_to_float(float_to_half(x[i])));
  return {x.dims, values};
}

struct CachedNumbers {
  Tensor q, k, v, lengths, sinks;  // f32, exact in the cache's type

  CachedNumbers(const CachedCase& c, Random& random, std::vector<int32_t> valid)
      : q(random.floats(c.rows(c.queries, c.heads(), c.width), -2, 2)),
        k(random.floats(c.rows(c.capacity, c.shared, c.width), -2, 2)),
        v(random.floats(c.rows(c.capacity, c.shared, c.value_width))),
        lengths({c.batch}, valid),
        sinks(random.floats({c.heads()}, -1, 3)) {
    k = rounded(c, k);
    v = rounded(c, v);
    // Rows beyond the lengths must not affect results.
    std::vector<float> keys = k.values<float>(), values = v.values<float>();
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t j = std::max<int64_t>(0, valid[static_cast<size_t>(b)]); j < c.capacity; ++j)
        for (int64_t h = 0; h < c.shared; ++h) {
          keys[static_cast<size_t>(c.at(b, h, j, 0, c.capacity, c.shared, c.width))] = kNaN;
          values[static_cast<size_t>(c.at(b, h, j, 0, c.capacity, c.shared, c.value_width))] = kNaN;
        }
    k = {k.dims, keys};
    v = {v.dims, values};
  }
};

KernelCall cached_call(const CachedCase& c) {
  KernelCall call("attention");
  call.set("causal", c.causal ? 1 : 0).set("positions_first", c.positions_first ? 1 : 0);
  if (c.window) call.set("window", c.window);
  if (c.softcap > 0) call.set("softcap", c.softcap);
  call.set("operands", c.sinks ? "sinks,lengths" : "lengths");
  return call;
}
std::vector<Tensor> attend(const CachedCase& c, const CachedNumbers& n, std::string* kernel = nullptr) {
  KernelCall call = cached_call(c);
  call.in(n.q).in(stored(c, n.k)).in(stored(c, n.v));
  if (c.sinks) call.in(n.sinks);
  call.in(n.lengths).out(c.rows(c.queries, c.heads(), c.value_width)).out({c.batch, c.heads(), c.queries});
  std::vector<Tensor> results = call.run();
  if (kernel) *kernel = call.kernel();
  return results;
}

// Compares with the definition, in double.
void check_by_definition(const CachedCase& c, const CachedNumbers& n, const std::vector<Tensor>& found) {
  std::vector<double> out(static_cast<size_t>(found[0].size())), lse(static_cast<size_t>(found[1].size()));
  const double scale = 1 / std::sqrt(static_cast<double>(c.width));
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads(); ++h)
      for (int64_t t = 0; t < c.queries; ++t) {
        const int64_t valid = std::clamp<int64_t>(n.lengths.data<int32_t>()[b], 0, c.capacity);
        const int64_t position = valid - c.queries + t;
        double largest = c.sinks ? n.sinks[h] : -INFINITY, sum = 0;
        std::vector<std::pair<int64_t, double>> scores;
        for (int64_t j = 0; j < valid; ++j) {
          if ((c.causal && j > position) || (c.window && j <= position - c.window)) continue;
          double s = 0;
          for (int64_t d = 0; d < c.width; ++d)
            s += static_cast<double>(n.q[c.at(b, h, t, d, c.queries, c.heads(), c.width)]) *
                 n.k[c.at(b, h / c.group, j, d, c.capacity, c.shared, c.width)];
          s *= scale;
          scores.emplace_back(j, c.softcap > 0 ? c.softcap * std::tanh(s / c.softcap) : s);
          largest = std::max(largest, scores.back().second);
        }
        if (c.sinks) sum = std::exp(n.sinks[h] - largest);
        for (auto& [j, s] : scores) sum += s = std::exp(s - largest);
        for (const auto& [j, p] : scores)
          for (int64_t d = 0; d < c.value_width; ++d)
            out[static_cast<size_t>(c.at(b, h, t, d, c.queries, c.heads(), c.value_width))] +=
                p / sum * n.v[c.at(b, h / c.group, j, d, c.capacity, c.shared, c.value_width)];
        lse[static_cast<size_t>((b * c.heads() + h) * c.queries + t)] = sum == 0 ? -INFINITY : std::log(sum) + largest;
      }
  // Tile registers, used for large groups, multiply queries and weights rounded to 15 bits.
  const bool rounds = c.cache == HX_Q8_0 && c.group >= 5;
  require_close(found[0], out, 2e-5, rounds ? 2e-4 : 4e-6);
  require_close(found[1], lse, 2e-6, rounds ? 2e-4 : 4e-6);
}

// Returns `count` queries from `first` on.
Tensor queries_of(const CachedCase& c, const Tensor& x, int64_t first, int64_t count, int64_t width) {
  std::vector<float> part;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t t = first; t < first + count; ++t)
      for (int64_t h = 0; h < c.heads(); ++h)
        for (int64_t d = 0; d < width; ++d) part.push_back(x[c.at(b, h, t, d, c.queries, c.heads(), width)]);
  return {{c.batch, count, c.heads(), width}, part};
}
// Returns the same cache with a larger capacity.
Tensor with_capacity(const CachedCase& c, const Tensor& x, int64_t capacity, int64_t width) {
  std::vector<float> grown(static_cast<size_t>(c.batch * capacity * c.shared * width), kNaN);
  for (int64_t b = 0; b < c.batch; ++b)
    std::copy_n(x.data<float>() + b * c.capacity * c.shared * width, std::min(c.capacity, capacity) * c.shared * width,
                grown.begin() + b * capacity * c.shared * width);
  return {{c.batch, capacity, c.shared, width}, grown};
}

}  // namespace

TEST_CASE("cached attention by definition: lengths, windows, capped scores, f16, sinks, both layouts") {
  Random random(281);
  const CachedCase cases[] = {{2, 2, 3, 1, 37, 16, 16},
                              {1, 1, 1, 1, 1, 5, 3},
                              {3, 2, 4, 1, 700, 20, 24},
                              {2, 1, 8, 8, 300, 64, 64},
                              {2, 3, 1, 32, 1300, 13, 9},
                              {1, 2, 2, 5, 1100, 16, 16, false},
                              {2, 2, 2, 7, 600, 12, 20, true, 9},
                              {1, 2, 2, 9, 1500, 8, 8, true, 600},
                              {2, 1, 3, 4, 90, 10, 10, false, 5},
                              {2, 2, 2, 3, 200, 16, 16, true, 0, 1.5},
                              {2, 2, 3, 1, 200, 16, 33, true, 0, 0, HX_F16},
                              {2, 2, 2, 40, 530, 17, 16, true, 100, 2, HX_F16, true},
                              {2, 2, 2, 3, 64, 16, 16, false, 0, 0, HX_F32, true},
                              {2, 2, 2, 6, 140, 16, 12, true, 0, 0, HX_F16, false, false},
                              {2, 2, 3, 1, 200, 16, 33, true, 0, 0, HX_BF16},
                              {2, 2, 2, 40, 530, 17, 16, true, 100, 2, HX_BF16, true},
                              {2, 2, 2, 6, 140, 16, 12, true, 0, 0, HX_BF16, false, false},
                              {2, 2, 3, 1, 700, 64, 32, true, 0, 0, HX_Q8_0},
                              {2, 2, 2, 40, 530, 96, 64, true, 100, 2, HX_Q8_0, true, false},
                              {1, 2, 9, 3, 300, 160, 288, true, 70, 0, HX_Q8_0},
                              {2, 1, 7, 1, 140, 32, 32, false, 0, 0, HX_Q8_0},
                              {2, 2, 6, 40, 530, 96, 64, true, 100, 2, HX_Q8_0, true, false},
                              {1, 1, 300, 2, 150, 32, 64, true, 0, 0, HX_Q8_0},
                              {1, 20, 1, 3, 1030, 8, 8},   // enough heads: one item has all splits
                              {1, 1, 300, 2, 150, 4, 4}};  // a group larger than a tile
  for (const CachedCase& c : cases) {
    INFO(c.text());
    for (int round = 0; round < 3; ++round) {
      std::vector<int32_t> valid;
      for (int64_t b = 0; b < c.batch; ++b)  // including more than the capacity, fewer than queries, and none
        valid.push_back(static_cast<int32_t>(round == 0   ? c.capacity + b
                                             : round == 1 ? random.below(c.capacity + 1)
                                                          : random.below(std::min(c.capacity, c.queries) + 1) - b));
      const CachedNumbers n(c, random, valid);
      std::string kernel;
      check_by_definition(c, n, attend(c, n, &kernel));
      CHECK(kernel == "cached attention");
    }
  }
}

TEST_CASE("cached attention: a query has the same bits in every chunk and for every capacity") {
  Random random(282);
  for (const CachedCase& whole :
       {CachedCase{2, 2, 3, 64, 1200, 24, 20}, CachedCase{1, 2, 4, 64, 1200, 16, 16, true, 150, 3, HX_F16},
        CachedCase{2, 2, 2, 64, 1200, 24, 20, true, 150, 0, HX_BF16},
        CachedCase{2, 2, 2, 64, 1200, 32, 64, true, 0, 0, HX_Q8_0},
        CachedCase{1, 2, 6, 64, 700, 160, 96, true, 90, 2, HX_Q8_0, true},
        CachedCase{2, 1, 9, 64, 1200, 64, 32, true, 0, 0, HX_Q8_0}, CachedCase{1, 16, 1, 64, 700, 8, 8}}) {
    INFO(whole.text());
    std::vector<int32_t> valid;
    for (int64_t b = 0; b < whole.batch; ++b) valid.push_back(static_cast<int32_t>(whole.capacity - 7 - 400 * b));
    const CachedNumbers n(whole, random, valid);
    const std::vector<Tensor> expected = attend(whole, n);
    for (const int64_t chunk : {1, 8, 32})
      for (const int64_t capacity : {whole.capacity, whole.capacity + 900}) {
        CachedCase c = whole;
        c.queries = chunk;
        c.capacity = capacity;
        CachedNumbers part = n;
        part.k = with_capacity(whole, n.k, capacity, c.width);
        part.v = with_capacity(whole, n.v, capacity, c.value_width);
        for (int64_t first = 0; first < whole.queries; first += chunk == 1 ? 13 : chunk) {
          // As if the later queries' keys were absent.
          std::vector<int32_t> so_far = valid;
          for (int32_t& l : so_far) l -= static_cast<int32_t>(whole.queries - first - chunk);
          part.lengths = {{c.batch}, so_far};
          part.q = queries_of(whole, n.q, first, chunk, c.width);
          const std::vector<Tensor> y = attend(c, part);
          REQUIRE(y[0].bytes == queries_of(whole, expected[0], first, chunk, c.value_width).bytes);
          for (int64_t row = 0; row < c.batch * c.heads(); ++row)
            for (int64_t t = 0; t < chunk; ++t) REQUIRE(y[1][row * chunk + t] == expected[1][row * 64 + first + t]);
        }
      }
  }
}

TEST_CASE("cached attention: a query's bits do not depend on the batch it is in") {
  Random random(283);
  const CachedCase both{2, 1, 2, 1, 2000, 16, 16};
  const CachedNumbers n(both, random, {1999, 900});
  const std::vector<Tensor> expected = attend(both, n);
  CachedCase one = both;
  one.batch = 1;
  for (int64_t b = 0; b < 2; ++b) {
    const auto item = [&](const Tensor& x) {
      const int64_t size = x.size() / 2;
      Dims dims = x.dims;
      dims[0] = 1;
      return Tensor(dims, std::vector<float>(x.data<float>() + b * size, x.data<float>() + (b + 1) * size));
    };
    CachedNumbers own = n;
    own.q = item(n.q);
    own.k = item(n.k);
    own.v = item(n.v);
    own.lengths = {{1}, std::vector<int32_t>{n.lengths.data<int32_t>()[b]}};
    const std::vector<Tensor> y = attend(one, own);
    CHECK(y[0].bytes == item(expected[0]).bytes);
    CHECK(y[1].bytes == item(expected[1]).bytes);
  }
}

TEST_CASE("attention: a window and a cap without lengths, and f16 caches without optional inputs") {
  Random random(284);
  CachedCase c{2, 2, 2, 9, 140, 16, 16, true, 20, 2};
  const CachedNumbers n(c, random, {140, 140});
  const auto results = [&](KernelCall&& call) {
    return call.out(c.rows(c.queries, c.heads(), c.value_width)).out({c.batch, c.heads(), c.queries}).run();
  };
  KernelCall call("attention");
  call.set("causal", 1).set("positions_first", 1).set("window", 20.0).set("softcap", 2.0);
  check_by_definition(c, n, results(std::move(call.in(n.q).in(n.k).in(n.v))));
  c = {2, 2, 2, 9, 140, 16, 16, true, 0, 0, HX_F16};
  const CachedNumbers half(c, random, {140, 140});
  KernelCall narrow("attention");
  narrow.set("causal", 1).set("positions_first", 1);
  check_by_definition(c, half, results(std::move(narrow.in(half.q).in(as_half(half.k)).in(as_half(half.v)))));
}

TEST_CASE("attention: optional inputs without their name, and of other types, are declined") {
  const Tensor x = Tensor::zeros({2, 3, 4, 8}), lengths({2}, std::vector<int32_t>{1, 2}), bias = Tensor::zeros({3, 3});
  const auto served = [&](const char* op, const char* operands, std::vector<Tensor> more) {
    KernelCall call(op);
    call.set("positions_first", 1);
    if (*operands) call.set("operands", operands);
    call.in(x).in(x).in(x);
    for (const Tensor& t : more) call.in(t);
    if (std::string(op) == "attention") return call.out(x.dims).out({2, 4, 3}).served();
    return call.out(x.dims).out(x.dims).out(x.dims).served();
  };
  const Tensor lse = Tensor::zeros({2, 4, 3});
  CHECK(served("attention", "", {}));
  CHECK(served("attention", "lengths", {lengths}));
  CHECK(served("attention_grad", "", {x, lse, x}));
  CHECK_FALSE(served("attention", "", {lengths}));    // without the input's name
  CHECK_FALSE(served("attention", "", {x, lse, x}));  // as many inputs as a gradient
  CHECK(served("attention", "lengths,bias", {lengths, bias}));
  CHECK_FALSE(served("attention", "lengths,bias", {bias, lengths}));
  CHECK_FALSE(served("attention", "mask", {bias}));
  CHECK_FALSE(served("attention", "bias", {as_half(bias)}));
  CHECK(served("attention_grad", "lengths", {x, lse, x, lengths}));
  CHECK_FALSE(served("attention_grad", "lengths", {x, lse, x}));
  CHECK_FALSE(served("attention_grad", "", {x, lse, x, lengths}));
}

}  // namespace harmonics::engine::kernel_tests
