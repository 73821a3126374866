// Plans on custom test devices, and plugins' opaque functions.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <iostream>

#include <harmonics/functional_abi.h>

#include "engine/contract/plugin_implementation.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/program/host_function.hpp"
#include "tests/engine/execution/compiled.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::atomic<int> destroyed{0};

struct Doubling {
  int64_t count;
};

// Computes neg as x + x in two phases of four parts: the first doubles into the workspace, the second copies.
void run_doubling(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const int64_t n = static_cast<const Doubling*>(context)->count, from = n * part / 4, to = n * (part + 1) / 4;
  const auto* x = static_cast<const float*>(buffers[0]);
  auto *y = static_cast<float*>(buffers[1]), *scratch = static_cast<float*>(buffers[2]);
  for (int64_t i = from; i < to; ++i) {
    if (phase == 0) scratch[n - 1 - i] = x[i] + x[i];
    if (phase == 1) y[i] = scratch[n - 1 - i];
  }
}

class TestDevice : public Device {
 public:
  std::vector<std::string> asked;
  std::string mode;

  std::string describe() const override { return "for tests"; }
  bool find(const hx_call_site& site, hx_kernel& out) override {
    asked.emplace_back(site.op);
    if (mode == "throw") throw Error(ErrorKind::Device, "no more memory");
    if (std::string(site.op) != "neg") {
      detail::api()->set_error(HX_ERROR_DEVICE, "negates only");
      return false;
    }
    int64_t n = 1;
    for (uint32_t i = 0; i < site.inputs[0].rank; ++i) n *= site.inputs[0].dims[i];
    out.phases = mode == "empty" ? 0 : 2;
    out.parts[0] = out.parts[1] = 4;
    out.run = run_doubling;
    out.context = new Doubling{n};
    out.destroy = [](void* p) {
      delete static_cast<Doubling*>(p);
      ++destroyed;
    };
    out.workspace = static_cast<uint64_t>(n) * sizeof(float);
    out.name = "doubling";
    return true;
  }
};

struct WithDevice {
  WithDevice() : device(std::make_shared<TestDevice>()) {
    item->kind = HX_DEVICE;
    item->name = "test";
    item->self = new std::shared_ptr<Device>(device);
    item->vtable = detail::device_vt();
    registry.add(item);
  }
  CompileOptions options() {
    CompileOptions o = on("test");
    o.registry = &registry;
    return o;
  }
  std::shared_ptr<TestDevice> device;
  std::shared_ptr<Item> item = std::make_shared<Item>();
  Registry registry;
};

class Tripling : public HostFunction {
 public:
  explicit Tripling(std::string mode = "") : mode_(std::move(mode)) {}
  std::string name() const override { return "tripling"; }
  std::vector<HTensor> run(const std::vector<HTensor>& inputs) const override {
    if (mode_ == "throw") throw Error(ErrorKind::Plugin, "'tripling' threw: out of triples");
    if (mode_ == "shape") return {HTensor(DType::F32, {7})};
    HTensor y(DType::F32, inputs[0].shape());
    for (int64_t i = 0; i < y.size(); ++i) y.mutable_data<float>()[i] = 3 * inputs[0].data<float>()[i];
    return {y};
  }
  std::vector<HTensor> gradient(const std::vector<HTensor>&, const std::vector<HTensor>&,
                                const std::vector<HTensor>&) const override {
    return {};
  }

 private:
  std::string mode_;
};

