#include "families.hpp"
#include "rows.hpp"

namespace harmonics::cpu {
namespace {

std::unique_ptr<RowsContext> rows_of(const hx_type& x, double nanoseconds) {
  auto c = std::make_unique<RowsContext>();
  c->columns = last(x);
  c->rows = count(x) / c->columns;
  c->parts = parts_for_rows(nanoseconds * static_cast<double>(count(x)) + 10.0 * static_cast<double>(c->rows), c->rows);
  return c;
}

}  // namespace

bool plan_softmax(const Site& site, hx_kernel& out) {
  if (!site.all_f32() || site.in(0).rank == 0) return false;
  const bool gradient = site.inputs() == 2, logarithm = site.op().substr(0, 3) == "log";
  auto c = rows_of(site.in(0), 1.2);
  const IsaTable& t = isa();
  answer(out, std::move(c),
         gradient    ? (logarithm ? t.log_softmax_grad : t.softmax_grad)
         : logarithm ? t.log_softmax
                     : t.softmax,
         logarithm ? "log softmax" : "softmax")
      .in_place = gradient ? 3 : 1;
  return true;
}

bool plan_softmax_cross_entropy(const Site& site, hx_kernel& out) {
  const bool gradient = site.inputs() == 4;
  if (!is_f32(site.in(0)) || !is_index(site.in(1)) || !is_f32(site.out())) return false;
  auto c = rows_of(site.in(0), 1.0);
  c->index_dtype = site.in(1).dtype;
  answer(out, std::move(c), gradient ? isa().softmax_cross_entropy_grad : isa().softmax_cross_entropy,
         "softmax cross entropy")
      .in_place = gradient ? 1 : 0;
  return true;
}

}  // namespace harmonics::cpu
