// Mixture of experts: selects the experts of each row, sorts rows by expert, and computes products by group.
#include <algorithm>
#include <limits>
#include <tuple>

#include <harmonics/element_type.hpp>
#include <harmonics/quantity.hpp>

#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {
namespace {

Shape with_last(const Shape& shape, int64_t last) {
  Shape s = shape.slice(0, shape.rank() - 1);
  s.push_back(last);
  return s;
}

HTensor shares_of(const AttributeMap& a, const HTensor& scores) {
  return a.text("scoring", "softmax") == "sigmoid" ? logistic(scores) : one("softmax", {}, {scores});
}

// Returns whether each choice [rows, k] is among the first `capacity` choices of its expert. First choices of all rows
// precede second ones.
HTensor within_capacity(const HTensor& numbers, int64_t experts, int64_t capacity) {
  const int64_t rows = numbers.shape()[0], k = numbers.shape()[1];
  const HTensor in_turn = reshape(transpose(numbers, {1, 0}), {rows * k, 1});
  const HTensor chosen = cast(equal(iota(DType::I32, {rows * k, experts}, 1), in_turn), DType::I32);
  const HTensor place = reduce_sum(cumsum(chosen, 0) * chosen, {1});
  return less_equal(transpose(reshape(place, {k, rows}), {1, 0}), static_cast<double>(capacity));
}

bool limits_groups(const AttributeMap& a) {
  const int64_t used = a.integer("used_groups", 0);
  return used != 0 && used != a.integer("groups", 1);
}

// Sets experts outside of the best groups to -infinity. Groups are ranked by the sum of their two best experts, as in
// DeepSeek-V3.
HTensor within_best_groups(const AttributeMap& a, const HTensor& preferred) {
  const int64_t groups = a.integer("groups", 1), used = a.integer("used_groups");
  const int64_t experts = preferred.shape().back(), size = experts / groups, rows = preferred.size() / experts;
  expect(used < groups && size >= 2 && experts % groups == 0 && a.integer("used") <= used * size, "router",
         "cannot choose " + std::to_string(a.integer("used")) + " of " + std::to_string(experts) + " experts from " +
             std::to_string(used) + " of " + std::to_string(groups) +
             " groups; groups have equal sizes of 2 or more, and the chosen groups hold the chosen experts",
         ErrorKind::Usage);
  const HTensor grouped = reshape(preferred, {rows, groups, size});
  const HTensor best = cast(top_k(reduce_sum(top_k(grouped, 2).first, {2}), used).second, DType::I32);
  const HTensor is_best = equal(iota(DType::I32, {rows, used, groups}, 2), reshape(best, {rows, used, 1}));
  const HTensor kept = less(0.0, reduce_sum(cast(is_best, DType::I32), {1}));
  return reshape(where(reshape(kept, {rows, groups, 1}), grouped, -std::numeric_limits<double>::infinity()),
                 preferred.shape());
}

// A choice beyond the capacity gets weight 0 and a number that belongs to no expert.
Values router(const AttributeMap& a, Inputs in) {
  const HTensor scores = wide(in[0]);
  expect(scores.rank() >= 1, "router", "scores are [..., experts], not " + text_of(in[0]));
  const int64_t experts = scores.shape().back(), used = a.integer("used"), capacity = a.integer("capacity", 0);
  expect(used <= experts, "router",
         "uses " + std::to_string(used) + " of the " + std::to_string(experts) + " experts of " + text_of(in[0]),
         ErrorKind::Usage);
  const HTensor shares = shares_of(a, scores);
  HTensor best, numbers;
  if (in.size() == 1 && !limits_groups(a)) {
    std::tie(best, numbers) = top_k(shares, used);
  } else {  // bias and groups affect only the choice of experts, not their weights
    HTensor preferred = shares;
    if (in.size() == 2) {
      expect(in[1].shape() == Shape{experts} && is_float(in[1].dtype()), "router",
             "the bias has a number for each expert of " + text_of(in[0]) + ", not " + text_of(in[1]));
      preferred = shares + wide(in[1], in[0]);
    }
    preferred = stop_gradient(preferred);
    if (limits_groups(a)) preferred = within_best_groups(a, preferred);
    numbers = top_k(preferred, used).second;
    const int64_t rows = scores.size() / experts;
    const HTensor first = iota(DType::I64, {rows, 1}, 0) * static_cast<double>(experts);
    const HTensor places = reshape(cast(numbers, DType::I64), {rows, used}) + first;
    best = reshape(gather(reshape(shares, {rows * experts}), places), numbers.shape());
  }
  if (a.flag("normalized")) best = best / reduce_sum(best, last_axis(best), true);
  if (const double scale = a.number("scale", 1.0); scale != 1) best = best * scale;
  HTensor chosen = cast(numbers, DType::I32);
  if (capacity > 0) {
    const int64_t rows = chosen.size() / used;
    const HTensor kept =
        reshape(within_capacity(reshape(chosen, {rows, used}), experts, capacity), with_last(scores.shape(), used));
    best = select(kept, best, zeros_like(best));
    chosen = select(kept, chosen, full(DType::I32, chosen.shape(), static_cast<double>(experts)));
  }
  return {as_type_of(best, in[0]), chosen};
}

Values expert_choice(const AttributeMap& a, Inputs in) {
  const HTensor scores = wide(in[0]);
  const int64_t capacity = a.integer("capacity");
  expect(scores.rank() == 2 && capacity <= scores.shape()[0], "expert_choice",
         "scores are [rows, experts] with at least " + quantity(capacity, "row") + ", not " + text_of(in[0]));
  auto [best, numbers] = top_k(transpose(shares_of(a, scores), {1, 0}), capacity);
  return {as_type_of(best, in[0]), cast(numbers, DType::I32)};
}

HTensor inverse(const HTensor& order) { return argsort(order, 0); }

Values dispatch(const AttributeMap& a, Inputs in) {
  const HTensor &x = in[0], &experts = in[1];
  const int64_t count = a.integer("count"), k = experts.rank() == 0 ? 0 : experts.shape().back();
  expect(experts.dtype() == DType::I32 && experts.rank() == x.rank() && x.rank() >= 2 &&
             experts.shape().slice(0, x.rank() - 1) == x.shape().slice(0, x.rank() - 1) && k > 0,
         "dispatch",
         "x " + text_of(x) + " and experts " + text_of(experts) +
             " do not fit: x is [..., width], experts are i32[..., k]");
  const int64_t width = x.shape().back(), rows = x.size() / std::max<int64_t>(width, 1);
  const HTensor flat = reshape(experts, {rows * k}), order = cast(argsort(flat, 0), DType::I32);
  const HTensor below = less(reshape(flat, {1, rows * k}), iota(DType::I32, {count + 1, 1}, 0));
  return {gather(reshape(x, {rows, width}), order / static_cast<double>(k)), order,
          reduce_sum(cast(below, DType::I32), {1})};
}
Values dispatch_gradient(const AttributeMap&, Inputs in, Inputs out, Inputs gradients) {
  if (!gradients[0]) return {HTensor(), HTensor()};
  return {one("combine", {}, {gradients[0], out[1], full(in[0].dtype(), in[1].shape(), 1)}), {}};
}

void expect_combine(const HTensor& rows, const HTensor& order, const HTensor& weights) {
  expect(rows.rank() == 2 && order.dtype() == DType::I32 && order.shape() == Shape{rows.shape()[0]} &&
             weights.rank() >= 2 && weights.size() == rows.shape()[0],
         "combine",
         "rows " + text_of(rows) + ", order " + text_of(order) + " and weights " + text_of(weights) +
             " do not fit: rows are [n, width], order is i32[n], weights are [..., k] with n numbers");
}
// Returns the rows in the order of their choices, [..., k, width].
HTensor by_choice(const HTensor& rows, const HTensor& order, const HTensor& weights) {
  Shape shape = weights.shape();
  shape.push_back(rows.shape()[1]);
  return reshape(gather(rows, inverse(order)), shape);
}
Values combine(const AttributeMap&, Inputs in) {
  expect_combine(in[0], in[1], in[2]);
  const HTensor picked = wide(by_choice(in[0], in[1], in[2])), weights = wide(in[2], in[0]);
  return {as_type_of(reduce_sum(picked * column(weights), {static_cast<int64_t>(in[2].rank()) - 1}), in[0])};
}
Values combine_gradient(const AttributeMap&, Inputs in, Inputs, Inputs gradients) {
  const HTensor &rows = in[0], &order = in[1], &weights = in[2];
  const HTensor dy = wide(gradients[0]);
  const int64_t width = rows.shape()[1], k = weights.shape().back(), choices = rows.shape()[0];
  const HTensor share = gather(reshape(wide(weights, rows), {choices}), order);
  const HTensor drows = gather(reshape(dy, {choices / k, width}), order / static_cast<double>(k)) * column(share);
  Shape each = weights.shape().slice(0, weights.rank() - 1);
  each.push_back(1);
  each.push_back(width);
  const HTensor picked = wide(by_choice(rows, order, weights));
  return {as_type_of(drows, rows), {}, as_type_of(reduce_sum(picked * reshape(dy, each), last_axis(picked)), weights)};
}

// Returns whether each row is in group e, [rows, 1].
HTensor in_group(const HTensor& offsets, int64_t rows, int64_t e) {
  const HTensor r = iota(DType::I32, {rows, 1}, 0);
  const auto offset = [&](int64_t i) { return reshape(slice_axis(offsets, 0, i, i + 1), {1, 1}); };
  return logical_and(less_equal(offset(e), r), less(r, offset(e + 1)));
}

// The weights of a call: one tensor of all groups, or a matrix of each.
struct Groups {
  int64_t count, first, second;  // matrices are [first, second]
  bool stacked;

