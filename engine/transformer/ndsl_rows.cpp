// Table of block operations. Each row writes the steps and tensors of an operation; to add an operation, add a row.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/program/functional.hpp"
#include "engine/transformer/named_activation.hpp"
#include "engine/transformer/ndsl_layer.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

struct Heads {
  int64_t queries, shared, width;
};

Heads heads_of(NdslLayer& layer) {
  const NdslSettings& s = layer.settings();
  Heads heads{s.size("num_query_heads"), 0, 0};
  heads.shared = s.size("num_kv_heads", heads.queries);
  const int64_t hidden = s.size("hidden_size");
  const auto sure = [&](std::initializer_list<const char*> of) { return !s.faults().doubts(of); };
  if (heads.queries % heads.shared != 0 && sure({"num_query_heads", "num_kv_heads"}))
    s.faults().add(s.place_of("num_kv_heads"),
                   fmt::format("{} cannot share {}", quantity(heads.queries, "query head"),
                               quantity(heads.shared, "key and value head")),
                   "num_query_heads is a multiple of num_kv_heads", ErrorKind::Shape);
  if (!s.has("head_dim") && hidden % heads.queries != 0 && sure({"hidden_size", "num_query_heads", "head_dim"}))
    s.faults().add(s.place_of("num_query_heads"),
                   fmt::format("a width of {} cannot be divided into {}", hidden, quantity(heads.queries, "head")),
                   "give 'head_dim', or a hidden_size that is a multiple of num_query_heads", ErrorKind::Shape);
  heads.width = s.size("head_dim", std::max<int64_t>(1, hidden / heads.queries));
  return heads;
}

void expect_value(NdslLayer& layer, const std::string& value, const char* op, const char* before) {
  if (!value.empty() || !layer.sound()) return;
  layer.settings().faults().add(layer.place(), fmt::format("{} is before {}, whose results it needs", op, before));
}

void lower_norm_op(NdslLayer& layer) {
  const std::string& group = layer.group();
  const std::pair<const char*, const char*> known[] = {{"ln1", "attn_norm"},
                                                       {"ln2", "ffn_norm"},
                                                       {"post_attention_norm", "post_attention_norm"},
                                                       {"post_mlp_norm", "post_ffw_norm"}};
  std::string part = group;
  for (const auto& [name, tensor] : known)
    if (group == name) part = tensor;
  layer.out = lower_norm(layer.to, layer.settings(), layer.op(), fmt::format("blk.{}.{}", layer.number(), part),
                         fmt::format("blocks[{}].{}", layer.number(), group), layer.in);
}

void lower_qkv(NdslLayer& layer) {
  const NdslSettings& s = layer.settings();
  const Heads heads = heads_of(layer);
  const int64_t hidden = s.size("hidden_size");
  const bool bias = s.truth("use_qkv_bias", s.truth("attention_bias", false));
  const auto map = [&](const char* part, int64_t count, const char* hint) {
    const std::string x = layer.linear(layer.in, part, count * heads.width, hidden, bias, false, count, hint);
    return layer.reshaped(x, {count, heads.width}, hint);
  };
  layer.q = map("attn_q", heads.queries, "q");
  layer.k = map("attn_k", heads.shared, "k");
  layer.v = map("attn_v", heads.shared, "v");
  for (const char* kind : {"weight", "bias"}) {
    if (!bias && kind == std::string("bias")) continue;
    std::vector<std::string> parts;
    for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
      parts.push_back(layer.tensor_name(part, kind));
      layer.to.alias(layer.alias_name(fmt::format("{}_{}", part + 5, kind)), {parts.back()});
    }
    layer.to.alias(layer.alias_name(fmt::format("qkv_{}", kind)), parts);
  }
}

void lower_qk_norm(NdslLayer& layer) {
  expect_value(layer, layer.q, "QKNorm", "QKV");
  const NdslSettings& s = layer.settings();
  const Heads heads = heads_of(layer);
  const bool offset = s.truth("unit_offset", false);
  const double epsilon = s.has("eps") ? s.real("eps", {}) : s.real("rms_norm_eps", 1e-6);
  for (std::string* x : {&layer.q, &layer.k}) {
    const bool query = x == &layer.q;
    const std::string weight = layer.to.tensor({layer.tensor_name(query ? "attn_q_norm" : "attn_k_norm", "weight"),
                                                Shape{heads.width},
                                                {HX_INIT_CONSTANT, offset ? 0.0 : 1.0, 0},
                                                0,
                                                0,
                                                layer.place()});
    layer.to.alias(layer.alias_name(query ? "q_norm.weight" : "k_norm.weight"), {weight});
    const std::string out = layer.to.fresh(query ? "q" : "k");
    layer.to.step(offset ? "OffsetRmsNorm" : "RmsNorm", layer.place()).fields = {
        {"in", *x}, {"weight", weight}, {"epsilon", epsilon}, {"out", out}};
    *x = out;
  }
}

