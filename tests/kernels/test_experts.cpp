// Products of groups of rows with one matrix per group, and the gradients of the matrices, compared in double.
#include <algorithm>

#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

struct GroupCase {
  std::vector<int32_t> offsets;
  int64_t rows, in, out;

  int64_t groups() const { return static_cast<int64_t>(offsets.size()) - 1; }
  Tensor places() const { return {{groups() + 1}, offsets}; }
  int64_t group_of(int64_t row) const {  // -1: none
    for (int64_t e = 0; e < groups(); ++e)
      if (row >= offsets[static_cast<size_t>(e)] && row < offsets[static_cast<size_t>(e) + 1]) return e;
    return -1;
  }
};

const GroupCase kGroups[] = {{{0, 3, 3, 20, 21}, 21, 37, 29},
                             {{2, 2, 50, 90}, 96, 64, 130},
                             {{0, 0, 0, 1}, 1, 5, 3},
                             {{0, 300, 301}, 301, 300, 72},
                             {{0, 8}, 8, 1, 1}};

std::vector<double> exact_groups(const GroupCase& c, const Tensor& x, const std::vector<Tensor>& weights,
                                 bool transposed) {
  std::vector<double> y(static_cast<size_t>(c.rows * c.out));
  for (int64_t r = 0; r < c.rows; ++r) {
    const int64_t e = c.group_of(r);
    for (int64_t o = 0; e >= 0 && o < c.out; ++o)
      for (int64_t i = 0; i < c.in; ++i)
        y[static_cast<size_t>(r * c.out + o)] +=
            static_cast<double>(x[r * c.in + i]) *
            weights[static_cast<size_t>(e)][transposed ? i * c.out + o : o * c.in + i];
  }
  return y;
}

}  // namespace

TEST_CASE("products of groups by definition") {
  Random random(77);
  for (const GroupCase& c : kGroups)
    for (const bool transposed : {false, true})
      for (const bool invariant : {false, true}) {
        INFO(c.rows << " rows, " << c.groups() << " groups, " << c.in << " to " << c.out
                    << (transposed ? ", turned" : ""));
        const Tensor x = random.floats({c.rows, c.in});
        std::vector<Tensor> weights;
        std::vector<float> all;
        for (int64_t e = 0; e < c.groups(); ++e) {
          weights.push_back(random.floats(transposed ? Dims{c.in, c.out} : Dims{c.out, c.in}));
          const std::vector<float> values = weights.back().values<float>();
          all.insert(all.end(), values.begin(), values.end());
        }
        const auto call = [&](const char* name) {
          KernelCall made(name);
          made.set("transposed", transposed ? 1 : 0).set("batch_invariant", invariant ? 1 : 0);
          return made.in(x).in(c.places());
        };
        KernelCall apart = call("grouped_linear"), stacked = call("grouped_linear");
        for (const Tensor& w : weights) apart.in(w);
        Dims dims = weights[0].dims;
        dims.insert(dims.begin(), c.groups());
        const Tensor y = apart.out({c.rows, c.out}).run_one();
        CHECK(apart.kernel() == "products of groups");
        require_close(y, exact_groups(c, x, weights, transposed), 1e-5, 1e-5);
        CHECK(stacked.in({dims, all}).out({c.rows, c.out}).run_one().bytes == y.bytes);
      }
}

TEST_CASE("products of groups: weights of stored types") {
  Random random(78);
  for (const bool transposed : {false, true})
    for (const bool eight : {false, true}) {
      const GroupCase c{{0, 2, 40, 40, 47}, 50, transposed ? 24 : 96, transposed ? 96 : 24};
      const Tensor x = random.floats({c.rows, c.in});
      KernelCall call("grouped_linear");
      call.set("transposed", transposed ? 1 : 0).in(x).in(c.places());
      std::vector<Tensor> read;
      for (int64_t e = 0; e < c.groups(); ++e) {
        const Tensor w = random.floats(transposed ? Dims{c.in, c.out} : Dims{c.out, c.in});
        if (eight) {
          const Tensor stored = as_eight_bits(w);
          call.in(stored);
          read.push_back(from_eight_bits(stored));
        } else {
          std::vector<uint16_t> bits;
          std::vector<float> exact;
          for (const float value : w.values<float>()) {
            uint32_t whole = 0;
            std::memcpy(&whole, &value, 4);
            bits.push_back(static_cast<uint16_t>(whole >> 16));
            whole &= 0xffff0000u;
            float cut = 0;
            std::memcpy(&cut, &whole, 4);
            exact.push_back(cut);
          }
          call.in({w.dims, bits});
          read.push_back({w.dims, exact});
        }
      }
      require_close(call.out({c.rows, c.out}).run_one(), exact_groups(c, x, read, transposed), 1e-5, 1e-5);
    }
}

TEST_CASE("products of groups: equal rows have equal bits in groups of any size") {
  Random random(79);
  const int64_t in = 75, out = 50;
  const Tensor w = random.floats({out, in}), many = random.floats({64, in});
  const auto map = [&](const Tensor& x, int32_t rows) {
    return KernelCall("grouped_linear")
        .set("batch_invariant", 1)
        .in(x)
        .in({{2}, std::vector<int32_t>{0, rows}})
        .in(w)
        .out({rows, out})
        .run_one()
        .values<float>();
  };
  const std::vector<float> all = map(many, 64);
  for (int64_t r = 0; r < 64; r += 7) {
    const std::vector<float> numbers = many.values<float>();
    const Tensor row{{1, in}, std::vector<float>(numbers.begin() + r * in, numbers.begin() + (r + 1) * in)};
    CHECK(map(row, 1) == std::vector<float>(all.begin() + r * out, all.begin() + (r + 1) * out));
  }
}

TEST_CASE("the gradient of the matrices of groups by definition") {
  Random random(80);
  for (const GroupCase& c : kGroups) {
    const Tensor a = random.floats({c.rows, c.out}), b = random.floats({c.rows, c.in});
    std::vector<double> expected(static_cast<size_t>(c.groups() * c.out * c.in));
    for (int64_t r = 0; r < c.rows; ++r)
      if (const int64_t e = c.group_of(r); e >= 0)
        for (int64_t o = 0; o < c.out; ++o)
          for (int64_t i = 0; i < c.in; ++i)
            expected[static_cast<size_t>((e * c.out + o) * c.in + i)] +=
                static_cast<double>(a[r * c.out + o]) * b[r * c.in + i];
    KernelCall call("grouped_outer");
    const Tensor y = call.in(a).in(b).in(c.places()).out({c.groups(), c.out, c.in}).run_one();
    CHECK(call.kernel() == "outer products of groups");
    require_close(y, expected, 2e-5, 2e-5);
  }
}

}  // namespace harmonics::engine::kernel_tests
