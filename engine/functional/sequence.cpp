// Growing sequences: rotary positions, and appending rows to a cache.
#include <cmath>

#include <harmonics/element_type.hpp>

#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {

namespace {

// Checked sizes and layout of x for rotary positions.
struct Turn {
  int64_t axis, width, turned, half;
  uint32_t positions_axis;
  bool interleaved;

  Turn(const AttributeMap& a, const HTensor& x) {
    const bool first = a.flag("positions_first");
    const uint32_t after = first ? 3 : 2;
    expect(x.rank() >= after, "rope",
           std::string("x is [..., positions, ") + (first ? "heads, " : "") + "width], not " + text_of(x));
    axis = static_cast<int64_t>(x.rank()) - 1;
    width = x.shape().back();
    positions_axis = x.rank() - after;
    turned = a.integer("rotary_dims", 0);
    expect(
        turned >= 0 && turned <= width && turned % 2 == 0, "rope",
        "rotary_dims is an even number up to the width " + std::to_string(width) + ", not " + std::to_string(turned));
    if (turned == 0) turned = width;
    expect(turned % 2 == 0, "rope",
           "x is [..., positions, " + std::string(first ? "heads, " : "") + "width] with an even width, not " +
               text_of(x));
    half = turned / 2;
    interleaved = a.text("pairing", "half") == "interleaved";
  }

  // Returns angles by position and pair, in f64 for accuracy at late positions. Aligned with the last axes of x, or
  // with all axes if positions differ by batch item.
  HTensor angles(const AttributeMap& a, const HTensor& x, const HTensor& positions, const HTensor& frequencies) const {
    const bool first = a.flag("positions_first");
    const int64_t t = x.shape()[positions_axis];
    Shape table = first ? Shape{t, 1, half} : Shape{t, half};
    HTensor position;
    if (positions.empty()) {
      position = iota(DType::F64, table, 0) + static_cast<double>(a.integer("offset", 0));
    } else {
      const HTensor p = cast(positions, DType::F64);
      if (positions.rank() == 2) {
        std::vector<int64_t> sizes(x.rank(), 1);
        sizes[0] = x.shape()[0];
        sizes[positions_axis] = t;
        position = reshape(p, Shape(sizes));
        sizes.back() = half;
        table = Shape(sizes);
      } else {
        position = reshape(p, first ? Shape{t, 1, 1} : Shape{t, 1});
      }
    }
    const auto last = static_cast<int64_t>(table.rank()) - 1;
    if (!frequencies.empty())
      return position * along(cast(stop_gradient(frequencies), DType::F64), table.rank(), static_cast<uint32_t>(last));
    const double decay = -std::log(a.number("base", 10000)) / static_cast<double>(half);
    return position * exp(iota(DType::F64, table, last) * decay);
  }

