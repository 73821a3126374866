// The last linear map of a language model and the cross entropy of its scores. Works in chunks of rows, or in slices of
// the classes if there are few rows, so that the scores of all rows never exist at once.
#include <algorithm>
#include <limits>

#include <harmonics/element_type.hpp>

#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {
namespace {

// The rows and classes whose scores exist at once.
struct Piece {
  int64_t rows, classes;
};

// Returns the size of about equal parts of `total`: a multiple of 16, of which `parts` do not exceed `total`.
int64_t part_of(int64_t total, int64_t parts) {
  for (int64_t count = parts;; ++count) {
    const int64_t part = ((total + count - 1) / count + 15) / 16 * 16;
    if (part * parts <= total || part == 16) return part;
  }
}

// An eighth of the scores, whose gradient takes their place. Chunks of rows have a sixteenth if both the scores and
// their cap are needed, but so many rows that a chunk is worth reading the weight for its products. Fewer rows are
// computed for an eighth of the classes at a time, if `divides` the classes: each product reads its part of the weight
// once. There is one product more, unless the weight is frozen: then slices have a sixteenth, of which two may exist.
Piece piece_of(const AttributeMap& a, int64_t rows, int64_t classes, bool divides, bool frozen) {
  constexpr int64_t kLeastScores = 1 << 18, kLeastRows = 128, kParts = 8;
  const int64_t chunk = a.integer("chunk", 0), slice = a.integer("slice", 0);
  Piece piece{rows, classes};
  if (chunk > 0) piece.rows = chunk;
  if (slice > 0) piece.classes = slice;
  if (chunk == 0 && slice == 0) {
    const int64_t parts = a.number("softcap", 0) > 0 ? 2 * kParts : kParts;
    const int64_t least = (kLeastScores / std::max<int64_t>(classes, 1) + 15) / 16 * 16;
    if (rows >= parts * kLeastRows)
      piece.rows = std::max(part_of(rows, parts), least);
    else if (divides && rows * classes >= kParts * kLeastScores)
      piece.classes = part_of(classes, frozen ? 2 * kParts : kParts);
    else
      piece.rows = std::max({rows / parts, least, kLeastRows});
  }
  return {std::clamp<int64_t>(piece.rows, 1, std::max<int64_t>(rows, 1)),
          std::clamp<int64_t>(piece.classes, 1, std::max<int64_t>(classes, 1))};
}

// The operands of a call, with x as [rows, in].
struct Head {
  const AttributeMap& attributes;
  HTensor x, weight, labels, bias;
  int64_t rows, classes;
  double softcap;
  bool frozen;  // only x has a gradient
  Piece piece;

  Head(const char* name, const AttributeMap& a, Inputs in, const HTensor& given_bias, bool is_frozen = false)
      : attributes(a), weight(in[1]), bias(given_bias), softcap(a.number("softcap", 0)), frozen(is_frozen) {
    const HTensor &given = in[0], &numbers = in[2];
    expect(given.rank() >= 1 && weight.rank() == 2 && given.shape().back() == weight.shape()[1], name,
           "x " + text_of(given) + " and weight " + text_of(weight) +
               " do not fit: x is [..., in], the weight [classes, in]");
    expect(is_integer(numbers.dtype()) && numbers.shape() == given.shape().slice(0, given.rank() - 1), name,
           "labels are whole numbers " + given.shape().slice(0, given.rank() - 1).str() + ", not " + text_of(numbers));
    rows = numbers.size();
    classes = weight.shape()[0];
    if (!bias.empty())
      expect(bias.shape() == Shape{classes}, name,
             "bias " + text_of(bias) + " does not fit the weight " + text_of(weight));
    x = reshape(given, {rows, given.shape().back()});
    labels = reshape(numbers, {rows});
    const bool is_half = weight.dtype() == DType::F16 || weight.dtype() == DType::BF16;
    const bool divides = (x.dtype() == weight.dtype() || (frozen && is_half && x.dtype() == DType::F32)) &&
                         (bias.empty() || bias.dtype() == x.dtype());
    expect(divides || attributes.integer("slice", 0) == 0, name,
           "slice needs x, weight and bias of one type, not " + text_of(given) + " and " + text_of(weight));
    piece = piece_of(attributes, rows, classes, divides, frozen);
  }

