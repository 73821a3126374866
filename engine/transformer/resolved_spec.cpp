#include "engine/transformer/resolved_spec.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>

#include "engine/transformer/spec_trace.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr int64_t kMostTurns = 100'000;
constexpr int64_t kMostSize = int64_t{1} << 31;

// Whether `shape` is `matrix`, which has one row, without its dimension of 1.
bool is_row_of(const Shape& shape, const Shape& matrix) {
  return matrix.rank() == 2 && matrix[0] == 1 && shape == matrix.from(1);
}

constexpr const char* kDynamics[] = {"batch", "seq_len", "kv_capacity"};

// Returns whether a weight may have this type: f32, or, for matrices, any type that products support as weight.
bool is_weight_type(DType dtype, size_t rank) {
  return dtype == DType::F32 || (rank >= 2 && (dtype == DType::F16 || dtype == DType::BF16 || is_stored(dtype)));
}

Shape shape_of(Variables& variables, const std::vector<specs::Expression>& dims, const LocalValues& locals) {
  std::vector<int64_t> shape;
  for (const specs::Expression& dim : dims) {
    shape.push_back(variables.whole(dim, locals));
    if (shape.back() < 1 || shape.back() > kMostSize)
      throw Error(ErrorKind::Weights, fmt::format("{}: '{}' is {}; a dimension is 1 to {}", dim.place(), dim.text(),
                                                  shape.back(), kMostSize));
  }
  return Shape(shape);
}

}  // namespace

std::string expert_name(const std::string& parameter, int64_t number) {
  return fmt::format("{}[{}]", parameter, number);
}

void for_each_turn(const std::optional<specs::Repeat>& repeat, Variables& variables, const LocalValues& locals,
                   const std::function<void(const LocalValues&)>& body) {
  if (!repeat) return body(locals);
  const int64_t count = variables.whole(repeat->count, locals);
  if (count < 0 || count > kMostTurns)
    throw Error(ErrorKind::Weights, fmt::format("{}: '{}' is {}; a loop has 0 to {} turns", repeat->count.place(),
                                                repeat->count.text(), count, kMostTurns));
  LocalValues inside = locals;
  for (int64_t turn = 0; turn < count; ++turn) {
    inside[repeat->variable] = turn;
    body(inside);
  }
}

ResolvedSpec::ResolvedSpec(specs::Spec spec, const ModelMetadata& metadata, TensorTypes tensors,
                           SpecOverrides overrides, std::string model)
    : spec_(std::move(spec)), metadata_(metadata), tensors_(std::move(tensors)) {
  const auto rows_of = [this](const std::string& name) -> std::optional<int64_t> {
    const auto at = tensors_.find(name);
    if (at == tensors_.end()) return {};
    return at->second.shape.rank() ? at->second.shape[0] : 1;
  };
  variables_ = std::make_unique<Variables>(spec_, metadata_, rows_of, std::move(overrides), std::move(model));
  for (const std::string& dynamic : spec_.dynamics)
    if (std::find(std::begin(kDynamics), std::end(kDynamics), dynamic) == std::end(kDynamics))
      throw Error(ErrorKind::Name, fmt::format("'{}': prepare.dynamics has {}", spec_.path, shown_name(dynamic)), {},
                  {"values of a run: batch, seq_len, kv_capacity"});
  const auto size = [&](const char* variable) {
    const int64_t value = variables_->whole(specs::Expression(variable, fmt::format("the model's {}", variable)));
    if (value < 1 || value > kMostSize)
      throw Error(ErrorKind::Weights, fmt::format("'{}': the variable '{}' is {}; it must be 1 to {}",
                                                  variables_->model(), variable, value, kMostSize));
    return value;
  };
  expect_above_zero();
  context_ = size("max_seq_len");
  vocabulary_ = size("vocab_size");
  expect_checks();
  expect_whole_heads();
  expect_metadata();
  bind_weights();
  expect_no_others();
}

TensorTypes planned_tensors(const specs::Spec& spec, const ModelMetadata& metadata, const SpecOverrides& overrides,
                            const std::string& model) {
  const AttributeValue* said = metadata.values().find("huggingface.tied_embeddings");
  const auto* tied = said ? std::get_if<bool>(said) : nullptr;
  std::set<std::string> firsts;  // first candidates, which a tied model lacks
  for (const auto& [name, candidates] : spec.tensor_names)
    if (tied && *tied && candidates.size() > 1) firsts.insert(candidates.front());
  const auto rows_of = [&](const std::string& name) -> std::optional<int64_t> {
    if (firsts.count(name)) return {};
    return 1;
  };
  Variables variables(spec, metadata, rows_of, overrides, model);
  TensorTypes types;
  for (const specs::WeightBinding& binding : spec.weight_bindings) {
    if (binding.optional || binding.fallback_zero_len) continue;
    for_each_turn(binding.repeat, variables, {}, [&](const LocalValues& locals) {
      types[variables.tensor(binding.tensor, binding.place, locals)] = {DType::F32,
                                                                        shape_of(variables, binding.dims, locals)};
    });
  }
  return types;
}

