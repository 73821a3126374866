#include "engine/transformer/adapter.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>

#include "engine/base/spelling.hpp"
#include "engine/transformer/peft_adapter.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr int64_t kHighestRank = 1 << 16;

[[noreturn]] void refuse_adapter(const std::string& path, const std::string& what) {
  throw Error(ErrorKind::Weights, fmt::format("the adapter '{}' {}", path, what));
}

// Matrices whose maps a run traces, by key.
std::set<std::string> mapped_keys(const ResolvedSpec& resolved) {
  std::set<std::string> keys;
  for (const TracedMap& map : resolved.maps())
    if (!map.key.empty()) keys.insert(map.key);
  return keys;
}

// Every pair must belong to a linear map, and have its sizes.
void expect_pairs(const Adapter& adapter, const ResolvedSpec& resolved) {
  if (adapter.pairs.empty()) refuse_adapter(adapter.path, "has no matrices");
  const std::set<std::string> mapped = mapped_keys(resolved);
  for (const auto& [key, pair] : adapter.pairs) {
    const std::string name = printable(pair.name, 120), &model = resolved.variables().model();
    const auto weight = resolved.weights().find(key);
    if (weight == resolved.weights().end() || weight->second.parameter.empty()) {
      const std::string meant = did_you_mean(key, {mapped.begin(), mapped.end()});
      throw Error(ErrorKind::Weights,
                  fmt::format("the adapter '{}' changes '{}' by '{}', and '{}' has no such weight", adapter.path,
                              printable(key, 80), name, model),
                  {}, meant.empty() ? std::vector<std::string>{} : std::vector<std::string>{meant});
    }
    if (!mapped.count(key))
      refuse_adapter(adapter.path, fmt::format("changes '{}' by '{}', which '{}' uses otherwise than as one linear map",
                                               key, name, model));
    const Shape a = pair.a.shape(), b = pair.b.shape(), whole = weight->second.shape;
    const bool matrices = a.rank() == 2 && b.rank() == 2 && whole.rank() == 2;
    const int64_t rows = matrices ? whole[weight->second.transposed ? 1 : 0] : 0,
                  width = matrices ? whole[weight->second.transposed ? 0 : 1] : 0;
    if (!matrices || a[1] != width || b[0] != rows || a[0] != b[1])
      refuse_adapter(adapter.path,
                     fmt::format("has the matrices {} and {} for '{}', which do not fit to the weight {} of '{}'",
                                 a.str(), b.str(), name, whole.str(), model));
    if (a[0] > kHighestRank) refuse_adapter(adapter.path, fmt::format("has the rank {} for '{}'", a[0], name));
  }
}

HTensor in_floats(const HTensor& tensor) { return tensor.dtype() == DType::F32 ? tensor : cast(tensor, DType::F32); }

const float* floats_of(const HTensor& tensor) { return static_cast<const float*>(tensor.bytes()); }

}  // namespace

Adapter read_gguf_adapter(const AdapterFile& file, const ResolvedSpec& resolved, Registry& registry) {
  const ImportedModel imported = import_model(file.path, registry);
  const ModelMetadata& metadata = imported.metadata;
  const std::string type = metadata.text("general.type", "model"), kind = metadata.text("adapter.type", "");
  if (type != "adapter" || kind != "lora")
    refuse_adapter(file.path,
                   fmt::format("has the type '{}'{}; it must be an adapter of the type lora", printable(type, 40),
                               kind.empty() ? "" : fmt::format(" of '{}'", printable(kind, 40))));
  const std::string of = metadata.text("general.architecture", "");
  const std::vector<std::string>& fits = resolved.spec().architectures;
  if (!fits.empty() && std::find(fits.begin(), fits.end(), of) == fits.end())
    refuse_adapter(file.path, fmt::format("is for the architecture '{}', and '{}' is of '{}'", printable(of, 40),
                                          resolved.variables().model(), comma_separated(fits)));
  Adapter adapter{file.path, "GGUF", file.strength, {}};
  const double alpha = metadata.number("adapter.lora.alpha", 0.0);
  const std::string endings[] = {".lora_a", ".lora_b"};
  for (const auto& [name, tensor] : imported.tensors) {
    const bool is_a = name.ends_with(endings[0]);
    if (!is_a && !name.ends_with(endings[1]))
      refuse_adapter(file.path,
                     fmt::format("has the tensor '{}'; names end in .lora_a or .lora_b", printable(name, 80)));
    const std::string key = name.substr(0, name.size() - endings[0].size());
    const std::string other = key + endings[is_a ? 1 : 0];
    const HTensor* with = imported.find(other);
    if (!with)
      refuse_adapter(file.path, fmt::format("has '{}' without '{}'", printable(name, 80), printable(other, 80)));
    if (!is_a) continue;
    LowRank pair{in_floats(tensor), in_floats(*with), file.strength, alpha, name};
    if (alpha != 0 && pair.a.rank() == 2 && pair.rank() > 0) pair.scale *= alpha / static_cast<double>(pair.rank());
    adapter.pairs.emplace(key, std::move(pair));
  }
  imported.expect_whole();
  return adapter;
}

Adapter read_adapter(const AdapterFile& file, const ResolvedSpec& resolved, Registry& registry) {
  std::error_code failed;
  const bool folder = std::filesystem::is_directory(file.path, failed);
  Adapter adapter = folder ? read_peft_adapter(file, resolved) : read_gguf_adapter(file, resolved, registry);
  expect_pairs(adapter, resolved);
  return adapter;
}

