// Growing sequences: rows beyond a length, names of optional inputs, clamped starts.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <limits>

#include <harmonics/ops.hpp>

#include "engine/program/functional.hpp"
#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

HTensor waves(const Shape& shape, double step) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.count(); ++i)
    values.push_back(static_cast<float>(std::sin(step * static_cast<double>(i + 1))));
  return HTensor::from(shape, values);
}
HTensor whole(const std::vector<int32_t>& values) {
  return HTensor::from({static_cast<int64_t>(values.size())}, values);
}
AttributeMap operands(const std::string& names) { return AttributeMap().set("operands", names); }
bool equal_bytes(const HTensor& a, const HTensor& b) {
  return type_of(a) == type_of(b) && std::memcmp(a.bytes(), b.bytes(), type_of(a).bytes()) == 0;
}
bool all_finite(const HTensor& x) {
  for (int64_t i = 0; i < x.size(); ++i)
    if (!std::isfinite(x.data<float>()[i])) return false;
  return true;
}
std::string refused(const char* name, const AttributeMap& attributes, const Values& in) {
  try {
    apply(name, attributes, in);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}
Values gradient_of(const AttributeMap& a, const Values& in) {
  const Values out = apply("attention", a, in), dout{waves(out[0].shape(), 0.9), waves(out[1].shape(), 0.4)};
  return FunctionalTable::global().find("attention")->gradient(a, in, out, dout);
}
// Returns x [B, Hkv, S, D] with NaN in the rows from each item's length on.
HTensor spoiled(const HTensor& x, const std::vector<int32_t>& lengths) {
  HTensor result = add(x, 0.0);
  const Shape s = x.shape();
  for (int64_t i = 0; i < x.size(); ++i)
    if (i / s[3] % s[2] >= lengths[static_cast<size_t>(i / (s[1] * s[2] * s[3]))])
      result.mutable_data<float>()[i] = kNotANumber;
  return result;
}

}  // namespace

TEST_CASE("attention: keys beyond the lengths may hold NaN, in results and in gradients") {
  const std::vector<int32_t> valid{5, 2};
  const HTensor q = waves({2, 4, 3, 6}, 0.7), k = waves({2, 2, 7, 6}, 1.1), v = waves({2, 2, 7, 5}, 0.3);
  for (const bool causal : {false, true}) {
    AttributeMap a = operands("lengths");
    a.set("causal", causal).set("softcap", causal ? 2.0 : 0.0).set("window", int64_t{causal ? 4 : 0});
    const Values clean = apply("attention", a, {q, k, v, whole(valid)});
    const Values in{q, spoiled(k, valid), spoiled(v, valid), whole(valid)}, out = apply("attention", a, in);
    CHECK(equal_bytes(out[0], clean[0]));
    CHECK(equal_bytes(out[1], clean[1]));
    const Values d = gradient_of(a, in), expected = gradient_of(a, {q, k, v, whole(valid)});
    REQUIRE(d.size() == 4);
    CHECK(d[3].empty());
    for (size_t i = 0; i < 3; ++i) {
      CHECK(all_finite(d[i]));
      CHECK(equal_bytes(d[i], expected[i]));
    }
    for (size_t i : {1, 2})  // invisible keys have no gradient
      for (int64_t at = 0; at < d[i].size(); ++at) {
        const Shape s = d[i].shape();
        if (at / s[3] % s[2] >= valid[static_cast<size_t>(at / (s[1] * s[2] * s[3]))])
          REQUIRE(d[i].data<float>()[at] == 0);
      }
  }
}

TEST_CASE("attention: lengths that are full, or beyond the cache, have the bits of none") {
  const HTensor q = waves({2, 4, 3, 6}, 0.7), k = waves({2, 2, 7, 6}, 1.1);
  for (const bool causal : {false, true}) {
    const AttributeMap plain = AttributeMap().set("causal", causal);
    const Values expected = apply("attention", plain, {q, k, k});
    const Values out = apply("attention", AttributeMap(plain).set("operands", "lengths"), {q, k, k, whole({7, 99})});
    CHECK(equal_bytes(out[0], expected[0]));
    CHECK(equal_bytes(out[1], expected[1]));
  }
}

