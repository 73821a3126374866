// The activation fused_relu and the functional that it calls, the same for every device.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <harmonics/functional.hpp>
#include <harmonics/plugin.hpp>

// x if x > 0, else 0. The body defines the result and the gradient; a shader computes it faster.
class FusedRelu : public harmonics::FunctionalBody {
 public:
  std::vector<harmonics::HTensor> operator()(const std::vector<harmonics::HTensor>& inputs,
                                             const harmonics::Arguments&) const override {
    return {harmonics::maximum(inputs.at(0), 0.0)};
  }
  const char* signature() const override { return "x [...] -> y [...]"; }
};

struct MyFusedReluShader : harmonics::ActivationFunction {
  explicit MyFusedReluShader(std::string shader) : shader_(std::move(shader)) {}
  harmonics::HTensor operator()(const harmonics::HTensor& x) const override {
    return harmonics::call1("my_fused_relu", {x});
  }
  harmonics::Attributes metadata() const override { return harmonics::Attributes().set("shader", shader_); }

 private:
  std::string shader_;
};

inline void register_fused_relu(harmonics::FunctionRegistry& registry, const std::string& shader) {
  registry.register_functional("my_fused_relu", std::make_shared<FusedRelu>(), "x where it is above 0, else 0");
  registry.register_activation("fused_relu", std::make_shared<MyFusedReluShader>(shader), "relu by a shader");
}