// Returns the size of the layer's sliding window; 0: none.
int64_t window_of(NdslLayer& layer) {
  return layer.window() ? layer.settings().whole("sliding_window", 0, 0, int64_t{1} << 31) : 0;
}

void lower_rope(NdslLayer& layer) {
  expect_value(layer, layer.q, "RoPE", "QKV");
  const std::string rope = layer.to.rope(layer.settings(), heads_of(layer).width, window_of(layer) > 0);
  for (std::string* x : {&layer.q, &layer.k}) {
    const std::string out = layer.to.fresh(x == &layer.q ? "q" : "k");
    layer.to.step("Rope", layer.place()).fields = {{"in", *x}, {"rope", rope}, {"out", out}};
    *x = out;
  }
}

void lower_attention(NdslLayer& layer) {
  expect_value(layer, layer.q, "Attention", "QKV");
  const NdslSettings& s = layer.settings();
  const Heads heads = heads_of(layer);
  const bool causal = s.truth("causal", layer.op() == "CausalSelfAttention");
  if (causal) {
    for (std::string* x : {&layer.k, &layer.v}) {
      const bool key = x == &layer.k;
      const std::string cache = fmt::format("cache.{}{}.{}", layer.number(),
                                            layer.group() == "attention" ? "" : "." + layer.group(), key ? "k" : "v");
      const std::string out = layer.to.fresh(key ? "k" : "v"), place = layer.place().text();
      layer.to.step("CacheAppend", layer.place()).fields = {{"in", *x}, {"cache", cache}, {"out", out}};
      specs::Tensor tensor;
      tensor.name = cache;
      tensor.place = place;
      tensor.role = "cache";
      tensor.dims = {specs::Expression("batch", place), specs::Expression("kv_capacity", place),
                     specs::Expression(heads.shared, place), specs::Expression(heads.width, place)};
      tensor.grow_with_kv = 1;
      layer.to.compiled().spec.tensors.push_back(std::move(tensor));
      *x = out;
    }
  }
  const std::string mixed = layer.to.fresh("attention");
  specs::Step& step = layer.to.step("Attention", layer.place());
  step.fields = {{"q", layer.q}, {"k", layer.k}, {"v", layer.v}, {"causal", causal}, {"out", mixed}};
  const bool by_layer = s.truth("scale_attn_by_inverse_layer_idx", false), scaled = s.truth("scale_attn_weights", true);
  if (s.has("query_pre_attn_scalar") || by_layer || !scaled) {
    const double width = s.real("query_pre_attn_scalar", static_cast<double>(heads.width));
    if (width > 0)
      step.fields["scale"] =
          (scaled ? 1 / std::sqrt(width) : 1.0) / (by_layer ? static_cast<double>(layer.number() + 1) : 1.0);
    else
      s.faults().add(s.place_of("query_pre_attn_scalar"), fmt::format("the divisor of queries is {}", width), "",
                     ErrorKind::Shape);
  }
  if (const double cap = s.real("attn_logit_softcapping", 0); cap != 0) step.fields["softcap"] = cap;
  if (const int64_t window = window_of(layer); window > 0 && causal) step.fields["window"] = window;
  if (const double rate = dropout_of(s, "attention_dropout"); rate > 0) step.fields["dropout"] = rate;
  if (s.truth("attention_sinks", false)) {
    step.fields["sinks"] = layer.to.tensor({layer.tensor_name("attn_sinks", "weight"),
                                            Shape{heads.queries},
                                            {HX_INIT_CONSTANT, 0, 0},
                                            0,
                                            0,
                                            layer.place()});
    layer.to.alias(layer.alias_name("sinks"), {layer.tensor_name("attn_sinks", "weight")});
  }
  layer.out = layer.reshaped(mixed, {heads.queries * heads.width}, "attention");
}

