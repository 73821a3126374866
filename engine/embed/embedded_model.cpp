#include "engine/embed/embedded_model.hpp"

#include <algorithm>
#include <filesystem>
#include <thread>

#include <fmt/core.h>

#include "engine/passes/between.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/described.hpp"
#include "engine/transformer/model_registry.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kKeptPlans = 32;  // per cache of plans; a full cache is cleared

std::string option_text(const char* text) { return text ? text : ""; }

std::map<std::string, std::string> given_settings(const std::string& text) {
  if (auto settings = settings_in(text)) return *settings;
  throw Error(ErrorKind::Usage, fmt::format("settings are NAME=VALUE, NAME=VALUE, not '{}'", text));
}

// Returns a copy that does not depend on the plan. Drops the first axis if it was `added` for the caller.
HTensor handed_out(const HTensor& value, bool added) {
  Shape shape = value.shape();
  if (added && shape.rank() > 0 && shape[0] == 1) shape = shape.from(1);
  return HTensor(value.dtype(), shape, value.bytes());
}

// Returns the sizes of a run over [tokens ...] or [batch, tokens ...]; `rank` is the rank without a batch axis.
template <typename Sizes>
Sizes sizes_of(const HTensor& given, uint32_t rank, const char* what) {
  const Shape& shape = given.shape();
  if ((shape.rank() != rank && shape.rank() != rank + 1) || shape.count() == 0)
    throw Error(ErrorKind::Shape, fmt::format("{}; here is {}", what, shape.str()));
  return shape.rank() == rank ? Sizes{1, shape[0]} : Sizes{shape[0], shape[1]};
}

}  // namespace

EmbeddedModel::EmbeddedModel(const std::string& name, const hx_model_options& options) : name_(name) {
  const std::string file = ModelRegistry::global().file_of(name), weights = option_text(options.weights);
  const std::string& described = file.empty() ? name : file;
  if (!file.empty() || is_ndsl(name)) {
    NdslOptions ndsl;
    ndsl.set = given_settings(option_text(options.set));
    ndsl.weights = weights;
    ndsl.seed = options.seed;
    NdslModel opened = open_ndsl(described, ndsl);
    model_ = std::move(opened.model);
    compiled_ = std::move(opened.compiled);
  } else {
    if (!weights.empty())
      throw Error(ErrorKind::Usage, fmt::format("'{}' contains its weights, so other weights cannot be used", name));
    const SpecOverrides set = given_settings(option_text(options.set));
    const ImportedModel imported = import_language_model(name, Registry::global(), {set});
    ModelOptions of_spec;
    of_spec.set = set;
    model_ = model_of(imported, of_spec);
    compiled_ = description_of(imported, set);
  }
  if (options.device) compile_.device = options.device;
  if (options.precision) compile_.precision = parse_precision(options.precision);
  executor_ =
      make_team_executor(options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency()));
}

std::string EmbeddedModel::value_after(int64_t layer) const {
  return std::string(kValueOutput) + (layer < 0 ? "embedding" : fmt::format("blk.{}", layer));
}

Lowered EmbeddedModel::lowered(const Sizes& sizes, bool all) const {
  StepOptions options;
  options.mode = Mode::infer;
  options.batch = sizes.batch;
  options.tokens = sizes.tokens;
  options.observe = options.operations = all;
  return lower(model_, options);
}

CompiledStep& EmbeddedModel::step(const Sizes& sizes, bool all) {
  if (steps_.size() >= kKeptPlans) steps_.clear();
  std::unique_ptr<CompiledStep>& step = steps_[{sizes, all}];
  if (!step) step = std::make_unique<CompiledStep>(lowered(sizes, all), *model_.parameters, *executor_, compile_);
  return *step;
}

std::vector<std::pair<std::string, HTensor>> EmbeddedModel::values(const HTensor& tokens, bool all) {
  const auto sizes = sizes_of<Sizes>(tokens, 1, "tokens are i32 [tokens] or [batch, tokens]");
  if (tokens.dtype() != DType::I32)
    throw Error(ErrorKind::Type, fmt::format("tokens are i32, not {}", dtype_name(tokens.dtype())));
  const std::lock_guard<std::mutex> lock(mutex_);
  CompiledStep& run = step(sizes, all);
  if (run.lowered().inputs.size() != 1)
    throw Error(ErrorKind::Usage, fmt::format("'{}' has inputs other than tokens", name_));
  const void* streams[] = {tokens.bytes()};
  run.check_indices(streams);
  run.set(streams, 0, 1, 0);
  run.run();
  std::vector<std::pair<std::string, HTensor>> values;
  const std::string_view observed(kValueOutput), function(kFunctionOutput);
  for (const NamedValue& output : run.lowered().program.outputs) {
    if (output.name.starts_with(function)) continue;
    const std::string name =
        output.name.starts_with(observed) ? output.name.substr(observed.size()) : result_name(output.name);
    values.emplace_back(name, handed_out(run.executable().output(output.name), tokens.shape().rank() == 1));
  }
  return values;
}

const CompiledNdsl& EmbeddedModel::description(int64_t layer) const {
  if (!compiled_)
    throw Error(ErrorKind::Usage, fmt::format("'{}' is not a model of a .ndsl file, so its blocks are unknown", name_));
  const auto layers = static_cast<int64_t>(compiled_->layers.size());
  if (layer < 0 || layer >= layers)
    throw Error(ErrorKind::Usage, fmt::format("'{}' has no layer {}; it has {}, from 0", name_, layer, layers));
  return *compiled_;
}

EmbeddedModel::LayerPlan& EmbeddedModel::plan(int64_t layer, const std::string& precision, const Sizes& sizes) {
  if (layers_.size() >= kKeptPlans) layers_.clear();
  LayerPlan& plan = layers_[{layer, precision, sizes}];
  if (plan.executable) return plan;
  CompileOptions compile = compile_;
  if (!precision.empty()) compile.precision = parse_precision(precision);
  const std::string output = value_after(layer);
  const Program block = between(lowered(sizes, true).program, value_after(layer - 1), "hidden", output);
  auto executable = harmonics::engine::compile(block, model_.parameters.get(), *executor_, compile);
  if (executable->input_names() != std::vector<std::string>{"hidden"})
    throw Error(ErrorKind::Usage, fmt::format("layer {} of '{}' reads more than the layer before it", layer, name_));
  plan = {std::move(executable), output};
  return plan;
}

HTensor EmbeddedModel::run_layer(int64_t layer, const std::string& precision, const HTensor& hidden) {
  description(layer);
  const auto sizes = sizes_of<Sizes>(hidden, 2, "a layer takes f32 [tokens, hidden] or [batch, tokens, hidden]");
  const std::lock_guard<std::mutex> lock(mutex_);
  LayerPlan& run = plan(layer, precision, sizes);
  const TensorType& type = run.executable->input_type(0);
  if (hidden.dtype() != type.dtype || hidden.shape().back() != type.shape.back())
    throw Error(ErrorKind::Shape,
                fmt::format("layer {} of '{}' takes {}; here is {}", layer, name_, type.str(), type_of(hidden).str()));
  const void* inputs[] = {hidden.bytes()};
  run.executable->run(inputs);
  return handed_out(run.executable->output(run.output), hidden.shape().rank() == 2);
}

Decoder& EmbeddedModel::decoder() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!model_.find("decode"))
    throw Error(ErrorKind::Usage, fmt::format("'{}' has no caches: its layers read whole sequences", name_));
  if (!decoder_) decoder_ = std::make_unique<Decoder>(model_, *executor_, compile_);
  return *decoder_;
}

}  // namespace harmonics::engine
