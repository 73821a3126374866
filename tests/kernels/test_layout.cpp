#include "kernel_call.hpp"

#include <algorithm>
#include <numeric>

#include <harmonics/philox.hpp>

namespace harmonics::engine::kernel_tests {
namespace {

Dims strides_of(const Dims& dims) {
  Dims s(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) s[i - 1] = s[i] * dims[i];
  return s;
}
// The index of element n in a tensor of these sizes.
Dims index_of(int64_t n, const Dims& dims) {
  Dims index(dims.size());
  for (size_t i = dims.size(); i-- > 0; n /= dims[i]) index[i] = n % dims[i];
  return index;
}
int64_t offset_of(const Dims& index, const Dims& dims) {
  const Dims s = strides_of(dims);
  return std::inner_product(index.begin(), index.end(), s.begin(), int64_t{0});
}
Dims random_dims(Random& random, size_t rank, int64_t most) {
  Dims d(rank);
  for (int64_t& n : d) n = 1 + random.below(most);
  return d;
}

}  // namespace

TEST_CASE("transposes of every rank") {
  Random random(11);
  std::vector<std::pair<Dims, Dims>> cases = {
      {{64, 28, 4, 32}, {0, 2, 1, 3}}, {{333, 517}, {1, 0}}, {{8, 128, 96}, {0, 2, 1}}};
  for (size_t rank = 1; rank <= 6; ++rank) {
    Dims p(rank);
    std::iota(p.begin(), p.end(), 0);
    std::shuffle(p.begin(), p.end(), random.engine());
    cases.push_back({random_dims(random, rank, 9), p});
  }
  for (const auto& [dims, permutation] : cases) {
    const Tensor x = random.floats(dims);
    Dims out;
    for (int64_t a : permutation) out.push_back(dims[static_cast<size_t>(a)]);
    const Tensor y = KernelCall("transpose").set("permutation", permutation).in(x).out(out).run_one();
    for (int64_t i = 0; i < y.size(); ++i) {
      const Dims to = index_of(i, out);
      Dims from(dims.size());
      for (size_t k = 0; k < to.size(); ++k) from[static_cast<size_t>(permutation[k])] = to[k];
      REQUIRE(y[i] == x[offset_of(from, dims)]);
    }
  }
}

TEST_CASE("broadcast repeats sizes 1 and missing axes") {
  Random random(12);
  const Dims out{3, 5, 4, 7};
  for (const Dims& dims : {Dims{}, Dims{7}, Dims{4, 1}, Dims{5, 1, 7}, Dims{3, 1, 1, 1}, Dims{1, 5, 1, 7}}) {
    const Tensor x = random.floats(dims);
    const Tensor y = KernelCall("broadcast").set("shape", out).in(x).out(out).run_one();
    for (int64_t i = 0; i < y.size(); ++i) {
      Dims index = index_of(i, out);
      index.erase(index.begin(), index.begin() + static_cast<int64_t>(out.size() - dims.size()));
      for (size_t k = 0; k < dims.size(); ++k) index[k] = dims[k] == 1 ? 0 : index[k];
      REQUIRE(y[i] == x[offset_of(index, dims)]);
    }
  }
}

TEST_CASE("slice, reverse and pad for several element types") {
  Random random(13);
  const Dims dims{6, 9, 11};
  const Tensor x = random.integers<int64_t>(dims, -99, 99), bytes = random.integers<uint8_t>(dims, 0, 99);
  const Dims starts{1, 0, 3}, steps{2, 1, 3}, out{3, 9, 3};
  KernelCall cut("slice");
  const Tensor y =
      cut.set("starts", starts).set("limits", Dims{6, 9, 11}).set("strides", steps).in(x).out(out, HX_I64).run_one();
  for (int64_t i = 0; i < y.size(); ++i) {
    Dims index = index_of(i, out);
    for (size_t k = 0; k < 3; ++k) index[k] = starts[k] + index[k] * steps[k];
    REQUIRE(y.data<int64_t>()[i] == x.data<int64_t>()[offset_of(index, dims)]);
  }
  const Tensor r = KernelCall("reverse").set("axes", Dims{0, 2}).in(bytes).out(dims, HX_U8).run_one();
  for (int64_t i = 0; i < r.size(); ++i) {
    const Dims index = index_of(i, dims);
    REQUIRE(r.data<uint8_t>()[i] == bytes.data<uint8_t>()[offset_of({5 - index[0], index[1], 10 - index[2]}, dims)]);
  }
  const Dims low{1, 0, 2}, interior{0, 2, 1}, padded{6 + 1 + 3, 9 + 16, 11 + 10 + 2};
  KernelCall pad("pad");
  const Tensor p = pad.set("low", low)
                       .set("high", Dims{3, 0, 0})
                       .set("interior", interior)
                       .set("value", -5.0)
                       .in(x)
                       .out(padded, HX_I64)
                       .run_one();
  std::vector<int64_t> expected(static_cast<size_t>(elements(padded)), -5);
  for (int64_t i = 0; i < x.size(); ++i) {
    Dims index = index_of(i, dims);
    for (size_t k = 0; k < 3; ++k) index[k] = low[k] + index[k] * (interior[k] + 1);
    expected[static_cast<size_t>(offset_of(index, padded))] = x.data<int64_t>()[i];
  }
  REQUIRE(p.values<int64_t>() == expected);
}

TEST_CASE("concat along any axis") {
  Random random(14);
  for (int64_t axis : {0, 1, 2}) {
    std::vector<Tensor> xs;
    KernelCall call("concat");
    Dims out{4, 5, 6};
    out[static_cast<size_t>(axis)] = 0;
    for (int64_t n : {3, 1, 7}) {
      Dims d{4, 5, 6};
      d[static_cast<size_t>(axis)] = n;
      out[static_cast<size_t>(axis)] += n;
      xs.push_back(random.floats(d));
      call.in(xs.back());
    }
    const Tensor y = call.set("axis", axis).out(out).run_one();
    for (int64_t i = 0; i < y.size(); ++i) {
      Dims index = index_of(i, out);
      size_t which = 0;
      int64_t& at = index[static_cast<size_t>(axis)];
      while (at >= xs[which].dims[static_cast<size_t>(axis)]) at -= xs[which++].dims[static_cast<size_t>(axis)];
      REQUIRE(y[i] == xs[which][offset_of(index, xs[which].dims)]);
    }
  }
}

TEST_CASE("full, iota and random numbers") {
  const Tensor f = KernelCall("full").set("value", 2.5).out({3, 1001}).run_one();
  const Tensor i = KernelCall("iota").set("axis", 1).out({3, 5, 7}, HX_I64).run_one();
  for (int64_t k = 0; k < f.size(); ++k) REQUIRE(f[k] == 2.5f);
  for (int64_t k = 0; k < i.size(); ++k) REQUIRE(i.data<int64_t>()[k] == k / 7 % 5);

  const int64_t seed = 1234567890123, step = (int64_t{7} << 33) + 5, stream = -42;
  KernelCall call("random_uniform");
  const Tensor r = call.set("stream", stream).in(Tensor({2}, std::vector<int64_t>{seed, step})).out({40003}).run_one();
  CHECK(call.parts() > 1);
  const auto key = philox_key(static_cast<uint64_t>(seed), static_cast<uint64_t>(stream));
  for (int64_t k = 0; k < r.size(); ++k) {
    const auto words =
        philox({static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), static_cast<uint32_t>(k / 4), 0}, key);
    REQUIRE(r[k] == unit_float(words[static_cast<size_t>(k % 4)]));
  }
}

}  // namespace harmonics::engine::kernel_tests