void lower_attention_out(NdslLayer& layer) {
  const NdslSettings& s = layer.settings();
  const Heads heads = heads_of(layer);
  const bool bias = s.truth("use_out_bias", s.truth("attention_bias", false));
  layer.out =
      layer.linear(layer.in, "attn_output", s.size("hidden_size"), heads.queries * heads.width, bias, true, 0, "h");
  layer.to.alias(layer.alias_name("out_weight"), {layer.tensor_name("attn_output", "weight")});
  if (bias) layer.to.alias(layer.alias_name("out_bias"), {layer.tensor_name("attn_output", "bias")});
  layer.out = with_dropout(layer.to, s, "residual_dropout", layer.out);
}

int64_t hidden_of_mlp(NdslLayer& layer) {
  const NdslSettings& s = layer.settings();
  const bool gated = layer.op() != "GELU_FFN" && layer.op() != "ReLU_FFN";
  if (gated) return s.size("intermediate_size");
  return s.size("intermediate_size", 4 * s.size("hidden_size"));
}

void lower_mlp_up(NdslLayer& layer) {
  const NdslSettings& s = layer.settings();
  const int64_t n = hidden_of_mlp(layer), k = s.size("hidden_size");
  const bool gated = layer.op() != "GELU_FFN" && layer.op() != "ReLU_FFN", bias = s.truth("use_mlp_bias", false);
  if (gated) layer.gate = layer.linear(layer.in, "ffn_gate", n, k, bias, false, 0, "gate");
  layer.up = layer.linear(layer.in, "ffn_up", n, k, bias, false, 0, "up");
  for (const char* kind : {"weight", "bias"}) {
    if (!bias && kind == std::string("bias")) continue;
    const std::string gate = layer.tensor_name("ffn_gate", kind), up = layer.tensor_name("ffn_up", kind);
    layer.to.alias(layer.alias_name(fmt::format("up_{}", kind)),
                   gated ? std::vector<std::string>{gate, up} : std::vector<std::string>{up});
    if (!gated) continue;
    layer.to.alias(layer.alias_name(fmt::format("gate_proj_{}", kind)), {gate});
    layer.to.alias(layer.alias_name(fmt::format("up_proj_{}", kind)), {up});
  }
}

// Returns whether there is an activation of this name; if not, adds an error.
bool expect_activation_name(NdslLayer& layer, const std::string& name) {
  if (spelled_activation(name) != SpelledActivation::none || is_activation(name)) return true;
  const std::string meant = did_you_mean(name, activation_names());
  layer.settings().faults().add(
      layer.settings().place_of("hidden_act"), fmt::format("there is no activation {}", shown_name(name)),
      meant.empty() ? "activations: silu, gelu, gelu_new, gelu_pytorch_tanh, relu, relu2, quick_gelu, and every "
                      "registered one: harmonics list activations"
                    : meant);
  return false;
}

// Writes the steps of an activation, given by its Hugging Face name. Returns the name of the result.
std::string activated(NdslLayer& layer, const std::string& x, const std::string& name) {
  const std::string out = layer.to.fresh("activation");
  const auto gelu = [&](const char* how) {
    layer.to.step("Gelu", layer.place()).fields = {{"in", x}, {"approximate", std::string(how)}, {"out", out}};
  };
  switch (spelled_activation(name)) {
    case SpelledActivation::silu:
      layer.to.step("Silu", layer.place()).fields = {{"in", x}, {"out", out}};
      break;
    case SpelledActivation::gelu:
      gelu("none");
      break;
    case SpelledActivation::gelu_by_tanh:
      gelu("tanh");
      break;
    case SpelledActivation::relu2: {
      const std::string positive = layer.to.fresh("activation");
      layer.to.step("Call", layer.place()).fields = {{"in", x}, {"function", std::string("relu")}, {"out", positive}};
      layer.to.step("Multiply", layer.place()).fields = {{"a", positive}, {"b", positive}, {"out", out}};
      break;
    }
    case SpelledActivation::quick_gelu: {
      const std::string scaled = layer.to.fresh("activation"), share = layer.to.fresh("activation");
      layer.to.step("Scale", layer.place()).fields = {{"in", x}, {"by", 1.702}, {"out", scaled}};
      layer.to.step("Sigmoid", layer.place()).fields = {{"in", scaled}, {"out", share}};
      layer.to.step("Multiply", layer.place()).fields = {{"a", x}, {"b", share}, {"out", out}};
      break;
    }
    case SpelledActivation::none:
      if (expect_activation_name(layer, name))
        layer.to.step("Call", layer.place()).fields = {{"in", x}, {"function", name}, {"out", out}};
  }
  return out;
}

