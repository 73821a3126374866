// linear and embedding over weights of 16-bit floats and stored types.
#include "stored_tensors.hpp"
#include "tests/variable.hpp"

#include <algorithm>

namespace harmonics::engine::kernel_tests {
namespace {

constexpr DType kTypes[] = {DType::BF16,    DType::F16,    DType::Q8_0,   DType::Q4_0,   DType::Q4_K, DType::Q6_K,
                            DType::Q4_1,    DType::Q5_0,   DType::Q5_1,   DType::Q2_K,   DType::Q3_K, DType::Q5_K,
                            DType::IQ4_NL,  DType::IQ4_XS, DType::MXFP4,  DType::NF4,    DType::I4,   DType::F8_E4M3,
                            DType::F8_E5M2, DType::NF4_64, DType::FP4_64, DType::E4M3_64};

KernelCall call(const Tensor& x, const Tensor& weight) {
  KernelCall c("linear");
  c.in(x).in(weight);
  return c;
}

double largest(const Tensor& t) {
  double most = 0;
  for (int64_t i = 0; i < t.size(); ++i) most = std::max(most, std::abs(static_cast<double>(t[i])));
  return most;
}

void require_product(const Tensor& y, const Tensor& x, const Side& weight) {
  const int64_t m = x.dims[0], depth = x.dims[1], n = y.dims[1];
  const double term = largest(x) * largest(weight.matrix);
  require_close(y, exact_product({x}, weight, m, n, depth), 1e-5, 1e-6 * term * static_cast<double>(depth));
}

}  // namespace

TEST_CASE("typed weights: linear equals the product with the decoded weight") {
  Random random(811);
  for (const DType type : kTypes) {
    CAPTURE(element_type(type).name);
    const int64_t block = element_type(type).block;
    for (const int64_t m : {1, 2, 3, 8, 40})
      for (const int64_t n : {1, 5, 8, 61})
        for (const int64_t depth : {block, 3 * block, block == 1 ? int64_t{131} : 2 * block, 19 * block}) {
          CAPTURE(m, n, depth);
          const Tensor x = random.floats({m, depth}), w = of_type(type, {n, depth}, random);
          require_product(call(x, w).out({m, n}).run_one(), x, {decoded(w), true});
        }
  }
}

TEST_CASE("typed weights: many rows are multiplied by decoded panels, in both directions") {
  constexpr int64_t kRows = 150;
  Random random(812);
  for (const DType type : kTypes)
    for (const bool transposed : {false, true}) {
      if (transposed && !is_stored(type)) continue;  // small ones are cast
      const int64_t block = element_type(type).block;
      for (const int64_t columns : {block == 1 ? int64_t{5} : block, block < 3 ? int64_t{290} : 3 * block})
        for (const int64_t depth : {block, block < 3 ? int64_t{300} : 17 * block}) {
          CAPTURE(element_type(type).name, transposed, columns, depth);
          const Dims shape = transposed ? Dims{depth, columns} : Dims{columns, depth};
          const Tensor x = random.floats({kRows, depth}), w = of_type(type, shape, random);
          const Tensor y = call(x, w).set("transposed", transposed).out({kRows, columns}).run_one();
          require_product(y, x, {decoded(w), !transposed});
        }
    }
}

TEST_CASE("typed weights: where rows must not differ, many have the bits of one") {
  constexpr int64_t kRows = 130, kDepth = 512, kColumns = 40;
  Random random(813);
  for (const DType type : {DType::BF16, DType::Q8_0, DType::Q4_K}) {
    const Tensor x = random.floats({kRows, kDepth}), w = of_type(type, {kColumns, kDepth}, random);
    const Tensor y = call(x, w).set("batch_invariant", 1).out({kRows, kColumns}).run_one();
    const Tensor row({1, kDepth}, std::vector<float>(x.data<float>() + 129 * kDepth, x.data<float>() + 130 * kDepth));
    const Tensor one = call(row, w).set("batch_invariant", 1).out({1, kColumns}).run_one();
    for (int64_t j = 0; j < kColumns; ++j) REQUIRE(one[j] == y[129 * kColumns + j]);
  }
}

TEST_CASE("typed weights: transposed products decode the weight where it lies") {
  Random random(817);
  for (const DType type : kTypes) {
    if (!is_stored(type)) continue;
    CAPTURE(element_type(type).name);
    const int64_t block = element_type(type).block;
    for (const int64_t m : {1, 7, 40})
      for (const int64_t depth : {1, 5, 130, 300})
        for (const int64_t n : {block, block < 3 ? int64_t{38} : 3 * block, block < 3 ? int64_t{258} : 9 * block}) {
          CAPTURE(m, n, depth);
          const Tensor x = random.floats({m, depth}), w = of_type(type, {depth, n}, random);
          KernelCall product = call(x, w);
          const Tensor y = product.set("transposed", 1).out({m, n}).run_one();
          REQUIRE(product.kernel() == std::string(element_type(type).name) + " weights");
          require_product(y, x, {decoded(w)});
        }
  }
  KernelCall wide = call(random.floats({64, 512}), of_type(DType::NF4_64, {512, 1024}, random));
  wide.set("transposed", 1).out({64, 1024}).run_one();
  CHECK(wide.parts() > 1);
}

TEST_CASE("typed weights: transposed products decode large weights of 16-bit floats, and their last columns") {
  constexpr int64_t kDepth = 32768, kColumns = 261, kRows = 2;
  Random random(818);
  for (const DType type : {DType::F16, DType::BF16}) {
    CAPTURE(element_type(type).name);
    const Tensor x = random.floats({kRows, kDepth}), w = of_type(type, {kDepth, kColumns}, random), plain = decoded(w);
    KernelCall product = call(x, w);
    const Tensor y = product.set("transposed", 1).out({kRows, kColumns}).run_one();
    CHECK(product.kernel() == std::string(element_type(type).name) + " weights");
    std::vector<double> expected(kRows * kColumns);
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t k = 0; k < kDepth; ++k)
        for (int64_t j = 0; j < kColumns; ++j)
          expected[static_cast<size_t>(i * kColumns + j)] +=
              static_cast<double>(x[i * kDepth + k]) * static_cast<double>(plain[k * kColumns + j]);
    require_close(y, expected, 1e-4, 1e-2);
  }
}

