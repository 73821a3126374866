// A training step of a small MLP: cross entropy, gradients, one optimizer call per parameter.
#pragma once

#include <harmonics/ops.hpp>

#include "engine/program/gradient.hpp"
#include "tests/engine/execution/compiled.hpp"

namespace harmonics::engine::testing {

struct TrainingStep {
  Program program;
  std::map<std::string, HTensor> numbers;  // inputs, weights, moments
};

inline HTensor noise(const Shape& shape, uint32_t seed, float scale) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (int64_t i = 0; i < shape.count(); ++i)
    values.push_back((static_cast<float>(random() % 20001) / 10000.0f - 1.0f) * scale);
  return HTensor::from(shape, values);
}

inline TrainingStep training_step(int64_t batch, const std::vector<int64_t>& widths,
                                  const std::string& optimizer = "adamw") {
  TrainingStep step;
  Tracer tracer("step");
  const HTensor x = tracer.input("x", {DType::F32, {batch, widths[0]}}),
                labels = tracer.input("labels", {DType::I64, {batch}});
  const HTensor lr = tracer.input("lr", {DType::F32, {}}), count = tracer.input("step", {DType::I64, {}});
  std::vector<std::string> names;
  std::vector<HTensor> parameters;
  HTensor h = x;
  for (size_t i = 1; i < widths.size(); ++i) {
    const std::string layer = "layer" + std::to_string(i);
    const TraceScope scope(layer);
    const Shape weight{widths[i], widths[i - 1]}, bias{widths[i]};
    for (const auto& [suffix, shape] : {std::pair(".weight", weight), std::pair(".bias", bias)}) {
      names.push_back(layer + suffix);
      parameters.push_back(tracer.parameter(names.back(), {DType::F32, shape}));
      step.numbers[names.back()] = noise(shape, static_cast<uint32_t>(names.size()), 0.1f);
    }
    h = linear(h, parameters[parameters.size() - 2], parameters.back());
    if (i + 1 < widths.size()) h = call1("relu", {h});
  }
  const HTensor loss = reduce_mean(call("softmax_cross_entropy", {h, labels})[0], {0});
  tracer.output("loss", loss);
  tracer.output("logits", h);
  const std::vector<HTensor> gradients = gradient(tracer, loss, parameters);
  for (size_t i = 0; i < names.size(); ++i) {
    const TraceScope scope({names[i], Phase::optimizer});
    std::vector<HTensor> inputs{parameters[i], gradients[i]};
    std::vector<std::string> moments;
    if (optimizer == "adamw") moments = {"adamw.m." + names[i], "adamw.v." + names[i]};
    for (const std::string& m : moments) {
      inputs.push_back(tracer.state(m, type_of(parameters[i])));
      step.numbers[m] = HTensor(DType::F32, parameters[i].shape());
    }
    inputs.push_back(lr);
    if (optimizer == "adamw") inputs.push_back(count);
    const std::vector<HTensor> results = call(optimizer.c_str(), inputs);
    tracer.update(names[i], results[0]);
    for (size_t k = 0; k < moments.size(); ++k) tracer.update(moments[k], results[k + 1]);
  }
  step.numbers["x"] = noise({batch, widths[0]}, 77, 1.0f);
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < batch; ++i) classes.push_back(i * 7 % widths.back());
  step.numbers["labels"] = HTensor::from({batch}, classes);
  step.numbers["lr"] = HTensor::scalar(1e-3f);
  const int64_t first = 1;
  step.numbers["step"] = HTensor(DType::I64, {}, &first);
  step.program = tracer.take();
  return step;
}

}  // namespace harmonics::engine::testing