void lower_gated(NdslLayer& layer) {
  expect_value(layer, layer.gate, "a gated activation", "MLPUp");
  const char* usual = layer.op() == "GEGLU_FFN" ? "gelu_pytorch_tanh" : "silu";
  const std::string gate = activated(layer, layer.gate, layer.settings().text("hidden_act", usual));
  layer.out = layer.to.fresh("gated");
  layer.to.step("Multiply", layer.place()).fields = {{"a", gate}, {"b", layer.up}, {"out", layer.out}};
}

void lower_gelu(NdslLayer& layer) {
  expect_value(layer, layer.up, "GELU", "MLPUp");
  layer.out = activated(layer, layer.up, layer.settings().text("hidden_act", "gelu"));
}

void lower_relu(NdslLayer& layer) {
  expect_value(layer, layer.up, "ReLU", "MLPUp");
  layer.out = activated(layer, layer.up, "relu");
}

void lower_mlp_down(NdslLayer& layer) {
  const NdslSettings& s = layer.settings();
  const bool bias = s.truth("use_mlp_bias", false);
  layer.out = layer.linear(layer.in, "ffn_down", s.size("hidden_size"), hidden_of_mlp(layer), bias, true, 0, "h");
  layer.to.alias(layer.alias_name("down_weight"), {layer.tensor_name("ffn_down", "weight")});
  if (bias) layer.to.alias(layer.alias_name("down_bias"), {layer.tensor_name("ffn_down", "bias")});
  layer.out = with_dropout(layer.to, s, "residual_dropout", layer.out);
}

void lower_router(NdslLayer& layer) {
  const NdslSettings& s = layer.settings();
  const int64_t experts = s.size("num_experts");
  layer.router = layer.to.tensor({layer.tensor_name("ffn_gate_inp", "weight"),
                                  Shape{experts, s.size("hidden_size")},
                                  {HX_INIT_NORMAL, 0, s.real("initializer_range", 0.02)},
                                  0,
                                  0,
                                  layer.place()});
  layer.to.alias(layer.alias_name("router_weight"), {layer.router});
  if (!s.truth("use_router_bias", false)) return;
  layer.router_bias = layer.to.tensor(
      {layer.tensor_name("exp_probs_b", "bias"), Shape{experts}, {HX_INIT_CONSTANT, 0, 0}, 0, 0, layer.place()});
  layer.to.alias(layer.alias_name("router_bias"), {layer.router_bias});
}

void lower_experts(NdslLayer& layer) {
  expect_value(layer, layer.router, "Experts", "Router");
  const NdslSettings& s = layer.settings();
  const int64_t experts = s.size("num_experts"), hidden = s.size("hidden_size");
  const int64_t inner = s.has("moe_intermediate_size") ? s.size("moe_intermediate_size") : s.size("intermediate_size");
  const double deviation = s.real("initializer_range", 0.02);
  const double last = deviation / std::sqrt(2.0 * static_cast<double>(layer.to.compiled().sizes.at("num_layers")));
  const auto tensor = [&](const char* part, int64_t n, int64_t k, double by, const char* alias) {
    const std::string name = layer.to.tensor(
        {layer.tensor_name(part, "weight"), Shape{experts, n, k}, {HX_INIT_NORMAL, 0, by}, experts, 0, layer.place()});
    layer.to.alias(layer.alias_name(alias), {name});
    return name;
  };
  layer.gate = tensor("ffn_gate_exps", inner, hidden, deviation, "gate_weight");
  layer.up = tensor("ffn_up_exps", inner, hidden, deviation, "up_weight");
  layer.v = tensor("ffn_down_exps", hidden, inner, last, "down_weight");
}

int64_t most_shared() { return int64_t{1} << 20; }

