// Implementations with kernels that use the driver's handles.
#include <catch2/catch.hpp>
#include <cmath>

#include <harmonics/functional.hpp>
#include <harmonics/ops.hpp>

#include "engine/execution/device_memory.hpp"
#include "engine/program/tracer.hpp"
#include "tests/engine/execution/compiled.hpp"
#include "tests/engine/execution/fake_accelerator.hpp"
#include "tests/engine/model/fake_importer.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

float silu_of(float x) { return x / (1 + std::exp(-x)); }

struct NativeSilu final : Implementation {
  std::string supports(const CallSite& site) const override { return site.native() ? "" : "needs handles"; }
  bool find(const CallSite& site, hx_kernel& kernel) const override {
    kernel.context = new size_t(static_cast<size_t>(site.input_shape(0).count()));
    kernel.destroy = [](void* context) { delete static_cast<size_t*>(context); };
    kernel.name = "native silu";
    kernel.enqueue_native = fails ? fail : enqueue;
    if (keeps_run) kernel.run = [](const void*, void* const*, uint32_t, uint32_t) {};
    return true;
  }
  static hx_status enqueue(const void* context, const hx_native* native, const hx_place* places) {
    static_cast<FakeAccelerator*>(native->context)
        ->queue_native(native->queue, places, *static_cast<const size_t*>(context), silu_of);
    return HX_OK;
  }
  static hx_status fail(const void*, const hx_native*, const hx_place*) {
    harmonics_api()->set_error(HX_ERROR_DEVICE, "a wire is loose");
    return HX_ERROR;
  }
  bool fails = false, keeps_run = false;
};

struct WithNative {
  Registry registry{&Registry::global()};
  std::shared_ptr<FakeAccelerator> device = add_fake_accelerator(registry);
  std::shared_ptr<NativeSilu> silu = std::make_shared<NativeSilu>();
  std::unique_ptr<Executor> executor = make_sequential_executor();
  WithNative() {
    device->gives_native = true;
    register_by(registry, [&](FunctionRegistry& r) { r.register_implementation("silu", "native", silu, "a test"); });
  }
  std::unique_ptr<Executable> plan(const char* on_device = "fake") {
    Tracer tracer("silu");
    const HTensor x = tracer.input("x", {DType::F32, {3, 5}});
    tracer.output("y", call1("silu", {x * 2.0}) + 1.0);
    CompileOptions options = on(on_device);
    options.registry = &registry;
    return compile(tracer.take(), nullptr, *executor, options);
  }
};

const std::vector<float> kNumbers = {-3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

}  // namespace

TEST_CASE("native kernels: they run in the device's queue between its kernels, without copies") {
  WithNative with;
  const auto plan = with.plan();
  bool found = false;
  for (const PlanStep& s : plan->steps()) {
    CHECK_FALSE(s.on_host);
    found = found || s.kernel == std::string("native silu");
  }
  CHECK(found);
  const HTensor x = HTensor::from<float>({3, 5}, kNumbers);
  const void* inputs[] = {x.bytes()};
  for (int i = 0; i < 3; ++i) plan->run(inputs);
  CHECK(with.device->natives == 3);
  const float* y = plan->output("y").data<float>();
  for (size_t i = 0; i < kNumbers.size(); ++i) CHECK(y[i] == Approx(silu_of(2 * kNumbers[i]) + 1));
}

TEST_CASE("native kernels: a device without handles and the CPU use their own kernels") {
  WithNative with;
  with.device->gives_native = false;
  for (const char* device : {"fake", "cpu"}) {
    const auto plan = with.plan(device);
    for (const PlanStep& s : plan->steps()) CHECK(s.kernel != std::string("native silu"));
  }
}

TEST_CASE("native kernels: failures name the kernel, and a kernel of both kinds is refused") {
  WithNative with;
  const HTensor x = HTensor::from<float>({3, 5}, kNumbers);
  const void* inputs[] = {x.bytes()};
  with.silu->fails = true;
  const std::string text = message_of([&] { with.plan()->run(inputs); });
  CHECK(text.find("could not queue its kernel 'native silu': a wire is loose") != std::string::npos);
  with.silu->keeps_run = true;
  CHECK(message_of([&] { with.plan(); }).find("gave a kernel without function, name, phases or parts") !=
        std::string::npos);
}
