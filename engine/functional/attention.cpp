#include <cmath>
#include <limits>

#include <harmonics/element_type.hpp>

#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {
namespace {

constexpr double kUnseen = -std::numeric_limits<double>::infinity();

OptionalInputs optional_inputs(const char* name, const AttributeMap& a, Inputs in, size_t fixed) {
  if (fixed > 3) return {name, a, in, fixed, {"lengths", "mask", "bias", "sinks", "documents"}};  // of the gradient
  return {name, a, in, fixed, {"lengths", "mask", "bias", "sinks", "pages", "documents"}};
}

// Rewrites a call whose keys and values are in pages of pools as a call on the keys and values of each batch item.
class Paged {
 public:
  // Requires that `more` has pages.
  Paged(const AttributeMap& a, Inputs in, const OptionalInputs& more)
      : first_(a.flag("positions_first")), like_(in[0]) {
    const Shape ks = in[1].shape(), vs = in[2].shape();
    const HTensor& pages = more.find("pages");
    const uint32_t rows = first_ ? 1 : 2;
    expect(in[0].rank() == 4 && ks.rank() == 4 && vs.rank() == 4 && ks[0] == vs[0] && ks[0] > 0 && ks[rows] == vs[rows],
           "attention",
           "with pages k " + text_of(in[1]) + " and v " + text_of(in[2]) +
               (first_ ? " are pools [P, R, Hkv, D]" : " are pools [P, Hkv, R, D]"));
    batch_ = in[0].shape()[0];
    expect(pages.dtype() == DType::I32 && pages.rank() == 2 && pages.shape()[0] == batch_ && pages.shape()[1] > 0,
           "attention",
           "pages are i32[" + std::to_string(batch_) + ", N], the pages of each batch item, not " + text_of(pages));
    table_ = minimum(maximum(pages, 0.0), static_cast<double>(ks[0] - 1));
    attributes = a;
    std::string names;
    for (const std::string& name : more.names()) {
      if (name == "pages")
        at_ = 3 + static_cast<size_t>(&name - more.names().data());
      else
        names += (names.empty() ? "" : ",") + name;
    }
    attributes.set("operands", names);
    for (size_t i = 0; i < in.size(); ++i)
      if (i != at_) inputs.push_back(i == 1 || i == 2 ? gathered(in[i]) : in[i]);
  }

  AttributeMap attributes;
  Values inputs;
  size_t at() const { return at_; }  // index of pages among the inputs

  // Returns the gradient of a pool from the gradient of the gathered keys or values. A pool of a stored type has none.
  HTensor scattered(const HTensor& pool, const HTensor& gradient) const {
    if (is_stored(pool.dtype())) return {};
    const Shape s = pool.shape();
    const int64_t n = table_.shape()[1];
    const HTensor pages = first_ ? reshape(gradient, {batch_, n, s[1], s[2], s[3]})
                                 : transpose(reshape(gradient, {batch_, s[1], n, s[2], s[3]}), {0, 2, 1, 3, 4});
    return scatter_add(zeros_like(pool), table_, as_type_of(pages, pool));
  }

 private:
  // Gathers [P, R, Hkv, D] -> [B, N R, Hkv, D], or [P, Hkv, R, D] -> [B, Hkv, N R, D].
  HTensor gathered(const HTensor& pool) const {
    const Shape s = pool.shape();
    const int64_t n = table_.shape()[1];
    const HTensor pages = gather(is_stored(pool.dtype()) ? wide(pool, like_) : pool, table_);
    return first_ ? reshape(pages, {batch_, n * s[1], s[2], s[3]})
                  : reshape(transpose(pages, {0, 2, 1, 3, 4}), {batch_, s[1], n * s[2], s[3]});
  }

  bool first_;
  HTensor like_, table_;
  int64_t batch_ = 0;
  size_t at_ = 0;
};

// Sizes of an attention. A group of query heads shares one head of keys and values.
struct Heads {
  int64_t batch, shared, group, queries, width, keys, value_width, window;
  double scale, softcap;
  bool causal;
  HTensor lengths, mask, bias, sinks;  // broadcast with scores [B, Hkv, group, T, S]; empty if not given
  HTensor together;                    // likewise: whether query and key are in the same document

