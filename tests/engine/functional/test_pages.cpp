// Paged caches: compares the functionals with contiguous caches; gradients of pools; errors.
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

HTensor page_waves(const Shape& shape, double step) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.count(); ++i)
    values.push_back(static_cast<float>(std::sin(step * static_cast<double>(i + 1))));
  return HTensor::from(shape, values);
}
HTensor page_table(const Shape& shape, const std::vector<int32_t>& values) { return HTensor::from(shape, values); }
AttributeMap page_operands(const std::string& names) {
  return AttributeMap().set("operands", names).set("positions_first", true);
}
bool same_bytes(const HTensor& a, const HTensor& b) {
  return type_of(a) == type_of(b) && std::memcmp(a.bytes(), b.bytes(), type_of(a).bytes()) == 0;
}
std::string page_error(const char* name, const AttributeMap& attributes, const Values& in) {
  try {
    apply(name, attributes, in);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("attention over pages is attention over the keys and values that they name") {
  const HTensor q = page_waves({2, 3, 4, 6}, 0.7), k = page_waves({5, 4, 2, 6}, 1.1), v = page_waves({5, 4, 2, 5}, 0.3);
  const HTensor pages = page_table({2, 3}, {3, 0, 4, 2, 3, -9}), lengths = page_table({2}, {11, 6});
  const HTensor named = page_table({2, 3}, {3, 0, 4, 2, 3, 0});  // an invalid page reads the nearest valid one
  const HTensor own_k = reshape(gather(k, named), {2, 12, 2, 6}), own_v = reshape(gather(v, named), {2, 12, 2, 5});
  AttributeMap a = page_operands("lengths,pages"), plain = page_operands("lengths");
  for (AttributeMap* const each : {&a, &plain}) each->set("causal", true).set("window", int64_t{5}).set("softcap", 2.0);
  const Values expected = apply("attention", plain, {q, own_k, own_v, lengths});
  const Values y = apply("attention", a, {q, k, v, lengths, pages});
  CHECK(same_bytes(y[0], expected[0]));
  CHECK(same_bytes(y[1], expected[1]));
  const AttributeMap before = AttributeMap(a).set("operands", "pages,lengths");
  CHECK(same_bytes(apply("attention", before, {q, k, v, pages, lengths})[0], expected[0]));

  const auto heads_first = [](const HTensor& x) { return transpose(x, {0, 2, 1, 3}); };
  const Values turned = apply("attention", AttributeMap(a).set("positions_first", false),
                              {heads_first(q), heads_first(k), heads_first(v), lengths, pages});
  CHECK(same_bytes(heads_first(turned[0]), expected[0]));
}

TEST_CASE("attention over pages: pools have the sum of the gradients of the items that share a page") {
  const HTensor q = page_waves({2, 2, 2, 6}, 0.7), k = page_waves({4, 2, 2, 6}, 1.1), v = page_waves({4, 2, 2, 6}, 0.3);
  const HTensor pages = page_table({2, 2}, {3, 0, 2, 3}), bias = page_waves({2, 4}, 0.2);
  const HTensor own_k = reshape(gather(k, pages), {2, 4, 2, 6}), own_v = reshape(gather(v, pages), {2, 4, 2, 6});
  const auto gradient = [&](const AttributeMap& a, const Values& in) {
    const Values out = apply("attention", a, in),
                 dout{page_waves(out[0].shape(), 0.9), page_waves(out[1].shape(), 0.4)};
    return FunctionalTable::global().find("attention")->gradient(a, in, out, dout);
  };
  const Values expected = gradient(page_operands("bias"), {q, own_k, own_v, bias});
  const Values d = gradient(page_operands("pages,bias"), {q, k, v, pages, bias});
  REQUIRE(d.size() == 5);
  CHECK(same_bytes(d[0], expected[0]));
  CHECK(d[3].empty());
  CHECK(same_bytes(d[4], expected[3]));
  for (size_t i : {1, 2}) {
    const HTensor by_page = reshape(expected[i], {2, 2, 2, 2, 6});
    CHECK(same_bytes(d[i], scatter_add(zeros_like(k), pages, by_page)));
    for (int64_t e = 24; e < 48; ++e) CHECK(d[i].data<float>()[e] == 0);  // page 1 is in no table
  }
  const HTensor stored = cast(page_waves({4, 2, 1, 32}, 0.7), DType::Q8_0), wide = cast(stored, DType::F32);
  const HTensor few = page_waves({2, 1, 2, 32}, 0.2);
  const Values of_stored = gradient(page_operands("pages"), {few, stored, stored, pages});
  CHECK(same_bytes(of_stored[0], gradient(page_operands("pages"), {few, wide, wide, pages})[0]));
  CHECK(of_stored[1].empty());
  CHECK(of_stored[2].empty());
}

TEST_CASE("cache_append to pages: rows beyond the table and of entries that name no page are not written") {
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();
  const HTensor pool = page_waves({4, 2, 3}, 0.7), rows = page_waves({5, 3, 3}, 5);
  const HTensor start = page_table({5}, {1, 3, -1, kMost, kLeast});
  const HTensor pages = page_table({5, 2}, {2, 0, 3, 1, -1, 9, 0, 0, 1, 1});
  const AttributeMap to_pages = AttributeMap().set("operands", "pages");
  const HTensor y = apply("cache_append", to_pages, {pool, rows, start, pages})[0];
  std::vector<float> expected(pool.data<float>(), pool.data<float>() + pool.size());
  const auto write = [&](int64_t page, int64_t row, int64_t item, int64_t i) {
    for (int64_t d = 0; d < 3; ++d)
      expected[static_cast<size_t>((page * 2 + row) * 3 + d)] = rows.data<float>()[(item * 3 + i) * 3 + d];
  };
  write(2, 1, 0, 0), write(0, 0, 0, 1), write(0, 1, 0, 2);
  write(1, 1, 1, 0);  // the rows after it are beyond the table
  CHECK(same_bytes(y, HTensor::from({4, 2, 3}, expected)));
  const HTensor narrow = apply("cache_append", to_pages, {cast(pool, DType::F16), rows, start, pages})[0];
  CHECK(same_bytes(narrow, cast(y, DType::F16)));
}

TEST_CASE("pages: errors say what was given and what to write") {
  const HTensor q = page_waves({2, 1, 2, 4}, 1), pool = page_waves({5, 3, 2, 4}, 1), start = page_table({2}, {0, 0});
  const HTensor pages = page_table({2, 2}, {0, 1, 2, 3}), one = page_table({1, 2}, {0, 1});
  CHECK(page_error("attention", page_operands("pages"), {q, pool, pool, one}) ==
        "attention: pages are i32[2, N], the pages of each batch item, not i32[1, 2]");
  CHECK(page_error("attention", page_operands("pages"), {q, pool, page_waves({5, 2, 2, 4}, 1), pages}) ==
        "attention: with pages k f32[5, 3, 2, 4] and v f32[5, 2, 2, 4] are pools [P, R, Hkv, D]");
  CHECK(page_error("attention_grad", page_operands("pages"), {q, pool, pool, q, page_waves({2, 2, 1}, 1), q, pages}) ==
        "attention_grad: the attribute operands names 'pages'; known names are lengths, mask, bias, sinks, documents");
  const HTensor rows = page_waves({2, 1, 2, 4}, 1);
  CHECK(page_error("cache_append", {}, {pool, rows, start, pages}) ==
        "cache_append: got 1 optional input, but the attribute operands names 0; it must name each of them, in order: "
        "pages");
  const AttributeMap named = AttributeMap().set("operands", "pages");
  CHECK(page_error("cache_append", named, {pool, rows, start, one}) ==
        "cache_append: pages are i32[2, N], the pages of each batch item, not i32[1, 2]");
  CHECK(page_error("cache_append", named, {pool, page_waves({2, 1, 3, 4}, 1), start, pages}) ==
        "cache_append: cache f32[5, 3, 2, 4] and new rows f32[2, 1, 3, 4] do not fit: they are [P, R, ...] and "
        "[B, T, ...]");
}