TEST_CASE("typed weights: numbers are those of the reference in registers and in panels") {
  Random random(815);
  for (const DType type : kTypes) {
    CAPTURE(element_type(type).name);
    const int64_t block = element_type(type).block, depth = block == 1 ? 37 : block == 2 ? 38 : 2 * block, n = 19;
    const Tensor w = of_type(type, {n, depth}, random), plain = decoded(w);
    std::vector<float> identity(static_cast<size_t>(depth * depth));
    for (int64_t i = 0; i < depth; ++i) identity[static_cast<size_t>(i * depth + i)] = 1;
    const Tensor all({depth, depth}, identity);
    const auto check = [&](const Tensor& y, int64_t first, int64_t rows) {
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < n; ++j) REQUIRE(y[i * n + j] == plain[j * depth + first + i]);
    };
    check(call(all, w).out({depth, n}).run_one(), 0, depth);
    for (int64_t i = 0; i < depth; i += 3) {
      const int64_t rows = std::min<int64_t>(3, depth - i);
      const Tensor some({rows, depth},
                        std::vector<float>(all.data<float>() + i * depth, all.data<float>() + (i + rows) * depth));
      check(call(some, w).out({rows, n}).run_one(), i, rows);
    }
  }
}

TEST_CASE("typed weights: casts to f32 give the numbers of the reference") {
  Random random(816);
  for (const DType type : kTypes) {
    if (!is_stored(type)) continue;
    CAPTURE(element_type(type).name);
    const int64_t block = element_type(type).block;
    for (const int64_t rows : {1, 7, 300})
      for (const int64_t width : {block, 5 * block, block == 1 ? int64_t{37} : 3 * block}) {
        CAPTURE(rows, width);
        const Tensor w = of_type(type, {rows, width}, random), plain = decoded(w);
        KernelCall c("cast");
        const Tensor y = c.set("dtype", static_cast<int64_t>(DType::F32)).in(w).out({rows, width}).run_one();
        for (int64_t i = 0; i < y.size(); ++i) REQUIRE(y[i] == plain[i]);
      }
  }
}