std::optional<std::string> ResolvedSpec::variable_of(const std::string& key) const {
  const std::string full = metadata_.text("general.architecture", std::string()) + "." + key;
  for (const auto& [variable, keys] : spec_.keys)
    if (metadata_.has(full) && std::find(keys.begin(), keys.end(), full) != keys.end()) return variable;
  return {};
}

void ResolvedSpec::expect_above_zero() {
  for (const char* key :
       {"block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "attention.key_length",
        "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.freq_base_swa"}) {
    const auto variable = variable_of(key);
    if (!variable) continue;
    const ResolvedValue& found = variables_->value(*variable, key);
    const auto* whole = std::get_if<int64_t>(&found.value);
    const auto* real = std::get_if<double>(&found.value);
    if (whole ? *whole > 0 : !real || (*real > 0 && std::isfinite(*real))) continue;
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': {} is {}; it must be a number above 0", variables_->model(), found.origin,
                            whole ? std::to_string(*whole) : fmt::format("{}", *real)));
  }
}

void ResolvedSpec::expect_whole_heads() {
  const auto width = variable_of("embedding_length"), heads = variable_of("attention.head_count");
  if (!width || !heads || variable_of("attention.key_length")) return;
  const ResolvedValue &all = variables_->value(*width, "heads"), &count = variables_->value(*heads, "heads");
  const auto *of = std::get_if<int64_t>(&all.value), *by = std::get_if<int64_t>(&count.value);
  if (of && by && *of % *by != 0)
    throw Error(ErrorKind::Weights, fmt::format("'{}': {} is {}, which is no multiple of {}, {}", variables_->model(),
                                                all.origin, *of, count.origin, *by));
}

void ResolvedSpec::expect_checks() {
  for (const specs::Check& check : spec_.checks)
    if (variables_->whole(check.zero) != 0)
      throw Error(ErrorKind::Weights, fmt::format("'{}': {}", variables_->model(),
                                                  variables_->interpolated(check.message, check.zero.place())));
}

// Throws if metadata keys that change the model's computation, but are not read by the spec, have unexpected values.
void ResolvedSpec::expect_metadata() {
  for (const auto& [key, value] : spec_.expected) {
    if (!metadata_.has(key)) continue;
    const std::string place = fmt::format("'{}': metadata_keys.expected", spec_.path);
    const auto* text = std::get_if<std::string>(&value);
    const AttributeValue& found = *metadata_.values().find(key);
    std::string wanted = specs::text_of(value), is = "a list";
    if (const auto* whole = std::get_if<int64_t>(&found)) is = std::to_string(*whole);
    if (const auto* real = std::get_if<double>(&found)) is = fmt::format("{}", *real);
    if (const auto* truth = std::get_if<bool>(&found)) is = *truth ? "true" : "false";
    if (const auto* said = std::get_if<std::string>(&found)) is = *said;
    if (text && text->starts_with("'"))
      wanted = text->substr(1, text->size() - 2);
    else if (text)
      wanted = std::to_string(variables_->whole(specs::Expression(*text, place)));
    if (is == wanted) continue;
    throw Error(ErrorKind::Weights, fmt::format("'{}': the metadata '{}' is {}, but only {} is implemented",
                                                variables_->model(), key, printable(is, 80), wanted));
  }
  const std::string prefix = metadata_.text("general.architecture", std::string()) + ".";
  std::set<std::string> known(spec_.ignored.begin(), spec_.ignored.end());
  for (const auto& [key, value] : spec_.expected) known.insert(key);
  for (const auto& [variable, keys] : spec_.keys)
    for (const std::string& key : keys) known.insert(key.substr(key.starts_with('@') ? key.find(':') + 1 : 0));
  if (prefix == ".") return;
  for (const auto& [key, value] : metadata_.values().entries())
    if (key.starts_with(prefix) && !known.count(key))
      throw Error(ErrorKind::Weights,
                  fmt::format("'{}': the metadata '{}' may change what the model computes, and the spec '{}' does not "
                              "implement it",
                              variables_->model(), printable(key, 80), spec_.path),
                  {}, {"if it changes no result, list it under metadata_keys.ignored of a spec: --spec FILE"});
}

