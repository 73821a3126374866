// Frozen binaries built for contract 1.4: live sources, and devices with their own memory.
#include <catch2/catch.hpp>

#include <cstring>
#include <filesystem>
#include <limits>

#include "engine/base/address.hpp"
#include "engine/execution/staging.hpp"
#include "engine/plugin/loader.hpp"
#include "engine/streams/stream_source.hpp"
#include "engine/streams/streams.hpp"
#include "tests/journeys/shell.hpp"
#include "tests/plugins/small_run.hpp"

using namespace harmonics;
using namespace harmonics::engine;
namespace fs = std::filesystem;

namespace {

struct Later {
  std::string path, prefix;  // its names begin with "prefix_"
};

// Copies without write access for others, whatever the checkout's permissions. Empty if they cannot run here.
class LaterBuilds {
 public:
  LaterBuilds() {
#if defined(__x86_64__) && defined(__linux__)
    for (const std::string prefix : {"gnu", "clang", "c"}) {
      const fs::path to = folder_ / ("kinds_v1_4_" + prefix + ".so");
      fs::copy_file(HARMONICS_SOURCE_DIR "/tests/plugins/golden/kinds_v1_4_" + prefix + ".so", to);
      fs::permissions(to, fs::perms::owner_all);
      builds.push_back({to.string(), prefix});
    }
#else
    WARN("skipped: the golden binaries are for x86-64 Linux");
#endif
  }
  std::vector<Later> builds;

 private:
  journeys::Folder folder_;
};

std::vector<float> floats_of(const HTensor& t) {
  const auto* at = static_cast<const float*>(t.bytes());
  return {at, at + t.size()};
}

}  // namespace

TEST_CASE("binaries of contract 1.4: their descriptors and all checks of their items") {
  const LaterBuilds later;
  for (const Later& b : later.builds) {
    INFO(b.path);
    const hx_plugin_abi says = read_descriptor(b.path);
    CHECK(says.abi_major == 1);
    CHECK(says.abi_minor == 4);
    CHECK(std::string(says.id) == "org.example.later." + b.prefix);
    const journeys::Result r = journeys::harmonics("plugin check --calls 1000 " + b.path);
    CHECK(r.code == 0);
    CHECK(journeys::has(r.out, "is available: " + b.prefix + " memory"));
    CHECK(journeys::has(r.out, " calls: add "));
    for (const char* served : {", linear ", ", mul ", ", sgd "}) CHECK(journeys::has(r.out, served));
    CHECK(journeys::has(r.out, " kernels of sgd\n"));
    CHECK(journeys::has(r.out, "products in bf16: of the calls, "));
    CHECK(!journeys::has(r.out, "products in bf16: of the calls, 0 with other results"));  // it rounds
    CHECK(journeys::has(r.out, "13 passed, 0 failed"));
  }
}

TEST_CASE("binaries of contract 1.4: a live source resumes, numbers its samples and reports its health") {
  const LaterBuilds later;
  for (const Later& b : later.builds) {
    INFO(b.path);
    Registry registry;
    load_plugin(b.path, registry);
    Source source = open_source(registry, "x", parse_address(b.prefix + "_live:?size=9"));
    CHECK(source.info().live);
    CHECK(source.info().sample == Shape{2});
    CHECK(source.keep_numbers());
    REQUIRE(source.restore(5, "before 5"));
    CHECK(floats_of(source.next()) == std::vector<float>{5, 2.5f});
    REQUIRE(source.numbers().size() == 1);
    CHECK(source.numbers()[0].number == 50);
    CHECK(source.numbers()[0].sender == 7);
    CHECK(source.position_before(6) == "before 6");
    source.durable(6);
    const std::optional<StreamHealth> health = source.health();
    REQUIRE(health);
    CHECK(health->state == StreamHealth::State::Receiving);
    CHECK((health->senders == 2 && health->connected == 1 && health->wants_durable && !health->at_most_once));
    CHECK((health->samples == 9 && health->bytes == 72 && health->queued_samples == 6));
    CHECK(health->idle_seconds == 0.25);
    CHECK(health->last_error == b.prefix);
    CHECK(source.cancel());
    CHECK(!source.next());
    Source other = open_source(registry, "x", parse_address(b.prefix + "_live:"));
    CHECK_THROWS_AS(other.restore(5, "elsewhere"), Error);
  }
}

TEST_CASE("binaries of contract 1.4: a device describes itself and records work that is launched as a whole") {
  const LaterBuilds later;
  for (const Later& b : later.builds) {
    INFO(b.path);
    Registry registry;
    load_plugin(b.path, registry);
    const ItemPtr device = registry.need(HX_DEVICE, b.prefix + "_memory");
    REQUIRE(has_own_memory(*device));
    CHECK((has_host_memory(*device) && has_events(*device) && has_clock(*device) && looks_at_numbers(*device)));
    CHECK(device->table<hx_device_vt>().flags(device->self) == (HX_SITE_BF16 | HX_SITE_FP8));
    const hx_device_info info = info_of(*device);
    CHECK(info.sort == HX_DEVICE_FPGA);
    CHECK((info.memory == 1ull << 30 && info.free_memory == 1ull << 29 && info.most_bytes == 1ull << 28));
    CHECK(std::string(info.capability) == "four kernels");

    const auto queue = std::make_shared<DeviceQueue>(device);
    REQUIRE(queue->can_capture());
    const DeviceBuffer from(queue, 64), to(queue, 64), number(queue, 4);
    const HostMemory host(queue, 64);
    float sent = 3, looked = 1, kept = 0;
    queue->upload(number.at(0), &looked, sizeof looked);
    queue->begin_capture();
    queue->upload(from.at(0), &sent, sizeof sent);
    queue->copy_if_finite(to.at(0), from.at(0), sizeof sent, number.at(0));
    queue->download(host.at(0), to.at(0), sizeof sent);
    const DeviceEvent arrived(queue);
    hx_capture* const work = queue->end_capture();
    REQUIRE(work != nullptr);
    const auto launched = [&](float value, float of) {
      sent = value, looked = of;
      queue->upload(number.at(0), &looked, sizeof looked);
      queue->launch(work);
      arrived.await();
      std::memcpy(&kept, host.at(0), sizeof kept);
      return kept;
    };
    CHECK(launched(3, 1) == 3);
    CHECK(launched(4, 1) == 4);
    CHECK(launched(5, std::numeric_limits<float>::infinity()) == 4);  // unchanged
    queue->synchronize();
    queue->release(work);
  }
}

TEST_CASE("binaries of contract 1.4: training on their device gives the losses of the CPU") {
  const LaterBuilds later;
  const SmallRun s;
  const auto loss_on = [&](const std::string& flags) {
    const journeys::Result r = journeys::harmonics("run " + s.flow("affine(2)") + s.flags +
                                                   "--json --quiet --optimizer 'sgd(lr=0.1)' " + flags);
    REQUIRE(r.code == 0);
    return journeys::number(r.out, "loss");
  };
  const double expected = loss_on("");
  for (const Later& b : later.builds) {
    INFO(b.path);
    CHECK(loss_on("--plugin " + b.path + " --device " + b.prefix + "_memory") == Approx(expected).epsilon(1e-5));
  }
}
