#include "engine/transformer/adapter.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>

#include "engine/base/spelling.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/peft_adapter.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr int64_t kHighestRank = 1 << 16;

[[noreturn]] void refuse_adapter(const std::string& path, const std::string& what) {
  throw Error(ErrorKind::Weights, fmt::format("the adapter '{}' {}", path, what));
}

// Returns the keys of weights that a run uses in linear maps, or, if `looked_up`, in lookups.
std::set<std::string> mapped_keys(const ResolvedSpec& resolved, bool looked_up) {
  std::set<std::string> keys;
  for (const TracedMap& map : resolved.maps())
    if (!map.key.empty() && map.looked_up == looked_up) keys.insert(map.key);
  return keys;
}

// Returns whether the shapes of the pair match the weight.
bool has_sizes_of(const BoundWeight& weight, const LowRank& pair) {
  if (weight.experts) {
    if (pair.a.rank() != 3 || pair.b.rank() != 3 || pair.magnitude) return false;
    const Shape rank_by_width = pair.a.shape(), rows_by_rank = pair.b.shape();
    return rank_by_width[0] == weight.experts && rows_by_rank[0] == weight.experts &&
           rank_by_width[2] == weight.shape[1] && rows_by_rank[1] == weight.shape[0] &&
           rank_by_width[1] == rows_by_rank[2];
  }
  if (pair.a.rank() != 2 || pair.b.rank() != 2 || weight.shape.rank() != 2) return false;
  const Shape a = pair.a.shape(), b = pair.b.shape();
  const int64_t rows = weight.shape[weight.transposed ? 1 : 0], width = weight.shape[weight.transposed ? 0 : 1];
  if (pair.looked_up) return a[0] == rows && b[0] == width && a[1] == b[1];
  const bool lengths = !pair.magnitude || pair.magnitude.size() == rows;
  return a[1] == width && b[0] == rows && a[0] == b[1] && lengths;
}