TEST_CASE("typed weights: a row's bits do not depend on the other rows") {
  Random random(812);
  for (const DType type : kTypes) {
    CAPTURE(element_type(type).name);
    const int64_t depth = std::max<int64_t>(2 * element_type(type).block,
                                            77 / element_type(type).block * element_type(type).block),
                  n = 150;
    const Tensor x = random.floats({33, depth}), w = of_type(type, {n, depth}, random);
    const Tensor all = call(x, w).out({33, n}).run_one();
    for (int64_t m = 1; m < 33; ++m) {
      CAPTURE(m);
      const Tensor some({m, depth}, std::vector<float>(x.data<float>(), x.data<float>() + m * depth));
      const Tensor y = call(some, w).out({m, n}).run_one();
      REQUIRE(std::memcmp(y.bytes.data(), all.bytes.data(), y.bytes.size()) == 0);
    }
  }
}

TEST_CASE("typed weights: a row's bits do not depend on the other rows where the depth is cut") {
  Random random(817);
  for (const DType type : kTypes) {
    CAPTURE(element_type(type).name);
    const int64_t block = element_type(type).block, depth = 2048 + (block == 1 ? 37 : block == 2 ? 38 : block), n = 71;
    const Tensor x = random.floats({103, depth}), w = of_type(type, {n, depth}, random);
    const Tensor all = call(x, w).out({103, n}).run_one();
    for (const int64_t m : {1, 12, 13, 16, 20, 32, 64, 96, 97}) {
      CAPTURE(m);
      const Tensor some({m, depth}, std::vector<float>(x.data<float>(), x.data<float>() + m * depth));
      const Tensor y = call(some, w).out({m, n}).run_one();
      REQUIRE(std::memcmp(y.bytes.data(), all.bytes.data(), y.bytes.size()) == 0);
    }
  }
}

TEST_CASE("typed weights: a row has the same bits if rows of the weight are read one after the other") {
  Random random(823);
  constexpr int64_t kDepth = 2085, kColumns = 807;  // three columns more than fours, and a part of a vector
  for (const DType type : {DType::F16, DType::BF16}) {
    CAPTURE(element_type(type).name);
    const Tensor x = random.floats({1, kDepth}), w = of_type(type, {kColumns, kDepth}, random);
    const auto product = [&](const char* fetch) {
      const testing::Variable who("HARMONICS_FETCH", fetch);
      return call(x, w).out({1, kColumns}).run_one();
    };
    const Tensor several = product("program"), one = product("processor");
    CHECK(std::memcmp(one.bytes.data(), several.bytes.data(), one.bytes.size()) == 0);
  }
}

