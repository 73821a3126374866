// The driver of products that round their operands. The shorter operand is packed once; the longer one is divided among
// the parts, which pack it block by block. A small constant B is packed in advance.
#include "rounded_product.hpp"

#include <cstring>

#include "families.hpp"
#include "product_costs.hpp"
#include "routes.hpp"

namespace harmonics::cpu {
namespace {

struct RoundedContext {
  Product product;
  const RoundedRoutines* routines = nullptr;
  bool shares_a = true, keeps_b = false;
  uint32_t pack_parts = 1, parts = 1;
};

RoundedOperand a_of(const Product& p, const void* a) { return {a, p.a_row, p.a_column, p.m, p.k, false}; }
RoundedOperand b_of(const Product& p, const void* b) { return {b, p.b_column, p.b_row, p.n, p.k, true, p.b_type}; }

int64_t blocks_of(const RoundedRoutines& r, int64_t depth) { return (depth + r.depth - 1) / r.depth; }
int64_t strip_side(const RoundedRoutines& r, bool is_b) { return is_b ? r.columns : r.rows; }

// Returns the sub-operand of `count` rows or columns from `first` in block `block` of the depth.
RoundedOperand part_of(const RoundedRoutines& r, RoundedOperand x, int64_t first, int64_t count, int64_t block) {
  x.advance(first, block * r.depth);
  x.count = count, x.depth = std::min(x.depth - block * r.depth, r.depth);
  return x;
}

// Fetches the operand during the multiplication.
void fetch(const RoundedOperand& next, RoundedBlock& x) {
  constexpr int64_t kLine = 64;
  const bool is_along = next.depth_stride == 1;
  const int64_t bytes = bytes_of(next.type);
  x.fetched = static_cast<const char*>(next.from);
  x.fetched_stride = (is_along ? next.stride : next.depth_stride) * bytes;
  x.fetched_rows = is_along ? next.count : next.depth;
  x.fetched_lines = ((is_along ? next.depth : next.count) * bytes + kLine - 1) / kLine;
}

// Fetches kept strips during the multiplication.
void fetch_kept(const uint32_t* next, int64_t words, RoundedBlock& x) {
  x.fetched = reinterpret_cast<const char*>(next);
  x.fetched_rows = 1;
  x.fetched_lines = words * static_cast<int64_t>(sizeof(uint32_t)) / 64;
}

// `shared`: the other operand. `kept`: all of `own`, or null.
void multiply_part(const RoundedContext& c, void* const* buffers, const RoundedOperand& own, const uint32_t* shared,
                   const uint32_t* kept, uint32_t part) {
  const Product& p = c.product;
  const RoundedRoutines& r = *c.routines;
  alignas(64) uint32_t packed[kMostOwnWords];
  const int64_t granule = own.is_b ? r.column_granule : r.row_granule, side = strip_side(r, own.is_b),
                most = own.is_b ? r.own_columns : r.own_rows,
                shared_block = rounded_block(r, c.shares_a ? p.m : p.n, p.k, !own.is_b),
                own_strip = rounded_strip(r, p.k, own.is_b), own_block = rounded_block(r, own.count, p.k, own.is_b),
                end = slice_begin(own.count, granule, c.parts, part + 1), blocks = blocks_of(r, p.k);
  const auto place = [&](int64_t i, int64_t block) { return kept + block * own_block + i / side * own_strip; };
  for (int64_t i = slice_begin(own.count, granule, c.parts, part); i < end; i += most) {
    const int64_t count = std::min(end - i, most);
    RoundedBlock x{};
    x.a_strip = rounded_strip(r, p.k, false), x.b_strip = rounded_strip(r, p.k, true);
    x.rows = c.shares_a ? p.m : count;
    x.columns = c.shares_a ? count : p.n;
    x.c = static_cast<float*>(buffers[p.c]) + (c.shares_a ? i : i * p.n);
    x.c_row = p.n;
    x.by_rows = p.a_column == 1;
    for (int64_t block = 0; block < blocks; ++block) {
      const RoundedOperand some = part_of(r, own, i, count, block);
      if (!kept) r.pack(some, packed, own_strip);
      const uint32_t *const mine = kept ? place(i, block) : packed, *const others = shared + block * shared_block;
      x.a = c.shares_a ? others : mine;
      x.b = c.shares_a ? mine : others;
      x.depth = some.depth;
      x.add = p.accumulate || block > 0;
      const bool is_last = block + 1 == blocks;
      const int64_t next = is_last ? i + count : i, next_block = is_last ? 0 : block + 1,
                    next_count = std::min(end - next, is_last ? most : count);
      if (next == end)
        x.fetched_rows = 0;
      else if (kept)
        fetch_kept(place(next, next_block), (next_count + side - 1) / side * own_strip, x);
      else
        fetch(part_of(r, own, next, next_count, next_block), x);
      r.multiply(x);
    }
    if (c.shares_a)
      isa().end_product(p, buffers, 0, p.m, i, i + count);
    else
      isa().end_product(p, buffers, i, i + count, 0, p.n);
  }
}

// Phases: pack the shared operand, unless it is kept; pack the other operand in blocks, unless it is kept, and
// multiply.
void run(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const RoundedContext*>(context);
  const Product& p = c.product;
  const RoundedOperand a = a_of(p, buffers[p.a]), b = b_of(p, buffers[p.b]);
  auto* const shared = static_cast<uint32_t*>(buffers[p.c + 1]);
  const RoundedOperand &whole = c.shares_a ? a : b, &own = c.shares_a ? b : a;
  const bool packs = c.shares_a || !c.keeps_b;
  if (packs && phase == 0) return pack_rounded_part(*c.routines, whole, shared, c.pack_parts, part);
  auto* const kept = c.keeps_b ? static_cast<uint32_t*>(buffers[p.c + 2]) : nullptr;
  multiply_part(c, buffers, own, packs ? shared : kept, c.shares_a ? kept : nullptr, part);
}

// A piece is a strip of a block of the depth.
void pack_constant(const void* context, const void* numbers, uint64_t piece, void* packed) {
  const auto& c = *static_cast<const RoundedContext*>(context);
  const RoundedRoutines& r = *c.routines;
  const RoundedOperand b = b_of(c.product, numbers);
  const int64_t strips = (b.count + r.columns - 1) / r.columns, block = static_cast<int64_t>(piece) / strips,
                j = static_cast<int64_t>(piece) % strips * r.columns, words = rounded_strip(r, b.depth, true);
  // A short depth leaves the end unwritten.
  std::memset(packed, 0, static_cast<size_t>(words) * sizeof(uint32_t));
  r.pack(part_of(r, b, j, std::min(b.count - j, r.columns), block), static_cast<uint32_t*>(packed), words);
}

}  // namespace

int64_t rounded_strip(const RoundedRoutines& routines, int64_t depth, bool is_b) {
  return routines.strip(is_b, std::min(depth, routines.depth));
}
int64_t rounded_block(const RoundedRoutines& routines, int64_t count, int64_t depth, bool is_b) {
  const int64_t side = strip_side(routines, is_b);
  return (count + side - 1) / side * rounded_strip(routines, depth, is_b);
}
int64_t rounded_words(const RoundedRoutines& routines, int64_t count, int64_t depth, bool is_b) {
  return blocks_of(routines, depth) * rounded_block(routines, count, depth, is_b);
}

uint32_t rounded_pack_parts(const RoundedRoutines& routines, int64_t count, int64_t depth, bool is_b) {
  const int64_t side = strip_side(routines, is_b);
  return parts_for(static_cast<double>(count * depth) * product_costs::kRoundedPackNanoseconds,
                   (count + side - 1) / side);
}

void pack_rounded_part(const RoundedRoutines& routines, const RoundedOperand& x, uint32_t* to, uint32_t parts,
                       uint32_t part) {
  const int64_t side = strip_side(routines, x.is_b), strip = rounded_strip(routines, x.depth, x.is_b),
                all = rounded_block(routines, x.count, x.depth, x.is_b), i = slice_begin(x.count, side, parts, part),
                end = slice_begin(x.count, side, parts, part + 1);
  if (i >= end) return;
  for (int64_t block = 0; block < blocks_of(routines, x.depth); ++block)
    routines.pack(part_of(routines, x, i, end - i, block), to + block * all + i / side * strip, strip);
}

void answer_rounded(const Product& product, const RoundedRoutines& routines, hx_kernel& out) {
  using namespace product_costs;
  auto c = std::make_unique<RoundedContext>();
  c->product = product;
  c->routines = &routines;
  const Product& p = c->product;
  c->shares_a = p.m <= p.n;
  c->keeps_b = p.constant_b && p.b_type == StoredFloat::f32 && p.k * p.n < kLargeFloats;
  const bool keeps_b = c->keeps_b, packs = c->shares_a || !keeps_b, is_along = p.b_row == 1;
  const uint32_t b = p.b;
  const int64_t shared = std::min(p.m, p.n), own = std::max(p.m, p.n),
                granule = c->shares_a ? routines.column_granule : routines.row_granule,
                kept_words = rounded_words(routines, p.n, p.k, true), piece = rounded_strip(routines, p.k, true),
                words = packs ? rounded_words(routines, shared, p.k, !c->shares_a) : 0;
  c->pack_parts = rounded_pack_parts(routines, shared, p.k, !c->shares_a);
  c->parts = parts_for(flops_of(p) / routines.rate + static_cast<double>(own * p.k) * kRoundedPackNanoseconds,
                       (own + granule - 1) / granule, kPackedGrain);
  std::vector<uint32_t> parts = {c->pack_parts, c->parts};
  if (!packs) parts.erase(parts.begin());
  answer(out, std::move(c), run, routines.name, parts).workspace = static_cast<uint64_t>(words) * sizeof(uint32_t);
  if (!keeps_b) return;
  out.packed_bytes = static_cast<uint64_t>(kept_words) * sizeof(uint32_t);
  out.packed_piece = static_cast<uint64_t>(piece) * sizeof(uint32_t);
  out.packed_input = b;
  out.pack = pack_constant;
  out.packing = is_along ? routines.columns_along : routines.columns_across;
}

}  // namespace harmonics::cpu