// Throws unless every pair belongs to a linear map or lookup and matches its shape.
void expect_pairs(const Adapter& adapter, const ResolvedSpec& resolved) {
  if (adapter.pairs.empty()) refuse_adapter(adapter.path, "has no matrices");
  const std::set<std::string> mapped = mapped_keys(resolved, false), looked_up = mapped_keys(resolved, true);
  for (const auto& [key, pair] : adapter.pairs) {
    const std::string name = printable(pair.name, 120), &model = resolved.variables().model();
    const auto weight = resolved.weights().find(key);
    if (weight == resolved.weights().end() || weight->second.parameter.empty()) {
      const std::string meant = did_you_mean(key, {mapped.begin(), mapped.end()});
      throw Error(ErrorKind::Weights,
                  fmt::format("the adapter '{}' changes '{}' by '{}', but '{}' has no such weight", adapter.path,
                              printable(key, 80), name, model),
                  {}, meant.empty() ? std::vector<std::string>{} : std::vector<std::string>{meant});
    }
    if (!(pair.looked_up ? looked_up : mapped).count(key))
      refuse_adapter(adapter.path, fmt::format("changes '{}' by '{}', which '{}' does not use as a single linear map",
                                               key, name, model));
    const Shape a = pair.a.shape(), b = pair.b.shape(), whole = weight->second.shape;
    if (!has_sizes_of(weight->second, pair))
      refuse_adapter(adapter.path,
                     fmt::format("has the matrices {} and {} for '{}', which do not match the weight {} of '{}'",
                                 a.str(), b.str(), name, whole.str(), model));
    if (pair.rank() > kHighestRank)
      refuse_adapter(adapter.path, fmt::format("has the rank {} for '{}'", pair.rank(), name));
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
    refuse_adapter(
        file.path,
        fmt::format("has the type '{}'{}; expected an adapter of the type lora, as convert_lora_to_gguf.py writes",
                    printable(type, 40), kind.empty() ? "" : fmt::format(" of '{}'", printable(kind, 40))));
  const std::string of = metadata.text("general.architecture", "");
  const std::vector<std::string>& fits = resolved.spec().architectures;
  if (!fits.empty() && std::find(fits.begin(), fits.end(), of) == fits.end())
    refuse_adapter(file.path, fmt::format("is for the architecture '{}', but '{}' is of '{}'", printable(of, 40),
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
    pair.looked_up = key == "token_embd.weight";
    if (alpha != 0 && pair.a.rank() >= 2 && pair.rank() > 0) pair.scale *= alpha / static_cast<double>(pair.rank());
    adapter.pairs.emplace(key, std::move(pair));
  }
  imported.expect_whole();
  return adapter;
}

namespace {

// Returns the folder of an adapter of PEFT if the path is that of one of its files; other paths unchanged.
std::string adapter_path(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path given = path;
  const bool is_part = given.filename() == "adapter_config.json" || given.filename() == "adapter_model.safetensors";
  const std::filesystem::path folder = given.has_parent_path() ? given.parent_path() : ".";
  return is_part && std::filesystem::exists(folder / "adapter_config.json", failed) ? folder.string() : path;
}

}  // namespace

Adapter read_adapter(const AdapterFile& given, const ResolvedSpec& resolved, Registry& registry) {
  std::error_code failed;
  AdapterFile file = given;
  file.path = adapter_path(file.path);
  const bool folder = std::filesystem::is_directory(file.path, failed);
  if (std::filesystem::is_regular_file(file.path, failed) && !std::filesystem::is_empty(file.path, failed) &&
      !is_model(file.path, registry))
    throw Error(
        ErrorKind::Weights, fmt::format("'{}' is not an adapter", file.path), {},
        {"adapters are PEFT folders and GGUF files: 'train' writes one to output_dir/adapter, 'run' to the path "
         "of --save-adapter"});
  Adapter adapter = folder ? read_peft_adapter(file, resolved) : read_gguf_adapter(file, resolved, registry);
  expect_pairs(adapter, resolved);
  return adapter;
}

namespace {

Shape of_each_expert(int64_t experts, const Shape& shape) {
  return experts ? Shape{experts, shape[0], shape[1]} : shape;
}

// Concatenates the A matrices of several pairs along rows.
HTensor stacked_rows(const std::vector<const LowRank*>& pairs) {
  int64_t rows = 0;
  const int64_t width = pairs.front()->a.shape().back(), experts = pairs.front()->experts();
  for (const LowRank* pair : pairs) rows += pair->rank();
  HTensor all(DType::F32, of_each_expert(experts, Shape{rows, width}));
  auto* to = all.mutable_data<float>();
  for (int64_t e = 0; e < std::max<int64_t>(1, experts); ++e)
    for (const LowRank* pair : pairs) {
      const int64_t each = pair->rank() * width;
      to = std::copy_n(floats_of(pair->a) + e * each, each, to);
    }
  return all;
}

// Concatenates the B matrices of several pairs, multiplied by their scales, along columns.
HTensor stacked_columns(const std::vector<const LowRank*>& pairs) {
  int64_t columns = 0, at = 0;
  const int64_t experts = pairs.front()->experts(), each = pairs.front()->b.shape()[experts ? 1 : 0];
  for (const LowRank* pair : pairs) columns += pair->rank();
  HTensor all(DType::F32, of_each_expert(experts, Shape{each, columns}));
  auto* to = all.mutable_data<float>();
  const int64_t rows = each * std::max<int64_t>(1, experts);
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

// Concatenates matrices of equal height along columns.
HTensor beside_each_other(const std::vector<const HTensor*>& all) {
  if (all.size() == 1) return *all.front();
  std::vector<HTensor> list;
  for (const HTensor* one : all) list.push_back(*one);
  return concat(list, 1);
}

// Pairs by weight.
using PairsByWeight = std::map<std::string, std::vector<const LowRank*>>;
PairsByWeight pairs_by_weight(const std::vector<Adapter>& adapters) {
  PairsByWeight all;
  for (const Adapter& adapter : adapters)
    for (const auto& [key, pair] : adapter.pairs) all[key].push_back(&pair);
  return all;
}

std::vector<const LowRank*> addresses_of(const std::vector<LowRank>& pairs) {
  std::vector<const LowRank*> all;
  for (const LowRank& pair : pairs) all.push_back(&pair);
  return all;
}

// Returns the weight plus scale · B A, in f32. For a table, rows are those of A.
HTensor sum_of(const HTensor& weight, bool transposed, const std::vector<const LowRank*>& pairs) {
  HTensor sum = in_floats(weight);
  float* to = sum.mutable_data<float>();
  const int64_t rows = weight.shape()[0], width = weight.shape()[1];
  for (const LowRank* pair : pairs) {
    const float *a = floats_of(pair->a), *b = floats_of(pair->b);
    const int64_t rank = pair->rank();
    // element (r, k) of the left factor
    const auto left = [&](int64_t r, int64_t k) {
      if (pair->looked_up) return a[r * rank + k];
      return transposed ? a[k * rows + r] : b[r * rank + k];
    };
    const bool by_rows = !transposed && !pair->looked_up;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < rank; ++k) {
        const float factor = static_cast<float>(pair->scale * static_cast<double>(left(r, k)));
        for (int64_t c = 0; c < width; ++c)
          to[r * width + c] += factor * (by_rows ? a[k * width + c] : b[c * rank + k]);
      }
  }
  return sum;
}

// DoRA: returns the factors that give the rows of the sum the norms in `magnitude`.
HTensor length_factors(const HTensor& sum, bool transposed, const HTensor& magnitude) {
  return magnitude / sqrt(row_squares(sum, transposed));
}

}  // namespace

namespace {

// Declares the parameters of adapters for apply_adapters().
class AppliedAdapters {
 public:
  AppliedAdapters(const ResolvedSpec& resolved, ParameterStore& parameters)
      : resolved_(resolved), parameters_(parameters) {}

  // Adds weights that read the same x.
  void group(const std::vector<std::string>& keys, const PairsByWeight& pairs) {
    std::vector<const LowRank*> all;
    for (const std::string& key : keys) all.insert(all.end(), pairs.at(key).begin(), pairs.at(key).end());
    const HTensor a = stacked_rows(all);
    const std::string name = keys.front() + ".lora_a";
    adopt(name, a);
    int64_t from = 0;
    for (const std::string& key : keys) {
      const HTensor b = stacked_columns(pairs.at(key));
      const int64_t rank = b.shape().back();
      adopt(key + ".lora_b", b);
      adapted_[key] = {name, key + ".lora_b", a.shape()[a.rank() - 2], from, rank, lengths(key, pairs.at(key))};
      from += rank;
    }
  }

  void table(const std::string& key, const std::vector<const LowRank*>& pairs) {
    std::vector<const HTensor*> tables;
    for (const LowRank* pair : pairs) tables.push_back(&pair->a);
    const HTensor b = stacked_columns(pairs);
    adopt(key + ".lora_a", beside_each_other(tables));
    adopt(key + ".lora_b", b);
    adapted_[key] = {key + ".lora_a", key + ".lora_b", pairs.front()->a.shape()[0], 0, b.shape()[1], "", true};
  }

  AdaptedWeights take() { return std::move(adapted_); }

 private:
  void adopt(const std::string& name, const HTensor& tensor) {
    parameters_.adopt(name, tensor, nullptr, Role::frozen, {}).fixed = true;
  }

  // DoRA: declares the parameter with the factors of the rows and returns its name; "" without DoRA.
  std::string lengths(const std::string& key, const std::vector<const LowRank*>& pairs) {
    if (std::none_of(pairs.begin(), pairs.end(), [](const LowRank* pair) { return bool(pair->magnitude); })) return "";
    if (pairs.size() > 1)
      throw Error(
          ErrorKind::Weights,
          fmt::format("several adapters change '{}', but one of them uses DoRA, which cannot be combined", key));
    const BoundWeight& weight = resolved_.weights().at(key);
    adopt(key + ".lora_lengths", length_factors(sum_of(parameters_.tensor(weight.parameter), weight.transposed, pairs),
                                                weight.transposed, pairs.front()->magnitude));
    return key + ".lora_lengths";
  }

  const ResolvedSpec& resolved_;
  ParameterStore& parameters_;
  AdaptedWeights adapted_;
};

}  // namespace

void apply_adapters(const std::vector<Adapter>& adapters, ResolvedSpec& resolved, ParameterStore& parameters) {
  const PairsByWeight pairs = pairs_by_weight(adapters);
  if (pairs.empty()) return;
  AppliedAdapters applied(resolved, parameters);
  // Weights grouped by the x they read, in the order of the steps.
  std::vector<std::pair<ValueId, std::vector<std::string>>> groups;
  std::set<std::string> placed;
  for (const TracedMap& map : resolved.maps()) {
    if (!pairs.count(map.key) || !placed.insert(map.key).second) continue;
    if (map.looked_up) {
      applied.table(map.key, pairs.at(map.key));
      continue;
    }
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == map.x; });
    if (group == groups.end()) group = groups.insert(groups.end(), {map.x, {}});
    group->second.push_back(map.key);
  }
  for (const auto& [x, keys] : groups) applied.group(keys, pairs);
  resolved.adapt(applied.take());
}

