// The last linear map of a language model and the cross entropy of its scores. Works in chunks of rows, so that the
// scores of all rows never exist at once.
#include <algorithm>

#include <harmonics/element_type.hpp>

#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {
namespace {

// Returns the number of rows per chunk: an eighth of all, or a sixteenth if both the scores and their cap are needed.
// The gradient overwrites the scores. A chunk has enough rows to be worth reading the weight.
int64_t chunk_of(const AttributeMap& a, int64_t rows, int64_t classes) {
  constexpr int64_t kLeastScores = 1 << 18, kLeastRows = 128;
  int64_t chunk = a.integer("chunk", 0);
  if (chunk == 0) {
    const int64_t chunks = a.number("softcap", 0) > 0 ? 16 : 8;
    chunk = std::max({(rows + chunks - 1) / chunks, kLeastScores / std::max<int64_t>(classes, 1), kLeastRows});
    chunk = (chunk + 15) / 16 * 16;
  }
  return std::clamp<int64_t>(chunk, 1, std::max<int64_t>(rows, 1));
}

// The operands of a call, with x as [rows, in].
struct Head {
  const AttributeMap& attributes;
  HTensor x, weight, labels, bias;
  int64_t rows, classes;
  double softcap;

  Head(const char* name, const AttributeMap& a, Inputs in, const HTensor& given_bias)
      : attributes(a), weight(in[1]), bias(given_bias), softcap(a.number("softcap", 0)) {
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
  }

  // Calls f(first row, end) for each chunk.
  template <typename F>
  void each(F f) const {
    const int64_t chunk = chunk_of(attributes, rows, classes);
    for (int64_t at = 0; at < rows; at += chunk) f(at, std::min(rows, at + chunk));
  }
  // bent() returns tanh(scores / softcap) of the rows, or the scores without a cap; capped() returns the scores from
  // it.
  HTensor bent(const HTensor& rows_of_x) const {
    std::vector<HTensor> operands{rows_of_x, weight};
    if (!bias.empty()) operands.push_back(bias);
    const HTensor scores = wide(one("linear", {}, operands));
    return softcap > 0 ? tanh(scores / softcap) : scores;
  }
  HTensor capped(const HTensor& bent) const { return softcap > 0 ? bent * softcap : bent; }
  // Returns the values, or 0 where the label is ignored.
  HTensor counted(const HTensor& of_labels, const HTensor& values) const {
    if (!attributes.has("ignored")) return values;
    const auto ignored = static_cast<double>(attributes.integer("ignored"));
    return select(equal(cast(of_labels, DType::I64), ignored), zeros_like(values), values);
  }
};

HTensor rows_of(const HTensor& x, int64_t from, int64_t to) { return slice_axis(x, 0, from, to); }
HTensor joined(const std::vector<HTensor>& parts) { return parts.size() == 1 ? parts[0] : concat(parts, 0); }

// Accumulates the gradients of x, weight and bias over chunks of rows.
class HeadGradient {
 public:
  explicit HeadGradient(const Head& head) : head_(head), frozen_(is_stored(head.weight.dtype())) {}

  // Adds a chunk: its rows of x, their bent(), and the gradient of their scores.
  void add(const HTensor& x, const HTensor& bent, const HTensor& dscores) {
    const HTensor d = head_.softcap > 0 ? dscores * (1.0 - square(bent)) : dscores;
    dx_.push_back(as_type_of(dot(d, cast(head_.weight, d.dtype()), {1}, {0}), x));
    if (!frozen_) sum(dweight_, dot(d, cast(x, d.dtype()), {0}, {0}));
    if (!head_.bias.empty()) sum(dbias_, reduce_sum(d, {0}));
  }
  // Appends dx in the shape of `x`, dweight unless the weight is of a stored type, and dbias if there is a bias.
  void append(const HTensor& x, Values& results) const {
    results.push_back(reshape(joined(dx_), x.shape()));
    if (!frozen_) results.push_back(as_type_of(dweight_, head_.weight));
    if (!head_.bias.empty()) results.push_back(as_type_of(dbias_, head_.bias));
  }

 private:
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
    const HTensor labels = rows_of(h.labels, from, to);
    const Values found = apply("softmax_cross_entropy", {}, {h.capped(h.bent(rows_of(h.x, from, to))), labels});
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

// Computes the loss and its gradients for a dloss known in advance, so that scores are computed only once.
Values linear_cross_entropy_step(const AttributeMap& a, Inputs in) {
  const Head h("linear_cross_entropy_step", a, in, in.size() > 4 ? in[4] : HTensor());
  const HTensor dloss = reshape(in[3], {h.rows});
  std::vector<HTensor> losses;
  HeadGradient sum(h);
  h.each([&](int64_t from, int64_t to) {
    const HTensor x = rows_of(h.x, from, to), labels = rows_of(h.labels, from, to);
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

#define HM_CHUNKS                                                                                                   \
  "chunk = 0 in 0.. (rows per chunk; 0: an eighth of all rows, at least 128), ignored: int? (label of the rows to " \
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
       "} -> loss [...], dx like x, dweight like weight?, dbias?; dweight is absent if the weight has a stored type",
       linear_cross_entropy_step,
       nullptr,
       {.joins = {"linear", "softmax_cross_entropy_grad"}, .part = BlockPart::product}},
  };
}

}  // namespace harmonics::engine::reference