  Groups(const char* name, Inputs in) : stacked(in.size() == 3 && in[2].rank() == 3) {
    const Shape s = in[2].shape();
    bool fits = stacked || s.rank() == 2;
    for (size_t i = 3; i < in.size(); ++i) fits = fits && in[i].shape() == s && in[i].dtype() == in[2].dtype();
    expect(fits, name,
           "the weights are one [groups, out, in], or a matrix [out, in] of each group, not " + text_of(in[2]));
    count = stacked ? s[0] : static_cast<int64_t>(in.size()) - 2;
    first = s[s.rank() - 2];
    second = s.back();
    expect(in[0].rank() == 2 && in[1].dtype() == DType::I32 && in[1].shape() == Shape{count + 1}, name,
           "x " + text_of(in[0]) + " and offsets " + text_of(in[1]) + " do not fit " + quantity(count, "group") +
               ": x is [rows, in], offsets are i32[groups + 1]");
  }
  HTensor weight(Inputs in, int64_t e) const {
    if (!stacked) return in[static_cast<size_t>(2 + e)];
    return reshape(slice_axis(in[2], 0, e, e + 1), {first, second});
  }
};

Values grouped_linear(const AttributeMap& a, Inputs in) {
  const Groups groups("grouped_linear", in);
  AttributeMap how;
  if (a.flag("transposed")) how.set("transposed", true);
  const int64_t rows = in[0].shape()[0];
  HTensor y = full(in[0].dtype(), {rows, a.flag("transposed") ? groups.second : groups.first}, 0);
  for (int64_t e = 0; e < groups.count; ++e)
    y = select(in_group(in[1], rows, e), one("linear", how, {in[0], groups.weight(in, e)}), y);
  return {y};
}
Values grouped_linear_gradient(const AttributeMap& a, Inputs in, Inputs, Inputs gradients) {
  const Groups groups("grouped_linear", in);
  const bool transposed = a.flag("transposed");
  AttributeMap other = a;
  other.set("transposed", !transposed);
  std::vector<HTensor> back(in.begin(), in.end());
  back[0] = gradients[0];
  Values result{one("grouped_linear", other, back), HTensor()};
  if (is_stored(in[2].dtype())) {
    result.resize(in.size());
    return result;
  }
  const HTensor dweight = as_type_of(
      one("grouped_outer", {}, {transposed ? in[0] : gradients[0], transposed ? gradients[0] : in[0], in[1]}), in[2]);
  if (groups.stacked) {
    result.push_back(dweight);
    return result;
  }
  for (int64_t e = 0; e < groups.count; ++e)
    result.push_back(reshape(slice_axis(dweight, 0, e, e + 1), {groups.first, groups.second}));
  return result;
}

Values grouped_outer(const AttributeMap&, Inputs in) {
  const HTensor &a = in[0], &b = in[1], &offsets = in[2];
  expect(a.rank() == 2 && b.rank() == 2 && a.shape()[0] == b.shape()[0] && offsets.dtype() == DType::I32 &&
             offsets.rank() == 1 && offsets.shape()[0] > 1,
         "grouped_outer",
         "a " + text_of(a) + ", b " + text_of(b) + " and offsets " + text_of(offsets) +
             " do not fit: a and b have as many rows, offsets are i32[groups + 1]");
  std::vector<HTensor> all;
  for (int64_t e = 0; e + 1 < offsets.shape()[0]; ++e) {
    const HTensor own = select(in_group(offsets, a.shape()[0], e), a, zeros_like(a));
    const HTensor sum = dot(wide(own), wide(b), {0}, {0});
    all.push_back(as_type_of(reshape(sum, {1, a.shape()[1], b.shape()[1]}), a));
  }
  return {concat(all, 0)};
}

Values load_balance_loss(const AttributeMap&, Inputs in) {
  const HTensor shares = wide(in[0]);
  const int64_t experts = shares.shape().back(), rows = shares.size() / experts;
  expect(in[1].dtype() == DType::I32 && in[1].rank() >= 1 && in[1].size() % rows == 0, "load_balance_loss",
         "shares " + text_of(in[0]) + " and experts " + text_of(in[1]) + " do not fit: experts are i32[..., k]");
  const HTensor chosen = equal(reshape(in[1], {in[1].size(), 1}), iota(DType::I32, {in[1].size(), experts}, 1));
  const HTensor counts = reduce_sum(cast(chosen, shares.dtype()), {0}) / static_cast<double>(rows);
  const HTensor mean = reduce_mean(reshape(shares, {rows, experts}), {0});
  return {reduce_sum(counts * mean, {0}) * static_cast<double>(experts)};
}

Values router_z_loss(const AttributeMap&, Inputs in) {
  const HTensor x = wide(in[0]), largest = stop_gradient(reduce_max(x, last_axis(x)));
  const HTensor lse = log(reduce_sum(exp(x - column(largest)), last_axis(x))) + largest;
  return {reduce_mean(square(lse), axes_from(lse, 0))};
}

#define HM_SCORING "scoring = \"softmax\" in softmax|sigmoid (function from scores to shares)"

}  // namespace