HTensor row_squares(const HTensor& weight, bool transposed) {
  const HTensor floats = in_floats(weight);
  const int64_t rows = weight.shape()[0], width = weight.shape()[1];
  std::vector<double> sums(static_cast<size_t>(transposed ? width : rows));
  const float* from = floats_of(floats);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      const auto element = static_cast<double>(from[r * width + c]);
      sums[static_cast<size_t>(transposed ? c : r)] += element * element;
    }
  HTensor all(DType::F32, Shape{static_cast<int64_t>(sums.size())});
  std::transform(sums.begin(), sums.end(), all.mutable_data<float>(), [](double v) { return static_cast<float>(v); });
  return all;
}

namespace {

// Weights that were bf16 may exceed the range of f16. Quantised ones are stored as f16.
DType merged_type(const HTensor& weight) {
  return weight.dtype() == DType::F32 || weight.dtype() == DType::BF16 ? weight.dtype() : DType::F16;
}

}  // namespace

HTensor merged_weight(const HTensor& weight, bool transposed, const std::vector<const LowRank*>& pairs) {
  HTensor sum = sum_of(weight, transposed, pairs);
  if (pairs.front()->magnitude) {
    const HTensor factors = length_factors(sum, transposed, pairs.front()->magnitude);
    const float* by = floats_of(factors);
    float* to = sum.mutable_data<float>();
    const int64_t rows = weight.shape()[0], width = weight.shape()[1];
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < width; ++c) to[r * width + c] *= by[transposed ? c : r];
  }
  return weight.dtype() == DType::F32 ? sum : cast(sum, merged_type(weight));
}