void ResolvedSpec::bind_weights() {
  for (const specs::WeightBinding& binding : spec_.weight_bindings)
    for_each_turn(binding.repeat, *variables_, {}, [&](const LocalValues& locals) { bind(binding, locals); });
  for (const auto& [key, bound] : weights_) {
    if (bound.parameter.empty()) continue;
    if (bound.experts == 0) {
      types_[bound.parameter] = tensors_.at(bound.source);
      continue;
    }
    for (int64_t e = 0; e < bound.experts; ++e)
      types_[expert_name(bound.parameter, e)] = {tensors_.at(bound.source).dtype, bound.shape};
  }
}

void ResolvedSpec::bind(const specs::WeightBinding& binding, const LocalValues& locals) {
  std::string first;
  const std::string place = fmt::format("'{}': {}", spec_.path, binding.place);
  const std::string found = variables_->tensor(binding.tensor, place, locals, &first);
  BoundWeight bound;
  bound.key = first;
  Shape wanted;
  if (found.empty()) {
    if (binding.fallback_zero_len)
      bound.shape = shape_of(*variables_, {*binding.fallback_zero_len}, locals);
    else if (!binding.optional)
      throw Error(ErrorKind::Weights, fmt::format("'{}' has no tensor '{}'", variables_->model(), first));
  } else {
    wanted = shape_of(*variables_, binding.dims, locals);
    bound.parameter = bound.source = found;
    bound.shape = wanted;
    bound.transposed = binding.layout == specs::Layout::canonical;
    if (binding.layout == specs::Layout::experts) {
      bound.experts = wanted[0];
      bound.shape = wanted.from(1);
    }
    expect_shape(bound, wanted);
    // Files of some writers lack a leading dimension of 1.
    if (is_row_of(tensors_.at(found).shape, wanted)) bound.shape = wanted.from(1);
  }
  if (weights_.size() == kMostTurns)
    throw Error(ErrorKind::Weights, fmt::format("{}: a model has at most {} tensors", place, kMostTurns));
  if (!weights_.emplace(first, bound).second)
    throw Error(ErrorKind::Name, fmt::format("{}: the tensor '{}' is bound twice", place, first));
}

void ResolvedSpec::expect_shape(const BoundWeight& bound, const Shape& wanted) const {
  const TensorType& found = tensors_.at(bound.source);
  if ((found.shape == wanted || is_row_of(found.shape, wanted)) && is_weight_type(found.dtype, found.shape.rank()))
    return;
  throw Error(ErrorKind::Weights,
              fmt::format("'{}': the tensor '{}' is {}, and the model's sizes need {}", variables_->model(),
                          bound.source, found.str(), TensorType{DType::F32, wanted}.str()));
}

// Throws for unused tensors of the file, because ignoring one, such as a bias, would silently change the result.
void ResolvedSpec::expect_no_others() const {
  std::set<std::string> used;
  for (const auto& [key, bound] : weights_) used.insert(bound.source);
  for (const auto& [name, type] : tensors_)
    if (!used.count(name))
      throw Error(ErrorKind::Weights, fmt::format("'{}' has the tensor '{}', which a model of this family does not "
                                                  "compute with",
                                                  variables_->model(), printable(name, 80)));
}

const BoundWeight& ResolvedSpec::weight(const std::string& name, const std::string& place,
                                        const LocalValues& locals) const {
  std::string first;
  variables_->tensor(name, place, locals, &first);
  if (const auto at = weights_.find(first); at != weights_.end()) return at->second;
  throw Error(ErrorKind::Name, fmt::format("{}: no weight binding has the tensor '{}' ({})", place, name, first));
}

const TensorType* ResolvedSpec::type_of(const std::string& parameter) const {
  const auto at = types_.find(parameter);
  return at == types_.end() ? nullptr : &at->second;
}

bool ResolvedSpec::has_caches() const {
  return std::any_of(spec_.tensors.begin(), spec_.tensors.end(),
                     [](const specs::Tensor& tensor) { return tensor.role == "cache"; });
}