// Writes shared experts as one network of their total width. Its result is added to that of the experts.
void lower_shared_experts(NdslLayer& layer) {
  const NdslSettings& s = layer.settings();
  const int64_t hidden = s.size("hidden_size");
  int64_t inner = 0;
  if (s.has("shared_expert_intermediate_size"))
    inner = s.size("shared_expert_intermediate_size");
  else
    inner = s.whole("num_shared_experts", 1, 1, most_shared()) *
            (s.has("moe_intermediate_size") ? s.size("moe_intermediate_size") : s.size("intermediate_size"));
  const auto map = [&](const std::string& x, const char* part, int64_t n, int64_t k, bool last, const char* alias) {
    layer.to.alias(layer.alias_name(alias), {layer.tensor_name(part, "weight")});
    return layer.linear(x, part, n, k, false, last, 0, "shared");
  };
  const auto product = [&](const std::string& a, const std::string& b) {
    const std::string out = layer.to.fresh("shared");
    layer.to.step("Multiply", layer.place()).fields = {{"a", a}, {"b", b}, {"out", out}};
    return out;
  };
  const std::string gate = map(layer.in, "ffn_gate_shexp", inner, hidden, false, "shared_gate_weight");
  const std::string up = map(layer.in, "ffn_up_shexp", inner, hidden, false, "shared_up_weight");
  const std::string gated = product(activated(layer, gate, s.text("hidden_act", "silu")), up);
  layer.shared = map(gated, "ffn_down_shexp", hidden, inner, true, "shared_down_weight");
  if (!s.truth("use_shared_expert_gate", false)) return;
  const std::string score = map(layer.in, "ffn_gate_inp_shexp", 1, hidden, false, "shared_router_weight"),
                    share = layer.to.fresh("share");
  layer.to.step("Sigmoid", layer.place()).fields = {{"in", score}, {"out", share}};
  layer.shared = product(layer.shared, share);
}

// Adds the fields of routing and of the losses of a router to the step of the experts.
void set_routing(NdslLayer& layer, specs::Step& step) {
  const NdslSettings& s = layer.settings();
  const std::string routing = s.text("routing", "top_k");
  const bool by_experts = routing == "expert_choice";
  if (routing != "top_k" && !by_experts)
    s.faults().add(s.place_of("routing"), fmt::format("there is no routing {}", shown_name(routing)),
                   "routings: top_k, expert_choice");
  const double capacity = s.real("capacity_factor", 1), balance = s.real("router_aux_loss_coef", 0),
               limit = s.real("router_z_loss_coef", 0);
  if (!(capacity > 0))
    s.faults().add(s.place_of("capacity_factor"), fmt::format("the capacity factor is {:g}", capacity),
                   "it is above 0; 1: as many tokens as an even distribution gives", ErrorKind::Shape);
  const std::pair<const char*, double> losses[] = {{"router_aux_loss_coef", balance}, {"router_z_loss_coef", limit}};
  for (const auto& [key, value] : losses)
    if (value < 0)
      s.faults().add(s.place_of(key), fmt::format("{:g} is not a coefficient of a loss", value), "it is at least 0");
  if (s.has("capacity_factor")) step.fields["capacity"] = capacity;
  // As in the transformers library, the losses may be disabled although coefficients are given.
  const bool adds = s.truth("output_router_logits", true);
  if (limit > 0 && adds) step.fields["z_loss"] = limit;
  if (!by_experts) {
    step.fields["normalized"] = s.truth("norm_topk_prob", true);
    if (balance > 0 && adds) step.fields["balance"] = balance;
    return;
  }
  step.fields["routing"] = routing;
  struct OfTokens {
    const char* key;
    bool given;
    const char* without;
  };
  const OfTokens of_tokens[] = {{"router_aux_loss_coef", balance > 0 && adds, "router_aux_loss_coef: 0"},
                                {"norm_topk_prob", s.truth("norm_topk_prob", false), "norm_topk_prob: false"},
                                {"use_router_bias", !layer.router_bias.empty(), "use_router_bias: false"},
                                {"topk_group", step.fields.count("groups") > 0, "n_group: 1"}};
  for (const OfTokens& one : of_tokens)
    if (one.given)
      s.faults().add(s.place_of(one.key),
                     fmt::format("'{}' is for tokens that choose experts, not for expert_choice", one.key),
                     std::string("write ") + one.without + ", or routing: top_k");
}

