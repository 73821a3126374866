// inside my_plugin.cpp
#include <harmonics/plugin.hpp>

// A smooth step up: x where x is large, 0 where it is very negative. Written with library operations, so it is traced:
// the gradient is derived, and it runs on every device.
class MyActivation : public harmonics::ActivationFunction {
 public:
  harmonics::HTensor operator()(const harmonics::HTensor& x) const override {
    return x * harmonics::logistic(1.702 * x);
  }
};

extern "C" void harmonics_register(harmonics::FunctionRegistry& reg) {
  reg.register_activation("my_act", std::make_shared<MyActivation>());
}