std::vector<Functional> experts() {
  return {
      {"router", "selects the experts with the largest shares, and gives their weights",
       "scores [..., experts], bias [experts]? {used: int in 1.., " HM_SCORING
       ", normalized = false (weights of a row sum to 1), scale = 1.0 (factor of the weights), capacity = 0 in 0.. "
       "(maximum number of rows per expert; 0: no limit), groups = 1 in 1.. since 1.5 (number of groups of consecutive "
       "experts, of equal size), "
       "used_groups = 0 in 0.. since 1.5 (number of groups to select experts from: those with the largest sum of their "
       "two best experts; 0: all)} -> weights [..., used], experts i32 [..., used]; groups and experts are selected by "
       "shares plus bias, weights are the shares without bias; a choice beyond the capacity has weight 0 and an expert "
       "number outside the range; first choices take precedence over second choices",
       router, nullptr},
      {"expert_choice", "the rows with the largest shares for each expert",
       "scores [rows, experts] {capacity: int in 1.., " HM_SCORING
       "} -> weights [experts, capacity], rows i32 [experts, capacity]",
       expert_choice, nullptr},
      {"dispatch", "rows of x, sorted by the experts that they are routed to",
       "x [..., width], experts i32 [..., k] {count: int in 1.. (experts)} -> rows [n, width], order i32 [n], offsets "
       "i32 [count + 1]; row r belongs to choice order[r] of all n choices; rows offsets[e] to offsets[e + 1] belong "
       "to expert e; the last rows have no expert",
       dispatch, dispatch_gradient},
      {"combine", "weighted sum of the expert results of each row; rows are in the order of dispatch",
       "rows [n, width], order i32 [n], weights [..., k] -> y [..., width]", combine, combine_gradient},
      {"grouped_linear",
       "a linear map for each group of rows",
       "x [rows, in], offsets i32 [groups + 1], weight [groups, out, in] or weight [out, in] of each group... "
       "{transposed = false (matrices are [in, out]), batch_invariant = false (the result of a row has the same bits "
       "in groups of any size)} -> y [rows, out]; group e has the rows offsets[e] to offsets[e + 1]; offsets must not "
       "decrease; rows outside all groups give 0; weights may have a stored type (q8_0 ...)",
       grouped_linear,
       grouped_linear_gradient,
       {.part = BlockPart::map}},
      {"grouped_outer", "sum of a b' over the rows of each group: the gradient of the weights of grouped_linear",
       "a [rows, m], b [rows, n], offsets i32 [groups + 1] -> y [groups, m, n]", grouped_outer, nullptr},
      {"load_balance_loss",
       "number of experts times the sum over experts of mean share times mean number of choices (Fedus et al. 2021)",
       "shares [..., experts], experts i32 [..., k] -> loss []", load_balance_loss, nullptr},
      {"router_z_loss", "mean of the square of log(sum(exp(scores))) (Zoph et al. 2022)",
       "scores [..., experts] -> loss []", router_z_loss, nullptr},
  };
}

}  // namespace harmonics::engine::reference
