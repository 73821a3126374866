#include <harmonics/harmonics.hpp>

struct MyActivation : harmonics::ActivationFunction {
  harmonics::HTensor operator()(const harmonics::HTensor& x) const override { return x * sigmoid(x); }
};

// inside my_plugin.cpp
extern "C" void harmonics_register(harmonics::FunctionRegistry& reg) {
  reg.register_activation("my_act", std::make_shared<MyActivation>());
}