  // Calls f(first row, end) for each chunk.
  template <typename F>
  void each(F f) const {
    for (int64_t at = 0; at < rows; at += piece.rows) f(at, std::min(rows, at + piece.rows));
  }
  bool in_slices() const { return piece.classes < classes; }
  // Calls f(first class, end) for each slice.
  template <typename F>
  void each_slice(F f) const {
    for (int64_t at = 0; at < classes; at += piece.classes) f(at, std::min(classes, at + piece.classes));
  }
  // bent() returns tanh(scores / softcap) of the rows, or the scores without a cap, for classes [from, to); capped()
  // returns the scores from it.
  HTensor bent(const HTensor& rows_of_x, int64_t from, int64_t to) const {
    const auto part = [&](const HTensor& x) { return to - from < classes ? slice_axis(x, 0, from, to) : x; };
    std::vector<HTensor> operands{rows_of_x, part(weight)};
    if (!bias.empty()) operands.push_back(part(bias));
    const HTensor scores = wide(one("linear", {}, operands));
    return softcap > 0 ? tanh(scores / softcap) : scores;
  }
  HTensor bent(const HTensor& rows_of_x) const { return bent(rows_of_x, 0, classes); }
  HTensor capped(const HTensor& bent) const { return softcap > 0 ? bent * softcap : bent; }
  // Returns the values, or 0 where the label is ignored.
  HTensor counted(const HTensor& of_labels, const HTensor& values) const {
    if (!attributes.has("ignored")) return values;
    const auto ignored = static_cast<double>(attributes.integer("ignored"));
    return select(equal(cast(of_labels, DType::I64), ignored), zeros_like(values), values);
  }
};

HTensor rows_of(const HTensor& x, int64_t from, int64_t to) { return slice_axis(x, 0, from, to); }
HTensor row(const HTensor& x) { return reshape(x, {1, x.size()}); }
HTensor joined(const std::vector<HTensor>& parts) { return parts.size() == 1 ? parts[0] : concat(parts, 0); }

// Returns the gradient of x from that of the scores. Devices may decode a weight of another type in the product.
HTensor through(const HTensor& dscores, const HTensor& weight) {
  return dscores.dtype() == DType::F32 && weight.dtype() != DType::F32
             ? one("linear", AttributeMap().set("transposed", true), {dscores, weight})
             : dot(dscores, cast(weight, dscores.dtype()), {1}, {0});
}

// The labels clamped to [0, classes), and whether they lie there.
struct Labels {
  HTensor clamped, within;

  Labels(const HTensor& labels, int64_t classes) {
    const HTensor first = zeros_like(labels), last = full(DType::I64, labels.shape(), static_cast<double>(classes - 1));
    clamped = cast(minimum(maximum(labels, first), last), DType::I32);
    within = logical_and(less_equal(first, labels), less_equal(labels, last));
  }
};

// Loss and lse of rows from the losses and log-sums of slices of the classes. A label counts in its slice; a label
// outside all slices has an infinite loss.
class SlicedLoss {
 public:
  explicit SlicedLoss(const HTensor& labels) : labels_(cast(labels, DType::I64)) {}

  // Adds the scores of classes [from, to). Returns their log-sums.
  HTensor add(const HTensor& scores, int64_t from, int64_t to) {
    const Labels local(labels_ - static_cast<double>(from), to - from);
    const Values found = apply("softmax_cross_entropy", {}, {scores, local.clamped});
    losses_.push_back(column(found[0]));
    sums_.push_back(column(found[1]));
    at_.push_back(column(local.within));
    return found[1];
  }
  Values result() const {
    const HTensor loss = concat(losses_, 1), sum = concat(sums_, 1), here = concat(at_, 1);
    const HTensor largest = stop_gradient(reduce_max(sum, {1}));
    const HTensor log_sum = log(reduce_sum(exp(sum - column(largest)), {1}));
    // The term in parentheses is exact where the label's slice has the largest log-sum, so that no loss is negative.
    const HTensor whole = loss + ((column(largest) - sum) + column(log_sum));
    const HTensor nowhere = full(loss.dtype(), loss.shape(), -std::numeric_limits<double>::infinity());
    const HTensor found = reduce_max(select(here, whole, nowhere), {1});
    return {select(equal(found, -std::numeric_limits<double>::infinity()), -found, found), largest + log_sum};
  }

