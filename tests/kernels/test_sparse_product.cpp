#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

// Returns a random tensor with about `density` non-zeros; some rows and columns are all zero.
Tensor sparse(Random& random, Dims dims, double density) {
  Tensor t = random.floats(std::move(dims));
  auto* values = reinterpret_cast<float*>(t.bytes.data());
  const int64_t columns = t.dims.back();
  for (int64_t i = 0; i < t.size(); ++i) {
    const bool empty = density < 1 && (i / columns % 5 == 4 || i % columns % 7 == 6);
    if (empty || random.below(1000) >= static_cast<int64_t>(density * 1000)) values[i] = i % 2 ? 0.0f : -0.0f;
  }
  return t;
}

// Bytes with the same fraction of zeros, and the floats they represent.
constexpr float kScale = 1.0f / 255;
Tensor bytes_like(const Tensor& numbers) {
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < numbers.size(); ++i)
    bytes.push_back(numbers[i] == 0 ? 0 : static_cast<uint8_t>(1 + std::abs(numbers[i]) * 254));
  return {numbers.dims, bytes};
}
Tensor numbers_of(const Tensor& bytes) {
  std::vector<float> numbers;
  for (const uint8_t b : bytes.values<uint8_t>()) numbers.push_back(static_cast<float>(b) * kScale);
  return {bytes.dims, numbers};
}

struct SparseSizes {
  int64_t m, n, k;
};
const SparseSizes
    kSparseSizes[] = {{1, 392, 784},  {1, 33, 1001},   {2, 65, 400},  {4, 40, 300},   {5, 196, 100},
                      {64, 392, 784}, {33, 77, 129},   {130, 50, 97}, {300, 64, 193}, {784, 392, 64},
                      {70, 100, 500}, {100, 300, 333}, {36, 33, 2081}};  // the last ones split the depth in halves
const double kDensities[] = {0, 0.02, 0.2, 0.44, 0.6, 1};

}  // namespace

TEST_CASE("products of matrices with zeros") {
  Random random(71);
  for (const SparseSizes& s : kSparseSizes)
    for (double density : kDensities)
      for (bool by_columns : {false, true}) {
        const Tensor a = sparse(random, by_columns ? Dims{s.k, s.m} : Dims{s.m, s.k}, density),
                     b = random.floats({s.k, s.n});
        KernelCall call("dot");
        call.set("lhs_contract", Dims{by_columns ? 0 : 1}).set("rhs_contract", Dims{0}).in(a).in(b).out({s.m, s.n});
        const Tensor c = call.run_one();
        INFO(s.m << " x " << s.n << " x " << s.k << ", density " << density << ": " << call.kernel());
        CHECK(call.kernel().find("sparse") != std::string::npos);
        require_close(c, exact_product({a, by_columns}, {b}, s.m, s.n, s.k), 1e-6,
                      1e-6 * std::sqrt(static_cast<double>(s.k)));
      }
}

TEST_CASE("affine maps with a weight [in, out], bias and activation") {
  Random random(72);
  for (const SparseSizes& s : kSparseSizes)
    for (double density : {0.0, 0.2, 1.0}) {
      const Tensor x = sparse(random, {s.m, s.k}, density), w = random.floats({s.k, s.n}), bias = random.floats({s.n});
      KernelCall call("linear");
      call.set("transposed", 1).set("activation", "relu").in(x).in(w).in(bias).out({s.m, s.n});
      std::vector<double> e = exact_product({x}, {w}, s.m, s.n, s.k);
      for (size_t i = 0; i < e.size(); ++i) e[i] = std::max(0.0, e[i] + bias[static_cast<int64_t>(i) % s.n]);
      require_close(call.run_one(), e, 1e-6, 1e-6 * std::sqrt(static_cast<double>(s.k)));
    }
}

