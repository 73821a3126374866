#include "engine/transformer/low_rank_terms.hpp"

#include <harmonics/ops.hpp>

namespace harmonics::engine {

namespace {

HTensor narrow_map(const HTensor& x, const HTensor& weight) {
  return apply("linear", AttributeMap().set("batch_invariant", true), {x, weight}).at(0);
}

}  // namespace

void LowRankTerms::read(const HTensor& weight, const std::string& key) { keys_[tracer_.id_of(weight)] = key; }

HTensor LowRankTerms::added(const HTensor& y, const HTensor& x, const HTensor& weight) {
  const auto key = keys_.find(tracer_.id_of(weight));
  const ValueId of = tracer_.id_of(x);
  maps_.push_back({of, key == keys_.end() ? "" : key->second});
  const auto found = adapted_.find(maps_.back().key);
  if (found == adapted_.end()) return y;
  const AdaptedWeight& pair = found->second;
  HTensor& product = products_[{pair.a, of}];
  if (!product) product = narrow_map(x, tracer_.parameter(pair.a, {DType::F32, Shape{pair.rows, x.shape().back()}}));
  const int64_t last = static_cast<int64_t>(x.rank()) - 1;
  const HTensor own = pair.rank == pair.rows ? product : slice_axis(product, last, pair.from, pair.from + pair.rank);
  return y + narrow_map(own, tracer_.parameter(pair.b, {DType::F32, Shape{y.shape().back(), pair.rank}}));
}

}  // namespace harmonics::engine