  void check(const HTensor& x, const HTensor& positions, const HTensor& frequencies) const {
    const int64_t t = x.shape()[positions_axis];
    if (!positions.empty()) {
      expect(positions.dtype() == DType::I32, "rope", "positions are i32, not " + text_of(positions), ErrorKind::Type);
      const bool own = positions.rank() == 2 && positions_axis > 0;
      expect(own ? positions.shape() == Shape{x.shape()[0], t} : positions.shape() == Shape{t}, "rope",
             "positions are [" + std::to_string(t) + "], or " + std::to_string(t) +
                 " for each item of the first axis of x " + text_of(x) + ", not " + text_of(positions));
    }
    if (!frequencies.empty())
      expect(frequencies.dtype() == DType::F32 && frequencies.shape() == Shape{half}, "rope",
             "frequencies are f32[" + std::to_string(half) + "], one of each pair, not " + text_of(frequencies));
  }
};

// Rotates pairs by position base^(-2i/D): (i, i + D/2), or (2i, 2i + 1) if interleaved.
Values rope(const AttributeMap& a, Inputs in) {
  const OptionalInputs more("rope", a, in, 1, {"positions", "frequencies"});
  const HTensor &x = in[0], &positions = more.find("positions"), &frequencies = more.find("frequencies");
  const Turn turn(a, x);
  turn.check(x, positions, frequencies);
  const HTensor angle = turn.angles(a, x, positions, frequencies), v = wide(x);
  const HTensor c = wide(cos(angle), v), s = wide(sin(angle), v), by = a.flag("inverse") ? -s : s;
  const auto part = [&](const HTensor& from, int64_t start, int64_t limit) {
    return slice_axis(from, static_cast<int64_t>(from.rank()) - 1, start, limit);
  };
  HTensor left, right;
  if (turn.interleaved) {
    std::vector<int64_t> pairs = x.shape().vector();
    pairs.back() = turn.half;
    pairs.push_back(2);
    const HTensor paired = reshape(part(v, 0, turn.turned), Shape(pairs));
    pairs.pop_back();
    left = reshape(part(paired, 0, 1), Shape(pairs));
    right = reshape(part(paired, 1, 2), Shape(pairs));
  } else {
    left = part(v, 0, turn.half);
    right = part(v, turn.half, turn.turned);
  }
  const HTensor to_left = left * c - right * by, to_right = right * c + left * by;
  std::vector<HTensor> result;
  if (turn.interleaved) {
    std::vector<int64_t> sizes = x.shape().vector();
    sizes.back() = turn.turned;
    result = {reshape(concat({column(to_left), column(to_right)}, turn.axis + 1), Shape(sizes))};
  } else {
    result = {to_left, to_right};
  }
  if (turn.turned < turn.width) result.push_back(part(v, turn.turned, turn.width));
  return {as_type_of(result.size() == 1 ? result[0] : concat(result, turn.axis), x)};
}
Values rope_gradient(const AttributeMap& a, Inputs in, Inputs, Inputs gradients) {
  AttributeMap back = a;
  std::vector<HTensor> operands(in.begin(), in.end());
  operands[0] = gradients[0];
  Values result(in.size());
  result[0] = one("rope", back.set("inverse", !a.flag("inverse")), operands);
  return result;
}

// Writes rows to pages of a pool. Rows that belong to no page go to an additional row, which is dropped.
HTensor append_to_pages(const HTensor& pool, const HTensor& rows, const HTensor& start, const HTensor& pages) {
  const Shape whole = pool.shape(), block = rows.shape();
  const int64_t items = block[0], appended = block[1], page = whole[1], all = whole[0] * page;
  const int64_t n = pages.shape()[1], inner = whole.from(2).count();
  const HTensor at = iota(DType::I64, {items, appended}, 1) + reshape(cast(start, DType::I64), {items, 1});
  const HTensor inside = minimum(maximum(at, 0.0), static_cast<double>(n * page - 1));
  const HTensor in_table = inside / static_cast<double>(page);
  const HTensor named = gather_nd(cast(pages, DType::I64), reshape(in_table, {items, appended, 1}), 1);
  const HTensor exists = logical_and(less_equal(zeros_like(named), named), less(named, static_cast<double>(whole[0])));
  const HTensor row = named * static_cast<double>(page) + (inside - in_table * static_cast<double>(page));
  const HTensor to = select(logical_and(equal(inside, at), exists), row,
                            full(DType::I64, {items, appended}, static_cast<double>(all)));
  const HTensor longer = concat({reshape(pool, {all, inner}), full(pool.dtype(), {1, inner}, 0)}, 0);
  const HTensor written =
      scatter_nd(longer, reshape(to, {items * appended, 1}), reshape(rows, {items * appended, inner}));
  return reshape(slice_axis(written, 0, 0, all), whole);
}

// Uses one update_slice per batch item, whose starts are clamped so that the rows fit.
Values cache_append(const AttributeMap& a, Inputs in) {
  const OptionalInputs more("cache_append", a, in, 3, {"pages"});
  const HTensor &cache = in[0], &rows = in[1], &start = in[2], &pages = more.find("pages");
  const Shape whole = cache.shape(), block = rows.shape();
  const bool ranks = whole.rank() >= 2 && block.rank() == whole.rank() && whole.from(2) == block.from(2);
  const bool fits = ranks && whole[0] == block[0] && block[1] <= whole[1];
  expect(pages.empty() ? fits : ranks && whole.count() > 0, "cache_append",
         "cache " + text_of(cache) + " and new rows " + text_of(rows) + " do not fit: they are " +
             (pages.empty() ? "[B, C, ...] and [B, T, ...] with T up to C" : "[P, R, ...] and [B, T, ...]"));
  expect(start.dtype() == DType::I32 && start.shape() == Shape{block[0]}, "cache_append",
         "start is i32[" + std::to_string(block[0]) + "], one row number for each batch item, not " + text_of(start));
  if (!pages.empty())
    expect(pages.dtype() == DType::I32 && pages.rank() == 2 && pages.shape()[0] == block[0] && pages.shape()[1] > 0,
           "cache_append",
           "pages are i32[" + std::to_string(block[0]) + ", N], the pages of each batch item, not " + text_of(pages));
  // Only whole tensors of a stored type can be converted. Rows that are not replaced keep their values.
  const bool stored = is_stored(cache.dtype());
  HTensor result = stored ? cast(cache, DType::F32) : cache;
  const HTensor converted = as_type_of(rows, result);
  if (!pages.empty()) return {as_type_of(append_to_pages(result, converted, start, pages), cache)};
  const int64_t inner = static_cast<int64_t>(whole.rank()) - 2;
  for (int64_t b = 0; b < whole[0]; ++b) {
    std::vector<HTensor> at{full(DType::I32, {1}, static_cast<double>(b)), slice_axis(start, 0, b, b + 1)};
    if (inner > 0) at.push_back(full(DType::I32, {inner}, 0));
    result = update_slice(result, slice_axis(converted, 0, b, b + 1), concat(at, 0));
  }
  return {as_type_of(result, cache)};
}

}  // namespace

std::vector<Functional> sequences() {
  Functional turn{
      "rope",
      "rotary position embedding: rotates the pairs (i, i + D/2), or with interleaved pairing (2i, 2i + 1), by an "
      "angle proportional to the position",
      "x [..., T, D], positions i32 [T] or [B, T]?, frequencies f32 [D/2]? {base = 10000.0, offset = 0 (number of the "
      "first position), inverse = false, positions_first = false (x is [..., T, H, D]), pairing = "
      "\"half\" in half|interleaved since 1.5, rotary_dims = 0 in 0.. since 1.5 (number of dimensions to rotate; 0: "
      "all), operands = "
      "\"\" since 1.5 (names of the optional inputs that are given, in order: \"positions,frequencies\")} -> y like x",
      rope, rope_gradient};
  Functional append{"cache_append",
                    "writes the new rows of each batch item into its cache, beginning at row start; start is clamped "
                    "so that the rows fit; with pages the cache is a pool [P, R, ...], and row s of item b is row s % "
                    "R of page pages[b, s / R]; rows beyond the page table or on invalid pages are not written",
                    "cache [B, C, ...], new [B, T, ...], start i32 [B], pages i32 [B, N]? {operands = \"\" since 1.5 "
                    "(\"pages\" if pages are given)} -> cache like cache",
                    cache_append, nullptr};
  append.traits.block_write = true;
  return {std::move(turn), std::move(append)};
}

}  // namespace harmonics::engine::reference
