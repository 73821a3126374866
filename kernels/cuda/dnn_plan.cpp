// Selects the cuDNN engine of an operation.
#include <algorithm>

#include "dnn_description.hpp"

namespace harmonics::cuda {
namespace {

constexpr int64_t kMostWorkspace = int64_t{256} << 20;
constexpr int64_t kMostNotes = 64;

// Whether an engine is deterministic and its other numerical properties are allowed.
bool has_numbers(const DnnFunctions& f, const Descriptor& choice, const DnnNumbers& numbers) {
  Descriptor engine(f, dnn::kEngine);
  dnn::Description raw = engine.get();
  int64_t n = 0;
  if (!engine.is_good() || f.get(choice.get(), dnn::kChoiceEngine, dnn::kDescriptions, 1, &n, &raw) != 0) return false;
  int32_t notes[kMostNotes] = {};
  if (f.get(raw, dnn::kEngineNotes, dnn::kNotes, kMostNotes, &n, notes) != 0) return false;
  return std::none_of(notes, notes + std::min(n, kMostNotes), [&](int32_t note) {
    if (note == dnn::kVaries || note == dnn::kRoundsInputs || note == dnn::kRoundsSums) return true;
    if (note == dnn::kTensorCores) return !numbers.tensor_cores;
    return !numbers.transforms && (note == dnn::kFourier || (note >= dnn::kWinograd && note <= dnn::kWinogradLargest));
  });
}

}  // namespace

DnnPlan plan_operation(const DnnFunctions& f, const DnnTarget& target, std::vector<Descriptor> parts,
                       const DnnNumbers& numbers, std::string& why) {
  const dnn::Description operation = parts.back().get();
  parts.emplace_back(f, dnn::kGraph)
      .handle(dnn::kGraphHandle, target.handle)
      .set(dnn::kGraphOperations, dnn::kDescriptions, 1, &operation)
      .finalize();
  for (const Descriptor& part : parts)
    if (!part.is_good()) {
      why = std::string("cuDNN does not take the description: ") + f.status_text(part.code());
      return {};
    }
  const char* reason = "none offered";
  for (const int mode : {dnn::kBest, dnn::kFallback}) {
    Descriptor heuristics(f, dnn::kHeuristics);
    heuristics.link(dnn::kHeuristicsGraph, parts.back()).choice(dnn::kHeuristicsMode, dnn::kHeuristicModes, mode);
    if (target.properties) heuristics.link(dnn::kHeuristicsProperties, *target.properties);
    heuristics.finalize();
    int64_t offered = 0;
    if (!heuristics.is_good() ||
        f.get(heuristics.get(), dnn::kHeuristicsResults, dnn::kDescriptions, 0, &offered, nullptr) != 0)
      continue;
    std::vector<Descriptor> choices;
    std::vector<dnn::Description> raw;
    for (int64_t i = 0; i < offered; ++i) raw.push_back(choices.emplace_back(f, dnn::kEngineChoice).get());
    int64_t given = 0;
    if (offered == 0 ||
        f.get(heuristics.get(), dnn::kHeuristicsResults, dnn::kDescriptions, offered, &given, raw.data()) != 0)
      continue;
    for (size_t i = 0; i < static_cast<size_t>(std::min(given, offered)); ++i) {
      if (!has_numbers(f, choices[i], numbers)) {
        reason = "engines that round or vary";
        continue;
      }
      Descriptor plan(f, dnn::kPlan);
      plan.handle(dnn::kPlanHandle, target.handle).link(dnn::kPlanChoice, choices[i]);
      if (target.properties) plan.link(dnn::kPlanProperties, *target.properties);
      plan.finalize();
      int64_t bytes = 0, n = 0;
      if (!plan.is_good() || f.get(plan.get(), dnn::kPlanWorkspace, dnn::kInt64s, 1, &n, &bytes) != 0 ||
          bytes > kMostWorkspace) {
        reason = "engines that do not fit";
        continue;
      }
      parts.push_back(std::move(choices[i]));
      parts.push_back(std::move(plan));
      why.clear();
      return {std::move(parts), static_cast<uint64_t>(bytes)};
    }
  }
  why = std::string("cuDNN knows no way: ") + reason;
  return {};
}

}  // namespace harmonics::cuda
