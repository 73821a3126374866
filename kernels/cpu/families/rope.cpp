// Rotary position embedding.
#include "../family.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

constexpr uint32_t kNoInput = ~0u;

// Cosines and sines of a position's pairs: [tables, entries] each. Interleaved pairs (2i, 2i + 1) have two entries, the
// sine of the first negated; pairs (i, i + entries) have one.
struct RopeContext {
  int64_t rows, width, entries;
  int64_t positions;   // of a sequence
  int64_t repeats;     // consecutive rows with the same position
  int64_t batch_rows;  // rows per item of the first axis if positions differ between items; else 0
  int64_t tables;
  uint32_t parts;
  bool interleaved;
  const float *cosines, *sines;  // null: computed in the workspace from run-time positions or frequencies
  // Positions known at run time.
  uint32_t positions_input, frequencies_input;  // kNoInput: none
  uint32_t table_parts, y, workspace;           // y, workspace: buffers
  const double* frequencies;                    // by pair, unless they are an input
  double turn;                                  // -1: inverse rotation
  int64_t offset;                               // of positions that are not an input
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include <cstring>
#include <utility>

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

typedef double vd __attribute__((vector_size(HM_VECTOR_BYTES), may_alias));
typedef int64_t vl __attribute__((vector_size(HM_VECTOR_BYTES), may_alias));
constexpr int64_t kDoubles = HM_VECTOR_BYTES / 8;

struct Circle {
  vd cosine, sine;
};
// Sine and cosine by Taylor series on [-pi/4, pi/4]. Exact to f64 rounding for angles up to about 10^6 * pi / 2; above,
// the error is about a unit in the last place of the angle.
HM_INLINE Circle circle(vd angle) {
  constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52: rounds to an integer in the low bits
  const vd shifted = angle * 0.63661977236758134308 + kRounder, n = shifted - kRounder;
  vd r = angle - n * 1.57079632673412561417;  // pi / 2 in 33 bits: the product is exact
  r = r - n * 6.07710050650619224932e-11;
  const vd z = r * r;
  vd s = z * (-1.0 / 1307674368000) + 1.0 / 6227020800;
  s = s * z - 1.0 / 39916800;
  s = s * z + 1.0 / 362880;
  s = s * z - 1.0 / 5040;
  s = s * z + 1.0 / 120;
  s = s * z - 1.0 / 6;
  s = s * z * r + r;
  vd c = z * (1.0 / 20922789888000) - 1.0 / 87178291200;
  c = c * z + 1.0 / 479001600;
  c = c * z - 1.0 / 3628800;
  c = c * z + 1.0 / 40320;
  c = c * z - 1.0 / 720;
  c = c * z + 1.0 / 24;
  c = c * z - 0.5;
  c = c * z + 1.0;
  const vl quarter = reinterpret_cast<vl>(shifted);
  const vl odd = (quarter & 1) != 0;
  const vd sine = odd ? c : s, cosine = odd ? s : c;
  const vl minus_sine = (quarter & 2) << 62, minus_cosine = ((quarter + 1) & 2) << 62;
  return {reinterpret_cast<vd>(reinterpret_cast<vl>(cosine) ^ minus_cosine),
          reinterpret_cast<vd>(reinterpret_cast<vl>(sine) ^ minus_sine)};
}

// Computes cosines and sines of a position, in vectors of doubles.
void fill_row(const RopeContext& c, const float* frequencies, double position, float* cosines, float* sines) {
  const int64_t pairs = c.interleaved ? c.entries / 2 : c.entries;
  for (int64_t i = 0; i < pairs; i += kDoubles) {
    const int64_t n = pairs - i < kDoubles ? pairs - i : kDoubles;
    vd angle{};
    for (int64_t k = 0; k < n; ++k)
      angle[k] = position * (frequencies ? static_cast<double>(frequencies[i + k]) : c.frequencies[i + k]);
    const Circle at = circle(angle);
    for (int64_t k = 0; k < n; ++k) {
      const auto cosine = static_cast<float>(at.cosine[k]), sine = static_cast<float>(c.turn * at.sine[k]);
      if (c.interleaved) {
        cosines[2 * (i + k)] = cosines[2 * (i + k) + 1] = cosine;
        sines[2 * (i + k)] = -sine;
        sines[2 * (i + k) + 1] = sine;
      } else {
        cosines[i + k] = cosine;
        sines[i + k] = sine;
      }
    }
  }
}

void fill_tables(const RopeContext& c, void* const* buffers, uint32_t part) {
  const Range tables = share(c.tables, c.table_parts, part);
  const auto* positions =
      c.positions_input == kNoInput ? nullptr : static_cast<const int32_t*>(buffers[c.positions_input]);
  const auto* frequencies =
      c.frequencies_input == kNoInput ? nullptr : static_cast<const float*>(buffers[c.frequencies_input]);
  auto* cosines = static_cast<float*>(buffers[c.workspace]);
  for (int64_t i = tables.begin; i < tables.end; ++i) {
    const int64_t position = positions ? positions[i] : c.offset + i;
    fill_row(c, frequencies, static_cast<double>(position), cosines + i * c.entries,
             cosines + (c.tables + i) * c.entries);
  }
}

template <int... kLanes>
HM_INLINE vf swap_lanes(vf x, std::integer_sequence<int, kLanes...>) {
  return __builtin_shufflevector(x, x, (kLanes ^ 1)...);
}
// Swaps the elements of each pair.
HM_INLINE vf swap_pairs(vf x) { return swap_lanes(x, std::make_integer_sequence<int, static_cast<int>(kWidth)>()); }

void turn_row(const RopeContext& c, const float* x, float* y, const float* cosine, const float* sine) {
  const int64_t step = c.entries;
  for (int64_t i = 0; i < step; i += kWidth) {
    const int64_t n = step - i < kWidth ? step - i : kWidth;
    const vf u = load_some(cosine + i, n), v = load_some(sine + i, n), a = load_some(x + i, n);
    if (c.interleaved) {
      store_some(y + i, a * u + swap_pairs(a) * v, n);
      continue;
    }
    const vf b = load_some(x + step + i, n);
    store_some(y + i, a * u - b * v, n);
    store_some(y + step + i, b * u + a * v, n);
  }
  const int64_t turned = c.interleaved ? step : 2 * step;
  if (y != x && turned < c.width)
    std::memcpy(y + turned, x + turned, static_cast<size_t>(c.width - turned) * sizeof(float));
}

}  // namespace