 private:
  HTensor labels_;
  std::vector<HTensor> losses_, sums_, at_;
};

// Returns loss and lse of these rows.
Values sliced_loss(const Head& h, const HTensor& x, const HTensor& labels) {
  SlicedLoss loss(labels);
  h.each_slice([&](int64_t from, int64_t to) { loss.add(h.capped(h.bent(x, from, to)), from, to); });
  return loss.result();
}

// Returns loss and dx of these rows for a frozen weight; `dloss` is 0 for ignored rows. A slice's scores become the
// shares of its classes in the slice's own sum; averages weighted by these sums need no scores of the whole row. The
// label's row of the weight is added separately, so that its factor p - 1 is not a difference of rounded products.
Values frozen_slices(const Head& h, const HTensor& x, const HTensor& labels, const HTensor& dloss) {
  SlicedLoss loss(labels);
  HTensor mean, log_sum;
  h.each_slice([&](int64_t from, int64_t to) {
    const HTensor bent = h.bent(x, from, to), capped = h.capped(bent);
    const DType type = bent.dtype();
    const HTensor sum = cast(loss.add(capped, from, to), type);
    const HTensor all_shares = exp(capped - column(sum));  // first, so that the chain may overwrite the scores
    const HTensor number = row(iota(type, {to - from}, 0) + static_cast<double>(from));
    const HTensor other = minimum(abs(number - column(cast(labels, type))), 1.0);  // 0 at the label, else 1
    HTensor shares = all_shares * other;
    if (h.softcap > 0) shares = shares * (1.0 - square(bent));
    const HTensor rows = through(shares, rows_of(h.weight, from, to));
    if (!mean) {
      mean = rows, log_sum = sum;
      return;
    }
    const HTensor largest = maximum(log_sum, sum), both = largest + log(exp(log_sum - largest) + exp(sum - largest));
    mean = mean * column(exp(log_sum - both)) + rows * column(exp(sum - both));
    log_sum = both;
  });
  const Values found = loss.result();
  const DType type = mean.dtype();
  const Labels all(cast(labels, DType::I64), h.classes);
  HTensor factor = cast(exp(-found[0]) - 1.0, type);
  if (h.softcap > 0) factor = factor * (1.0 - square(cast(found[1] - found[0], type) / h.softcap));
  factor = select(all.within, factor, zeros_like(factor));
  const HTensor of_labels = cast(one("embedding", {}, {h.weight, all.clamped}), type);
  return {found[0], as_type_of((mean + of_labels * column(factor)) * column(cast(dloss, type)), x)};
}

// Accumulates the gradients of x, weight and bias over chunks of rows.
class HeadGradient {
 public:
  explicit HeadGradient(const Head& head) : head_(head), frozen_(head.frozen || is_stored(head.weight.dtype())) {}

  // Adds these rows, slice by slice of the classes. `dloss` is 0 for ignored rows; `dlse` may be empty. Scores are
  // computed with classes along the first axis, because cse would otherwise keep those of sliced_loss().
  void add_slices(const HTensor& x, const HTensor& labels, const HTensor& lse, const HTensor& dloss,
                  const HTensor& dlse) {
    HTensor dx;
    std::vector<HTensor> dweight, dbias;
    head_.each_slice([&](int64_t from, int64_t to) {
      const HTensor weight = rows_of(head_.weight, from, to);
      HTensor scores = wide(dot(weight, x, {1}, {1}));
      if (!head_.bias.empty()) scores = scores + column(wide(rows_of(head_.bias, from, to)));
      const DType type = scores.dtype();
      const HTensor bent = head_.softcap > 0 ? tanh(scores / head_.softcap) : scores;
      // 1 at the label, else 0, without comparisons: the whole is one chain of operations over the scores.
      const HTensor number = column(iota(type, {to - from}, 0) + static_cast<double>(from));
      const HTensor hit = maximum(1.0 - abs(number - row(cast(labels, type))), 0.0);
      const HTensor shares = dlse.empty() ? dloss : dloss + dlse;
      HTensor d =
          exp(head_.capped(bent) - row(cast(lse, type))) * row(cast(shares, type)) - hit * row(cast(dloss, type));
      if (head_.softcap > 0) d = d * (1.0 - square(bent));
      sum(dx, dot(d, cast(weight, type), {0}, {0}));
      if (!frozen_) dweight.push_back(dot(d, cast(x, type), {1}, {0}));
      if (learns_bias()) dbias.push_back(reduce_sum(d, {1}));
    });
    dx_.push_back(as_type_of(dx, x));
    if (!frozen_) sum(dweight_, joined(dweight));
    if (learns_bias()) sum(dbias_, joined(dbias));
  }
  // Adds rows whose gradient is known; the weight is frozen.
  void add(const HTensor& dx) { dx_.push_back(dx); }

