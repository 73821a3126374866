// Operations of specs that models of `.ndsl` files need beside those of spec_operations.cpp.
#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/tensor/attributes.hpp"
#include "engine/transformer/spec_trace.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

// Gains are stored without the 1 that is added to them, as Gemma's.
void trace_offset_rms_norm(SpecTrace& t) {
  const HTensor gain = t.weight("weight");
  if (!gain) t.fail("needs the tensor of 'weight', which the file lacks");
  t.set(apply("rms_norm", AttributeMap().set("epsilon", t.real("epsilon")), {t.value("in"), gain + 1.0}).at(0));
}

// Any functional: a value and weights to one result.
void trace_call(SpecTrace& t) {
  std::vector<HTensor> inputs{t.value("in")};
  if (t.has("weights")) {
    const std::string names = t.text("weights");
    for (size_t from = 0; from < names.size();) {
      const size_t comma = std::min(names.find(',', from), names.size());
      inputs.push_back(t.named_weight(names.substr(from, comma - from)));
      from = comma + 1;
    }
  }
  AttributeMap how;
  for (const auto& [name, value] : t.fields_with("attribute.")) {
    if (const auto* whole = std::get_if<int64_t>(&value)) how.set(name, *whole);
    if (const auto* real = std::get_if<double>(&value)) how.set(name, *real);
    if (const auto* truth = std::get_if<bool>(&value)) how.set(name, *truth);
    if (const auto* text = std::get_if<std::string>(&value)) how.set(name, *text);
  }
  const std::vector<HTensor> results = apply(t.text("function"), how, inputs);
  if (results.size() != 1)
    t.fail(
        fmt::format("calls {}, which has {} results; one is needed", shown_name(t.text("function")), results.size()));
  t.set(results[0]);
}

}  // namespace

std::vector<SpecOperation> further_spec_operations() {
  return {{"OffsetRmsNorm", {"in", "weight", "epsilon", "out"}, trace_offset_rms_norm},
          {"Call", {"in", "function", "weights?", "attribute.*?", "out"}, trace_call}};
}

}  // namespace harmonics::engine
