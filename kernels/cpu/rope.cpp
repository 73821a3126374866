#include "rope.hpp"

#include <cmath>

#include "families.hpp"

namespace harmonics::cpu {
namespace {

struct Owned : RopeContext {
  std::vector<float> table;
  std::vector<double> powers;
};

// Inputs named by the attribute `operands`; false: there are others.
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

// Angles are f64 for accuracy at late positions.
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

}  // namespace

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
    answer<RopeContext>(out, std::move(c), isa().rope, "rope").in_place = 1;
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
  hx_kernel& kernel = answer<RopeContext>(out, std::move(c), isa().rope, "rope", parts);
  kernel.in_place = 1;
  kernel.workspace = static_cast<uint64_t>(cells) * 2 * sizeof(float);
  return true;
}

}  // namespace harmonics::cpu
