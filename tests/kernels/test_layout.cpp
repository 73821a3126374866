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
// Returns the index of element n in a tensor of these sizes.
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

namespace {

struct Patches {
  Dims image, kernel, strides, low, dilation, places;
};
const Patches kPatches[] = {{{2, 3, 17}, {4}, {1}, {0}, {1}, {14}},
                            {{2, 3, 17}, {3}, {2}, {2}, {3}, {9}},
                            {{3, 2, 11, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {11, 13}},
                            {{1, 4, 30, 28}, {2, 5}, {2, 3}, {1, 4}, {1, 2}, {16, 11}},
                            {{2, 2, 5, 6, 7}, {2, 3, 2}, {1, 2, 1}, {1, 0, 1}, {2, 1, 1}, {5, 2, 8}},
                            {{1, 1, 2, 2}, {1, 1}, {1, 1}, {5, 5}, {1, 1}, {9, 9}}};

}  // namespace

TEST_CASE("patches write windows out, unpatches sums them back") {
  Random random(44);
  for (const Patches& p : kPatches) {
    const size_t axes = p.kernel.size();
    const int64_t taps = elements(p.kernel), places = elements(p.places), planes = p.image[0] * p.image[1];
    Dims shape = p.places;
    shape.insert(shape.begin(), {p.image[0], p.image[1] * taps});
    const Tensor x = random.floats(p.image), dy = random.floats(shape);
    std::vector<float> written(static_cast<size_t>(elements(shape)), 0.5f);
    std::vector<double> summed(static_cast<size_t>(x.size()), 0);
    for (int64_t i = 0; i < elements(shape); ++i) {
      int64_t place = i % places, tap = i / places % taps, at = 0, step = 1;
      bool inside = true;
      for (size_t a = axes; a-- > 0; place /= p.places[a], tap /= p.kernel[a], step *= p.image[a + 2]) {
        const int64_t here = place % p.places[a] * p.strides[a] - p.low[a] + tap % p.kernel[a] * p.dilation[a];
        inside = inside && here >= 0 && here < p.image[a + 2];
        at += here * step;
      }
      at += i / places / taps * (x.size() / planes);
      if (!inside) continue;
      written[static_cast<size_t>(i)] = x[at];
      summed[static_cast<size_t>(at)] += dy[i];
    }
    KernelCall write("patches"), sum("unpatches");
    for (KernelCall* call : {&write, &sum})
      call->set("kernel", p.kernel).set("strides", p.strides).set("padding_low", p.low).set("dilation", p.dilation);
    CHECK(write.set("fill", 0.5).in(x).out(shape).run_one().values<float>() == written);
    require_close(sum.in(dy).out(p.image).run_one(), summed, 1e-6, 1e-6);
  }
}

namespace {

// Scales and zero points of one channel, or of every index of axis 1.
template <typename T>
void check_quantize(uint32_t seed, int64_t low, int64_t high, uint32_t dtype) {
  Random random(seed);
  for (const bool per_channel : {false, true}) {
    const Dims dims{3, 7, 41};
    Tensor x = random.floats(dims, -60, 60);
    std::vector<float> values = x.values<float>();
    values[0] = NAN, values[1] = INFINITY, values[2] = -INFINITY, values[3] = 1e30f, values[4] = 0.125f;
    x = Tensor(dims, values);
    const Dims channels = per_channel ? Dims{7} : Dims{};
    const Tensor scale = random.floats(channels, 0.01f, 0.5f);
    Tensor zero = random.integers<T>(channels, low / 4, high / 4);
    zero.dtype = dtype;
    const auto call = [&](const char* name, const Tensor& from) {
      KernelCall c(name);
      return c.set("axis", 1).in(from).in(scale).in(zero);
    };
    Tensor q = call("quantize", x).out(dims, dtype).run_one();
    const Tensor back = call("dequantize", q).out(dims).run_one();
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t channel = per_channel ? i / 41 % 7 : 0;
      const float steps = std::nearbyint(x[i] / scale[channel]);
      const double z = static_cast<double>(zero.data<T>()[channel]),
                   wanted = std::isnan(steps) ? z
                                              : std::clamp<double>(steps + z, static_cast<double>(low),
                                                                   static_cast<double>(high - 1));
      REQUIRE(static_cast<double>(q.data<T>()[i]) == wanted);
      REQUIRE(back[i] == static_cast<float>(wanted - z) * scale[channel]);
    }
  }
}

}  // namespace

TEST_CASE("quantize rounds half to even and saturates, dequantize scales back") {
  check_quantize<int8_t>(45, -128, 128, HX_I8);
  check_quantize<uint8_t>(46, 0, 256, HX_U8);
  check_quantize<int16_t>(47, -32768, 32768, HX_I16);
  check_quantize<uint16_t>(48, 0, 65536, HX_U16);
  const Tensor q({4}, std::vector<int32_t>{INT32_MIN, INT32_MAX, 5, -7}), zero({}, std::vector<int32_t>{INT32_MAX});
  const Tensor y = KernelCall("dequantize").in(q).in(scalar(0.5f)).in(zero).out({4}).run_one();
  for (int64_t i = 0; i < 4; ++i) {
    const auto steps = static_cast<float>(int64_t{q.data<int32_t>()[i]} - INT32_MAX);
    REQUIRE(y[i] == steps * 0.5f);
  }
}

}  // namespace harmonics::engine::kernel_tests
