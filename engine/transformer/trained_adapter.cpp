#include "engine/transformer/trained_adapter.hpp"

#include <algorithm>
#include <set>

#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/base/spelling.hpp"
#include "engine/transformer/adapter.hpp"
#include "engine/transformer/adapter_names.hpp"

namespace harmonics::engine {

namespace {

// Returns the targets named by the settings, in the order of the model.
std::vector<AdapterTarget> chosen_targets(const LoraSettings& settings, const ResolvedSpec& resolved) {
  const std::vector<AdapterTarget> all = adapter_targets(resolved);
  std::vector<std::string> known{"all-linear"};
  for (const AdapterTarget& target : all)
    for (const std::string& name : {target.name, target.other})
      if (!name.empty() && std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
  const auto named = [&](const AdapterTarget& target) {
    return std::any_of(settings.targets.begin(), settings.targets.end(), [&](const std::string& name) {
      return name == target.name || name == target.other || (name == "all-linear" && target.by_default);
    });
  };
  for (const std::string& name : settings.targets)
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const std::string meant = did_you_mean(name, known);
      throw Error(ErrorKind::Usage, fmt::format("lora: '{}' has no target '{}'", resolved.variables().model(), name),
                  {}, {meant.empty() ? "targets: " + comma_separated(known) : meant});
    }
  std::vector<AdapterTarget> chosen;
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen), named);
  std::map<std::string, const AdapterTarget*> whole;
  for (const AdapterTarget& target : chosen)
    if (!target.is_part()) whole[target.key] = &target;
  for (const AdapterTarget& target : chosen)
    if (target.is_part() && whole.count(target.key))
      throw Error(ErrorKind::Usage, fmt::format("lora: the targets '{}' and '{}' are the same weight '{}'", target.name,
                                                whole.at(target.key)->name, target.key));
  if (chosen.empty())
    throw Error(ErrorKind::Usage, fmt::format("lora: '{}' has no linear map to adapt", resolved.variables().model()));
  return chosen;
}

// Returns the targets changed by an adapter from a file.
std::vector<AdapterTarget> targets_of(const Adapter& adapter, const ResolvedSpec& resolved) {
  std::vector<AdapterTarget> chosen;
  for (const AdapterTarget& target : adapter_targets(resolved))
    if (!target.is_part() && adapter.pairs.count(target.key)) chosen.push_back(target);
  if (chosen.size() != adapter.pairs.size())
    throw Error(ErrorKind::Weights, fmt::format("the adapter '{}' changes weights that cannot be trained further; "
                                                "modules that can: {}",
                                                adapter.path, chosen.size()));
  return chosen;
}

class AddedAdapter {
 public:
  AddedAdapter(const LoraSettings& settings, ResolvedSpec& resolved, Model& model)
      : resolved_(resolved), store_(*model.parameters) {
    made_.settings = settings;
    made_.base = model.name;
    made_.architecture = model.metadata.text("general.architecture", std::string());
  }

  void freeze() {
    for (const auto& [name, stored] : store_.all())
      if (StoredTensor* tensor = store_.find(name); tensor->role == Role::weight)
        tensor->role = Role::frozen, tensor->fixed = true;
  }

  void add(const AdapterTarget& target, const LowRank* from) {
    const LoraSettings& settings = made_.settings;
    const BoundWeight& weight = resolved_.weights().at(target.key);
    const std::string name = target.is_part() ? fmt::format("{}.{}", target.key, target.name) : target.key;
    TrainedPair pair{target.key, target.module, target.name, name + ".lora_A", name + ".lora_B", "", ""};
    pair.rank = from ? from->rank() : settings.rank;
    pair.factor = from ? from->scale : settings.factor();
    pair.width = target.width, pair.from = target.from, pair.rows = target.rows, pair.whole = target.whole;
    pair.looked_up = target.looked_up, pair.transposed = weight.transposed;
    pair.paired_width = width_of_adjacent_pairs(resolved_, target.key);
    pair.experts = target.experts;
    pair.group = groups_.emplace(std::make_pair(target.x, pair.factor), pair.a).first->second;
    declare(pair, from);
    if (from ? bool(from->magnitude) : settings.dora) declare_lengths(pair, weight, from);
    made_.pairs.push_back(std::move(pair));
  }

  std::shared_ptr<const TrainedAdapter> take() { return std::make_shared<TrainedAdapter>(std::move(made_)); }