TEST_CASE("a single row by a weight beyond the cache is summed in slices, with zeros, bias and activation") {
  Random random(76);
  for (const SparseSizes& s : {SparseSizes{1, 392, 784}, SparseSizes{1, 101, 1025}, SparseSizes{1, 1024, 700}})
    for (double density : {0.0, 0.1, 1.0}) {
      const Tensor x = sparse(random, {1, s.k}, density), w = random.floats({s.k, s.n}), bias = random.floats({s.n});
      KernelCall call("linear");
      call.set("transposed", 1)
          .set("activation", "relu")
          .in(x)
          .in(w)
          .in(bias)
          .out({1, s.n})
          .changing(uint64_t{1} << 22);
      std::vector<double> e = exact_product({x}, {w}, 1, s.n, s.k);
      for (size_t i = 0; i < e.size(); ++i) e[i] = std::max(0.0, e[i] + bias[static_cast<int64_t>(i)]);
      const Tensor found = call.run_one();
      CHECK(call.parts() >= 2);
      require_close(found, e, 1e-6, 1e-6 * std::sqrt(static_cast<double>(s.k)));
    }
}

TEST_CASE("affine maps by a weight beyond the cache give the bits of those within it") {
  Random random(77);
  for (const SparseSizes& s : {SparseSizes{64, 392, 784}, SparseSizes{49, 200, 400}, SparseSizes{61, 130, 1001}})
    for (double density : {0.2, 1.0}) {
      const Tensor x = sparse(random, {s.m, s.k}, density), w = random.floats({s.k, s.n}), bias = random.floats({s.n});
      KernelCall near("linear"), far("linear");
      for (KernelCall* call : {&near, &far})
        call->set("transposed", 1).set("activation", "relu").in(x).in(w).in(bias).out({s.m, s.n});
      far.changing(uint64_t{1} << 22);
      CHECK(far.run_one().bytes == near.run_one().bytes);
      CHECK((is_baseline() || far.workspace() != near.workspace()));
    }
}

TEST_CASE("sparse products: NaN is not skipped") {
  Random random(73);
  Tensor a = sparse(random, {40, 100}, 0.1);
  reinterpret_cast<float*>(a.bytes.data())[0] = NAN;
  const Tensor b = random.floats({100, 64});
  const Tensor c =
      KernelCall("dot").set("lhs_contract", Dims{1}).set("rhs_contract", Dims{0}).in(a).in(b).out({40, 64}).run_one();
  CHECK(std::isnan(c[0]));
  CHECK(!std::isnan(c[64]));
}

TEST_CASE("sgd_outer: gradient descent on an affine map") {
  Random random(74);
  const Tensor rate({}, std::vector<float>{0.125f});
  for (const SparseSizes& s :
       {SparseSizes{784, 392, 1}, SparseSizes{37, 41, 1}, SparseSizes{300, 100, 3}, SparseSizes{784, 392, 64},
        SparseSizes{120, 65, 130}, SparseSizes{100, 70, 1100}, SparseSizes{1001, 65, 80},
        SparseSizes{333, 100, 70}})  // the last ones split the rows in halves
    for (double density : kDensities)
      for (bool in_place : {false, true}) {
        const Tensor w = random.floats({s.m, s.n}), a = sparse(random, {s.k, s.m}, density),
                     b = random.floats({s.k, s.n});
        KernelCall call("sgd_outer");
        call.in(w).in(a).in(b).in(rate).out({s.m, s.n});
        if (in_place) call.alias(0, 0);
        std::vector<double> e = exact_product({a, true}, {b}, s.m, s.n, s.k);
        for (size_t i = 0; i < e.size(); ++i) e[i] = w[static_cast<int64_t>(i)] - 0.125 * e[i];
        const Tensor c = call.run_one();
        INFO(s.m << " x " << s.n << " x " << s.k << ", density " << density << ": " << call.kernel());
        CHECK((call.in_place() & 1) == 1);
        require_close(c, e, 1e-6, 1e-6 * std::sqrt(static_cast<double>(s.k)));
      }
}

