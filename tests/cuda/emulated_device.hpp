// The CUDA device on the emulated driver, registered for graphs.
#pragma once

#include "engine/execution/executable.hpp"
#include "engine/plugin/registry.hpp"
#include "tests/cuda/device_call.hpp"

namespace harmonics::cuda::testing {

using namespace engine;

struct EmulatedDevice {
  Registry registry{&Registry::global()};
  std::unique_ptr<Executor> executor = make_sequential_executor();

  EmulatedDevice() { add_to(registry); }
  static void add_to(Registry& registry) {
    auto item = std::make_shared<Item>();
    item->kind = HX_DEVICE;
    item->name = "emulated";
    const std::shared_ptr<MemoryDevice> device = make_device();
    item->self = new std::shared_ptr<MemoryDevice>(device);
    item->vtable = harmonics::detail::table_of(*device);
    registry.add(item);
  }
  CompileOptions options(std::vector<std::string> disabled = {}) {
    CompileOptions o;
    o.device = "emulated";
    o.registry = &registry;
    o.disabled = std::move(disabled);
    return o;
  }
};

}  // namespace harmonics::cuda::testing
