// Recurrent layers with the gradients of their weights, for devices with and without kernels for them.
#pragma once

#include <string>

#include "engine/program/scan.hpp"
#include "tests/engine/execution/training_program.hpp"

namespace harmonics::engine::testing {

struct RecurrentTraining {
  Program program;
  std::map<std::string, HTensor> numbers;
};

// `kind`: "lstm", "gru"; "rnn", a loop over tanh(x w + h u); "plugin", the same loop as written by a plugin, where u is
// not an operand; or "unrolled", without a loop.
inline RecurrentTraining recurrent_training(const std::string& kind, int64_t length) {
  constexpr int64_t batch = 3, features = 5, width = 7;
  const int64_t gates = kind == "lstm" ? 4 : kind == "gru" ? 3 : 1;
  Tracer tracer(kind);
  const HTensor x = tracer.input("x", {DType::F32, {batch, length, features}}),
                w = tracer.parameter("w", {DType::F32, {gates * width, features}}),
                u = tracer.parameter("u", {DType::F32, {gates * width, width}});
  HTensor y;
  const HTensor first = full(DType::F32, {batch, width}, 0.25);
  if (kind == "unrolled") {
    const HTensor along = linear(x, w);
    Values ys{first};
    for (int64_t t = 0; t < length; ++t)
      ys.push_back(tanh(reshape(slice_axis(along, 1, t, t + 1), {batch, width}) + linear(ys.back(), u)));
    for (HTensor& h : ys) h = reshape(h, {1, batch, width});
    y = concat(Values(ys.begin() + 1, ys.end()), 0);
  } else if (kind == "plugin") {
    const auto step = [&](const Values& carries, const Values& slices) {
      const HTensor h = tanh(slices[0] + linear(carries[0], u));
      return Values{h, h};
    };
    y = harmonics::scan(step, {first}, {transpose(linear(x, w), {1, 0, 2})})[1];
  } else if (kind == "rnn") {
    const auto step = [](const Values& v) {
      const HTensor h = tanh(v[2] + linear(v[0], v[1]));
      return Values{h, h};
    };
    y = scan(step, {first}, {u}, {transpose(linear(x, w), {1, 0, 2})})[1];
  } else {
    y = call(kind.c_str(), {x, w, u})[0];
  }
  const HTensor loss = reduce_sum(y * y, {0, 1, 2}) * (1.0 / static_cast<double>(length));
  const Values gradients = gradient(tracer, loss, {w, u, x});
  const char* names[] = {"dw", "du", "dx"};
  tracer.output("loss", loss);
  tracer.output("y", y);
  for (size_t i = 0; i < gradients.size(); ++i) tracer.output(names[i], gradients[i]);
  return {tracer.take(),
          {{"x", noise({batch, length, features}, 1, 1.0f)},
           {"w", noise({gates * width, features}, 2, 0.4f)},
           {"u", noise({gates * width, width}, 3, 0.4f)}}};
}

// Returns the largest difference of an element, relative to the larger of 1 and the expected value.
inline double most_apart(const Values& actual, const Values& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double most = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (type_of(actual[i]) != type_of(expected[i])) return INFINITY;
    for (int64_t k = 0; k < actual[i].size(); ++k) {
      const double a = actual[i].data<float>()[k], e = expected[i].data<float>()[k];
      const double apart = std::abs(a - e) / std::max(1.0, std::abs(e));
      most = std::isnan(apart) ? INFINITY : std::max(most, apart);
    }
  }
  return most;
}

inline size_t planned_steps_of(const RecurrentTraining& training, const CompileOptions& options) {
  MapBinding binding(training.numbers);
  const auto executor = make_sequential_executor();
  return compile(training.program, &binding, *executor, options)->steps().size();
}

}  // namespace harmonics::engine::testing