  // Adds a chunk: its rows of x, their bent(), and the gradient of their scores.
  void add(const HTensor& x, const HTensor& bent, const HTensor& dscores) {
    const HTensor d = head_.softcap > 0 ? dscores * (1.0 - square(bent)) : dscores;
    dx_.push_back(as_type_of(through(d, head_.weight), x));
    if (!frozen_) sum(dweight_, dot(d, cast(x, d.dtype()), {0}, {0}));
    if (learns_bias()) sum(dbias_, reduce_sum(d, {0}));
  }
  // Appends dx in the shape of `x`; dweight unless the weight is frozen or of a stored type; and dbias if there is a
  // bias that is not frozen.
  void append(const HTensor& x, Values& results) const {
    results.push_back(reshape(joined(dx_), x.shape()));
    if (!frozen_) results.push_back(as_type_of(dweight_, head_.weight));
    if (learns_bias()) results.push_back(as_type_of(dbias_, head_.bias));
  }

 private:
  bool learns_bias() const { return !head_.bias.empty() && !head_.frozen; }
  static void sum(HTensor& total, const HTensor& more) { total = total ? total + more : more; }

  const Head& head_;
  bool frozen_;
  std::vector<HTensor> dx_;
  HTensor dweight_, dbias_;
};

Values linear_cross_entropy(const AttributeMap& a, Inputs in) {
  const Head h("linear_cross_entropy", a, in, in.size() > 3 ? in[3] : HTensor());
  std::vector<HTensor> losses, sums;
  h.each([&](int64_t from, int64_t to) {
    const HTensor x = rows_of(h.x, from, to), labels = rows_of(h.labels, from, to);
    const Values found =
        h.in_slices() ? sliced_loss(h, x, labels) : apply("softmax_cross_entropy", {}, {h.capped(h.bent(x)), labels});
    losses.push_back(h.counted(labels, found[0]));
    sums.push_back(found[1]);
  });
  return {reshape(joined(losses), in[2].shape()), reshape(joined(sums), in[2].shape())};
}
Values linear_cross_entropy_gradient(const AttributeMap& a, Inputs in, Inputs out, Inputs gradients) {
  std::vector<HTensor> operands{in[0], in[1], in[2], out[1], or_zero(gradients[0], out[0])};
  std::string names;
  if (gradients[1]) operands.push_back(gradients[1]), names = "dlse";
  if (in.size() > 3) operands.push_back(in[3]), names += names.empty() ? "bias" : ",bias";
  AttributeMap how = a;
  if (!names.empty()) how.set("operands", names);
  const Values found = apply("linear_cross_entropy_grad", how, operands);
  const bool frozen = is_stored(in[1].dtype());
  Values result{found[0], frozen ? HTensor() : found[1], HTensor()};
  if (in.size() > 3) result.push_back(found[frozen ? 1 : 2]);
  return result;
}
Values linear_cross_entropy_grad(const AttributeMap& a, Inputs in) {
  const OptionalInputs more("linear_cross_entropy_grad", a, in, 5, {"dlse", "bias"});
  const Head h("linear_cross_entropy_grad", a, in, more.find("bias"));
  const HTensor lse = reshape(in[3], {h.rows}), dloss = reshape(in[4], {h.rows}), &dlse = more.find("dlse");
  HeadGradient sum(h);
  h.each([&](int64_t from, int64_t to) {
    const HTensor x = rows_of(h.x, from, to), labels = rows_of(h.labels, from, to);
    if (h.in_slices()) {
      const HTensor of_lse = dlse.empty() ? HTensor() : rows_of(reshape(dlse, {h.rows}), from, to);
      return sum.add_slices(x, labels, rows_of(lse, from, to), h.counted(labels, rows_of(dloss, from, to)), of_lse);
    }
    const HTensor bent = h.bent(x), scores = h.capped(bent);
    HTensor dscores = one("softmax_cross_entropy_grad", {},
                          {scores, labels, rows_of(lse, from, to), h.counted(labels, rows_of(dloss, from, to))});
    if (!dlse.empty())
      dscores = dscores + one("softmax", {}, {scores}) * column(rows_of(reshape(dlse, {h.rows}), from, to));
    sum.add(x, bent, dscores);
  });
  Values results;
  sum.append(in[0], results);
  return results;
}

// Computes the loss and its gradients for a dloss known in advance, so that chunks of rows
// compute their scores only once.
Values linear_cross_entropy_step(const AttributeMap& a, Inputs in) {
  const Head h("linear_cross_entropy_step", a, in, in.size() > 4 ? in[4] : HTensor(), a.flag("frozen"));
  const HTensor dloss = reshape(in[3], {h.rows});
  std::vector<HTensor> losses;
  HeadGradient sum(h);
  h.each([&](int64_t from, int64_t to) {
    const HTensor x = rows_of(h.x, from, to), labels = rows_of(h.labels, from, to);
    if (h.in_slices() && h.frozen) {
      const Values found = frozen_slices(h, x, labels, h.counted(labels, rows_of(dloss, from, to)));
      losses.push_back(h.counted(labels, found[0]));
      return sum.add(found[1]);
    }
    if (h.in_slices()) {
      const Values found = sliced_loss(h, x, labels);
      losses.push_back(h.counted(labels, found[0]));
      return sum.add_slices(x, labels, found[1], h.counted(labels, rows_of(dloss, from, to)), {});
    }
    const HTensor bent = h.bent(x), scores = h.capped(bent);
    const Values found = apply("softmax_cross_entropy", {}, {scores, labels});
    losses.push_back(h.counted(labels, found[0]));
    sum.add(
        x, bent,
        one("softmax_cross_entropy_grad", {}, {scores, labels, found[1], h.counted(labels, rows_of(dloss, from, to))}));
  });
  Values results{reshape(joined(losses), in[2].shape())};
  sum.append(in[0], results);
  return results;
}

#define HM_CHUNKS                                                                                                    \
  "chunk = 0 in 0.. (rows per chunk; 0: an eighth of all rows, at least 128), slice = 0 in 0.. (classes per slice; " \
  "0: an eighth of all classes if there are fewer than 1,024 rows, else all), ignored: int? (label of the rows to "  \
  "ignore), softcap = 0.0 in 0.. (scores become softcap tanh(score / softcap); 0: unchanged)"

}  // namespace

