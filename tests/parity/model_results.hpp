// Compares a model's results for some tokens with expected ones, and writes models again.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/language/decoder.hpp"
#include "engine/model/exported.hpp"
#include "engine/model/imported.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine::parity {

// Returns the largest difference of two rows, relative to the largest expected value.
inline double relative_difference(std::span<const float> found, const float* expected) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i])));
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    if (std::isnan(found[i])) return std::numeric_limits<double>::infinity();
  }
  return worst / largest;
}

// Returns the outputs of the entry "forward" for the tokens, computed by the device.
inline std::map<std::string, HTensor> forward_results(const Model& model, const HTensor& tokens) {
  const auto executor = make_team_executor(2);
  const Program program = model.trace(model.entry("forward"), {1, tokens.size(), 1});
  CompileOptions options;
  options.device = "cpu";
  const auto executable = compile(program, model.parameters.get(), *executor, options);
  std::vector<const void*> inputs;
  for (const std::string& name : executable->input_names()) {
    REQUIRE(name == "tokens");
    inputs.push_back(tokens.bytes());
  }
  executable->run(inputs.data());
  std::map<std::string, HTensor> results;
  for (const char* name : {"scores", "hidden", "embedding", "pooled"})
    if (std::any_of(program.outputs.begin(), program.outputs.end(), [&](const auto& o) { return o.name == name; }))
      results.emplace(name, executable->output(name));
  return results;
}

// Writes a folder or GGUF file again, in the form that the name of `to` says.
inline void write_again(const std::string& from, const std::string& to) {
  Registry& registry = Registry::global();
  const ImportedModel model = import_model(from, registry, {"", {{"whole", "true"}}});
  export_model(model.tensors, model.metadata.values(), to, registry);
}

}  // namespace harmonics::engine::parity