TEST_CASE("sgd_outer: with the gradient of the map's input") {
  Random random(75);
  const Tensor rate({}, std::vector<float>{0.125f});
  for (const char* mode : {"all", "active"})
    for (const SparseSizes& s : {SparseSizes{392, 196, 1}, SparseSizes{31, 45, 1}})
      for (double density : {0.0, 0.3, 1.0}) {
        const Tensor w = random.floats({s.m, s.n}), a = sparse(random, {1, s.m}, density), b = random.floats({1, s.n});
        KernelCall call("sgd_outer");
        call.set("input_gradient", mode).in(w).in(a).in(b).in(rate).out({s.m, s.n}).out({1, s.m}).alias(0, 0);
        const auto out = call.run();
        std::vector<double> weight, gradients;
        for (int64_t i = 0; i < s.m; ++i) {
          double sum = 0;
          for (int64_t j = 0; j < s.n; ++j) {
            weight.push_back(w[i * s.n + j] - 0.125 * static_cast<double>(a[i]) * b[j]);
            sum += static_cast<double>(w[i * s.n + j]) * b[j];
          }
          gradients.push_back(std::string(mode) == "all" || a[i] > 0 ? sum : 0);
        }
        require_close(out[0], weight, 1e-6, 1e-6);
        require_close(out[1], gradients, 1e-6, 2e-5);
      }
}

TEST_CASE("sparse products: bytes with a scale give the bits of floats") {
  Random random(76);
  std::vector<SparseSizes> all(std::begin(kSparseSizes), std::end(kSparseSizes));
  all.push_back({64, 40, 33}), all.push_back({100, 64, 1100}), all.push_back({20, 300, 31});
  for (const SparseSizes& s : all)
    for (double density : kDensities) {
      const Tensor bytes = bytes_like(sparse(random, {s.m, s.k}, density)), w = random.floats({s.k, s.n}),
                   bias = random.floats({s.n});
      KernelCall scaled("linear"), plain("linear");
      scaled.set("scale", static_cast<double>(kScale)).in(bytes);
      plain.in(numbers_of(bytes));
      for (KernelCall* call : {&scaled, &plain})
        call->set("transposed", 1).set("activation", "relu").in(w).in(bias).out({s.m, s.n});
      INFO(s.m << " x " << s.n << " x " << s.k << ", density " << density);
      CHECK(scaled.run_one().bytes == plain.run_one().bytes);
    }
}

TEST_CASE("sgd_outer: bytes with a scale give the bits of floats") {
  Random random(77);
  const Tensor rate({}, std::vector<float>{0.125f});
  for (const SparseSizes& s : {SparseSizes{300, 100, 3}, SparseSizes{784, 392, 64}, SparseSizes{120, 65, 130},
                               SparseSizes{100, 70, 1100}, SparseSizes{37, 41, 97}, SparseSizes{50, 300, 40}})
    for (double density : kDensities)
      for (bool in_place : {false, true}) {
        const Tensor w = random.floats({s.m, s.n}), bytes = bytes_like(sparse(random, {s.k, s.m}, density)),
                     b = random.floats({s.k, s.n});
        KernelCall scaled("sgd_outer"), plain("sgd_outer");
        scaled.set("scale", static_cast<double>(kScale)).in(w).in(bytes);
        plain.in(w).in(numbers_of(bytes));
        for (KernelCall* call : {&scaled, &plain}) {
          call->in(b).in(rate).out({s.m, s.n});
          if (in_place) call->alias(0, 0);
        }
        INFO(s.m << " x " << s.n << " x " << s.k << ", density " << density);
        CHECK(scaled.run_one().bytes == plain.run_one().bytes);
      }
}

TEST_CASE("bytes are declined where the sparse kernel is not used") {
  Random random(78);
  const Tensor bytes = random.integers<uint8_t>({64, 50}, 0, 256), numbers = random.floats({50, 64});
  KernelCall unscaled("linear"), narrow("linear"), one("sgd_outer"), both("linear");
  CHECK_FALSE(unscaled.set("transposed", 1).in(bytes).in(numbers).out({64, 64}).served());
  CHECK_FALSE(narrow.set("transposed", 1).set("scale", 0.5).in(bytes).in(random.floats({50, 3})).out({64, 3}).served());
  CHECK_FALSE(one.set("scale", 0.5)
                  .in(numbers)
                  .in(random.integers<uint8_t>({1, 50}, 0, 256))
                  .in(random.floats({1, 64}))
                  .in(random.floats({}))
                  .out({50, 64})
                  .served());
  CHECK_FALSE(
      both.set("transposed", 1).set("scale", 0.5).in(numbers).in(random.floats({64, 64})).out({50, 64}).served());
}

}  // namespace harmonics::engine::kernel_tests
