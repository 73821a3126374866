// Runs registered functions like the engine: traces once, then runs the program.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/contract/plugin_functions.hpp"
#include "engine/plugin/loader.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine::testing {

using Floats = std::vector<float>;

inline HTensor floats(const Shape& shape, const Floats& values) { return HTensor::from<float>(shape, values); }
inline Floats numbers(const HTensor& t) {
  const float* v = t.data<float>();
  return {v, v + t.size()};
}
inline std::string with_notes(const Error& e) {
  std::string all = e.what();
  for (const std::string& n : e.notes()) all += "\n" + n;
  return all;
}
template <typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    return with_notes(e);
  }
  return "no error";
}

struct Ran {
  Program program;
  HTensor y, dx;  // dx: of the sum of y; empty without `differentiate`

  size_t count(Op op) const {
    size_t n = 0;
    for (const Node& node : program.nodes) n += node.op == op;
    return n;
  }
};

// Traces body(x), then runs it on numbers.
inline Ran run(const HTensor& x, const std::function<HTensor(const HTensor&)>& body, bool differentiate = false) {
  Ran ran;
  Tracer tracer("test");
  const HTensor in = tracer.input("x", type_of(x));
  const HTensor y = body(in);
  tracer.output("y", y);
  if (differentiate) {
    std::vector<int64_t> all;
    for (uint32_t i = 0; i < y.rank(); ++i) all.push_back(i);
    tracer.output("dx", gradient(tracer, all.empty() ? y : reduce_sum(y, all), {in}).at(0));
  }
  ran.program = tracer.take();
  const Values results = interpret(ran.program, {{"x", x}});
  ran.y = results.at(0);
  if (differentiate) ran.dx = results.at(1);
  return ran;
}

// Parameters and states of a layer, created on first use with deterministic initial values.
class TestScope : public hx_scope {
 public:
  std::map<std::string, HTensor> values;  // initialised by constant or ramp
  std::map<std::string, hx_init> inits;
  std::map<std::string, HTensor> updates;
  bool is_training = false;
  uint32_t leading_axes = 1;
  std::optional<uint32_t> result_leading;  // set if the layer reported it
  std::optional<int64_t> target_width;
  int64_t symbols = 0;
  HTensor random_numbers;

  HTensor parameter(const std::string& name, const TensorType& type, const hx_init& init) override {
    if (!values.count(name)) {
      HTensor t(type.dtype, type.shape);
      float* v = t.mutable_data<float>();
      for (int64_t i = 0; i < t.size(); ++i)
        v[i] = init.kind == HX_INIT_CONSTANT ? static_cast<float>(init.a) : 0.1f * static_cast<float>(i % 7 - 3);
      values[name] = t;
      inits[name] = init;
    }
    CHECK(type_of(values.at(name)) == type);
    return values.at(name);
  }
  HTensor state(const std::string& name, const TensorType& type, const hx_init& init) override {
    return parameter(name, type, init);
  }
  void update(const std::string& name, const HTensor& value) override { updates[name] = value; }
  HTensor random(const Shape& shape) override {
    CHECK(random_numbers.shape() == shape);
    return random_numbers;
  }
  bool training() const override { return is_training; }
  uint32_t leading() const override { return leading_axes; }
  void set_leading(uint32_t axes) override { result_leading = axes; }
  int64_t width() override {
    if (!target_width) throw detail::NeedsWidth{};
    return *target_width;
  }
  int64_t classes() override { return symbols; }
};

}  // namespace harmonics::engine::testing