  Heads(const char* name, const AttributeMap& a, const HTensor& q, const HTensor& k, const HTensor& v,
        const OptionalInputs& more) {
    const Shape qs = q.shape(), ks = k.shape(), vs = v.shape();
    expect(qs.rank() == 4 && ks.rank() == 4 && vs.rank() == 4 && qs[0] == ks[0] && qs[0] == vs[0] && ks[1] == vs[1] &&
               ks[1] > 0 && qs[1] % ks[1] == 0 && qs[3] == ks[3] && ks[2] == vs[2],
           name,
           "q " + text_of(q) + ", k " + text_of(k) + " and v " + text_of(v) +
               " do not fit: q is [B, H, T, D], k and v [B, Hkv, S, D], and Hkv divides H");
    batch = qs[0];
    shared = ks[1];
    group = qs[1] / ks[1];
    queries = qs[2];
    width = qs[3];
    keys = ks[2];
    value_width = vs[3];
    scale = a.number("scale", 1 / std::sqrt(static_cast<double>(width)));
    causal = a.flag("causal");
    window = a.integer("window", 0);
    softcap = a.number("softcap", 0);
    take_optional(name, q, more);
  }

  // [B, H, T, ...] -> [B, Hkv, group, T, ...]; join() does the reverse.
  HTensor split(const HTensor& x) const {
    std::vector<int64_t> dims{batch, shared, group};
    for (int64_t d : x.shape().from(2)) dims.push_back(d);
    return reshape(x, Shape(dims));
  }
  HTensor join(const HTensor& x) const {
    std::vector<int64_t> dims{batch, shared * group};
    for (int64_t d : x.shape().from(3)) dims.push_back(d);
    return reshape(x, Shape(dims));
  }
  // Returns whether a query may see no key. The mask is aligned at the lower right corner: the last query sees all
  // keys.
  bool has_blind() const { return (causal && queries > keys) || !lengths.empty() || !mask.empty() || !bias.empty(); }
  // Returns keys or values [B, Hkv, S, ...] with zeros beyond the lengths, where memory is undefined.
  HTensor valid(const HTensor& x) const {
    if (lengths.empty()) return x;
    const HTensor inside = less(iota(DType::I64, {keys, 1}, 0), reshape(lengths, {batch, 1, 1, 1}));
    return select(inside, x, zeros_like(x));
  }
  // Returns the products of queries and keys: tanh(q k' scale / softcap), or q k' scale.
  HTensor products(const HTensor& q, const HTensor& k) const {
    const HTensor s = dot(split(q), k, {4}, {3}, {0, 1}, {0, 1}) * scale;
    return softcap > 0 ? tanh(s / softcap) : s;
  }
  // Returns masked scores [B, Hkv, group, T, S] from the products.
  HTensor scores(const HTensor& products) const {
    HTensor s = softcap > 0 ? products * softcap : products;
    if (!bias.empty()) s = s + cast(bias, s.dtype());
    HTensor seen;
    const auto restrict = [&](const HTensor& more) { seen = seen ? logical_and(seen, more) : more; };
    const Shape table{queries, keys};
    const auto position = [&] {  // position of a query
      const HTensor t = iota(DType::I64, table, 0);
      return lengths.empty() ? t + static_cast<double>(keys - queries) : t + (lengths - static_cast<double>(queries));
    };
    if (!lengths.empty()) restrict(less(iota(DType::I64, table, 1), lengths));
    if (causal) restrict(less_equal(iota(DType::I64, table, 1), position()));
    if (window > 0) restrict(less(position() - static_cast<double>(window), iota(DType::I64, table, 1)));
    if (!mask.empty()) restrict(mask);
    if (!together.empty()) restrict(together);
    return seen ? select(seen, s, full(s.dtype(), s.shape(), kUnseen)) : s;
  }
  // Replaces the -inf of queries that see no key by 0, so that exp(-inf - x) is 0 and not NaN.
  HTensor finite(const HTensor& x) const { return has_blind() ? select(equal(x, kUnseen), zeros_like(x), x) : x; }
  // Normalises by the sum of the exponentials, because lse is rounded to the precision of the largest score. lse marks
  // queries that see no key. With sinks, the last column is the probability of the sink.
  HTensor probabilities(const HTensor& scores, const HTensor& lse) const {
    HTensor all = scores;
    if (!sinks.empty()) all = concat({scores, broadcast(column(cast(sinks, scores.dtype())), ends())}, 4);
    const HTensor p = one("softmax", {}, {all});
    if (!has_blind()) return p;
    return select(equal(column(split(lse)), kUnseen), zeros_like(p), p);
  }
  Shape ends() const { return {batch, shared, group, queries, 1}; }

