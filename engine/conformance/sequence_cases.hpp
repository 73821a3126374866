// Conformance cases of the functionals of sequences: attention, rotary positions, caches, recurrences.
#pragma once

#include <string>
#include <vector>

#include "engine/conformance/functional_case.hpp"

namespace harmonics::engine::conformance {

inline void add_attention_cases(Cases& cases, Sizes& sizes) {
  const int64_t batch = sizes.coin() ? 1 : 2, shared = sizes.coin() ? 1 : 2, group = sizes.coin() ? 1 : 3;
  const int64_t width = sizes.some(), t = sizes.some();
  const Operand turned = numbers({batch, shared, t, 2 * sizes.odd()});
  cases.push_back({"rope", {}, {turned}});
  cases.push_back({"rope", AttributeMap().set("base", 50.0).set("offset", int64_t{7}).set("inverse", true), {turned}});
  cases.push_back({"rope", AttributeMap().set("positions_first", true), {turned}});
  for (int64_t more : {-1, 0, 2})  // queries without keys, square, keys from earlier positions
    for (bool causal : {false, true}) {
      AttributeMap a = AttributeMap().set("causal", causal);
      if (more == 2) a.set("scale", 0.4);
      const Shape rows{batch, shared * group, t};
      const Operand q = numbers(joined(rows, {width})), k = numbers({batch, shared, t + more, width});
      cases.push_back({"attention", a, {q, k, k}});
      cases.push_back({"attention_grad", a, {q, k, k, q, statistics(rows), q}});
      a.set("positions_first", true);
      const Operand qt = numbers({batch, t, shared * group, width}), kt = numbers({batch, t + more, shared, width});
      cases.push_back({"attention", a, {qt, kt, kt}});
      cases.push_back({"attention_grad", a, {qt, kt, kt, qt, statistics(rows), qt}});
    }
}

inline void add_rotary_cases(Cases& cases, Sizes& sizes) {
  const int64_t batch = 2, heads = sizes.odd(), t = sizes.some(), half = 1 + sizes.odd();
  const Operand x = numbers({batch, heads, t, 2 * half}), rows = numbers({batch, t, heads, 2 * half});
  const Operand shared = indices({t}, 50, DType::I32), own = indices({batch, t}, 50, DType::I32);
  const AttributeMap at = AttributeMap().set("operands", std::string("positions"));
  const AttributeMap both = AttributeMap().set("operands", std::string("positions,frequencies"));
  cases.push_back({"rope", at, {x, shared}});
  cases.push_back({"rope", AttributeMap(at).set("inverse", true), {x, own}});
  cases.push_back({"rope", AttributeMap(at).set("positions_first", true).set("base", 50.0), {rows, own}});
  cases.push_back({"rope", both, {x, own, randoms({half})}});
  cases.push_back({"rope", AttributeMap().set("operands", std::string("frequencies")), {x, randoms({half})}});
  for (const char* pairing : {"half", "interleaved"}) {
    const AttributeMap paired = AttributeMap().set("pairing", std::string(pairing));
    cases.push_back({"rope", paired, {x}});
    cases.push_back({"rope", AttributeMap(paired).set("rotary_dims", 2 * half - 2).set("offset", int64_t{3}), {x}});
    AttributeMap all = both;
    all.set("pairing", std::string(pairing)).set("rotary_dims", int64_t{2}).set("positions_first", true);
    cases.push_back({"rope", all, {rows, own, randoms({1})}});
  }
}

inline void add_sequence_cases(Cases& cases, Sizes& sizes) {
  const int64_t batch = 2, shared = sizes.coin() ? 1 : 2, group = sizes.coin() ? 1 : 3, heads = shared * group;
  const int64_t width = sizes.some(), t = sizes.some();
  for (const int64_t keys : {t + 3, t - 1})
    for (const bool causal : {false, true})
      for (const char* given : {"", "lengths", "mask", "lengths,bias", "lengths,mask,bias,sinks", "sinks"}) {
        const std::string names = given;
        AttributeMap a = AttributeMap().set("causal", causal).set("softcap", causal ? 1.5 : 0.0);
        if (keys > t || names.empty()) a.set("window", int64_t{2});
        if (!names.empty()) a.set("operands", names);
        std::vector<Operand> more;
        const bool wide = sizes.coin(), whole = sizes.coin();
        const Shape by_score = whole ? Shape{t, keys} : Shape{batch, wide ? heads : 1, t, keys};
        if (names.find("lengths") != names.npos) more.push_back(indices({batch}, keys + 2, DType::I32));
        if (names.find("mask") != names.npos) more.push_back({Operand::index, by_score, DType::Bool, 2});
        if (names.find("bias") != names.npos) more.push_back(numbers(by_score));
        if (names.find("sinks") != names.npos) more.push_back(numbers({heads}));
        const bool first = sizes.coin();
        a.set("positions_first", first);
        const Operand q = numbers(first ? Shape{batch, t, heads, width} : Shape{batch, heads, t, width});
        const Operand k = numbers(first ? Shape{batch, keys, shared, width} : Shape{batch, shared, keys, width});
        std::vector<Operand> forward{q, k, k}, backward{q, k, k, q, statistics({batch, heads, t}), q};
        for (std::vector<Operand>* inputs : {&forward, &backward})
          inputs->insert(inputs->end(), more.begin(), more.end());
        cases.push_back({"attention", a, forward});
        cases.push_back({"attention_grad", a, backward});
      }
  for (const char* given : {"documents", "documents,sinks", "mask,documents"}) {
    const std::string names = given;
    const bool first = sizes.coin();
    AttributeMap a = AttributeMap().set("operands", names).set("causal", sizes.coin()).set("positions_first", first);
    if (sizes.coin()) a.set("window", int64_t{2}).set("softcap", 1.5);
    const Operand q = numbers(first ? Shape{batch, t, heads, width} : Shape{batch, heads, t, width});
    const Operand k = numbers(first ? Shape{batch, t, shared, width} : Shape{batch, shared, t, width});
    std::vector<Operand> more{indices({batch, t}, 2, DType::I32)};
    if (names == "documents,sinks") more.push_back(numbers({heads}));
    if (names == "mask,documents") more.insert(more.begin(), {Operand::index, Shape{t, t}, DType::Bool, 2});
    std::vector<Operand> forward{q, k, k}, backward{q, k, k, q, statistics({batch, heads, t}), q};
    for (std::vector<Operand>* inputs : {&forward, &backward}) inputs->insert(inputs->end(), more.begin(), more.end());
    cases.push_back({"attention", a, forward});
    cases.push_back({"attention_grad", a, backward});
  }
  constexpr int64_t kPool = 5, kEntries = 3;
  for (const char* given : {"pages", "lengths,pages", "pages,sinks,lengths,bias"}) {
    const std::string names = given;
    const int64_t page = sizes.some(), queries = sizes.coin() ? 1 : t;
    const bool first = sizes.coin();
    AttributeMap a = AttributeMap().set("operands", names).set("positions_first", first).set("causal", sizes.coin());
    const Operand q = numbers(first ? Shape{batch, queries, heads, width} : Shape{batch, heads, queries, width});
    const Operand pool = numbers(first ? Shape{kPool, page, shared, width} : Shape{kPool, shared, page, width});
    const Operand pages = indices({batch, kEntries}, kPool, DType::I32);
    const Operand lengths = indices({batch}, kEntries * page + 2, DType::I32);
    std::vector<Operand> in{q, pool, pool};
    if (names == "lengths,pages") in.push_back(lengths);
    in.push_back(pages);
    if (names.find("sinks") != names.npos)
      in.insert(in.end(), {numbers({heads}), lengths, numbers({batch, 1, queries, kEntries * page})});
    cases.push_back({"attention", a, in});
    const Shape row{sizes.odd(), sizes.some()};
    cases.push_back({"cache_append",
                     AttributeMap().set("operands", std::string("pages")),
                     {numbers(joined({kPool, page}, row)), numbers(joined({batch, queries}, row)),
                      indices({batch}, kEntries * page, DType::I32), pages}});
  }
  for (const int64_t rows : {int64_t{1}, t}) {
    const Shape row{sizes.odd(), sizes.some()};
    cases.push_back({"cache_append",
                     {},
                     {numbers(joined({batch, t + 2}, row)), numbers(joined({batch, rows}, row)),
                      indices({batch}, t + 2, DType::I32)}});
  }
}

inline void add_recurrent_cases(Cases& cases, Sizes& sizes) {
  const int64_t batch = sizes.odd(), in = sizes.some(), width = sizes.some();
  for (int64_t positions : {int64_t{1}, sizes.some()})
    for (bool reverse : {false, true}) {
      const AttributeMap a = AttributeMap().set("reverse", reverse);
      const Operand x = numbers({batch, positions, in}), state = numbers({batch, width});
      const Operand y = numbers({batch, positions, width}), kept = statistics(y.shape);
      for (int64_t gates : {4, 3}) {
        const bool lstm = gates == 4;
        const Operand w_in = numbers({gates * width, in}), w = numbers({gates * width, width});
        const Operand bias = numbers({gates * width}), wide = numbers({batch, positions, gates * width});
        const Operand all = fractions({batch, positions, 4 * width});
        const std::string name = lstm ? "lstm" : "gru";
        std::vector<Operand> inputs{x, w_in, w};
        cases.push_back({name, a, inputs});
        inputs.insert(inputs.end(), {bias, bias});
        cases.push_back({name, a, inputs});
        inputs.insert(inputs.end(), lstm ? 2 : 1, state);
        cases.push_back({name, a, inputs});
        cases.push_back(
            {name + "_scan", a,
             lstm ? std::vector<Operand>{wide, w, state, state} : std::vector<Operand>{wide, w, bias, state}});
        std::vector<Operand> back{w, lstm ? kept : y, all, state, y};
        cases.push_back({name + "_scan_grad", a, back});
        if (lstm) back.push_back(kept);
        if (lstm) cases.push_back({name + "_scan_grad", a, back});
        back.push_back(all);
        cases.push_back({name + "_scan_grad", a, back});
      }
    }
}

}  // namespace harmonics::engine::conformance