LowRank LowRank::of_expert(int64_t number) const {
  LowRank own = *this;
  const auto part = [&](const HTensor& all) {
    const Shape shape = all.shape().from(1);
    HTensor one(DType::F32, shape);
    std::copy_n(floats_of(all) + number * shape.count(), shape.count(), one.mutable_data<float>());
    return one;
  };
  own.a = part(a), own.b = part(b);
  return own;
}

HTensor merged_experts(const HTensor& stack, const std::vector<const LowRank*>& pairs) {
  const Shape each = stack.shape().from(1);
  std::vector<HTensor> all;
  for (int64_t e = 0; e < stack.shape()[0]; ++e) {
    std::vector<LowRank> own;
    for (const LowRank* pair : pairs) own.push_back(pair->of_expert(e));
    const HTensor merged = merged_weight(cast(expert_of(stack, e), DType::F32), false, addresses_of(own));
    all.push_back(reshape(merged, Shape{1, each[0], each[1]}));
  }
  const HTensor sum = concat(all, 0);
  return stack.dtype() == DType::F32 ? sum : cast(sum, merged_type(stack));
}

std::map<std::string, HTensor> merged_tensors(const ImportedModel& imported, const ResolvedSpec& resolved,
                                              const std::vector<Adapter>& adapters) {
  std::map<std::string, HTensor> all = imported.tensors;
  std::map<std::string, int> uses;  // number of weights per tensor of the file
  for (const auto& [key, weight] : resolved.weights()) ++uses[weight.source];
  const std::set<std::string> mapped = mapped_keys(resolved, false), looked_up = mapped_keys(resolved, true);
  for (const auto& [key, pairs] : pairs_by_weight(adapters)) {
    const BoundWeight& weight = resolved.weights().at(key);
    if (mapped.count(key) && looked_up.count(key))
      throw Error(ErrorKind::Weights,
                  fmt::format("an adapter changes '{}' as the {} of '{}', which uses it as the {} too", key,
                              pairs.front()->looked_up ? "embedding" : "head", imported.path,
                              pairs.front()->looked_up ? "head" : "embedding"),
                  {}, {"give the adapter to the command that runs the model: --lora FILE"});
    if (uses.at(weight.source) > 1)
      throw Error(ErrorKind::Weights,
                  fmt::format("an adapter changes '{}' alone, and '{}' uses the tensor '{}' for other weights too", key,
                              imported.path, weight.source),
                  {}, {"give the adapter to the command that runs the model: --lora FILE"});
    const bool lengths = std::any_of(pairs.begin(), pairs.end(), [](const LowRank* p) { return bool(p->magnitude); });
    if (lengths && pairs.size() > 1)
      throw Error(
          ErrorKind::Weights,
          fmt::format("several adapters change '{}', but one of them uses DoRA, which cannot be combined", key));
    for (int64_t e = 0; e < weight.experts; ++e)  // separate matrices, as in a folder
      if (const auto alone = all.find(expert_name(weight.source, e)); alone != all.end()) {
        std::vector<LowRank> own;
        for (const LowRank* pair : pairs) own.push_back(pair->of_expert(e));
        alone->second = merged_weight(alone->second, false, addresses_of(own));
      }
    if (weight.experts && !all.count(weight.source)) continue;
    HTensor& tensor = all.at(weight.source);
    tensor = weight.experts ? merged_experts(tensor, pairs) : merged_weight(tensor, weight.transposed, pairs);
  }
  return all;
}

}  // namespace harmonics::engine
