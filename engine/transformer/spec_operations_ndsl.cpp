// Further spec operations, used by `.ndsl` models.
#include <cmath>
#include <limits>

#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/contract/plugin_functions.hpp"
#include "engine/tensor/attributes.hpp"
#include "engine/transformer/named_activation.hpp"
#include "engine/transformer/spec_trace.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

// Gains are stored minus 1, as in Gemma.
void trace_offset_rms_norm(SpecTrace& t) {
  const HTensor gain = t.weight("weight");
  if (!gain) t.fail("needs the tensor of 'weight', which the file lacks");
  t.set(apply("rms_norm", AttributeMap().set("epsilon", t.real("epsilon")), {t.value("in"), gain + 1.0}).at(0));
}

void trace_offset_layer_norm(SpecTrace& t) {
  const HTensor gain = t.weight("weight");
  if (!gain) t.fail("needs the tensor of 'weight', which the file lacks");
  HTensor bias = t.has("bias") ? t.weight("bias") : HTensor();
  if (!bias) bias = zeros_like(gain);
  t.set(apply("layer_norm", AttributeMap().set("epsilon", t.real("epsilon")), {t.value("in"), gain + 1.0, bias}).at(0));
}

// Calls any functional with a value and weights, or an activation with a value. It must have one result.
void trace_call(SpecTrace& t) {
  const std::string name = t.text("function");
  std::vector<HTensor> inputs{t.value("in")};
  if (t.has("weights")) {
    const std::string names = t.text("weights");
    for (size_t from = 0; from < names.size();) {
      const size_t comma = std::min(names.find(',', from), names.size());
      inputs.push_back(t.named_weight(names.substr(from, comma - from)));
      from = comma + 1;
    }
  }
  const std::vector<std::pair<std::string, specs::Value>> given = t.fields_with("attribute.");
  if (const ItemPtr activation = activation_named(name)) {
    if (inputs.size() > 1) t.fail(fmt::format("calls the activation {} with weights", shown_name(name)));
    std::vector<WrittenArgument> arguments;
    for (const auto& [key, value] : given) arguments.push_back({key, {}, written_value(value, {})});
    return t.set(call_activation(activation, bind_arguments(*activation, arguments).values, inputs[0]));
  }
  AttributeMap how;
  for (const auto& [key, value] : given) std::visit([&, &of = key](const auto& v) { how.set(of, v); }, value);
  const std::vector<HTensor> results = apply(name, how, inputs);
  if (results.size() != 1)
    t.fail(fmt::format("calls {}, which has {} results; one is needed", shown_name(name), results.size()));
  t.set(results[0]);
}

void trace_sigmoid(SpecTrace& t) { t.set(logistic(t.value("in"))); }
void trace_tanh(SpecTrace& t) { t.set(tanh(t.value("in"))); }

// Takes `a` where the condition is above a number, and `b` elsewhere. A condition with fewer axes, or with axes of one
// number, holds for all numbers of those axes.
void trace_select(SpecTrace& t) {
  const HTensor condition = t.value("in"), a = t.value("a"), b = t.value("b");
  if (a.shape() != b.shape())
    t.fail(fmt::format("takes two values of one shape; {} and {} differ", a.shape().str(), b.shape().str()));
  Shape shape = condition.shape();
  while (shape.rank() < a.rank()) shape.push_back(1);
  bool fits = shape.rank() == a.rank();
  for (uint32_t i = 0; fits && i < shape.rank(); ++i) fits = shape[i] == a.shape()[i] || (i > 0 && shape[i] == 1);
  if (!fits)
    t.fail(fmt::format("takes a condition of the shape {}, or with axes of one number, not {}", a.shape().str(),
                       condition.shape().str()));
  t.set(select(less(t.has("above") ? t.real("above") : 0.0, reshape(condition, shape)), a, b));
}

void trace_dropout(SpecTrace& t) { t.set(t.dropped(t.value("in"), t.real("rate"))); }

