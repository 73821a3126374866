// Constant operands at call sites, and weights that kernels pack once.
#include <catch2/catch.hpp>

#include <algorithm>

#include <harmonics/ops.hpp>

#include "engine/model/parameter_store.hpp"
#include "engine/program/tracer.hpp"
#include "tests/engine/execution/compiled.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr int64_t kRows = 64, kIn = 160, kOut = 96;

// Scales its second input by its packed form: y[i] = x[i] * packed[0], where packed[0] is w[0] + 1.
struct PackingDevice final : Device {
  struct Context {
    int64_t count;
  };
  std::string describe() const override { return "packs the second input of add"; }
  bool find(const hx_call_site& site, hx_kernel& out) override {
    if (std::string_view(site.op) != "add") return false;
    constants = site.constants;
    if (!always && (site.constants & 2) == 0) return false;
    out.struct_size = sizeof out;
    out.phases = out.parts[0] = 1;
    out.run = [](const void* context, void* const* buffers, uint32_t, uint32_t) {
      const auto* x = static_cast<const float*>(buffers[0]);
      const auto* factor = static_cast<const float*>(buffers[4]);  // packed form, after the workspace
      for (int64_t i = 0; i < static_cast<const Context*>(context)->count; ++i)
        static_cast<float*>(buffers[2])[i] = x[i] * *factor;
    };
    out.name = "packing";
    out.packed_bytes = sizeof(float);
    out.packed_piece = 64;
    out.packed_input = 1;
    out.packing = "plus one";
    out.pack = [](const void*, const void* input, uint64_t, void* packed) {
      ++packings();
      *static_cast<float*>(packed) = *static_cast<const float*>(input) + 1;
    };
    out.context = new Context{site.inputs[0].dims[0]};
    out.destroy = [](void* context) { delete static_cast<Context*>(context); };
    return true;
  }
  static int& packings() {
    static int n = 0;
    return n;
  }
  uint64_t constants = 0;
  bool always = false;
};

struct Registered {
  Registry registry{&Registry::global()};
  std::shared_ptr<PackingDevice> device = std::make_shared<PackingDevice>();
  Registered() {
    auto item = std::make_shared<Item>();
    item->kind = HX_DEVICE;
    item->name = "packing";
    item->self = new std::shared_ptr<Device>(device);
    item->vtable = detail::device_vt();
    registry.add(item);
    PackingDevice::packings() = 0;
  }
  CompileOptions options() {
    CompileOptions o;
    o.device = "packing";
    o.registry = &registry;
    return o;
  }
};

Program sum_program(bool updates = false) {
  Tracer tracer("sum");
  const HTensor x = tracer.input("x", {DType::F32, {3}}), w = tracer.parameter("w", {DType::F32, {3}});
  tracer.output("y", x + w);
  if (updates) tracer.update("w", neg(w));
  return tracer.take();
}

StoredTensor& declare(ParameterStore& store, const std::string& name, const TensorType& type, bool fixed) {
  StoredTensor& w = store.declare(name, type, Role::frozen, {HX_INIT_UNIFORM, -1, 1}, 7);
  w.fixed = fixed;
  return w;
}

std::vector<float> run(Executable& plan, const HTensor& x, const char* output = "y") {
  const void* inputs[] = {x.bytes()};
  plan.run(inputs);
  const HTensor& y = plan.output(output);
  return {y.data<float>(), y.data<float>() + y.size()};
}

}  // namespace

TEST_CASE("packed weights: parameters that no program changes are constant operands, packed once for all plans") {
  const auto executor = make_sequential_executor();
  Registered with;
  ParameterStore store;
  declare(store, "w", {DType::F32, {3}}, true);
  store.assign("w", HTensor::from<float>({3}, {4, 5, 6}));
  const HTensor x = HTensor::from<float>({3}, {1, 2, 3});
  {
    const auto first = compile(sum_program(), &store, *executor, with.options());
    const auto second = compile(sum_program(), &store, *executor, with.options());
    CHECK(with.device->constants == 2);
    CHECK(run(*first, x) == std::vector<float>{5, 10, 15});
    CHECK(run(*second, x) == std::vector<float>{5, 10, 15});
    CHECK(PackingDevice::packings() == 1);
    CHECK_NOTHROW(store.assign("w", HTensor::from<float>({3}, {4, 5, 6})));
    CHECK_THROWS_WITH(store.assign("w", HTensor::from<float>({3}, {7, 5, 6})),
                      Catch::Contains("a compiled program reads it in a shared place"));
    std::vector<float> elsewhere{1, 1, 1};
    void* const addresses[] = {elsewhere.data()};
    CHECK_THROWS_WITH(first->bind(addresses), Catch::Contains("has packed the parameter 'w'"));
  }
  store.assign("w", HTensor::from<float>({3}, {7, 5, 6}));
  CHECK(run(*compile(sum_program(), &store, *executor, with.options()), x) == std::vector<float>{8, 16, 24});
  CHECK(PackingDevice::packings() == 2);
}

TEST_CASE("packed weights: parameters that may change are not constant") {
  const auto executor = make_sequential_executor();
  Registered with;
  const HTensor x = HTensor::from<float>({3}, {1, 2, 3});
  for (const bool updates : {false, true}) {
    ParameterStore store;
    declare(store, "w", {DType::F32, {3}}, updates);
    store.assign("w", HTensor::from<float>({3}, {4, 5, 6}));
    CHECK(run(*compile(sum_program(updates), &store, *executor, with.options()), x) == std::vector<float>{5, 7, 9});
    CHECK(with.device->constants == 0);
  }
  CHECK(PackingDevice::packings() == 0);
}

