// The embedding API: one header, immediate tensors and operations, graphs, streams, registries.
#include <harmonics/harmonics.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>

using namespace harmonics;

namespace {

struct Times : ActivationFunction {
  explicit Times(double factor) : factor(factor) {}
  HTensor operator()(const HTensor& x) const override { return x * factor; }
  double factor;
};

bool operations() {
  const auto x = HTensor::from<float>({2, 2}, {-1, 2, -3, 4});
  const auto y = relu(x).add(1).clamp(std::nullopt, 4.0);
  const float expected[] = {1, 3, 1, 4};
  return std::memcmp(y.bytes(), expected, sizeof expected) == 0;
}

bool mistakes() {
  try {
    matmul(HTensor(DType::F32, {2, 2}), HTensor(DType::F32, {3, 3}));
  } catch (const Error& error) {
    std::puts(error.what());
    return error.kind() == ErrorKind::Shape;
  }
  return false;
}

// A graph on wrapped streams, deployed if there is a device, with scoped names.
bool graphs() {
  std::vector<HTensor> rows, targets;
  for (int i = 0; i < 64; ++i) {
    const float row[] = {static_cast<float>(i % 7) / 7, static_cast<float>(i % 5) / 5}, y = 2 * row[0] - row[1];
    rows.push_back(HTensor(DType::F32, {2}, row));
    targets.push_back(HTensor(DType::F32, {1}, &y));
  }
  HarmonicGraph g = parse_hmx_text(
      "harmonic line { producer x; producer y; layer o {1}; "
      "cycle { x -(affine(1), threefold)-> o; o <-(mse)- y; } }");
  g.registerActivation("threefold", std::make_shared<Times>(3));
  g.bindProducer("x", std::make_shared<AsyncProducer>(std::make_shared<MemoryProducer>(rows), 8));
  g.bindProducer("y", std::make_shared<MemoryProducer>(targets));
  DeploymentDescriptor deploy;
  deploy.backend = Backend::CPU;
  FitOptions options;
  options.device = device_for(deploy);
  options.epochs = 60;
  options.batch = 8;
  options.threads = 1;
  options.optimizer = "adam(lr=0.02)";
  const FitReport report = g.fit(options, make_auto_policy());
  const float learned = g.infer(rows[8]).item<float>();
  std::printf("loss %g, %g\n", report.loss, learned);
  ScopedRegistry scope(g);
  scope.registerActivation("threefold", std::make_shared<Times>(1));
  return report.loss < 1e-2 && std::fabs(g.infer(rows[8]).item<float>() * 3 - learned) < 1e-4;
}

// A program that exports a plugin's functions is not loaded as one.
bool itself() {
  try {
    load_plugin("/proc/self/exe");
  } catch (const Error& error) {
    std::puts(error.what());
    return std::string(error.what()).find("is this program itself") != std::string::npos;
  }
  return false;
}

}  // namespace

extern "C" void harmonics_register(FunctionRegistry&) {}

int main() { return !operations() ? 1 : !mistakes() ? 2 : !graphs() ? 3 : !itself() ? 4 : 0; }
