#include "bf16_product.hpp"

#include <cstdlib>
#include <string>

#include <cpuid.h>
#include <harmonics/error.hpp>

#include "families.hpp"
#include "product_costs.hpp"

namespace harmonics::cpu {
namespace {

constexpr int64_t kLeastSide = 16, kLeastDepth = 32;  // smaller products leave most of a tile empty
constexpr double kLeastBf16Flops = 1e6;

// Blocks of the operand that each part packs for itself: 64 rows or columns by 512 along k, half of the L1 cache.
constexpr int64_t kOwnSide = 64, kOwnTiles = 16, kOwnStrip = kOwnTiles * kTileNumbers;
constexpr int64_t kPartGranule = 2 * kStrip;

struct Bf16Context {
  Product product;
  const Bf16Routines* routines;
  // The shorter operand is packed once, at the start of the workspace. The longer one is divided among the parts, which
  // pack it block by block.
  bool shares_a = true;
  uint32_t pack_parts = 1, parts = 1;
};

// CPUID directly, because g++ 12 has no __builtin_cpu_supports for these.
bool has_bf16_dots() {
  unsigned a, b, c, d;
  return std::string_view(isa().name) == "avx512" && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}
bool has_tiles() {
  constexpr unsigned kTilesOfBf16 = 1u << 22;
  unsigned a, b, c, d;
  return has_bf16_dots() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTilesOfBf16) && has_tile_registers();
}

const Bf16Routines* choose_bf16() {
  const char* wanted = std::getenv("HARMONICS_BF16");
  const std::string name = wanted ? wanted : "";
  if (name.empty()) return has_tiles() ? &bf16::tiles : has_bf16_dots() ? &bf16::dots : nullptr;
  if (name == "off") return nullptr;
  if (name == "emulated") return &bf16::emulated;
  if (name != "dots")
    throw Error(ErrorKind::Device, "HARMONICS_BF16=" + name + " is not known; use emulated, dots or off");
  if (has_bf16_dots()) return &bf16::dots;
  throw Error(ErrorKind::Device, "HARMONICS_BF16=dots needs AVX512-BF16, which this processor lacks; unset it");
}

RoundedOperand a_of(const Product& p, const void* a) { return {a, p.a_row, p.a_column, p.m, p.k, false}; }
RoundedOperand b_of(const Product& p, const void* b) { return {b, p.b_column, p.b_row, p.n, p.k, true, p.b_type}; }

// Returns the sub-operand of `count` rows or columns from `first` and `depth` elements from `k`.
RoundedOperand part_of(RoundedOperand x, int64_t first, int64_t count, int64_t k, int64_t depth) {
  x.advance(first, k);
  x.count = count, x.depth = depth;
  return x;
}

int64_t shared_strip(const Product& p) { return depth_tiles(p.k) * kTileNumbers; }

void multiply_part(const Bf16Context& c, void* const* buffers, const RoundedOperand& own, const uint16_t* shared,
                   uint32_t part) {
  const Product& p = c.product;
  alignas(64) uint16_t packed[kOwnSide / kStrip * kOwnStrip];
  const int64_t end = slice_begin(own.count, kPartGranule, c.parts, part + 1);
  for (int64_t i = slice_begin(own.count, kPartGranule, c.parts, part); i < end; i += kOwnSide) {
    const int64_t count = std::min(end - i, kOwnSide);
    Bf16Block x{};
    x.rows = c.shares_a ? p.m : count;
    x.columns = c.shares_a ? count : p.n;
    x.c = static_cast<float*>(buffers[p.c]) + (c.shares_a ? i : i * p.n);
    x.c_row = p.n;
    for (int64_t t = 0; t < depth_tiles(p.k); t += kOwnTiles) {
      const int64_t k = t * kTileDepth, depth = std::min(p.k - k, kOwnTiles * kTileDepth);
      x.tiles = depth_tiles(depth);
      const int64_t strip = x.tiles * kTileNumbers;
      c.routines->pack(part_of(own, i, count, k, depth), packed, strip);
      const uint16_t* const others = shared + t * kTileNumbers;
      x.a = c.shares_a ? others : packed, x.a_strip = c.shares_a ? shared_strip(p) : strip;
      x.b = c.shares_a ? packed : others, x.b_strip = c.shares_a ? strip : shared_strip(p);
      x.add = p.accumulate || t > 0;
      c.routines->multiply(x);
    }
    if (c.shares_a)
      isa().end_product(p, buffers, 0, p.m, i, i + count);
    else
      isa().end_product(p, buffers, i, i + count, 0, p.n);
  }
}

// Phases: pack the shared operand; pack the other operand in blocks and multiply.
void run_bf16(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const Bf16Context*>(context);
  const Product& p = c.product;
  const RoundedOperand a = a_of(p, buffers[p.a]), b = b_of(p, buffers[p.b]);
  auto* const shared = static_cast<uint16_t*>(buffers[p.c + 1]);
  const RoundedOperand &whole = c.shares_a ? a : b, &own = c.shares_a ? b : a;
  if (phase == 1) return multiply_part(c, buffers, own, shared, part);
  pack_bf16_part(*c.routines, whole, shared, c.pack_parts, part);
}

}  // namespace

const Bf16Routines* bf16_routines() {
  static const Bf16Routines* const chosen = choose_bf16();
  return chosen;
}

uint64_t bf16_bytes(int64_t count, int64_t depth) {
  return static_cast<uint64_t>(strips_of(count) * depth_tiles(depth) * kTileNumbers) * sizeof(uint16_t);
}

uint32_t bf16_pack_parts(int64_t count, int64_t depth) {
  return parts_for(static_cast<double>(count * depth) * product_costs::kBf16PackNanoseconds, strips_of(count));
}

void pack_bf16_part(const Bf16Routines& routines, const RoundedOperand& x, uint16_t* to, uint32_t parts,
                    uint32_t part) {
  const int64_t strip = depth_tiles(x.depth) * kTileNumbers, i = slice_begin(x.count, kStrip, parts, part),
                end = slice_begin(x.count, kStrip, parts, part + 1);
  if (i < end) routines.pack(part_of(x, i, end - i, 0, x.depth), to + i / kStrip * strip, strip);
}

bool suits_bf16_product(const Product& p, double flops) {
  return p.bf16 && bf16_routines() && p.batch == 1 && std::min(p.m, p.n) >= kLeastSide && p.k >= kLeastDepth &&
         flops >= kLeastBf16Flops;
}

void answer_bf16_product(const Product& product, double flops, hx_kernel& out) {
  using namespace product_costs;
  auto c = std::make_unique<Bf16Context>();
  c->product = product;
  c->routines = bf16_routines();
  const Product& p = c->product;
  c->shares_a = p.m <= p.n;
  const int64_t shared = std::min(p.m, p.n), own = std::max(p.m, p.n);
  c->pack_parts = bf16_pack_parts(shared, p.k);
  c->parts = parts_for(flops / kBf16Rate + static_cast<double>(own * p.k) * kBf16PackNanoseconds,
                       (own + kPartGranule - 1) / kPartGranule, kPackedGrain);
  const std::vector<uint32_t> parts = {c->pack_parts, c->parts};
  const uint64_t workspace = bf16_bytes(shared, p.k);
  const char* const name = c->routines->name;
  answer(out, std::move(c), run_bf16, name, parts).workspace = workspace;
}

}  // namespace harmonics::cpu
