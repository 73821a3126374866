#include "engine/language/embedder.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "engine/passes/observe.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kPlansOfEmbedder = 16;
constexpr int64_t kLeastPlannedLength = 16;
constexpr const char* kHidden = "hidden";

}  // namespace

Pooling pooling_named(const std::string& name) {
  if (name == "mean") return Pooling::mean;
  if (name == "first" || name == "cls") return Pooling::first;
  if (name == "last") return Pooling::last;
  throw Error(ErrorKind::Usage,
              fmt::format("the pooling '{}' gives no embedding of a text; use mean, first or last", name));
}

Pooling pooling_of(const Model& model) {
  const std::string key = model.metadata.text("general.architecture", "") + ".pooling_type";
  if (!model.metadata.has(key)) return model.find("prefill") ? Pooling::last : Pooling::mean;
  switch (const int64_t type = model.metadata.integer(key)) {
    case 1:
      return Pooling::mean;
    case 2:
      return Pooling::first;
    case 3:
      return Pooling::last;
    default:
      return pooling_named(type == 0 ? "none" : type == 4 ? "rank" : std::to_string(type));
  }
}

Embedder::Embedder(const Model& model, Executor& executor, CompileOptions options, std::optional<Pooling> pooling)
    : model_(model),
      executor_(executor),
      options_(std::move(options)),
      pooling_(pooling ? *pooling : pooling_of(model)),
      causal_(model.find("prefill") != nullptr) {
  if (!model_.find("embed"))
    throw Error(ErrorKind::Usage, fmt::format("'{}' computes no vectors of tokens", model_.name), {},
                {"a spec gives them as the output 'hidden' of its forward steps"});
}

// In causal models padding after a text does not change its vectors, so lengths are rounded up.
int64_t Embedder::planned_length(int64_t tokens) const {
  if (!causal_) return tokens;
  int64_t length = kLeastPlannedLength;
  while (length < tokens) length *= 2;
  return model_.context > 0 ? std::min(length, model_.context) : length;
}

Embedder::Plan& Embedder::plan_for(int64_t tokens) {
  const auto known = std::find_if(plans_.begin(), plans_.end(), [&](const Plan& p) { return p.tokens == tokens; });
  if (known != plans_.end()) {
    std::rotate(known, known + 1, plans_.end());
    return plans_.back();
  }
  const Program program = observe(model_.trace(model_.entry("embed"), {1, tokens, 1}),
                                  [](const std::string& output) { return output == kHidden; });
  auto executable = compile(program, model_.parameters.get(), executor_, options_);
  if (plans_.size() == kPlansOfEmbedder) plans_.erase(plans_.begin());
  plans_.push_back({tokens, std::move(executable)});
  return plans_.back();
}

std::vector<float> Embedder::embed(std::span<const int32_t> tokens) {
  if (tokens.empty()) throw Error(ErrorKind::Usage, "a text without tokens has no embedding", {}, {"give a text"});
  const auto count = static_cast<int64_t>(tokens.size());
  if (model_.context > 0 && count > model_.context)
    throw Error(ErrorKind::Usage,
                fmt::format("the text has {} tokens, but the model was trained for {}", count, model_.context));
  for (const int32_t token : tokens)
    if (token < 0 || token >= model_.vocabulary)
      throw Error(ErrorKind::Usage,
                  fmt::format("the token {} is outside the vocabulary of {}", token, model_.vocabulary));
  const std::lock_guard lock(mutex_);
  const int64_t length = planned_length(count);
  const Plan& plan = plan_for(length);
  std::vector<int32_t> padded(tokens.begin(), tokens.end());
  padded.resize(static_cast<size_t>(length));
  const std::vector<const void*> inputs(plan.executable->input_names().size(), padded.data());
  plan.executable->run(inputs.data());
  for (const auto& file : model_.parameters->files()) file->expect_whole();
  const HTensor& hidden = plan.executable->output(kHidden);
  const auto width = static_cast<size_t>(hidden.shape().back());
  const float* const rows = hidden.data<float>();
  const int64_t begin = pooling_ == Pooling::last ? count - 1 : 0, end = pooling_ == Pooling::first ? 1 : count;
  std::vector<double> sum(width);
  for (int64_t row = begin; row < end; ++row)
    for (size_t i = 0; i < width; ++i) sum[i] += static_cast<double>(rows[static_cast<size_t>(row) * width + i]);
  double squares = 0;
  for (const double value : sum) squares += value * value;
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
  std::vector<float> vector(width);
  for (size_t i = 0; i < width; ++i) vector[i] = static_cast<float>(sum[i] * scale);
  return vector;
}

}  // namespace harmonics::engine