 private:
  void declare(const TrainedPair& pair, const LowRank* from) {
    const LoraSettings& settings = made_.settings;
    const bool gaussian = settings.init == "gaussian";
    const hx_init zeros{HX_INIT_CONSTANT, 0, 0};
    const hx_init linear = gaussian ? hx_init{HX_INIT_NORMAL, 0, 1 / static_cast<double>(pair.rank)}
                                    : hx_init{HX_INIT_KAIMING_UNIFORM, static_cast<double>(pair.width), 0};
    const hx_init standard{HX_INIT_NORMAL, 0, 1};  // embeddings, as in PEFT
    Shape a = pair.looked_up ? Shape{pair.rows, pair.rank} : Shape{pair.rank, pair.width};
    Shape b = pair.looked_up ? Shape{pair.width, pair.rank} : Shape{pair.rows, pair.rank};
    if (pair.experts) a = Shape{pair.experts, a[0], a[1]}, b = Shape{pair.experts, b[0], b[1]};
    trained(pair.a, a, pair.looked_up ? zeros : linear, from ? from->a : HTensor());
    trained(pair.b, b, pair.looked_up ? standard : zeros, from ? from->b : HTensor());
  }

  void declare_lengths(TrainedPair& pair, const BoundWeight& weight, const LowRank* from) {
    if (pair.looked_up)
      throw Error(ErrorKind::Usage, "lora: dora is for linear maps; leave out the target 'embed_tokens'");
    if (pair.experts) throw Error(ErrorKind::Usage, "lora: dora is for linear maps; leave out the experts");
    if (resolved_.adapted().count(pair.key))
      throw Error(ErrorKind::Usage,
                  fmt::format("lora: another adapter changes '{}', and dora must be alone", pair.key));
    if (!squares_.count(weight.parameter))
      squares_[weight.parameter] = row_squares(store_.tensor(weight.parameter), weight.transposed);
    HTensor squares = squares_.at(weight.parameter);
    if (pair.rows != pair.whole) squares = slice_axis(squares, 0, pair.from, pair.from + pair.rows);
    pair.magnitude = pair.a.substr(0, pair.a.size() - 1) + "magnitude";
    pair.squares = pair.a.substr(0, pair.a.size() - 1) + "squares";
    trained(pair.magnitude, squares.shape(), {HX_INIT_CONSTANT, 1, 0}, from ? from->magnitude : sqrt(squares));
    store_.adopt(pair.squares, squares, nullptr, Role::frozen, {}).fixed = true;
  }

  // Declares a trained parameter. Values that the store expects from a file of weights take precedence over `value`.
  void trained(const std::string& name, const Shape& shape, const hx_init& init, const HTensor& value) {
    const bool expected = store_.expected().count(name) > 0;
    store_.declare(name, {DType::F32, shape}, Role::weight, init, made_.settings.seed);
    if (value && !expected) store_.assign(name, value);
  }

  const ResolvedSpec& resolved_;
  ParameterStore& store_;
  TrainedAdapter made_;
  std::map<std::pair<ValueId, double>, std::string> groups_;  // by input and factor
  std::map<std::string, HTensor> squares_;
};

}  // namespace

std::vector<std::string> TrainedAdapter::parameters() const {
  std::vector<std::string> names;
  for (const TrainedPair& pair : pairs) {
    names.push_back(pair.a);
    names.push_back(pair.b);
    if (!pair.magnitude.empty()) names.push_back(pair.magnitude);
  }
  return names;
}

std::shared_ptr<const TrainedAdapter> add_adapters(const LoraSettings& settings, ResolvedSpec& resolved, Model& model,
                                                   Registry& registry) {
  expect_lora(settings);
  AddedAdapter added(settings, resolved, model);
  added.freeze();
  if (settings.from.empty()) {
    for (const AdapterTarget& target : chosen_targets(settings, resolved)) added.add(target, nullptr);
  } else {
    const Adapter adapter = read_adapter({settings.from, 1}, resolved, registry);
    for (const AdapterTarget& target : targets_of(adapter, resolved)) added.add(target, &adapter.pairs.at(target.key));
  }
  std::shared_ptr<const TrainedAdapter> made = added.take();
  resolved.train(made);
  model.adapter = made;
  return made;
}

}  // namespace harmonics::engine
