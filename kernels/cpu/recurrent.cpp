#include "recurrent.hpp"

#include "families.hpp"

namespace harmonics::cpu {
namespace {

// Panels, vectors and rows have the sizes of the widest instruction set.
constexpr int64_t kMostLanes = 16, kMostPanel = 4 * kMostLanes;

int64_t rounded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Divides samples, which are independent, among threads; positions are sequential.
void divide(RecurrentContext& c, int64_t gates, bool gradient) {
  const double state = static_cast<double>(c.width), each = static_cast<double>(c.batch * c.positions);
  const double nanoseconds = each * (static_cast<double>(gates) * state * state / 35 + state * (gradient ? 4 : 6));
  c.parts = parts_for(nanoseconds, c.batch / 8);
  c.rows = (c.batch + c.parts - 1) / c.parts;
  c.pack_parts = parts_for(0.3 * static_cast<double>(gates) * state * state, (c.width + kMostPanel - 1) / kMostPanel);
}

uint64_t bytes(const RecurrentContext& c) {
  return static_cast<uint64_t>(c.packed + c.part_workspace * c.parts) * sizeof(float);
}

bool plan_scan(const Site& site, hx_kernel& out, int64_t gates) {
  const hx_type& x = site.in(0);
  auto c = std::make_unique<RecurrentContext>();
  c->batch = x.dims[0];
  c->positions = x.dims[1];
  c->width = site.in(1).dims[1];
  c->reverse = site.flag("reverse");
  divide(*c, gates, false);
  c->packed = rounded(c->width, kMostLanes) * gates * c->width;
  c->stride = rounded(c->width, kMostLanes) + kMostLanes;  // not a power of two: rows would share cache sets
  c->part_workspace = 3 * c->rows * c->stride;             // previous state, next state, cell
  const std::vector<uint32_t> parts{c->pack_parts, c->parts};
  const uint64_t workspace = bytes(*c);
  answer(out, std::move(c), gates == 4 ? isa().lstm_scan : isa().gru_scan, gates == 4 ? "lstm" : "gru", parts)
      .workspace = workspace;
  return true;
}

bool plan_scan_grad(const Site& site, hx_kernel& out, int64_t gates) {
  const hx_type& y = site.in(1);
  auto c = std::make_unique<RecurrentContext>();
  c->batch = y.dims[0];
  c->positions = y.dims[1];
  c->width = y.dims[2];
  c->reverse = site.flag("reverse");
  c->has_dcell = gates == 4 && site.inputs() == 6;
  divide(*c, gates, true);
  c->panel_vectors = c->rows <= 3 ? 4 : 2;
  c->packed = rounded(c->width, kMostPanel) * gates * c->width;
  c->stride = rounded(c->width, kMostPanel) + kMostLanes;
  c->gate_stride = rounded(gates * c->width, kMostLanes) + kMostLanes;
  c->part_workspace = c->rows * (2 * c->stride + c->gate_stride);
  const std::vector<uint32_t> parts{c->pack_parts, c->parts};
  const uint64_t workspace = bytes(*c);
  answer(out, std::move(c), gates == 4 ? isa().lstm_scan_grad : isa().gru_scan_grad,
         gates == 4 ? "lstm gradient" : "gru gradient", parts)
      .workspace = workspace;
  return true;
}

}  // namespace

bool plan_recurrent(const Site& site, hx_kernel& out) {
  if (!site.all_f32()) return false;
  const bool lstm = site.op().substr(0, 4) == "lstm";
  if (!site.op().ends_with("_grad")) return plan_scan(site, out, lstm ? 4 : 3);
  // Sites with gradients of the gates are unsupported: only tests create them.
  return site.inputs() <= (lstm ? 6u : 5u) && plan_scan_grad(site, out, lstm ? 4 : 3);
}

HM_PLANS(recurrent, {"lstm_scan", plan_recurrent}, {"lstm_scan_grad", plan_recurrent}, {"gru_scan", plan_recurrent},
         {"gru_scan_grad", plan_recurrent})

}  // namespace harmonics::cpu