TEST_CASE("typed weights: 13 to 32 rows of x by 16-bit floats have the bits of single rows, in several parts") {
  Random random(819);
  constexpr int64_t kDepth = 2100, kColumns = 1003;
  for (const DType type : {DType::F16, DType::BF16}) {
    CAPTURE(element_type(type).name);
    const Tensor x = random.floats({33, kDepth}), w = of_type(type, {kColumns, kDepth}, random),
                 bias = random.floats({kColumns});
    const auto product = [&](int64_t first, int64_t rows) {
      const float* const from = x.data<float>() + first * kDepth;
      KernelCall c("linear");
      c.set("activation", "relu").in(Tensor({rows, kDepth}, std::vector<float>(from, from + rows * kDepth)));
      c.in(w).in(bias).out({rows, kColumns});
      const Tensor y = c.run_one();
      CHECK(c.parts() > 1);
      return y;
    };
    std::vector<Tensor> single;
    for (int64_t i = 0; i < 33; ++i) single.push_back(product(i, 1));
    for (const int64_t m : {13, 16, 17, 23, 31, 32, 33}) {
      CAPTURE(m);
      const Tensor y = product(0, m);
      for (int64_t i = 0; i < m; ++i)
        REQUIRE(std::memcmp(y.data<float>() + i * kColumns, single[static_cast<size_t>(i)].data<float>(),
                            kColumns * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("typed weights: bias, activation, several parts") {
  Random random(813);
  for (const DType type : {DType::BF16, DType::Q8_0}) {
    const Tensor x = random.floats({2, 3, 256}), w = of_type(type, {1000, 256}, random), bias = random.floats({1000});
    KernelCall with("linear"), without("linear");
    const Tensor y = with.set("activation", "relu").in(x).in(w).in(bias).out({2, 3, 1000}).run_one(),
                 plain = without.in(x).in(w).out({2, 3, 1000}).run_one();
    CHECK(with.parts() > 1);
    CHECK(with.kernel() == std::string(element_type(type).name) + " weights");
    for (int64_t i = 0; i < y.size(); ++i) REQUIRE(y[i] == std::max(0.0f, plain[i] + bias[i % 1000]));
  }
}

TEST_CASE("typed weights: other calls are left to the body") {
  const Tensor x = Tensor::zeros({2, 64}), w = Tensor::zeros({64, 64}, HX_Q8_0);
  CHECK(call(x, w).out({2, 64}).served());
  CHECK(call(x, w).set("transposed", 1).out({2, 64}).served());
  CHECK_FALSE(call(x, w).set("transposed", 1).set("activation_type", "q8_0").out({2, 64}).served());
  CHECK_FALSE(call(x, Tensor::zeros({64, 64}, HX_BF16)).set("transposed", 1).out({2, 64}).served());
  const Tensor tall = Tensor::zeros({2, 32768}), head = Tensor::zeros({32768, 257}, HX_BF16);
  CHECK(call(tall, head).set("transposed", 1).out({2, 257}).served());
  CHECK_FALSE(call(tall, head).set("transposed", 1).allow_bf16().out({2, 257}).served());
  CHECK_FALSE(call(x, w).set("scale", 0.5).out({2, 64}).served());
  CHECK_FALSE(call(Tensor::zeros({2, 64}, HX_BF16), w).out({2, 64}, HX_BF16).served());
  CHECK_FALSE(call(x, Tensor::zeros({64, 64}, HX_F64)).out({2, 64}).served());
  CHECK_FALSE(KernelCall("gather").set("axis", 0).in(w).in(Tensor::zeros({3}, HX_I64)).out({3, 64}, HX_Q8_0).served());
  CHECK_FALSE(KernelCall("dot").in(w).in(w).out({64, 64}).served());
  CHECK_FALSE(call(x, w).set("accumulate", "f64").out({2, 64}).served());
  CHECK_FALSE(call(x, w).set("out_dtype", "bf16").out({2, 64}, HX_BF16).served());
  const Tensor f32 = Tensor::zeros({64, 64}), ids = Tensor::zeros({3}, HX_I64);
  CHECK(call(x, f32).set("accumulate", "f32").out({2, 64}).served());
  CHECK_FALSE(call(x, f32).set("accumulate", "f64").out({2, 64}).served());
  CHECK_FALSE(call(x, f32).set("out_dtype", "f16").out({2, 64}, HX_F16).served());
  CHECK_FALSE(KernelCall("embedding").in(f32).in(ids).out({3, 64}, HX_BF16).served());
  CHECK(KernelCall("embedding").in(f32).in(ids).out({3, 64}).served());
  for (const char* sums : {"f32", "f64"})
    CHECK(KernelCall("dot")
              .set("lhs_contract", Dims{1})
              .set("rhs_contract", Dims{0})
              .set("accumulate", sums)
              .in(f32)
              .in(f32)
              .out({64, 64})
              .served() == (std::string(sums) == "f32"));
}

TEST_CASE("typed weights: embedding decodes rows, out-of-range indices are clamped") {
  Random random(814);
  for (const DType type : kTypes) {
    CAPTURE(element_type(type).name);
    const int64_t block = element_type(type).block, width = block == 1 ? 37 : 3 * block;
    const Tensor table = of_type(type, {9, width}, random), ids = random.integers<int32_t>({4, 30}, -2, 11);
    const Tensor plain = decoded(table), y = KernelCall("embedding").in(table).in(ids).out({4, 30, width}).run_one();
    for (int64_t i = 0; i < y.size(); ++i) {
      const int64_t id = std::clamp<int64_t>(ids.data<int32_t>()[i / width], 0, 8);
      REQUIRE(y[i] == plain[id * width + i % width]);
    }
  }
}

TEST_CASE("typed weights: every byte of types without scales is decoded") {
  for (const DType type : {DType::F8_E4M3, DType::F8_E5M2, DType::NF4, DType::I4}) {
    CAPTURE(element_type(type).name);
    const int64_t width = 256 * element_type(type).block;
    Tensor table = Tensor::zeros({1, width}, static_cast<uint32_t>(type));
    for (size_t i = 0; i < 256; ++i) table.bytes[i] = static_cast<char>(i);
    const Tensor plain = decoded(table),
                 y = KernelCall("embedding").in(table).in(Tensor::zeros({1}, HX_I64)).out({1, width}).run_one();
    for (int64_t i = 0; i < width; ++i) {
      CAPTURE(i);
      REQUIRE(std::isnan(y[i]) == std::isnan(plain[i]));
      if (!std::isnan(y[i])) REQUIRE(std::memcmp(y.data<float>() + i, plain.data<float>() + i, 4) == 0);
    }
  }
}

// A product that rounds its operands reads weights of 16-bit floats as they are stored.
TEST_CASE("linear: rounded products read stored floats, with the bits of weights in f32") {
  Random random(69);
  for (const DType type : {DType::F16, DType::BF16})
    for (const bool to_half : {true, false})
      for (const bool transposed : {false, true})
        for (const Dims& sizes : {Dims{64, 128, 96}, Dims{97, 131, 301}, Dims{33, 300, 520}, Dims{300, 70, 90}}) {
          const int64_t m = sizes[0], n = sizes[1], k = sizes[2];
          const Dims shape = transposed ? Dims{k, n} : Dims{n, k};
          const Tensor x = random.floats({m, k}), wide = random.floats(shape);
          Tensor stored = Tensor::zeros(shape, static_cast<uint32_t>(type)), same = Tensor::zeros(shape, HX_F32);
          const auto* numbers = reinterpret_cast<const float*>(wide.bytes.data());
          encode_elements(type, numbers, reinterpret_cast<char*>(stored.bytes.data()), wide.size());
          decode_elements(type, reinterpret_cast<const char*>(stored.bytes.data()),
                          reinterpret_cast<float*>(same.bytes.data()), wide.size());
          KernelCall direct("linear"), plain("linear");
          direct.in(x).in(stored), plain.in(x).in(same);
          for (KernelCall* call : {&direct, &plain}) {
            if (transposed) call->set("transposed", 1);
            call->out({m, n});
            to_half ? call->allow_half() : call->allow_bf16();
          }
          INFO(m << " x " << n << " x " << k << (transposed ? ", transposed" : ""));
          const Tensor expected = plain.run_one();
          CHECK(direct.run_one().bytes == expected.bytes);
          CHECK(direct.kernel().find(to_half ? "fp16" : "bf16") != std::string::npos);
          CHECK(direct.kernel().find("weights") == std::string::npos);
        }
}

TEST_CASE("linear: stored floats of few rows, and where rows must not differ, stay in fp32") {
  Random random(70);
  const Tensor w = of_type(DType::BF16, {256, 256}, random);
  KernelCall few("linear"), invariant("linear");
  few.in(random.floats({4, 256})).in(w).out({4, 256}).allow_bf16().run();
  CHECK(few.kernel() == "bf16 weights");
  invariant.set("batch_invariant", 1).in(random.floats({64, 256})).in(w).out({64, 256}).allow_bf16().run();
  CHECK(invariant.kernel() == "bf16 weights");
}

}  // namespace harmonics::engine::kernel_tests