// Phases: fill the tables, only with positions or frequencies as inputs; rotate.
void rope(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const RopeContext*>(context);
  const bool known = c.cosines != nullptr;
  if (!known && phase == 0) return fill_tables(c, buffers, part);
  const float* cosines = known ? c.cosines : static_cast<const float*>(buffers[c.workspace]);
  const float* sines = known ? c.sines : cosines + c.tables * c.entries;
  const Range rows = share(c.rows, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    int64_t table = r / c.repeats % c.positions;
    if (c.batch_rows > 0) table += r / c.batch_rows * c.positions;
    turn_row(c, static_cast<const float*>(buffers[0]) + r * c.width,
             static_cast<float*>(buffers[known ? 1 : c.y]) + r * c.width, cosines + table * c.entries,
             sines + table * c.entries);
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include <cmath>

HM_VECTOR_CODE(rope)

namespace harmonics::cpu {
namespace {

struct Owned : RopeContext {
  std::vector<float> table;
  std::vector<double> powers;
};

// Finds the inputs named by the attribute `operands`; false: unsupported inputs.
bool find_inputs(const Site& site, RopeContext& c) {
  const std::string names = site.text("operands");
  c.positions_input = c.frequencies_input = kNoInput;
  if (names == "positions" || names == "positions,frequencies") c.positions_input = 1;
  if (names == "frequencies,positions") c.positions_input = 2;
  if (names == "frequencies" || names == "frequencies,positions") c.frequencies_input = 1;
  if (names == "positions,frequencies") c.frequencies_input = 2;
  const uint32_t given = (c.positions_input != kNoInput) + (c.frequencies_input != kNoInput);
  return site.inputs() == 1 + given && (given > 0 || names.empty());
}

// Computes the tables. Angles are f64, for accuracy at large positions.
void fill_table(Owned& c, double decay) {
  const int64_t cells = c.positions * c.entries, pair = c.interleaved ? 2 : 1;
  c.table.resize(static_cast<size_t>(2 * cells));
  for (int64_t i = 0; i < cells; ++i) {
    const double position = static_cast<double>(c.offset + i / c.entries);
    const double angle = position * std::exp(static_cast<double>(i % c.entries / pair) * decay);
    const double sign = c.interleaved && i % 2 == 0 ? -c.turn : c.turn;
    c.table[static_cast<size_t>(i)] = static_cast<float>(std::cos(angle));
    c.table[static_cast<size_t>(cells + i)] = static_cast<float>(sign * std::sin(angle));
  }
  c.cosines = c.table.data();
  c.sines = c.table.data() + cells;
}

bool plan_rope(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const uint32_t skipped = site.flag("positions_first") ? 1 : 0;
  if (!is_f32(x) || !is_f32(site.out()) || x.rank < 2 + skipped) return false;
  auto c = std::make_unique<Owned>();
  if (!find_inputs(site, *c)) return false;
  const bool by_input = site.inputs() > 1;
  c->width = last(x);
  const auto wanted = static_cast<int64_t>(site.number("rotary_dims"));
  const int64_t turned = wanted > 0 ? wanted : c->width;
  if (turned % 2 || turned > c->width) return false;
  c->interleaved = site.text("pairing") == "interleaved";
  c->entries = c->interleaved ? turned : turned / 2;
  c->positions = x.dims[x.rank - 2 - skipped];
  c->repeats = skipped ? x.dims[x.rank - 2] : 1;
  c->rows = count(x) / c->width;
  c->tables = c->positions;
  c->turn = site.flag("inverse") ? -1 : 1;
  c->offset = site.integer("offset");
  const double decay = -std::log(site.number("base", 10000)) / static_cast<double>(turned / 2);
  const double rows_ns = 0.3 * static_cast<double>(count(x)) + 3.0 * static_cast<double>(c->rows);
  c->parts = parts_for(rows_ns, c->rows);
  if (!by_input) {
    fill_table(*c, decay);
    answer<RopeContext>(out, std::move(c), chosen::rope(), "rope").in_place = 1;
    return true;
  }
  if (c->positions_input != kNoInput) {
    const hx_type& given = site.in(c->positions_input);
    if (given.dtype != HX_I32 || given.rank > 2) return false;
    c->tables = count(given);
    if (given.rank == 2) c->batch_rows = c->rows / x.dims[0];
  }
  if (c->frequencies_input != kNoInput && !is_f32(site.in(c->frequencies_input))) return false;
  for (int64_t i = 0; i < turned / 2; ++i) c->powers.push_back(std::exp(static_cast<double>(i) * decay));
  c->frequencies = c->powers.data();
  const int64_t cells = c->tables * c->entries;
  c->table_parts = parts_for(4.0 * static_cast<double>(cells), c->tables);
  c->y = site.inputs();
  c->workspace = site.workspace();
  const std::vector<uint32_t> parts = {c->table_parts, c->parts};
  hx_kernel& kernel = answer<RopeContext>(out, std::move(c), chosen::rope(), "rope", parts);
  kernel.in_place = 1;
  kernel.workspace = static_cast<uint64_t>(cells) * 2 * sizeof(float);
  return true;
}

}  // namespace

HM_PLANS(rope, {"rope", plan_rope})

}  // namespace harmonics::cpu

#endif
