// Conformance cases of the functionals for experts, and of the last linear map with its loss.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/conformance/functional_case.hpp"

namespace harmonics::engine::conformance {

inline void add_expert_cases(Cases& cases, Sizes& sizes) {
  const int64_t rows = sizes.some() + 2, experts = sizes.some() + 1, used = 2, width = sizes.odd(), out = sizes.some();
  const Operand scores = numbers({rows, experts});
  const auto with = [](const char* name, auto value) { return AttributeMap().set(name, value); };
  const AttributeMap two = with("used", used);
  cases.push_back({"router", two, {numbers({2, rows, experts})}});
  cases.push_back({"router", AttributeMap(two).set("normalized", true).set("scale", 2.5), {scores}});
  cases.push_back(
      {"router", AttributeMap(two).set("scoring", std::string("sigmoid")).set("normalized", true), {scores}});
  cases.push_back({"router", with("used", int64_t{1}).set("capacity", int64_t{2}), {scores}});
  cases.push_back({"router", AttributeMap(two).set("capacity", int64_t{2}), {scores}});
  cases.push_back({"router",
                   AttributeMap(two).set("scoring", std::string("sigmoid")).set("normalized", true).set("scale", 1.5),
                   {scores, numbers({experts})}});
  cases.push_back(
      {"router", AttributeMap(two).set("capacity", int64_t{2}), {numbers({2, rows, experts}), numbers({experts})}});
  const AttributeMap grouped = AttributeMap(two).set("groups", int64_t{3}).set("used_groups", int64_t{2});
  const Operand in_groups = numbers({rows, 3 * (sizes.some() + 1)});
  cases.push_back({"router", AttributeMap(grouped).set("normalized", true), {in_groups}});
  cases.push_back({"router",
                   AttributeMap(grouped).set("scoring", std::string("sigmoid")),
                   {in_groups, numbers({in_groups.shape.back()})}});
  cases.push_back({"expert_choice", with("capacity", int64_t{3}), {scores}});
  cases.push_back({"expert_choice", with("capacity", int64_t{1}).set("scoring", std::string("sigmoid")), {scores}});
  const Operand chosen = indices({rows, used}, experts + 1, DType::I32);
  cases.push_back({"dispatch", with("count", experts), {numbers({rows, width}), chosen}});
  cases.push_back(
      {"dispatch", with("count", experts), {numbers({1, rows, width}), indices({1, rows, 3}, experts, DType::I32)}});
  const int64_t choices = rows * used;
  const Operand sent = numbers({choices, width}), order = indices({choices}, choices, DType::I32);
  cases.push_back({"combine", {}, {sent, order, numbers({rows, used})}});
  cases.push_back({"combine", {}, {sent, order, numbers({1, rows, used})}});
  const Operand offsets = indices({experts + 1}, choices + 1, DType::I32), back = numbers({choices, out});
  for (const bool transposed : {false, true}) {
    const Shape matrix = transposed ? Shape{width, out} : Shape{out, width};
    const AttributeMap how = with("transposed", transposed).set("batch_invariant", sizes.coin());
    cases.push_back({"grouped_linear", how, {sent, offsets, numbers(joined({experts}, matrix))}});
    std::vector<Operand> apart{sent, offsets};
    apart.insert(apart.end(), static_cast<size_t>(experts), numbers(matrix));
    cases.push_back({"grouped_linear", how, apart});
  }
  cases.push_back({"grouped_outer", {}, {sent, back, offsets}});
  cases.push_back({"load_balance_loss", {}, {scores, chosen}});
  cases.push_back({"router_z_loss", {}, {scores}});
}

inline void add_head_cases(Cases& cases, Sizes& sizes) {
  const int64_t rows = sizes.some() + 2, classes = sizes.some() + 1, width = sizes.odd();
  const Shape whole{2, rows};
  const Operand x = numbers(joined(whole, {width})), weight = numbers({classes, width}), bias = numbers({classes});
  const Operand labels = indices(whole, classes, DType::I32), lse = statistics(whole), dloss = statistics(whole);
  for (const auto& [chunk, slice] : std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {3, 0}, {0, 2}, {3, 2}})
    for (const bool cap : {false, true}) {
      AttributeMap a = AttributeMap().set("chunk", chunk);
      if (slice > 0) a.set("slice", slice);
      if (cap) a.set("softcap", 1.5).set("ignored", int64_t{1});
      cases.push_back({"linear_cross_entropy", a, {x, weight, labels}});
      cases.push_back({"linear_cross_entropy", a, {x, weight, labels, bias}});
      cases.push_back({"linear_cross_entropy_grad", a, {x, weight, labels, lse, dloss}});
      cases.push_back({"linear_cross_entropy_grad",
                       AttributeMap(a).set("operands", std::string("dlse,bias")),
                       {x, weight, labels, lse, dloss, dloss, bias}});
      cases.push_back({"linear_cross_entropy_step", a, {x, weight, labels, dloss}});
      cases.push_back({"linear_cross_entropy_step", a, {x, weight, labels, dloss, bias}});
      cases.push_back({"linear_cross_entropy_step", AttributeMap(a).set("frozen", true), {x, weight, labels, dloss}});
    }
}

}  // namespace harmonics::engine::conformance