TEST_CASE("packed weights: a device that packs what may change is refused") {
  const auto executor = make_sequential_executor();
  Registered with;
  with.device->always = true;
  ParameterStore store;
  declare(store, "w", {DType::F32, {3}}, false);
  CHECK_THROWS_WITH(compile(sum_program(), &store, *executor, with.options()),
                    Catch::Contains("packs an input which is not constant"));
}

TEST_CASE("packed weights: a frozen matrix of several readers gives the same bits as one that may change") {
  const auto executor = make_sequential_executor();
  Tracer tracer("tied");
  const HTensor ids = tracer.input("ids", {DType::I64, {kRows}}),
                table = tracer.parameter("table", {DType::F32, {kOut, kIn}});
  tracer.output("y", call1("linear", {gather(table, ids), table}));
  const Program program = tracer.take();
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < kRows; ++i) numbers.push_back(i * 7 % kOut);
  const HTensor rows = HTensor::from({kRows}, numbers);
  std::vector<float> results[2];
  for (const bool fixed : {false, true}) {
    ParameterStore store;
    declare(store, "table", {DType::F32, {kOut, kIn}}, fixed);
    const auto plan = compile(program, &store, *executor, on("cpu"));
    const void* inputs[] = {rows.bytes()};
    plan->run(inputs);
    const HTensor& y = plan->output("y");
    results[fixed].assign(y.data<float>(), y.data<float>() + y.size());
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE(
    "packed weights: large weights that no program changes keep the layout of their file, for any number of rows") {
  const auto executor = make_sequential_executor();
  for (const bool fixed : {true, false}) {
    ParameterStore store;
    declare(store, "large", {DType::F32, {1024, 1025}}, fixed);
    declare(store, "small", {DType::F32, {1024, 1024}}, fixed);
    HTensor wide(DType::F32, {64, 1025});
    std::fill_n(wide.mutable_data<float>(), wide.size(), 0.25f);
    for (const char* name : {"large", "small"})
      for (const int64_t rows : {1, 20, 64}) {
        Tracer tracer("map");
        const TensorType& type = store.find(name)->type;
        const HTensor x = tracer.input("x", {DType::F32, {rows, type.shape[1]}});
        tracer.output("y", call("linear", {x, tracer.parameter(name, type)}).at(0));
        const auto plan = compile(tracer.take(), &store, *executor);
        const std::vector<float> y = run(*plan, wide);
        const HTensor weight = store.tensor(name);
        double expected = 0;
        for (int64_t i = 0; i < type.shape[1]; ++i) expected += 0.25 * double{weight.data<float>()[i]};
        CHECK(double{y[0]} == Approx(expected).margin(1e-3));
        CHECK(double{y[static_cast<size_t>((rows - 1) * 1024)]} == Approx(expected).margin(1e-3));
      }
    CHECK(store.find("large")->layout == (fixed ? Layout::natural : Layout::transposed));
    CHECK(store.find("small")->layout == Layout::transposed);
  }
}

TEST_CASE("packed weights: jobs name what each thread reads first in the next product") {
  // Runs parts in order, and notes what it was told about later jobs.
  class Noting final : public Executor {
   public:
    int threads() const override { return 2; }
    void run(uint32_t parts, void (*body)(const void*, uint32_t), const void* context,
             std::span<const ReadAhead> next) override {
      for (uint32_t part = 0; part < parts; ++part) body(context, part);
      if (!next.empty()) noted.emplace_back(next.begin(), next.end());
    }
    std::vector<std::vector<ReadAhead>> noted;
  };
  // More weights than caches hold; for this many rows each is packed.
  constexpr int64_t kWidth = 1056, kBatch = 1024, kBytes = kWidth * kWidth * 4;
  constexpr size_t kProducts = 8;
  ParameterStore store;
  Tracer tracer("products");
  HTensor x = tracer.input("x", {DType::F32, {kBatch, kWidth}});
  for (size_t i = 0; i < kProducts; ++i) {
    const std::string name = "w" + std::to_string(i);
    declare(store, name, {DType::F32, {kWidth, kWidth}}, true);
    x = call1("linear", {x, tracer.parameter(name, {DType::F32, {kWidth, kWidth}})});
  }
  tracer.output("y", x);
  const Program program = tracer.take();
  Noting executor;
  const auto plan = compile(program, &store, executor, on("cpu"));
  const HTensor rows = HTensor::from({kBatch, kWidth}, std::vector<float>(kBatch * kWidth, 0.5f));
  run(*plan, rows);
  INFO(plan->memory().packed_bytes);
  if (plan->memory().packed_bytes == 0) return;  // an instruction set whose products pack no weights
  // Each product names the next one's weight; the last one that of the next run.
  REQUIRE(executor.noted.size() == kProducts);
  std::vector<const std::byte*> begins;
  for (const auto& next : executor.noted) {
    REQUIRE(next.size() == 2);
    CHECK(next[1].begin - next[0].begin == kBytes / 2);
    for (const ReadAhead& r : next) CHECK((r.bytes > 0 && r.bytes <= kBytes / 2));
    CHECK(std::find(begins.begin(), begins.end(), next[0].begin) == begins.end());
    begins.push_back(next[0].begin);
  }
  run(*plan, rows);
  REQUIRE(executor.noted.size() == 2 * kProducts);
  CHECK(executor.noted[kProducts][0].begin == begins[0]);
}