void lower_combine(NdslLayer& layer) {
  expect_value(layer, layer.gate, "Combine", "Experts");
  const NdslSettings& s = layer.settings();
  const int64_t experts = s.size("num_experts"), used = s.size("num_experts_per_tok");
  const auto sure = [&] { return !s.faults().doubts({"num_experts", "num_experts_per_tok", "n_group", "topk_group"}); };
  if (used > experts && sure())
    s.faults().add(s.place_of("num_experts_per_tok"),
                   fmt::format("{} of {} cannot be used", used, quantity(experts, "expert")), "", ErrorKind::Shape);
  const int64_t groups = sure() ? s.whole("n_group", 1, 1, experts) : 1,
                used_groups = sure() ? s.whole("topk_group", groups, 1, groups) : 1;
  if (experts % groups != 0)
    s.faults().add(s.place_of("n_group"),
                   fmt::format("{} cannot be divided into {}", quantity(experts, "expert"), quantity(groups, "group")),
                   "", ErrorKind::Shape);
  else if (used_groups < groups && experts / groups < 2)
    s.faults().add(
        s.place_of("n_group"),
        fmt::format("with {} experts, each of the {} has only one expert", experts, quantity(groups, "group")),
        "groups are compared by their two best experts", ErrorKind::Shape);
  else if (used <= experts && used > used_groups * (experts / groups) && sure())
    s.faults().add(s.place_of("topk_group"),
                   fmt::format("{} experts cannot be chosen from {} of {}", used, quantity(used_groups, "group"),
                               experts / groups),
                   "", ErrorKind::Shape);
  const std::string scoring = s.text("scoring_func", "softmax");
  if (scoring != "softmax" && scoring != "sigmoid")
    s.faults().add(s.place_of("scoring_func"), fmt::format("there is no scoring {}", shown_name(scoring)),
                   "softmax, sigmoid");
  layer.out = layer.to.fresh("h");
  specs::Step& step = layer.to.step("Experts", layer.place());
  step.fields = {{"in", layer.in},  {"router", layer.router}, {"gate", layer.gate}, {"up", layer.up},
                 {"down", layer.v}, {"used", used},           {"out", layer.out}};
  if (!layer.router_bias.empty()) step.fields["bias"] = layer.router_bias;
  if (scoring != "softmax") step.fields["scoring"] = scoring;
  const std::string activation = s.text("hidden_act", "silu");
  if (spelled_activation(activation) != SpelledActivation::silu && expect_activation_name(layer, activation))
    step.fields["activation"] = activation;
  if (const double scale = s.real("routed_scaling_factor", 1); scale != 1) step.fields["scale"] = scale;
  if (used_groups < groups) {
    step.fields["groups"] = groups;
    step.fields["used_groups"] = used_groups;
  }
  set_routing(layer, step);
  if (!layer.shared.empty()) {
    const std::string sum = layer.to.fresh("h");
    layer.to.step("Add", layer.place()).fields = {{"a", layer.out}, {"b", layer.shared}, {"out", sum}};
    layer.out = sum;
  }
  layer.out = with_dropout(layer.to, s, "residual_dropout", layer.out);
}

}  // namespace

const std::vector<BlockRow>& block_rows() {
  using F = NdslFamily;
  static const std::vector<BlockRow> kRows = {{"LN1", F::norm, lower_norm_op},
                                              {"LN2", F::norm, lower_norm_op},
                                              {"ResidualLN2", F::norm, lower_norm_op},
                                              {"PostAttnNorm", F::norm, lower_norm_op},
                                              {"PostMLPNorm", F::norm, lower_norm_op},
                                              {"Norm", F::norm, lower_norm_op},
                                              {"QKV", F::attention, lower_qkv},
                                              {"QKNorm", F::attention, lower_qk_norm},
                                              {"RoPE", F::attention, lower_rope},
                                              {"Attention", F::attention, lower_attention},
                                              {"AttnOut", F::attention, lower_attention_out},
                                              {"MLPUp", F::feed_forward, lower_mlp_up},
                                              {"SwiGLU", F::feed_forward, lower_gated},
                                              {"GEGLU", F::feed_forward, lower_gated},
                                              {"GELU", F::feed_forward, lower_gelu},
                                              {"ReLU", F::feed_forward, lower_relu},
                                              {"MLPDown", F::feed_forward, lower_mlp_down},
                                              {"Router", F::experts, lower_router},
                                              {"Experts", F::experts, lower_experts},
                                              {"SharedExperts", F::experts, lower_shared_experts},
                                              {"Combine", F::experts, lower_combine}};
  return kRows;
}

bool has_shared_experts(const NdslSettings& settings) {
  return settings.has("shared_expert_intermediate_size") ||
         settings.whole("num_shared_experts", 0, 0, most_shared()) > 0;
}

}  // namespace harmonics::engine