 private:
  void take_optional(const char* name, const HTensor& q, const OptionalInputs& more) {
    if (const HTensor& given = more.find("lengths"); !given.empty()) {
      expect(given.dtype() == DType::I32 && given.shape() == Shape{batch}, name,
             "lengths are i32[" + std::to_string(batch) + "], the number of valid keys of each batch item, not " +
                 text_of(given));
      const HTensor most = minimum(maximum(given, 0.0), static_cast<double>(keys));
      lengths = reshape(cast(most, DType::I64), {batch, 1, 1, 1, 1});
    }
    if (const HTensor& given = more.find("documents"); !given.empty()) {
      expect(given.dtype() == DType::I32 && queries == keys && given.shape() == Shape{batch, queries}, name,
             "documents are i32[" + std::to_string(batch) + ", " + std::to_string(queries) +
                 "], the number of the document at each of as many positions of queries and keys, not " +
                 text_of(given));
      const HTensor run = run_of(given);
      together = equal(reshape(run, {batch, 1, 1, queries, 1}), reshape(run, {batch, 1, 1, 1, queries}));
    }
    if (const HTensor& given = more.find("mask"); !given.empty()) {
      expect(given.dtype() == DType::Bool, name, "mask is bool, not " + text_of(given) + "; bias is added to scores",
             ErrorKind::Type);
      mask = by_score(name, "mask", given);
    }
    if (const HTensor& given = more.find("bias"); !given.empty()) {
      expect(is_float(given.dtype()), name, "bias is of a float type, not " + text_of(given), ErrorKind::Type);
      bias = by_score(name, "bias", given);
    }
    if (const HTensor& given = more.find("sinks"); !given.empty()) {
      expect(is_float(given.dtype()) && given.shape() == Shape{shared * group}, name,
             "sinks are a score of each head of q " + text_of(q) + ", not " + text_of(given));
      sinks = reshape(given, {1, shared, group, 1});
    }
  }
  // Numbers the documents: counts for each position how often `numbers` has changed before it.
  HTensor run_of(const HTensor& numbers) const {
    if (queries == 1) return numbers;
    const HTensor same = equal(slice_axis(numbers, 1, 1, queries), slice_axis(numbers, 1, 0, queries - 1));
    return cumsum(concat({full(DType::I32, {batch, 1}, 0), cast(logical_not(same), DType::I32)}, 1), 1);
  }
  HTensor by_score(const char* name, const char* operand, const HTensor& x) const {
    const Shape s = x.shape();
    if (s == Shape{queries, keys}) return x;
    const bool heads = s.rank() == 4 && s[1] == shared * group;
    expect(s.rank() == 4 && s[0] == batch && (s[1] == 1 || heads) && s[2] == queries && s[3] == keys, name,
           std::string(operand) + " is [T, S] or [B, 1 or H, T, S], not " + text_of(x));
    return reshape(x, heads ? Shape{batch, shared, group, queries, keys} : Shape{batch, 1, 1, queries, keys});
  }
};

// Swaps [B, T, H, D] and [B, H, T, D].
HTensor swapped(const HTensor& x) { return transpose(x, {0, 2, 1, 3}); }
AttributeMap heads_first(const AttributeMap& a) { return AttributeMap(a).set("positions_first", false); }

// A query that sees no key gives 0 and lse -inf.
Values attention(const AttributeMap& a, Inputs in) {
  const OptionalInputs more = optional_inputs("attention", a, in, 3);
  if (more.has("pages")) {
    const Paged paged(a, in, more);
    return attention(paged.attributes, paged.inputs);
  }
  if (a.flag("positions_first")) {
    std::vector<HTensor> rows(in.begin(), in.end());
    for (size_t i = 0; i < 3; ++i) {
      expect(rows[i].rank() == 4, "attention", "q, k and v have four axes, not " + text_of(rows[i]));
      rows[i] = swapped(is_stored(rows[i].dtype()) ? wide(rows[i], in[0]) : rows[i]);
    }
    const Values result = attention(heads_first(a), rows);
    return {swapped(result[0]), result[1]};
  }
  const Heads h("attention", a, in[0], in[1], in[2], more);
  const HTensor q = wide(in[0]), scores = h.scores(h.products(q, h.valid(wide(in[1], in[0]))));
  HTensor most = reduce_max(scores, {4}), sinks;
  if (!h.sinks.empty()) {
    sinks = cast(h.sinks, scores.dtype());
    most = maximum(most, sinks);
  }
  const HTensor largest = h.finite(stop_gradient(most));
  const HTensor e = exp(scores - column(largest));
  HTensor sum = reduce_sum(e, {4});
  if (sinks) sum = sum + exp(sinks - largest);
  const HTensor lse = log(sum) + largest;
  const HTensor divisor = h.has_blind() ? select(equal(sum, 0.0), full(sum.dtype(), sum.shape(), 1), sum) : sum;
  const HTensor v = h.valid(wide(in[2], in[0]));
  const HTensor out = dot(e, v, {4}, {2}, {0, 1}, {0, 1}) / column(divisor);
  return {as_type_of(h.join(out), in[0]), h.join(lse)};
}

// Returns the part of the gradient of the scores that belongs to products of queries and keys. Appends the gradients of
// bias and sinks to `rest`, in the order of the optional inputs.
HTensor through_optional(const Heads& h, const OptionalInputs& more, const HTensor& products, const HTensor& dscores,
                         Values& rest) {
  HTensor ds = dscores;
  if (!h.sinks.empty()) ds = slice_axis(dscores, 4, 0, h.keys);
  for (const std::string& name : more.names()) {
    const HTensor& given = more.find(name);
    if (name == "sinks") {
      const HTensor last = slice_axis(dscores, 4, h.keys, h.keys + 1);
      rest.push_back(as_type_of(reshape(reduce_sum(last, {0, 3, 4}), given.shape()), given));
    } else if (name == "bias") {
      std::vector<int64_t> axes;
      if (given.rank() == 2) axes = {0, 1, 2};
      if (given.rank() == 4 && given.shape()[1] == 1) axes = {1, 2};
      rest.push_back(as_type_of(reshape(axes.empty() ? ds : reduce_sum(ds, axes), given.shape()), given));
    }
  }
  return h.softcap > 0 ? ds * (1.0 - square(products)) : ds;
}

// Returns the gradients of q, k, then bias and sinks caused by dlse: probabilities times dlse are added to the gradient
// of the scores.
Values through_lse(const Heads& h, const OptionalInputs& more, Inputs in, const HTensor& lse, const HTensor& dlse) {
  const HTensor q = wide(in[0]), k = h.valid(wide(in[1], in[0])), products = h.products(q, k);
  Values rest;
  const HTensor ds =
      through_optional(h, more, products, h.probabilities(h.scores(products), lse) * column(h.split(dlse)), rest);
  Values result{as_type_of(h.join(dot(ds, k, {4}, {2}, {0, 1}, {0, 1})) * h.scale, in[0]),
                as_type_of(dot(ds, h.split(q), {2, 3}, {2, 3}, {0, 1}, {0, 1}) * h.scale, in[1])};
  result.insert(result.end(), rest.begin(), rest.end());
  return result;
}
Values attention_gradient(const AttributeMap& a, Inputs in, Inputs out, Inputs gradients) {
  const OptionalInputs more = optional_inputs("attention", a, in, 3);
  if (more.has("pages")) {
    const Paged paged(a, in, more);
    Values result = attention_gradient(paged.attributes, paged.inputs, out, gradients);
    for (size_t i : {1, 2}) result[i] = paged.scattered(in[i], result[i]);
    result.insert(result.begin() + static_cast<std::ptrdiff_t>(paged.at()), HTensor());
    return result;
  }
  if (is_stored(in[1].dtype()) || is_stored(in[2].dtype())) {  // a cache; it has no gradient
    std::vector<HTensor> wider(in.begin(), in.end());
    for (size_t i : {1, 2}) wider[i] = wide(in[i], in[0]);
    Values result = attention_gradient(a, wider, out, gradients);
    for (size_t i : {1, 2})
      if (is_stored(in[i].dtype())) result[i] = HTensor();
    return result;
  }
  std::vector<HTensor> operands{in[0], in[1], in[2], out[0], out[1], or_zero(gradients[0], out[0])};
  operands.insert(operands.end(), in.begin() + 3, in.end());
  Values found = apply("attention_grad", a, operands);  // dq, dk, dv, gradients of bias and sinks
  if (gradients[1]) {
    const bool first = a.flag("positions_first");
    std::vector<HTensor> rows(in.begin(), in.end());
    for (size_t i = 0; first && i < 3; ++i) rows[i] = swapped(rows[i]);
    const Values also =
        through_lse(Heads("attention", a, rows[0], rows[1], rows[2], more), more, rows, out[1], gradients[1]);
    for (size_t i = 0; i < 2; ++i) found[i] = found[i] + (first ? swapped(also[i]) : also[i]);
    for (size_t i = 2; i < also.size(); ++i) found[i + 1] = found[i + 1] + also[i];
  }
  Values result(found.begin(), found.begin() + 3);
  size_t next = 3;
  for (const std::string& name : more.names())
    result.push_back(name == "bias" || name == "sinks" ? found[next++] : HTensor());
  return result;
}
// softmax_grad uses sum(p dp). It equals dp if a query sees a single key, so that its gradients are exactly 0; sum(dout
// out) would leave a rounding error.
Values attention_grad(const AttributeMap& a, Inputs in) {
  const OptionalInputs more = optional_inputs("attention_grad", a, in, 6);
  if (a.flag("positions_first")) {
    std::vector<HTensor> rows(in.begin(), in.end());
    for (size_t i : {0, 1, 2, 3, 5}) rows[i] = swapped(rows[i]);
    Values result = attention_grad(heads_first(a), rows);
    for (size_t i = 0; i < 3; ++i) result[i] = swapped(result[i]);
    return result;
  }
  const Heads h("attention_grad", a, in[0], in[1], in[2], more);
  const HTensor q = wide(in[0]), k = h.valid(wide(in[1], in[0])), v = h.valid(wide(in[2], in[0])), dout = wide(in[5]);
  const HTensor products = h.products(q, k), p_all = h.probabilities(h.scores(products), in[4]);
  const HTensor p = h.sinks.empty() ? p_all : slice_axis(p_all, 4, 0, h.keys);
  const HTensor dout_heads = h.split(dout);
  const HTensor dv = dot(p, dout_heads, {2, 3}, {2, 3}, {0, 1}, {0, 1});
  HTensor dp = dot(dout_heads, v, {4}, {3}, {0, 1}, {0, 1});
  if (!h.sinks.empty()) dp = concat({dp, full(dp.dtype(), h.ends(), 0)}, 4);
  Values rest;
  const HTensor ds = through_optional(h, more, products, one("softmax_grad", {}, {p_all, dp}), rest) * h.scale;
  const HTensor dq = h.join(dot(ds, k, {4}, {2}, {0, 1}, {0, 1}));
  const HTensor dk = dot(ds, h.split(q), {2, 3}, {2, 3}, {0, 1}, {0, 1});
  Values result{as_type_of(dq, in[0]), as_type_of(dk, in[1]), as_type_of(dv, in[2])};
  result.insert(result.end(), rest.begin(), rest.end());
  return result;
}

#define HM_ATTRIBUTES                                                                                             \
  "{causal = false, scale: float? (1/sqrt(D) if absent), positions_first = false (q, k and v are [B, T, H, D]), " \
  "window = 0 in 0.. since 1.5 (number of keys that a query attends to; 0: all), softcap = 0.0 in 0.. since 1.5 " \
  "(scores become softcap tanh(score / softcap); 0: unchanged), "                                                 \
  "operands = \"\" since 1.5 (names of the optional inputs that are given, in order: \"lengths,mask\")}"

}  // namespace