namespace {

// Rows of several pairs behind each other: of A as they are.
HTensor stacked_rows(const std::vector<const LowRank*>& pairs) {
  int64_t rows = 0;
  const int64_t width = pairs.front()->a.shape()[1];
  for (const LowRank* pair : pairs) rows += pair->rank();
  HTensor all(DType::F32, Shape{rows, width});
  auto* to = all.mutable_data<float>();
  for (const LowRank* pair : pairs) to = std::copy_n(floats_of(pair->a), pair->a.size(), to);
  return all;
}

// Columns of several pairs behind each other: of B, with the scales.
HTensor stacked_columns(const std::vector<const LowRank*>& pairs) {
  int64_t columns = 0, at = 0;
  const int64_t rows = pairs.front()->b.shape()[0];
  for (const LowRank* pair : pairs) columns += pair->rank();
  HTensor all(DType::F32, Shape{rows, columns});
  auto* to = all.mutable_data<float>();
  for (const LowRank* pair : pairs) {
    const float* from = floats_of(pair->b);
    const int64_t rank = pair->rank();
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < rank; ++c)
        to[r * columns + at + c] = static_cast<float>(pair->scale * static_cast<double>(from[r * rank + c]));
    at += rank;
  }
  return all;
}

// The pairs of each weight.
std::map<std::string, std::vector<const LowRank*>> pairs_by_weight(const std::vector<Adapter>& adapters) {
  std::map<std::string, std::vector<const LowRank*>> all;
  for (const Adapter& adapter : adapters)
    for (const auto& [key, pair] : adapter.pairs) all[key].push_back(&pair);
  return all;
}

}  // namespace

void apply_adapters(const std::vector<Adapter>& adapters, ResolvedSpec& resolved, ParameterStore& parameters) {
  const auto pairs = pairs_by_weight(adapters);
  if (pairs.empty()) return;
  // The weights that read one x, in the order of the steps.
  std::vector<std::pair<ValueId, std::vector<std::string>>> groups;
  std::set<std::string> placed;
  for (const TracedMap& map : resolved.maps()) {
    if (!pairs.count(map.key) || !placed.insert(map.key).second) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == map.x; });
    if (group == groups.end()) group = groups.insert(groups.end(), {map.x, {}});
    group->second.push_back(map.key);
  }
  const auto adopt = [&](const std::string& name, const HTensor& tensor) {
    parameters.adopt(name, tensor, nullptr, Role::frozen, {}).fixed = true;
  };
  AdaptedWeights adapted;
  for (const auto& [x, keys] : groups) {
    std::vector<const LowRank*> all;
    for (const std::string& key : keys) all.insert(all.end(), pairs.at(key).begin(), pairs.at(key).end());
    const HTensor a = stacked_rows(all);
    const std::string name = keys.front() + ".lora_a";
    adopt(name, a);
    int64_t from = 0;
    for (const std::string& key : keys) {
      const HTensor b = stacked_columns(pairs.at(key));
      const int64_t rank = b.shape()[1];
      adopt(key + ".lora_b", b);
      adapted[key] = {name, key + ".lora_b", a.shape()[0], from, rank};
      from += rank;
    }
  }
  resolved.adapt(std::move(adapted));
}

HTensor merged_weight(const HTensor& weight, bool transposed, const std::vector<const LowRank*>& pairs) {
  HTensor sum = in_floats(weight);
  float* to = sum.mutable_data<float>();
  const int64_t rows = weight.shape()[0], width = weight.shape()[1];
  for (const LowRank* pair : pairs) {
    const float *a = floats_of(pair->a), *b = floats_of(pair->b);
    const int64_t rank = pair->rank();
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < rank; ++k) {
        // Transposed, the weight is [width of x, rows], and its rows belong to columns of A.
        const float left =
            static_cast<float>(pair->scale * static_cast<double>(transposed ? a[k * rows + r] : b[r * rank + k]));
        for (int64_t c = 0; c < width; ++c)
          to[r * width + c] += left * (transposed ? b[c * rank + k] : a[k * width + c]);
      }
  }
  return weight.dtype() == DType::F32 ? sum : cast(sum, DType::F16);
}

std::map<std::string, HTensor> merged_tensors(const ImportedModel& imported, const ResolvedSpec& resolved,
                                              const std::vector<Adapter>& adapters) {
  std::map<std::string, HTensor> all = imported.tensors;
  std::map<std::string, int> uses;  // of tensors of the file
  for (const auto& [key, weight] : resolved.weights()) ++uses[weight.source];
  for (const auto& [key, pairs] : pairs_by_weight(adapters)) {
    const BoundWeight& weight = resolved.weights().at(key);
    if (uses.at(weight.source) > 1)
      throw Error(ErrorKind::Weights,
                  fmt::format("an adapter changes '{}' alone, and '{}' uses the tensor '{}' for other weights too", key,
                              imported.path, weight.source),
                  {}, {"give the adapter to the command that runs the model: --lora FILE"});
    HTensor& tensor = all.at(weight.source);
    tensor = merged_weight(tensor, weight.transposed, pairs);
  }
  return all;
}

}  // namespace harmonics::engine
