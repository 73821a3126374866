#include "engine/flow/predicate.hpp"

#include <harmonics/training_abi.h>

#include "engine/contract/plugin_body.hpp"

namespace harmonics::engine {

namespace {

hx_status metric_of(const void* run, const char* name, double* out) {
  const std::optional<double> value = static_cast<const Metrics*>(run)->find(name ? name : "");
  if (!value) return HX_DECLINED;
  *out = *value;
  return HX_OK;
}

}  // namespace

Predicates::Predicates(const std::vector<GraphConditional>& conditionals) {
  for (const GraphConditional& c : conditionals) {
    bound_.emplace_back();
    if (!c.predicate) continue;
    bound_.back() =
        std::make_unique<Bound>(Bound{c.predicate->item, c.predicate->arguments, nullptr, c.predicate->span});
    bound_.back()->view = std::make_unique<AttributeView>(bound_.back()->arguments);
  }
}

bool Predicates::holds(size_t conditional, const RunCounts& counts, const Metrics& metrics) const {
  const Bound& b = *bound_[conditional];
  const hx_run_view run{sizeof run, 0, counts.step, counts.epoch, counts.samples, &metrics, metric_of};
  int32_t out = 0;
  const hx_status status = b.item->table<hx_predicate_vt>().holds(b.item->self, b.view->get(), &run, &out);
  if (status == HX_OK) return out != 0;
  const Error e = plugin_error(*b.item, status);
  throw Error(e.kind(), e.what(), b.span, e.notes());
}

}  // namespace harmonics::engine
