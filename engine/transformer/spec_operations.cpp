// Table of spec operations, which are traced as functionals and primitives.
#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/transformer/spec_trace.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

HTensor call_one(std::string_view name, const AttributeMap& attributes, const std::vector<HTensor>& inputs) {
  return apply(name, attributes, inputs).at(0);
}

HTensor needed(SpecTrace& t, const char* field) {
  const HTensor weight = t.weight(field);
  if (!weight) t.fail(fmt::format("needs the tensor of '{}', which the file lacks", field));
  return weight;
}

void trace_embedding(SpecTrace& t) {
  const HTensor table = needed(t, "weight");
  const std::string ids = t.text("ids");
  HTensor rows;
  if (ids == "tokens")
    rows = t.looked_up(table, t.tokens());
  else if (ids == "positions")
    rows = t.looked_up(table, t.positions());
  else if (ids == "zeros")
    rows = t.looked_up(table, zeros_like(t.tokens()));
  else
    t.fail(fmt::format("has the ids {}; they are tokens, positions or zeros", shown_name(ids)));
  t.set(t.has("scale") ? rows * t.real("scale") : rows);
}

void trace_linear(SpecTrace& t) {
  const HTensor bias = t.has("bias") ? t.weight("bias") : HTensor();
  HTensor weight = needed(t, "weight");
  if (weight.rank() == 1) weight = reshape(weight, Shape{1, weight.size()});
  t.set(t.map(t.value("in"), weight, bias, t.is_transposed("weight")));
}

void trace_rms_norm(SpecTrace& t) {
  t.set(call_one("rms_norm", AttributeMap().set("epsilon", t.real("epsilon")), {t.value("in"), needed(t, "weight")}));
}

void trace_layer_norm(SpecTrace& t) {
  const HTensor gain = needed(t, "weight");
  HTensor bias = t.has("bias") ? t.weight("bias") : HTensor();
  if (!bias) bias = zeros_like(gain);
  t.set(call_one("layer_norm", AttributeMap().set("epsilon", t.real("epsilon")), {t.value("in"), gain, bias}));
}

void trace_reshape(SpecTrace& t) { t.set(reshape(t.value("in"), t.dims("dims"))); }

void trace_slice(SpecTrace& t) {
  const HTensor x = t.value("in");
  const int64_t from = t.whole("from"), to = t.whole("to"), width = x.shape().back();
  if (from < 0 || to <= from || to > width) t.fail(fmt::format("takes {} to {} of {}", from, to, width));
  t.set(slice_axis(x, static_cast<int64_t>(x.rank()) - 1, from, to));
}

void trace_rope(SpecTrace& t) { t.set(t.turned(t.value("in"), t.text("rope"))); }

void trace_cache_append(SpecTrace& t) { t.set(t.appended(t.text("cache"), t.value("in"))); }

void trace_attention(SpecTrace& t) {
  AttributeMap how = AttributeMap().set("positions_first", true);
  const bool causal = t.truth("causal", true);
  if (causal) how.set("causal", true);
  if (t.has("scale")) how.set("scale", t.real("scale"));
  if (t.has("softcap"))
    if (const double cap = t.real("softcap"); cap != 0) how.set("softcap", cap);
  if (t.has("window"))
    if (const int64_t window = t.whole("window"); window != 0) {
      if (window < 0 || !causal)
        t.fail(fmt::format("has the window {}; causal attention has one of 1 or more", window));
      how.set("window", window);
    }
  if (const double rate = t.has("dropout") ? t.real("dropout") : 0; t.learns() && rate != 0)
    return t.set(attention_with_dropout(t, rate, causal));
  std::vector<HTensor> operands{t.value("q"), t.value("k"), t.value("v")};
  std::string names;
  if (t.cached()) operands.push_back(t.lengths()), names = "lengths";
  if (const HTensor sinks = t.has("sinks") ? t.weight("sinks") : HTensor())
    operands.push_back(sinks), names += names.empty() ? "sinks" : ",sinks";
  if (t.pages()) operands.push_back(t.pages()), names += ",pages";
  if (t.documents()) operands.push_back(t.documents()), names += names.empty() ? "documents" : ",documents";
  if (!names.empty()) how.set("operands", names);
  t.set(call_one("attention", how, operands));
}

void trace_silu(SpecTrace& t) { t.set(call_one("silu", {}, {t.value("in")})); }

