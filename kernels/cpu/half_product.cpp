#include "half_product.hpp"

#include <cstdlib>
#include <cstring>
#include <string>

#include <cpuid.h>
#include <harmonics/error.hpp>

#include "families.hpp"
#include "product_costs.hpp"
#include "routes.hpp"

namespace harmonics::cpu {
namespace {

constexpr int64_t kLeast = 32;  // minimum size; below, packing costs too much
constexpr double kLeastFlops = 1e6;

// Blocks of the operand that each part packs for itself, in the second-level cache.
constexpr int64_t kOwnRows = 8 * kHalfRows, kOwnColumns = 2 * kHalfColumns;

struct HalfContext {
  Product product;
  const HalfRoutines* routines = nullptr;
  // The shorter operand is packed once, at the start of the workspace. The longer one is divided among the parts, which
  // pack it block by block. A constant B is packed in advance.
  bool shares_a = true, keeps_b = false;
  int64_t shared_words = 0, own_words = 0;
  uint32_t pack_parts = 1, parts = 1;
};

// CPUID directly, because g++ 12 has no __builtin_cpu_supports("avx512fp16"). It adds no register state to AVX-512, so
// operating system support needs no further check.
bool has_half_arithmetic() {
  unsigned a, b, c, d;
  return std::string_view(isa().name) == "avx512" && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 23 & 1);
}

const HalfRoutines* choose() {
  const char* wanted = std::getenv("HARMONICS_FP16");
  const std::string name = wanted ? wanted : "";
  if (name.empty()) return has_half_arithmetic() ? &half::native : nullptr;
  if (name == "off") return nullptr;
  if (name != "emulated")
    throw Error(ErrorKind::Device, "HARMONICS_FP16=" + name + " is not known; use emulated or off");
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    return &half::emulated;
  throw Error(ErrorKind::Device, "HARMONICS_FP16=emulated needs AVX2 and F16C, which this processor lacks; unset it");
}

RoundedOperand a_of(const Product& p, const void* a) { return {a, p.a_row, p.a_column, p.m, p.k, false}; }
RoundedOperand b_of(const Product& p, const void* b) { return {b, p.b_column, p.b_row, p.n, p.k, true, p.b_type}; }

// Returns the sub-operand of `count` rows or columns from `first` in block `block` of the depth.
RoundedOperand part_of(RoundedOperand x, int64_t first, int64_t count, int64_t block) {
  x.advance(first, block * kHalfDepth);
  x.count = count, x.depth = std::min(x.depth - block * kHalfDepth, kHalfDepth);
  return x;
}

int64_t strip_of(bool is_b) { return is_b ? kHalfColumns : kHalfRows; }
int64_t words_of(int64_t count, bool is_b) { return is_b ? half_words_of_b(count) : half_words_of_a(count); }

// Fetches the operand during the multiplication.
void fetch(const RoundedOperand& next, HalfBlock& x) {
  constexpr int64_t kLine = 64;
  const bool is_along = next.depth_stride == 1;
  const int64_t bytes = bytes_of(next.type);
  x.fetched = static_cast<const char*>(next.from);
  x.fetched_stride = (is_along ? next.stride : next.depth_stride) * bytes;
  x.fetched_rows = is_along ? next.count : next.depth;
  x.fetched_lines = ((is_along ? next.depth : next.count) * bytes + kLine - 1) / kLine;
}

// Fetches the kept columns during the multiplication.
void fetch_kept(const uint32_t* next, int64_t columns, HalfBlock& x) {
  x.fetched = reinterpret_cast<const char*>(next);
  x.fetched_rows = 1;
  x.fetched_lines = half_words_of_b(columns) * static_cast<int64_t>(sizeof(uint32_t)) / 64;
}

// `shared`: the other operand. `packed`: memory for blocks of `own`, or, if it is kept, all of it.
void multiply_part(const HalfContext& c, void* const* buffers, const RoundedOperand& own, const uint32_t* shared,
                   uint32_t* packed, uint32_t part) {
  const Product& p = c.product;
  const int64_t granule = strip_of(own.is_b), most = own.is_b ? kOwnColumns : kOwnRows,
                block_words = words_of(c.shares_a ? p.m : p.n, !own.is_b), own_words = words_of(own.count, own.is_b),
                end = slice_begin(own.count, granule, c.parts, part + 1);
  const bool is_kept = c.keeps_b && own.is_b;
  for (int64_t i = slice_begin(own.count, granule, c.parts, part); i < end; i += most) {
    const int64_t count = std::min(end - i, most);
    HalfBlock x{};
    x.rows = c.shares_a ? p.m : count;
    x.columns = c.shares_a ? count : p.n;
    x.c = static_cast<float*>(buffers[p.c]) + (c.shares_a ? i : i * p.n);
    x.c_row = p.n;
    x.by_rows = p.a_column == 1;
    for (int64_t block = 0; block < half_blocks(p.k); ++block) {
      const RoundedOperand some = part_of(own, i, count, block);
      const uint32_t* const mine = is_kept ? packed + block * own_words + words_of(i, true) : packed;
      if (!is_kept) c.routines->pack(some, packed);
      const uint32_t* const others = shared + block * block_words;
      x.a = c.shares_a ? others : mine;
      x.b = c.shares_a ? mine : others;
      x.depth = some.depth;
      x.add = p.accumulate || block > 0;
      const bool is_last = block + 1 == half_blocks(p.k);
      const int64_t next = is_last ? i + count : i, next_block = is_last ? 0 : block + 1,
                    next_count = std::min(end - next, is_last ? most : count);
      if (next == end)
        x.fetched_rows = 0;
      else if (is_kept)
        fetch_kept(packed + next_block * own_words + words_of(next, true), next_count, x);
      else
        fetch(part_of(own, next, next_count, next_block), x);
      c.routines->multiply(x);
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
  const auto& c = *static_cast<const HalfContext*>(context);
  const Product& p = c.product;
  const RoundedOperand a = a_of(p, buffers[p.a]), b = b_of(p, buffers[p.b]);
  auto* const shared = static_cast<uint32_t*>(buffers[p.c + 1]);
  const RoundedOperand &whole = c.shares_a ? a : b, &own = c.shares_a ? b : a;
  const bool packs = c.shares_a || !c.keeps_b;
  if (packs && phase == 0) return pack_half_part(*c.routines, whole, shared, c.pack_parts, part);
  auto* const kept = c.keeps_b ? static_cast<uint32_t*>(buffers[p.c + 2]) : nullptr;
  uint32_t* const blocks = shared + c.shared_words + part * c.own_words;
  multiply_part(c, buffers, own, packs ? shared : kept, c.shares_a && kept ? kept : blocks, part);
}

// A piece is a strip of a block of the depth.
void pack_constant(const void* context, const void* numbers, uint64_t piece, void* packed) {
  const auto& c = *static_cast<const HalfContext*>(context);
  const RoundedOperand b = b_of(c.product, numbers);
  const int64_t strips = (b.count + kHalfColumns - 1) / kHalfColumns, block = static_cast<int64_t>(piece) / strips,
                j = static_cast<int64_t>(piece) % strips * kHalfColumns;
  std::memset(packed, 0, kHalfStripOfB * sizeof(uint32_t));  // a short depth leaves the end unwritten
  c.routines->pack(part_of(b, j, std::min(b.count - j, kHalfColumns), block), static_cast<uint32_t*>(packed));
}

}  // namespace

const HalfRoutines* half_product() {
  static const HalfRoutines* const chosen = choose();
  return chosen;
}

int64_t half_words(int64_t count, int64_t depth, bool is_b) { return half_blocks(depth) * words_of(count, is_b); }

uint32_t half_pack_parts(int64_t count, int64_t depth) {
  return parts_for(static_cast<double>(count * depth) * product_costs::kHalfPackNanoseconds,
                   (count + kHalfColumns - 1) / kHalfColumns);
}

void pack_half_part(const HalfRoutines& routines, const RoundedOperand& x, uint32_t* to, uint32_t parts,
                    uint32_t part) {
  const int64_t strip = strip_of(x.is_b), i = slice_begin(x.count, strip, parts, part),
                end = slice_begin(x.count, strip, parts, part + 1);
  if (i >= end) return;
  for (int64_t block = 0; block < half_blocks(x.depth); ++block)
    routines.pack(part_of(x, i, end - i, block), to + block * words_of(x.count, x.is_b) + words_of(i, x.is_b));
}

bool suits_half_product(const Product& p, double flops) {
  return p.half && half_product() && p.batch == 1 && std::min({p.m, p.n, p.k}) >= kLeast && flops >= kLeastFlops;
}

void answer_half_product(const Product& product, double flops, hx_kernel& out) {
  using namespace product_costs;
  auto c = std::make_unique<HalfContext>();
  c->product = product;
  c->routines = half_product();
  const Product& p = c->product;
  c->shares_a = p.m <= p.n;
  c->keeps_b = p.constant_b && p.b_type == StoredFloat::f32 && p.k * p.n < kLargeFloats;
  const bool keeps_b = c->keeps_b, is_along = p.b_row == 1;
  const uint32_t b = p.b;
  const int64_t kept_words = half_words(p.n, p.k, true);
  const int64_t shared = std::min(p.m, p.n), own = std::max(p.m, p.n), granule = strip_of(c->shares_a);
  c->pack_parts = half_pack_parts(shared, p.k);
  c->parts = parts_for(flops / kHalfRate + static_cast<double>(own * p.k) * kHalfPackNanoseconds,
                       (own + granule - 1) / granule, kPackedGrain);
  if (c->shares_a || !keeps_b) c->shared_words = half_words(shared, p.k, !c->shares_a);
  if (!c->shares_a || !keeps_b) c->own_words = words_of(c->shares_a ? kOwnColumns : kOwnRows, c->shares_a);
  std::vector<uint32_t> parts = {c->pack_parts, c->parts};
  if (keeps_b && !c->shares_a) parts.erase(parts.begin());
  const int64_t words = c->shared_words + c->parts * c->own_words;
  const char* const name = c->routines->name;
  answer(out, std::move(c), run, name, parts).workspace = static_cast<uint64_t>(words) * sizeof(uint32_t);
  if (!keeps_b) return;
  out.packed_bytes = static_cast<uint64_t>(kept_words) * sizeof(uint32_t);
  out.packed_piece = kHalfStripOfB * sizeof(uint32_t);
  out.packed_input = b;
  out.pack = pack_constant;
  out.packing = is_along ? "fp16 columns along/1" : "fp16 columns across/1";
}

}  // namespace harmonics::cpu
