#include "engine/transformer/low_rank_terms.hpp"

#include <harmonics/ops.hpp>

#include "engine/base/philox.hpp"
#include "engine/program/step_input.hpp"

namespace harmonics::engine {

namespace {

// Applies a linear map. If `invariant`, as when a sequence is continued, a row's bits do not depend on the number of
// rows.
HTensor narrow_map(const HTensor& x, const HTensor& weight, bool invariant = true, bool transposed = false) {
  AttributeMap how;
  if (invariant) how.set("batch_invariant", true);
  if (transposed) how.set("transposed", true);
  return apply("linear", how, {x, weight}).at(0);
}

// Same for groups of rows and a stack of matrices.
HTensor grouped_map(const HTensor& rows, const HTensor& offsets, const HTensor& stack, bool invariant) {
  AttributeMap how;
  if (invariant) how.set("batch_invariant", true);
  return apply("grouped_linear", how, {rows, offsets, stack}).at(0);
}

int64_t last_axis(const HTensor& x) { return static_cast<int64_t>(x.rank()) - 1; }

HTensor times(const HTensor& x, double factor) { return factor == 1 ? x : x * factor; }

}  // namespace

LowRankTerms::LowRankTerms(const AdaptedWeights& adapted, const TrainedAdapter* trained, Tracer& tracer, bool training)
    : adapted_(adapted), tracer_(tracer), training_(training) {
  if (!trained) return;
  if (training) dropout_ = trained->settings.dropout;
  for (const TrainedPair& pair : trained->pairs) {
    trained_[pair.key].push_back(&pair);
    groups_[pair.group].push_back(&pair);
  }
}

void LowRankTerms::read(const HTensor& weight, const std::string& key) { keys_[tracer_.id_of(weight)] = key; }

std::string LowRankTerms::key_of(const HTensor& weight) const {
  const auto key = keys_.find(tracer_.id_of(weight));
  return key == keys_.end() ? std::string() : key->second;
}

HTensor LowRankTerms::parameter(const std::string& name, const Shape& shape, DType dtype) {
  return tracer_.parameter(name, {dtype, shape});
}

bool LowRankTerms::scale(const HTensor& weight) const {
  const std::string key = key_of(weight);
  if (const auto frozen = adapted_.find(key); frozen != adapted_.end() && !frozen->second.factor.empty()) return true;
  const auto trained = trained_.find(key);
  return trained != trained_.end() && !trained->second.front()->magnitude.empty();
}

HTensor LowRankTerms::added(const HTensor& y, const HTensor& x, const HTensor& weight) {
  maps_.push_back({tracer_.id_of(x), key_of(weight), tracer_.id_of(y)});
  const std::string key = maps_.back().key;
  HTensor sum = y;
  if (const auto frozen = adapted_.find(key); frozen != adapted_.end() && !frozen->second.looked_up)
    sum = with_frozen(frozen->second, sum, x);
  if (const auto trained = trained_.find(key); trained != trained_.end() && !trained->second.front()->looked_up)
    sum = with_trained(trained->second, sum, x, weight);
  maps_.back().y = tracer_.id_of(sum);
  return sum;
}

HTensor LowRankTerms::with_frozen(const AdaptedWeight& pair, const HTensor& y, const HTensor& x) {
  HTensor& product = products_[{pair.a, tracer_.id_of(x)}];
  if (!product) product = narrow_map(x, parameter(pair.a, Shape{pair.rows, x.shape().back()}, DType::F32), !training_);
  const HTensor own =
      pair.rank == pair.rows ? product : slice_axis(product, last_axis(product), pair.from, pair.from + pair.rank);
  const HTensor b = parameter(pair.b, Shape{y.shape().back(), pair.rank}, DType::F32);
  const HTensor sum = y + narrow_map(own, b, !training_);
  return pair.factor.empty() ? sum : sum * parameter(pair.factor, Shape{y.shape().back()}, DType::F32);
}

HTensor LowRankTerms::dropped(const std::string& group, const HTensor& x) {
  if (dropout_ == 0) return x;
  HTensor& found = dropped_[{group, tracer_.id_of(x)}];
  if (found) return found;
  AttributeMap random;
  random.set("shape", x.shape().vector()).set("stream", static_cast<int64_t>(stream_of(group.data(), group.size())));
  const HTensor numbers = apply("random_uniform", random, {step_input(tracer_, StepInput::counter)}).at(0);
  return found = apply("dropout", AttributeMap().set("rate", dropout_), {x, numbers}).at(0);
}

HTensor LowRankTerms::narrow(const TrainedPair& pair, const HTensor& x) {
  const auto matrix = [&](const TrainedPair& p) { return parameter(p.a, Shape{p.rank, p.width}, x.dtype()); };
  const Pairs& group = groups_.at(pair.group);
  // Outside of training, concatenating the group's matrices would cost more than it saves.
  if (!training_ || group.size() == 1)
    return times(narrow_map(dropped(pair.group, x), matrix(pair), !training_), pair.factor);
  HTensor& product = products_[{pair.group, tracer_.id_of(x)}];
  if (!product) {
    std::vector<HTensor> all;
    for (const TrainedPair* member : group) all.push_back(matrix(*member));
    product = times(narrow_map(dropped(pair.group, x), concat(all, 0), false), pair.factor);
  }
  return own_part(pair, product);
}

HTensor LowRankTerms::own_part(const TrainedPair& pair, const HTensor& product) const {
  int64_t from = 0;
  for (const TrainedPair* member : groups_.at(pair.group)) {
    if (member == &pair) break;
    from += member->rank;
  }
  const int64_t to = from + pair.rank;
  return from == 0 && to == product.shape().back() ? product : slice_axis(product, last_axis(product), from, to);
}

HTensor LowRankTerms::added_by_experts(const HTensor& y, const HTensor& rows, const HTensor& offsets,
                                       const std::string& key, int64_t experts) {
  maps_.push_back({tracer_.id_of(rows), key, tracer_.id_of(y), false, experts});
  HTensor sum = y;
  if (const auto frozen = adapted_.find(key); frozen != adapted_.end())
    sum = with_frozen_experts(frozen->second, sum, rows, offsets, experts);
  if (const auto trained = trained_.find(key); trained != trained_.end())
    for (const TrainedPair* pair : trained->second) {
      const HTensor b = parameter(pair->b, Shape{experts, pair->rows, pair->rank}, rows.dtype());
      sum = sum + grouped_map(narrow_of_experts(*pair, rows, offsets), offsets, b, !training_);
    }
  return sum;
}

HTensor LowRankTerms::with_frozen_experts(const AdaptedWeight& pair, const HTensor& y, const HTensor& rows,
                                          const HTensor& offsets, int64_t experts) {
  HTensor& product = products_[{pair.a, tracer_.id_of(rows)}];
  if (!product) {
    const HTensor a = parameter(pair.a, Shape{experts, pair.rows, rows.shape().back()}, DType::F32);
    product = grouped_map(rows, offsets, a, !training_);
  }
  const HTensor own = pair.rank == pair.rows ? product : slice_axis(product, 1, pair.from, pair.from + pair.rank);
  const HTensor b = parameter(pair.b, Shape{experts, y.shape().back(), pair.rank}, DType::F32);
  return y + grouped_map(own, offsets, b, !training_);
}

HTensor LowRankTerms::narrow_of_experts(const TrainedPair& pair, const HTensor& rows, const HTensor& offsets) {
  const auto stack = [&](const TrainedPair& p) {
    return parameter(p.a, Shape{p.experts, p.rank, p.width}, rows.dtype());
  };
  const Pairs& group = groups_.at(pair.group);
  const HTensor x = dropped(pair.group, rows);
  if (!training_ || group.size() == 1) return times(grouped_map(x, offsets, stack(pair), !training_), pair.factor);
  HTensor& product = products_[{pair.group, tracer_.id_of(rows)}];
  if (!product) {
    std::vector<HTensor> all;
    for (const TrainedPair* member : group) all.push_back(stack(*member));
    product = times(grouped_map(x, offsets, concat(all, 1), false), pair.factor);
  }
  return own_part(pair, product);
}

// Computes the squared row norms of W + s B A from those of W, using only products with low-rank matrices.
HTensor LowRankTerms::lengths(const TrainedPair& pair, const HTensor& weight, DType dtype) {
  const HTensor a = parameter(pair.a, Shape{pair.rank, pair.width}, dtype);
  const HTensor b = parameter(pair.b, Shape{pair.rows, pair.rank}, dtype);
  HTensor across = narrow_map(a, weight, false, pair.transposed);  // A Wᵀ
  if (pair.rows != pair.whole) across = slice_axis(across, 1, pair.from, pair.from + pair.rows);
  const HTensor within = narrow_map(b, narrow_map(a, a, false), false);  // B A Aᵀ
  const HTensor mixed = reduce_sum(b * transpose(across, {1, 0}), {1}), own = reduce_sum(b * within, {1});
  const HTensor squares =
      parameter(pair.squares, Shape{pair.rows}, dtype) + mixed * (2 * pair.factor) + own * (pair.factor * pair.factor);
  return parameter(pair.magnitude, Shape{pair.rows}, dtype) / stop_gradient(sqrt(squares));
}

HTensor LowRankTerms::with_trained(const Pairs& pairs, const HTensor& y, const HTensor& x, const HTensor& weight) {
  std::vector<HTensor> all;
  const int64_t axis = last_axis(y);
  int64_t end = 0;
  const auto own = [&](int64_t from, int64_t to) {
    return from == 0 && to == y.shape().back() ? y : slice_axis(y, axis, from, to);
  };
  for (const TrainedPair* pair : pairs) {
    if (pair->from > end) all.push_back(own(end, pair->from));
    end = pair->from + pair->rows;
    const HTensor b = parameter(pair->b, Shape{pair->rows, pair->rank}, x.dtype());
    const HTensor sum = own(pair->from, end) + narrow_map(narrow(*pair, x), b, !training_);
    all.push_back(pair->magnitude.empty() ? sum : sum * lengths(*pair, weight, x.dtype()));
  }
  if (end < y.shape().back()) all.push_back(own(end, y.shape().back()));
  return all.size() == 1 ? all.front() : concat(all, axis);
}

HTensor LowRankTerms::looked_up(const HTensor& rows, const HTensor& ids, const HTensor& table) {
  maps_.push_back({tracer_.id_of(ids), key_of(table), tracer_.id_of(rows), true});
  const std::string key = maps_.back().key;
  const int64_t width = rows.shape().back();
  const auto of = [&](const HTensor& a, const HTensor& b) {
    return narrow_map(apply("embedding", {}, {a, ids}).at(0), b, !training_);
  };
  HTensor sum = rows;
  if (const auto frozen = adapted_.find(key); frozen != adapted_.end() && frozen->second.looked_up) {
    const AdaptedWeight& pair = frozen->second;
    sum = sum + of(parameter(pair.a, Shape{pair.rows, pair.rank}, DType::F32),
                   parameter(pair.b, Shape{width, pair.rank}, DType::F32));
  }
  if (const auto trained = trained_.find(key); trained != trained_.end())
    for (const TrainedPair* pair : trained->second)
      sum = sum + times(of(parameter(pair->a, Shape{pair->rows, pair->rank}, rows.dtype()),
                           parameter(pair->b, Shape{width, pair->rank}, rows.dtype())),
                        pair->factor);
  return sum;
}

}  // namespace harmonics::engine
