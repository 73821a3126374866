// Selection of hardware by kind, as in embedding programs.
#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <vector>

#include <harmonics/deploy.hpp>

#include "engine/execution/device_choice.hpp"
#include "tests/engine/execution/fake_accelerator.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("an accelerator is used if available, else the CPU with a reason") {
  Registry registry;
  CHECK(choose_device(registry).device == "cpu");
  CHECK(choose_device(registry).note == "device auto: the CPU, as there is no accelerator to use");
  const auto device = add_fake_accelerator(registry, "fast");
  CHECK(choose_device(registry).device == "fast");
  CHECK(choose_device(registry).note.empty());
  CHECK(choose_device(registry, HX_DEVICE_GPU).device == "fast");
  CHECK(choose_device(registry, HX_DEVICE_FPGA).note ==
        "there is no FPGA to use (fast: fake accelerator is not an FPGA)");
  device->unavailable = "no driver";
  CHECK(choose_device(registry).note == "device auto: the CPU, as there is no accelerator to use (fast: no driver)");
}

TEST_CASE("a deployment names a device, and falls back to the CPU only if allowed") {
  CHECK(device_for({Backend::CPU, false}) == "cpu");
  const auto device = add_fake_accelerator(Registry::global(), "deployed");
  CHECK(select_accelerator_backend() == Backend::GPU);
  CHECK(device_for({Backend::GPU, false}) == "deployed");
  device->unavailable = "switched off";
  CHECK(device_for({Backend::FPGA, true}) == "cpu");
  const std::string refused = message_of([] { device_for({Backend::FPGA, false}); });
  CHECK(refused.find("there is no FPGA to use (") == 0);
  CHECK(refused.find("deployed: switched off") != std::string::npos);
  CHECK(refused.find("\nleave fallback at true to run on the CPU then") != std::string::npos);
  CHECK_NOTHROW(device_for({Backend::Auto, false}));
}

TEST_CASE("a deployed graph runs its fits and predictions on that device") {
  const auto device = add_fake_accelerator(Registry::global(), "deploying");
  DeploymentDescriptor fast;
  fast.partitions.push_back({"net", Backend::GPU, false});
  fast.backend = Backend::CPU;
  HarmonicGraph g = parse_hmx_text(
      "harmonic net { producer x; producer y 1/1 x; layer o; cycle { x -(affine)-> o; o <-(cross_entropy)- y; } }");
  g.bindProducer("x", "synth:digits?size=64&seed=1");
  g.bindProducer("y", "synth:digits?size=64&seed=1#label");
  const auto ran = [&](const std::function<void()>& body) {
    const size_t before = device->kernels;
    body();
    return device->kernels > before;
  };
  FitOptions options;
  options.steps = 2;
  options.batch = 16;
  const HTensor one(DType::U8, Shape{28, 28}, std::vector<uint8_t>(784).data());
  CHECK_FALSE(ran([&] { g.fit(options); }));
  g.deploy(fast, "net");
  CHECK(ran([&] { g.fit(options); }));
  CHECK(ran([&] { g.infer(one); }));
  options.device = "cpu";
  CHECK_FALSE(ran([&] { g.fit(options); }));
  options.device.clear();
  options.deployment = DeploymentDescriptor{};  // any accelerator
  options.deployment->backend = Backend::CPU;
  CHECK_FALSE(ran([&] { g.fit(options); }));
  g.deploy(fast);  // without the partition's options
  CHECK_FALSE(ran([&] { g.infer(one); }));
  device->unavailable = "switched off";
  CHECK(message_of([&] { g.deploy(fast, "net"); }).find("deploying: switched off") != std::string::npos);
}

TEST_CASE("partitions of a deployment run on the device of their options") {
  const auto device = add_fake_accelerator(Registry::global(), "partitioned");
  DeploymentDescriptor deploy;
  deploy.backend = Backend::CPU;
  deploy.partitions.push_back({"encoder", Backend::GPU, false});
  CHECK(device_for(deploy, "encoder") == "partitioned");
  CHECK(device_for(deploy, "decoder") == "cpu");
  for (const char* name : {"decoder", "encoder"}) {
    INFO(name);
    HarmonicGraph g = parse_hmx_text(
        std::string("harmonic ") + name +
        " { producer x; producer y 1/1 x; layer o; cycle { x -(affine)-> o; o <-(cross_entropy)- y; } }");
    g.bindProducer("x", "synth:digits?size=64&seed=1");
    g.bindProducer("y", "synth:digits?size=64&seed=1#label");
    FitOptions options;
    options.steps = 2;
    options.batch = 16;
    options.device = device_for(deploy, name);
    const size_t before = device->kernels;
    CHECK(std::isfinite(g.fit(options).loss));
    CHECK((device->kernels > before) == (std::string(name) == "encoder"));
  }
  deploy.partitions.push_back({"encoder", Backend::CPU, false});  // the last entry of a name applies
  CHECK(device_for(deploy, "encoder") == "cpu");
  device->unavailable = "switched off";
  deploy.partitions.back().backend = Backend::GPU;
  CHECK(message_of([&] { device_for(deploy, "encoder"); }).find("partitioned: switched off") != std::string::npos);
  deploy.partitions.back().fallback = true;
  CHECK(device_for(deploy, "encoder") == "cpu");
}