TEST_CASE("attention: no valid key, or fewer than queries, gives 0 with lse -inf") {
  const HTensor q = waves({2, 1, 3, 4}, 0.7), k = waves({2, 1, 5, 4}, 1.1);
  const Values in{q, k, k, whole({-1, 2})};
  const Values out = apply("attention", operands("lengths").set("causal", true), in);
  const auto blind = [](int64_t row) { return row < 3 || row == 3; };  // all of item 0, the first query of item 1
  for (int64_t row = 0; row < 6; ++row) {
    CHECK((out[1].data<float>()[row] == -INFINITY) == blind(row));
    if (blind(row))
      for (int64_t d = 0; d < 4; ++d) CHECK(out[0].data<float>()[row * 4 + d] == 0);
  }
  for (const HTensor& d : gradient_of(operands("lengths").set("causal", true), in))
    if (!d.empty()) CHECK(all_finite(d));
}

TEST_CASE("attention: a window is what a mask says, a bias of 0 changes nothing, a distant sink takes all") {
  const HTensor q = waves({1, 2, 4, 6}, 0.7), k = waves({1, 2, 6, 6}, 1.1);
  std::vector<float> seen;  // query t is at position t + 2
  for (int64_t t = 0; t < 4; ++t)
    for (int64_t j = 0; j < 6; ++j) seen.push_back(j <= t + 2 && j > t + 2 - 3 ? 1 : 0);
  const HTensor mask = cast(HTensor::from({4, 6}, seen), DType::Bool);
  const AttributeMap window = AttributeMap().set("causal", true).set("window", int64_t{3});
  const Values expected = apply("attention", window, {q, k, k});
  CHECK(equal_bytes(apply("attention", operands("mask"), {q, k, k, mask})[0], expected[0]));
  const Values biased =
      apply("attention", AttributeMap(window).set("operands", "bias"), {q, k, k, full(DType::F32, {4, 6}, 0)});
  CHECK(equal_bytes(biased[0], expected[0]));
  const Values sunk = apply("attention", operands("sinks"), {q, k, k, full(DType::F32, {2}, 1000)});
  for (int64_t i = 0; i < sunk[0].size(); ++i) CHECK(sunk[0].data<float>()[i] == 0);
  for (int64_t i = 0; i < sunk[1].size(); ++i) CHECK(sunk[1].data<float>()[i] == 1000);
}

TEST_CASE("rope: positions from offset on have the bits of offset, and part of a width those of a narrower x") {
  const HTensor x = waves({2, 3, 4, 8}, 0.7);
  const AttributeMap at = AttributeMap().set("offset", int64_t{9}).set("base", 300.0);
  const HTensor expected = apply("rope", at, {x})[0];
  const AttributeMap positions = operands("positions").set("base", 300.0);
  CHECK(equal_bytes(apply("rope", positions, {x, whole({9, 10, 11, 12})})[0], expected));
  const HTensor own = HTensor::from({2, 4}, std::vector<int32_t>{9, 10, 11, 12, 9, 10, 11, 12});
  CHECK(equal_bytes(apply("rope", positions, {x, own})[0], expected));

  const HTensor part = apply("rope", AttributeMap(at).set("rotary_dims", int64_t{6}), {x})[0];
  CHECK(equal_bytes(slice_axis(part, 3, 0, 6), apply("rope", at, {slice_axis(x, 3, 0, 6)})[0]));
  CHECK(equal_bytes(slice_axis(part, 3, 6, 8), slice_axis(x, 3, 6, 8)));
  AttributeMap pairs = at, back = at;
  pairs.set("pairing", "interleaved");
  back.set("pairing", "interleaved").set("inverse", true);
  const HTensor same = apply("rope", back, {apply("rope", pairs, {x})[0]})[0];
  for (int64_t i = 0; i < x.size(); ++i) CHECK(same.data<float>()[i] == Approx(x.data<float>()[i]).margin(1e-6));
}

TEST_CASE("cache_append writes each item's rows and clamps its start") {
  const HTensor cache = waves({3, 4, 2}, 0.7), rows = waves({3, 2, 2}, 5);
  const HTensor y = apply("cache_append", {}, {cache, rows, whole({-5, 1, 9})})[0];
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t r = 0; r < 4; ++r)
      for (int64_t d = 0; d < 2; ++d) {
        const int64_t start = b, own = r - start;  // -5 is clamped to 0, 9 to 2
        const float expected =
            own >= 0 && own < 2 ? rows.data<float>()[(b * 2 + own) * 2 + d] : cache.data<float>()[(b * 4 + r) * 2 + d];
        CHECK(y.data<float>()[(b * 4 + r) * 2 + d] == expected);
      }
  const HTensor narrow = apply("cache_append", {}, {cast(cache, DType::F16), rows, whole({0, 1, 2})})[0];
  CHECK(narrow.dtype() == DType::F16);
  CHECK(equal_bytes(narrow, cast(y, DType::F16)));
}