// Paging requires caches of shape [batch, kv_capacity, ...], whose dimensions can also describe a pool of pages.
bool ResolvedSpec::has_paged_caches(DType cache) const {
  if (!has_caches()) return false;
  for (const specs::Tensor& tensor : spec_.tensors) {
    if (tensor.role != "cache") continue;
    if (tensor.grow_with_kv.value_or(1) != 1 || tensor.dims.size() < 2) return false;
    bool pools = true;
    for_each_turn(tensor.repeat, *variables_, {}, [&](const LocalValues& locals) {
      const Shape few = cache_type(*this, tensor, locals, {1, 1, 1}, cache).shape;
      const Shape many = cache_type(*this, tensor, locals, {3, 1, 7}, cache).shape;
      pools = pools && few[0] == 1 && few[1] == 1 && many[0] == 3 && many[1] == 7 && few.from(2) == many.from(2);
    });
    if (!pools) return false;
  }
  return true;
}

LocalValues ResolvedSpec::values_of(const EntrySizes& sizes) const {
  LocalValues values;
  const std::pair<const char*, int64_t> all[] = {
      {kDynamics[0], sizes.batch}, {kDynamics[1], sizes.tokens}, {kDynamics[2], sizes.capacity}};
  for (const auto& [name, value] : all)
    if (std::find(spec_.dynamics.begin(), spec_.dynamics.end(), name) != spec_.dynamics.end()) values[name] = value;
  for (const auto& [name, expression] : spec_.derived_globals) values[name] = variables_->whole(expression, values);
  return values;
}

void ResolvedSpec::check_entries(DType cache) const {
  for (const bool cached : {true, false}) {
    if (cached && !has_caches()) continue;
    Tracer tracer("check");
    SpecTrace(*this, tracer, {1, 1, 1}, cached, cache).run(cached ? SpecResult::last : SpecResult::all);
  }
  if (!has_paged_caches(cache)) return;
  EntrySizes sizes{3, 1, 2};
  sizes.pages = 2, sizes.page_rows = 2, sizes.scored = 1;
  Tracer tracer("check");
  SpecTrace(*this, tracer, sizes, true, cache).run(SpecResult::last);
}

std::vector<TracedMap> ResolvedSpec::maps() const {
  Tracer tracer("maps");
  SpecTrace trace(*this, tracer, {1, 1, 1}, has_caches(), DType::F32);
  trace.run(has_caches() ? SpecResult::last : SpecResult::all);
  std::vector<TracedMap> maps = trace.maps();
  const Program& program = tracer.program();
  for (const Node& node : program.nodes) {
    if (node.op != Op::slice) continue;
    const Shape from = program.type(node.inputs[0]).shape, to = program.type(node.outputs[0]).shape;
    if (from.slice(0, from.rank() - 1) != to.slice(0, to.rank() - 1)) continue;
    const int64_t begin = node.attributes.integers("starts").back();
    for (TracedMap& map : maps)
      if (map.y == node.inputs[0]) map.parts.emplace_back(begin, begin + to.back());
  }
  for (TracedMap& map : maps) std::sort(map.parts.begin(), map.parts.end());
  return maps;
}

void ResolvedSpec::add_entries(std::shared_ptr<ResolvedSpec> resolved, Model& model, DType cache) {
  TensorTypes types;
  for (const auto& [name, tensor] : model.parameters->all()) types[name] = tensor.type;
  if (!types.empty()) resolved->set_types(std::move(types));
  const std::shared_ptr<const ResolvedSpec> owned = std::move(resolved);
  for (const specs::Tensor& tensor : owned->spec_.tensors) {
    if (tensor.role != "cache") continue;
    for_each_turn(tensor.repeat, *owned->variables_, {}, [&](const LocalValues& locals) {
      const auto type = [owned, &tensor, locals, cache](const EntrySizes& sizes) {
        return cache_type(*owned, tensor, locals, sizes, cache);
      };
      model.states.push_back(
          {owned->variables_->interpolated(tensor.name, tensor.place, locals), type, tensor.grow_with_kv.value_or(1)});
    });
  }
  model.paged = owned->has_paged_caches(cache);
  model.context = owned->context_;
  model.covered = [owned] { return owned->covered_context(); };
  model.vocabulary = owned->vocabulary_;
  const auto add = [&](const char* name, bool cached, SpecResult result) {
    model.entries.push_back({name, [owned, cached, result, cache](Tracer& tracer, const EntrySizes& sizes) {
                               SpecTrace(*owned, tracer, sizes, cached, cache).run(result);
                             }});
  };
  if (owned->has_caches()) {
    add("prefill", true, SpecResult::none);
    add("decode", true, SpecResult::last);
    add("loss", false, SpecResult::loss);
  }
  add("forward", false, SpecResult::all);
  if (owned->spec_.outputs.count("hidden")) add("embed", false, SpecResult::vectors);
}

}  // namespace harmonics::engine