// Returns the attention mask of queries [T] over keys [T], with axes of size 1 where scores share the mask; empty if
// nothing is masked.
HTensor seen_keys(SpecTrace& t, int64_t tokens, bool causal) {
  const Shape table{1, 1, 1, tokens, tokens};
  const HTensor query = iota(DType::I32, table, 3), key = iota(DType::I32, table, 4);
  HTensor seen;
  const auto restrict = [&](const HTensor& more) { seen = seen ? logical_and(seen, more) : more; };
  if (causal) restrict(less_equal(key, query));
  if (t.has("window"))
    if (const int64_t window = t.whole("window"); window > 0) restrict(less(query - static_cast<double>(window), key));
  if (const HTensor& documents = t.documents()) {
    const int64_t batch = documents.shape()[0];
    HTensor run = full(DType::I32, Shape{batch, 1}, 0);
    if (tokens > 1) {
      const HTensor same = equal(slice_axis(documents, 1, 1, tokens), slice_axis(documents, 1, 0, tokens - 1));
      run = cumsum(concat({run, cast(logical_not(same), DType::I32)}, 1), 1);
    }
    restrict(equal(reshape(run, Shape{batch, 1, 1, tokens, 1}), reshape(run, Shape{batch, 1, 1, 1, tokens})));
  }
  return seen;
}

}  // namespace

// Written with primitives, because kernels of the attention functional never store all probabilities [batch, heads, T,
// T], and so cannot apply dropout to them.
HTensor attention_with_dropout(SpecTrace& t, double rate, bool causal) {
  const HTensor q = t.value("q"), k = t.value("k"), v = t.value("v");
  const int64_t batch = q.shape()[0], tokens = q.shape()[1], heads = q.shape()[2], width = q.shape()[3];
  const int64_t shared = k.shape()[2], group = heads / shared;
  const auto first = [](const HTensor& x) { return transpose(x, {0, 2, 1, 3}); };
  const double scale = t.has("scale") ? t.real("scale") : 1 / std::sqrt(static_cast<double>(width));
  const HTensor queries = reshape(first(q), Shape{batch, shared, group, tokens, width});
  HTensor scores = dot(queries, first(k), {4}, {3}, {0, 1}, {0, 1}) * scale;
  if (const double cap = t.has("softcap") ? t.real("softcap") : 0; cap != 0) scores = tanh(scores / cap) * cap;
  if (const HTensor seen = seen_keys(t, tokens, causal))
    scores = select(seen, scores, full(scores.dtype(), scores.shape(), -std::numeric_limits<double>::infinity()));
  HTensor all = scores;
  if (const HTensor sinks = t.has("sinks") ? t.weight("sinks") : HTensor())
    all = concat(
        {scores, broadcast(reshape(sinks, Shape{1, shared, group, 1, 1}), Shape{batch, shared, group, tokens, 1})}, 4);
  HTensor chosen = apply("softmax", {}, {all}).at(0);
  if (all.shape() != scores.shape()) chosen = slice_axis(chosen, 4, 0, tokens);
  const HTensor mixed = dot(t.dropped(chosen, rate), first(v), {4}, {2}, {0, 1}, {0, 1});
  return first(reshape(mixed, Shape{batch, heads, tokens, v.shape()[3]}));
}

std::vector<SpecOperation> further_spec_operations() {
  return {{"OffsetRmsNorm", {"in", "weight", "epsilon", "out"}, trace_offset_rms_norm},
          {"OffsetLayerNorm", {"in", "weight", "bias?", "epsilon", "out"}, trace_offset_layer_norm},
          {"Dropout", {"in", "rate", "out"}, trace_dropout},
          {"Sigmoid", {"in", "out"}, trace_sigmoid},
          {"Tanh", {"in", "out"}, trace_tanh},
          {"Select", {"in", "a", "b", "above?", "out"}, trace_select},
          {"Call", {"in", "function", "weights?", "attribute.*?", "out"}, trace_call}};
}

}  // namespace harmonics::engine
