// Compares every optimizer with every setting, with and without clipping, and every schedule, on a small net, with
// PyTorch and the papers' formulas (make_optimizers.py).
#include <catch2/catch.hpp>

#include <set>

#include <fmt/core.h>

#include "backends.hpp"
#include "engine/program/gradient.hpp"
#include "engine/training/schedule.hpp"
#include "engine/training/update.hpp"
#include "golden.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::parity;

namespace {

// Returns loss and updates of a step. Optimizer states are declared in `store`.
Program optimizer_step(ParameterStore& store, const UpdateSettings& settings, const Leaves& initial, const HTensor& x,
                       const HTensor& y) {
  Tracer tracer("net");
  std::vector<TrainedParameter> parameters;
  std::map<std::string, HTensor> p;
  Values wrt;
  for (const auto& [name, value] : initial) {
    store.declare(name, type_of(value), Role::weight, hx_init{}, 0);
    parameters.push_back({name, name.rfind("hidden.", 0) == 0});
    wrt.push_back(p[name] = tracer.parameter(name, type_of(value)));
  }
  const HTensor hidden = tanh(linear(tracer.input("x", type_of(x)), p["hidden.weight"], p["hidden.bias"]));
  const HTensor logits = linear(hidden, p["output.weight"], p["output.bias"]);
  const HTensor loss = reduce_mean(call1("softmax_cross_entropy", {logits, tracer.input("y", type_of(y))}), {0});
  tracer.output("loss", loss);
  trace_updates(tracer, store, settings, parameters, gradient(tracer, loss, wrt));
  return tracer.take();
}

void check_optimizer(const std::string& backend, DType dtype, const TensorFile& file, const std::string& run,
                     const Tolerance& tolerance) {
  const boost::json::object row = boost::json::parse(file.metadata.at(run)).as_object();
  const auto number = [&](const char* key) { return row.contains(key) ? row.at(key).to_number<double>() : 0.0; };
  const UpdateSettings settings{parse_optimizer(std::string(row.at("optimizer").as_string())), number("clip"),
                                number("clip_value")};
  Leaves held;
  for (const auto& [name, value] : below(file, "initial")) held[name] = in_type(value, dtype);
  const HTensor x = in_type(file.tensors.at("data/x"), dtype), y = file.tensors.at("data/y");
  ParameterStore store;
  const Program program = optimizer_step(store, settings, held, x, y);
  for (const auto& [name, t] : store.all())
    if (t.role == Role::moment) held[name] = full(t.type.dtype, t.type.shape, 0);
  const auto runner = make_runner(backend, program, held);
  INFO(backend << " " << dtype_name(dtype) << ": " << run << " by " << settings.optimizer.str());
  const HTensor& losses = file.tensors.at(run + "/loss");
  REQUIRE(losses.size() >= 20);
  for (int64_t step = 1; step <= losses.size(); ++step) {
    INFO("step " << step);
    const auto found = runner->step({{"x", x},
                                     {"y", y},
                                     {"@lr", HTensor::scalar(static_cast<float>(settings.optimizer.lr))},
                                     {"@step", HTensor::from<int64_t>({}, {step})}});
    CHECK(difference(found.at("loss"), HTensor::from<double>({}, {losses.data<double>()[step - 1]}), tolerance) == "");
  }
  for (const auto& [name, value] : below(file, run + "/final")) {
    INFO("final " << name);
    CHECK(difference(runner->parameter(name), value, tolerance) == "");
  }
}

void check_optimizers(const std::string& backend, DType dtype, const Tolerance& tolerance) {
  const TensorFile file = golden("optimizers.safetensors");
  size_t runs = 0;
  for (const auto& [name, text] : file.metadata)
    if (name.rfind("run/", 0) == 0) check_optimizer(backend, dtype, file, name, tolerance), ++runs;
  CHECK(runs >= 20);
}

constexpr Tolerance kDoubleOptimizer{1e-11, 1e-10};
constexpr Tolerance kFloatOptimizer{1e-5, 1.3e-6};

}  // namespace

TEST_CASE("two dozen steps of every optimizer with every setting equal PyTorch's in double") {
  check_optimizers("interpreter", DType::F64, kDoubleOptimizer);
  check_optimizers("reference", DType::F64, kDoubleOptimizer);
}

TEST_CASE("two dozen compiled steps of every optimizer equal PyTorch's in single precision") {
  check_optimizers("cpu", DType::F32, kFloatOptimizer);
}

TEST_CASE("schedules give the rates of PyTorch's") {
  const TensorFile file = golden("optimizers.safetensors");
  std::set<std::string> seen;
  for (const auto& [name, text] : file.metadata) {
    if (name.rfind("schedule/", 0) != 0) continue;
    const boost::json::object row = boost::json::parse(text).as_object();
    const Schedule schedule = parse_schedule(std::string(row.at("schedule").as_string()));
    INFO(schedule.str());
    seen.insert(std::string(schedule.settings.row->name));
    LearningRate rate(schedule, 0.5, {row.at("steps").as_int64(), false});
    const HTensor& factors = file.tensors.at(name);
    for (int64_t step = 0; step < factors.size(); ++step) {
      INFO("step " << step);
      CHECK(rate.at(step) == Approx(0.5 * factors.data<double>()[step]).epsilon(1e-12).margin(1e-15));
    }
  }
  CHECK(seen.size() == schedule_rows().size());
}

TEST_CASE("every optimizer has a run") {
  const TensorFile file = golden("optimizers.safetensors");
  std::set<std::string> seen;
  for (const auto& [name, text] : file.metadata)
    if (name.rfind("run/", 0) == 0) {
      const Optimizer o = parse_optimizer(std::string(boost::json::parse(text).at("optimizer").as_string()));
      seen.insert(std::string(o.settings.row->name));
      for (const Setting& s : o.settings.values)
        if (s.given && s.spec->otherwise != s.value)
          seen.insert(fmt::format("{}.{}", o.settings.row->name, s.spec->name));
    }
  for (const NamedRow& row : optimizer_rows()) {
    CHECK(seen.count(std::string(row.name)) == 1);
    for (const SettingSpec& spec : row.settings) {
      if (spec.name == std::string_view("moments")) continue;  // PyTorch has no such setting
      INFO(row.name << " " << spec.name);
      CHECK(seen.count(fmt::format("{}.{}", row.name, spec.name)) == 1);
    }
  }
}