std::vector<Functional> attentions() {
  Functional forward{
      "attention",
      "softmax(scale q k') v for each head; lse is log(sum(exp)) of a row of scores; causal: the last query attends to "
      "all keys; lengths: keys from lengths[b] on are masked, and with causal the last query is at the last valid key; "
      "pages: k and v are pools [P, R, Hkv, D] or [P, Hkv, R, D], key s of item b is row s % R of page pages[b, s / "
      "R], and an invalid page number reads the nearest page; documents: a query attends to the keys of its own "
      "document, a run of equal numbers",
      "q [B, H, T, D], k [B, Hkv, S, D], v [B, Hkv, S, D], lengths i32 [B]?, mask bool [T, S] or [B, 1 or H, T, S]?, "
      "bias like mask?, sinks [H]?, pages i32 [B, N]?, "
      "documents i32 [B, T]? " HM_ATTRIBUTES " -> out like q, lse [B, H, T]",
      attention,
      attention_gradient,
      {.part = BlockPart::attention}};
  Functional backward{"attention_grad", "gradient of attention, from its results out and lse",
                      "q, k, v, out [B, H, T, D], lse [B, H, T], dout [B, H, T, D], lengths?, mask?, bias?, sinks?, "
                      "documents? " HM_ATTRIBUTES " -> dq, dk, dv, dbias?, dsinks?",
                      attention_grad, nullptr};
  return {std::move(forward), std::move(backward)};
}

}  // namespace harmonics::engine::reference
