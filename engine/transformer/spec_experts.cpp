// The step Experts of specs: routing, and the networks of the experts on the tokens that they get.
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/transformer/named_activation.hpp"
#include "engine/transformer/spec_trace.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

// Rows that are sorted by expert. Those of expert e are offsets[e] to offsets[e + 1].
struct SortedRows {
  HTensor rows, offsets, experts;  // experts: the number of each row's expert; empty without biases
};

bool has_biases(const SpecTrace& t) { return t.has("gate_bias") || t.has("up_bias") || t.has("down_bias"); }

// Returns the results of one of the experts' maps, with its biases.
HTensor mapped(SpecTrace& t, const SortedRows& sorted, const HTensor& rows, const std::string& name) {
  const HTensor y = t.map_by_experts(rows, sorted.offsets, name.c_str());
  const std::string field = name + "_bias";
  const HTensor bias = t.has(field.c_str()) ? t.weight(field.c_str()) : HTensor();
  if (!bias) return y;
  const Shape wanted{sorted.offsets.size() - 1, y.shape().back()};
  if (bias.shape() != wanted)
    t.fail(fmt::format("has '{}' of {} for experts that need {}", field, bias.shape().str(), wanted.str()));
  return y + gather(bias, sorted.experts);
}

// gate and up are limited; the gate is x sigmoid(1.702 x), and 1 is added to up (gpt-oss, OpenAI 2025).
HTensor clamped_swiglu(const HTensor& gate, const HTensor& up, double limit) {
  const HTensor x = clamp(gate, std::nullopt, limit), y = clamp(up, -limit, limit);
  return x * logistic(x * 1.702) * (y + 1.0);
}

// Returns the results of the experts for rows that are sorted by expert.
HTensor expert_results(SpecTrace& t, const SortedRows& sorted) {
  const HTensor gate = mapped(t, sorted, sorted.rows, "gate"), up = mapped(t, sorted, sorted.rows, "up");
  const std::string kind = t.has("activation") ? t.text("activation") : "silu";
  const double limit = t.has("limit") ? t.real("limit") : 7;
  if (!(limit > 0)) t.fail(fmt::format("has the limit {:g}; it is above 0", limit));
  if (kind == "clamped_swiglu") return mapped(t, sorted, clamped_swiglu(gate, up, limit), "down");
  const HTensor active = apply_activation(kind, gate);
  if (!active) t.fail(fmt::format("has the activation {}; there is none of this name", shown_name(kind)));
  return mapped(t, sorted, active * up, "down");
}

// Returns the most tokens of an expert: `factor` times its share of all choices, rounded up.
int64_t most_tokens(double factor, int64_t tokens, int64_t used, int64_t experts) {
  const double share = factor * static_cast<double>(tokens) * static_cast<double>(used) / static_cast<double>(experts);
  return static_cast<int64_t>(std::clamp(std::ceil(share), 1.0, static_cast<double>(tokens)));
}

// Each expert takes the tokens with its largest shares (Zhou et al. 2022). A token has as many experts as take it.
HTensor by_expert_choice(SpecTrace& t, const HTensor& x, const HTensor& scores, int64_t capacity) {
  const int64_t width = x.shape().back(), rows = x.size() / width, experts = scores.shape().back();
  AttributeMap how = AttributeMap().set("capacity", capacity);
  if (t.has("scoring")) how.set("scoring", t.text("scoring"));
  const std::vector<HTensor> chosen = apply("expert_choice", how, {reshape(scores, Shape{rows, experts})});
  const HTensor numbers = reshape(chosen[1], Shape{experts * capacity});
  const HTensor offsets = iota(DType::I32, Shape{experts + 1}, 0) * static_cast<double>(capacity);
  HTensor of_rows;
  if (has_biases(t)) of_rows = reshape(iota(DType::I32, Shape{experts, capacity}, 0), Shape{experts * capacity});
  const HTensor results = expert_results(t, {gather(reshape(x, Shape{rows, width}), numbers), offsets, of_rows});
  HTensor weights = reshape(chosen[0], Shape{experts * capacity, 1});
  if (t.has("scale")) weights = weights * t.real("scale");
  return reshape(scatter_add(full(x.dtype(), Shape{rows, width}, 0), numbers, results * weights), x.shape());
}

}  // namespace

// Each expert processes the tokens that are routed to it. Limits by capacity and choices by experts depend on the other
// tokens of the batch, so they are for training alone.
void trace_experts(SpecTrace& t) {
  const HTensor x = t.value("in"), router = t.weight("router");
  if (!router) t.fail("needs the tensor of 'router', which the file lacks");
  const auto gates = t.experts("gate"), ups = t.experts("up"), downs = t.experts("down");
  const auto count = static_cast<int64_t>(gates.size()), used = t.whole("used");
  if (ups.size() != gates.size() || downs.size() != gates.size() || router.shape()[0] != count)
    t.fail("has tensors of different numbers of experts");
  if (used < 1 || used > count) t.fail(fmt::format("uses {} of {} experts", used, count));
  const std::string routing = t.has("routing") ? t.text("routing") : "top_k";
  if (routing != "top_k" && routing != "expert_choice")
    t.fail(fmt::format("routes by {}; it can be top_k or expert_choice", shown_name(routing)));
  const double factor = t.has("capacity") ? t.real("capacity") : 1;
  if (!(factor > 0)) t.fail(fmt::format("has the capacity {:g}; it is above 0", factor));
  const bool by_experts = routing == "expert_choice";
  if (by_experts)
    for (const char* field : {"bias", "normalized", "groups", "used_groups", "balance"})
      if (t.has(field) && !(field == std::string("normalized") && !t.truth(field, false)))
        t.fail(fmt::format("has '{}', which is for routing by tokens, not by expert_choice", field));
  const HTensor scores = t.map(x, router, t.has("router_bias") ? t.weight("router_bias") : HTensor());
  if (t.has("z_loss")) t.limit_scores(scores, t.real("z_loss"));
  const int64_t capacity = most_tokens(factor, scores.size() / count, used, count);
  if (by_experts && t.learns()) return t.set(by_expert_choice(t, x, scores, capacity));
  AttributeMap how = AttributeMap().set("used", used);
  if (t.truth("normalized", false)) how.set("normalized", true);
  if (t.has("scoring")) how.set("scoring", t.text("scoring"));
  if (t.has("scale")) how.set("scale", t.real("scale"));
  for (const char* field : {"groups", "used_groups"})
    if (t.has(field)) how.set(field, t.whole(field));
  std::vector<HTensor> inputs{scores};
  if (const HTensor bias = t.has("bias") ? t.weight("bias") : HTensor()) {
    if (bias.shape() != Shape{count}) t.fail(fmt::format("has a bias of {} for {} experts", bias.shape().str(), count));
    inputs.push_back(bias);
  }
  std::vector<HTensor> chosen = apply("router", how, inputs);             // weights, experts
  if (t.has("balance")) t.balance(scores, chosen[1], t.real("balance"));  // of the choices before a limit
  if (t.has("capacity") && t.learns()) chosen = apply("router", how.set("capacity", capacity), inputs);
  const std::vector<HTensor> sent = apply("dispatch", AttributeMap().set("count", count), {x, chosen[1]});
  HTensor numbers;  // choices beyond a limit have the number `count`
  if (has_biases(t))
    numbers = clamp(gather(reshape(chosen[1], Shape{chosen[1].size()}), sent[1]), 0, static_cast<double>(count - 1));
  t.set(apply("combine", {}, {expert_results(t, {sent[0], sent[2], numbers}), sent[1], chosen[0]}).at(0));
}

}  // namespace harmonics::engine