void trace_gelu(SpecTrace& t) {
  const std::string how = t.has("approximate") ? t.text("approximate") : "none";
  t.set(call_one("gelu", AttributeMap().set("approximate", how), {t.value("in")}));
}

void trace_add(SpecTrace& t) { t.set(t.value("a") + t.value("b")); }
void trace_multiply(SpecTrace& t) { t.set(t.value("a") * t.value("b")); }

void trace_scale(SpecTrace& t) {
  const double by = t.real("by");
  t.set(by == 1 ? t.value("in") : t.value("in") * by);
}

void trace_softcap(SpecTrace& t) {
  const double cap = t.real("cap");
  if (cap < 0) t.fail(fmt::format("has the cap {}; it is 0 or more", cap));
  t.set(cap == 0 ? t.value("in") : tanh(t.value("in") / cap) * cap);
}

// Selects the last token if only the results after it are needed.
void trace_last_token(SpecTrace& t) {
  const HTensor x = t.value("in");
  if (x.rank() != 3) t.fail(fmt::format("takes [batch, tokens, width], not {}", x.shape().str()));
  if (!t.last_only()) return t.set(x);
  const int64_t tokens = t.sizes().tokens;
  const HTensor last = reshape(slice_axis(x, 1, tokens - 1, tokens), Shape{t.sizes().batch, x.shape().back()});
  t.set(t.scored(last));
}

void trace_pool(SpecTrace& t) {
  const HTensor x = t.value("in");
  if (x.rank() != 3) t.fail(fmt::format("takes [batch, tokens, width], not {}", x.shape().str()));
  const std::string how = t.text("how");
  const int64_t tokens = x.shape()[1];
  const auto one_of = [&](int64_t token) {
    return reshape(slice_axis(x, 1, token, token + 1), Shape{x.shape()[0], x.shape()[2]});
  };
  if (how == "mean")
    t.set(reduce_mean(x, {1}));
  else if (how == "first")
    t.set(one_of(0));
  else if (how == "last")
    t.set(one_of(tokens - 1));
  else
    t.fail(fmt::format("pools by {}; it can be mean, first or last", shown_name(how)));
}

void trace_observe(SpecTrace& t) { t.observe(t.text("name"), t.value("in")); }

std::vector<SpecOperation> with_further(std::vector<SpecOperation> rows) {
  const std::vector<SpecOperation> more = further_spec_operations();
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

}  // namespace

const std::vector<SpecOperation>& spec_operations() {
  static const std::vector<SpecOperation> kRows = with_further(
      {{"Embedding", {"ids", "weight", "scale?", "out"}, trace_embedding},
       {"Linear", {"in", "weight", "bias?", "out"}, trace_linear},
       {"RmsNorm", {"in", "weight", "epsilon", "out"}, trace_rms_norm},
       {"LayerNorm", {"in", "weight", "bias?", "epsilon", "out"}, trace_layer_norm},
       {"Reshape", {"in", "dims", "out"}, trace_reshape},
       {"Slice", {"in", "from", "to", "out"}, trace_slice},
       {"Rope", {"in", "rope", "out"}, trace_rope},
       {"CacheAppend", {"in", "cache", "out"}, trace_cache_append},
       {"Attention",
        {"q", "k", "v", "causal?", "scale?", "window?", "softcap?", "sinks?", "dropout?", "out"},
        trace_attention},
       {"Silu", {"in", "out"}, trace_silu},
       {"Gelu", {"in", "approximate?", "out"}, trace_gelu},
       {"Add", {"a", "b", "out"}, trace_add},
       {"Multiply", {"a", "b", "out"}, trace_multiply},
       {"Scale", {"in", "by", "out"}, trace_scale},
       {"Softcap", {"in", "cap", "out"}, trace_softcap},
       {"LastToken", {"in", "out"}, trace_last_token},
       {"Pool", {"in", "how", "out"}, trace_pool},
       {"Experts",
        {"in",           "router",     "bias?",    "gate",         "up",          "down",    "used",     "normalized?",
         "scoring?",     "scale?",     "groups?",  "used_groups?", "balance?",    "z_loss?", "routing?", "capacity?",
         "router_bias?", "gate_bias?", "up_bias?", "down_bias?",   "activation?", "limit?",  "out"},
        trace_experts},
       {"Observe", {"in", "name"}, trace_observe}});
  return kRows;
}

}  // namespace harmonics::engine