ValueId host_call(Builder& b, ValueId x, const std::string& mode) {
  Node node = b.node(Op::host_call);
  node.callee = "tripling";
  node.inputs = {x};
  node.host = std::make_shared<Tripling>(mode);
  return b.append(std::move(node), {b.program.type(x)})[0];
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("device: kernels run phase by phase with workspace and are destroyed") {
  destroyed = 0;
  WithDevice with;
  Builder b;
  const ValueId x = b.input("x", {2, 5}), doubled = b.apply(Op::neg, {x}), again = b.apply(Op::neg, {doubled});
  b.output("y", b.apply(Op::sub, {again, b.apply(Op::floor, {x})}));
  const HTensor numbers = HTensor::from<float>({2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const HTensor expected = HTensor::from<float>({2, 5}, {0, 3, 6, 9, 12, 15, 18, 21, 24, 27});
  std::vector<std::unique_ptr<Executor>> executors = parallel_executors();
  executors.push_back(make_sequential_executor());
  for (const auto& executor : executors) {
    CompileOptions options = with.options();
    options.disabled = {"simplify"};
    const auto executable = compile(b.program, nullptr, *executor, options);
    const void* inputs[1] = {numbers.bytes()};
    executable->run(inputs);
    CHECK(same_bits(executable->output("y"), expected));
    CHECK(executable->steps()[0].kernel == "doubling");
    CHECK(executable->steps()[0].phases == 2);
    CHECK(executable->steps()[3].kernel == "reference");
    CHECK(executable->memory().workspace_bytes == 40);
  }
  CHECK(destroyed == static_cast<int>(executors.size()));  // equal call sites share a kernel
}

TEST_CASE("a call without a kernel is replaced by its body") {
  WithDevice with;
  Builder b;
  b.output("y", b.call("silu", {b.input("x", {4})}));
  const auto executor = make_sequential_executor();
  const auto executable = compile(b.program, nullptr, *executor, with.options());
  CHECK(std::count(with.device->asked.begin(), with.device->asked.end(), "silu") == 1);
  for (const PlanStep& s : executable->steps()) CHECK(s.what != "silu");

  KernelSource source("test", with.registry);
  const std::vector<TensorType> type{{DType::F32, {4}}};
  CHECK(source.find("silu", {}, type, type) == nullptr);
  CHECK(source.why_not("silu", {}, type, type) == "negates only");
  CHECK(source.why_not("neg", {}, type, type).empty());
}

TEST_CASE("device: one built for an earlier contract is not offered stored types and mixed operands") {
  const TensorType x{DType::F32, {3, 32}}, plain{DType::F32, {4, 32}}, y{DType::F32, {3, 4}};
  for (const DType weight : {DType::Q8_0, DType::F8_E4M3, DType::BF16})
    for (const bool knows : {false, true}) {
      WithDevice with;
      with.item->contract_minor = knows ? 5 : 4;
      KernelSource source("test", with.registry);
      const std::vector<TensorType> types{x, {weight, {4, 32}}};
      CHECK(source.find("linear", {}, types, {y}) == nullptr);
      CHECK(
          source.why_not("linear", {}, types, {y}) ==
          (knows ? "negates only" : "its library is built for contract 1.4, but such element types need contract 1.5"));
      CHECK(std::count(with.device->asked.begin(), with.device->asked.end(), "linear") == knows);
      CHECK(source.why_not("linear", {}, {x, plain}, {y}) == "negates only");
    }
}

TEST_CASE("device: one built for an earlier contract is not offered products of several types") {
  const TensorType f32{DType::F32, {3, 3}}, bf16{DType::BF16, {3, 3}};
  AttributeMap axes;
  axes.set("lhs_contract", std::vector<int64_t>{1}).set("rhs_contract", std::vector<int64_t>{0});
  axes.set("lhs_batch", std::vector<int64_t>{}).set("rhs_batch", std::vector<int64_t>{});
  const AttributeMap sums = AttributeMap(axes).set("accumulate", std::string("f64")),
                     result = AttributeMap(axes).set("out_dtype", std::string("bf16"));
  for (const bool knows : {false, true}) {
    WithDevice with;
    with.item->contract_minor = knows ? 5 : 4;
    KernelSource source("test", with.registry);
    const std::string expected =
        knows ? "negates only" : "its library is built for contract 1.4, but such element types need contract 1.5";
    CHECK(source.why_not("dot", axes, {f32, bf16}, {f32}) == expected);
    CHECK(source.why_not("dot", sums, {f32, f32}, {f32}) == expected);
    CHECK(source.why_not("dot", result, {f32, f32}, {bf16}) == expected);
    CHECK(source.why_not("dot", axes, {f32, f32}, {f32}) == "negates only");
    for (const char* name : {"out_dtype", "activation_type", "accumulate"}) {
      const std::string value = std::string(name) == "activation_type" ? "q8_0" : "f32";
      CHECK((source.why_not("linear", AttributeMap().set(name, value), {f32, f32}, {f32}) == "negates only") == knows);
    }
  }
}

TEST_CASE("implementation: one built for an earlier contract is not offered stored types") {
  static int asked;
  asked = 0;
  static hx_implementation_vt table{};
  table.struct_size = sizeof table;
  table.supports = [](void*, const hx_call_site*) { return ++asked, HX_OK; };
  Item item;
  item.kind = HX_IMPLEMENTATION;
  item.name = "linear.fast";
  item.vtable = &table;
  item.contract_minor = 4;
  CallSiteInfo site;
  site.op = "linear";
  site.inputs = {{DType::F32, {3, 32}}, {DType::Q8_0, {4, 32}}};
  site.outputs = {{DType::F32, {3, 4}}};
  CHECK_THAT(declines(item, site).value_or(""), Catch::Contains("built for contract 1.4"));
  CHECK(asked == 0);
  item.contract_minor = 5;
  CHECK_FALSE(declines(item, site));
  CHECK(asked == 1);
}

TEST_CASE("device: failures and invalid answers name the call site") {
  WithDevice with;
  Builder b;
  b.output("y", b.apply(Op::neg, {b.input("x", {4})}));
  const auto executor = make_sequential_executor();
  with.device->mode = "throw";
  CHECK(error_of([&] { compile(b.program, nullptr, *executor, with.options()); }) ==
        "device 'test' failed ('no more memory') for neg(f32[4]) -> f32[4]");
  with.device->mode = "empty";
  CHECK(error_of([&] { compile(b.program, nullptr, *executor, with.options()); }) ==
        "device 'test' gave a kernel without function, name, phases or parts for neg(f32[4]) -> f32[4]");
}

TEST_CASE("host calls: run inside the plan, exceptions propagate") {
  const HTensor numbers = HTensor::from<float>({3}, {1, 2, 3});
  const void* inputs[1] = {numbers.bytes()};
  const auto run = [&](const std::string& mode) {
    Builder b;
    const ValueId x = b.input("x", {3});
    b.output("y", b.apply(Op::add, {host_call(b, b.apply(Op::neg, {x}), mode), x}));
    const auto executor = make_team_executor(2);
    const auto executable = compile(b.program, nullptr, *executor, on("reference"));
    executable->run(inputs);
    return copy_of(executable->output("y"));
  };
  CHECK(same_bits(run(""), HTensor::from<float>({3}, {-2, -4, -6})));
  CHECK(error_of([&] { run("throw"); }) == "'tripling' threw: out of triples");
  CHECK(error_of([&] { run("shape"); }) == "'tripling' returned f32[7] instead of f32[3]");
}

TEST_CASE("plan: overhead of an empty step") {
  class Nothing : public Device {
   public:
    std::string describe() const override { return "nothing"; }
    bool find(const hx_call_site&, hx_kernel& out) override {
      out.phases = out.parts[0] = 1;
      out.run = [](const void*, void* const*, uint32_t, uint32_t) {};
      out.name = "nothing";
      return true;
    }
  };
  auto item = std::make_shared<Item>();
  item->kind = HX_DEVICE;
  item->name = "nothing";
  item->self = new std::shared_ptr<Device>(std::make_shared<Nothing>());
  item->vtable = detail::device_vt();
  Registry registry;
  registry.add(item);
  const auto executor = make_sequential_executor();
  const auto time_of = [&](int steps) {
    Builder b;
    ValueId x = b.input("x", {});
    for (int i = 0; i < steps; ++i) x = b.apply(Op::neg, {x});
    b.output("y", x);
    CompileOptions options;
    options.device = "nothing";
    options.registry = &registry;
    options.fuse = false;
    options.disabled = {"simplify", "cse"};
    const auto executable = compile(b.program, nullptr, *executor, options);
    const float number = 1;
    const void* inputs[1] = {&number};
    double best = 1e12;
    for (int repeat = 0; repeat < 100; ++repeat) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 20; ++i) executable->run(inputs);
      best = std::min(best,
                      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / 20);
    }
    return best;
  };
  const double cost = (time_of(1025) - time_of(1)) / 1024;
  std::cout << "engine cost: " << cost << " ns a step\n";
  CHECK(cost < 1000);
}