std::vector<Functional> heads() {
  return {
      {"linear_cross_entropy",
       "cross entropy of the scores of a linear map, computed in chunks so that the scores are never stored as a whole",
       "x [..., in], weight [classes, in], labels [...] < classes, bias [classes]? {" HM_CHUNKS
       "} -> loss [...], lse [...]; lse is log(sum(exp)) of a row's scores",
       linear_cross_entropy,
       linear_cross_entropy_gradient,
       {.joins = {"linear", "softmax_cross_entropy"}, .part = BlockPart::product}},
      {"linear_cross_entropy_grad", "gradient of linear_cross_entropy; recomputes the scores",
       "x [..., in], weight [classes, in], labels [...] < classes, lse [...], dloss [...], dlse [...]?, bias "
       "[classes]? "
       "{" HM_CHUNKS
       ", operands = \"\" (names of the optional inputs that are given, in order)} -> dx like x, dweight like weight?, "
       "dbias?; dweight is absent if the weight has a stored type",
       linear_cross_entropy_grad, nullptr},
      {"linear_cross_entropy_step",
       "linear_cross_entropy and its gradient for a known dloss",
       "x [..., in], weight [classes, in], labels [...] < classes, dloss [...], bias [classes]? {" HM_CHUNKS
       ", frozen = false (only x has a gradient; slices have a sixteenth of the classes)} -> loss [...], dx like x, "
       "dweight like "
       "weight?, dbias?; dweight is absent if the weight has a stored type, dweight and dbias if frozen",
       linear_cross_entropy_step,
       nullptr,
       {.joins = {"linear", "softmax_cross_entropy_grad"}, .part = BlockPart::product}},
  };
}

}  // namespace harmonics::engine::reference