TEST_CASE("a cache of q8_0: appended rows are quantised, and attention reads its numbers") {
  const HTensor cache = cast(waves({2, 5, 1, 32}, 0.7), DType::Q8_0), rows = waves({2, 2, 1, 32}, 0.3);
  const HTensor y = apply("cache_append", {}, {cache, rows, whole({1, 3})})[0];
  REQUIRE(y.dtype() == DType::Q8_0);
  const HTensor expected = apply("cache_append", {}, {cast(cache, DType::F32), rows, whole({1, 3})})[0];
  CHECK(equal_bytes(y, cast(expected, DType::Q8_0)));
  const HTensor q = waves({2, 3, 2, 32}, 0.21);
  const AttributeMap a = operands("lengths").set("positions_first", true).set("causal", true);
  const Values stored = apply("attention", a, {q, y, y, whole({3, 5})});
  const HTensor wide = cast(y, DType::F32);
  CHECK(equal_bytes(stored[0], apply("attention", a, {q, wide, wide, whole({3, 5})})[0]));
  const Values gradients = gradient_of(a, {q, y, y, whole({3, 5})});
  CHECK(equal_bytes(gradients[0], gradient_of(a, {q, wide, wide, whole({3, 5})})[0]));
  CHECK(gradients[1].empty());
  CHECK(gradients[2].empty());
}

TEST_CASE("optional inputs: errors say what was given and what to write") {
  const HTensor q = waves({1, 2, 3, 4}, 1), x = waves({2, 3, 4}, 1), lengths = whole({3});
  CHECK(refused("attention", {}, {q, q, q, lengths}) ==
        "attention: got 1 optional input, but the attribute operands names 0; it must name each of them, in order: "
        "lengths, mask, bias, sinks, pages, documents");
  CHECK(
      refused("attention", operands("length"), {q, q, q, lengths}) ==
      "attention: the attribute operands names 'length'; known names are lengths, mask, bias, sinks, pages, documents");
  CHECK(refused("attention", operands("lengths,lengths"), {q, q, q, lengths, lengths}) ==
        "attention: the attribute operands names 'lengths' twice");
  CHECK(refused("attention", operands("lengths"), {q, q, q, whole({3, 3})}) ==
        "attention: lengths are i32[1], the number of valid keys of each batch item, not i32[2]");
  CHECK(refused("attention", operands("mask"), {q, q, q, waves({3, 3}, 1)}) ==
        "attention: mask is bool, not f32[3, 3]; bias is added to scores");
  CHECK(refused("attention", operands("bias"), {q, q, q, waves({3, 4}, 1)}) ==
        "attention: bias is [T, S] or [B, 1 or H, T, S], not f32[3, 4]");
  CHECK(refused("attention", AttributeMap().set("window", int64_t{-1}), {q, q, q}) ==
        "attention: window is -1; give a value at least 0");
  CHECK(refused("rope", operands("positions,"), {x, whole({0, 1, 2})}).find("names ''") != std::string::npos);
  CHECK(refused("rope", operands("positions"), {x, whole({0, 1})}) ==
        "rope: positions are [3], or 3 for each item of the first axis of x f32[2, 3, 4], not i32[2]");
  CHECK(refused("rope", operands("frequencies"), {x, waves({4}, 1)}) ==
        "rope: frequencies are f32[2], one of each pair, not f32[4]");
  CHECK(refused("rope", AttributeMap().set("rotary_dims", int64_t{3}), {x}) ==
        "rope: rotary_dims is an even number up to the width 4, not 3");
  CHECK(refused("rope", AttributeMap().set("pairing", "pairs"), {x}) ==
        "rope: pairing is \"pairs\"; give one of half, interleaved");
  CHECK(refused("cache_append", {}, {x, waves({2, 4, 4}, 1), whole({0, 0})}) ==
        "cache_append: cache f32[2, 3, 4] and new rows f32[2, 4, 4] do not fit: they are [B, C, ...] and [B, T, ...] "
        "with T up to C");
  CHECK(refused("cache_append", {}, {x, waves({2, 1, 4}, 1), whole({0})}) ==
        "cache_append: start is i32[2], one row number for each batch item, not i32[1]");
}
