// Frozen binaries built for contract 1.0: existing plugins keep working.
#include <catch2/catch.hpp>

#include <filesystem>

#include "engine/contract/plugin_implementation.hpp"
#include "tests/plugins/every_kind.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace fs = std::filesystem;

namespace {

// Copies without write access for others, whatever the checkout's permissions.
class Golden {
 public:
  Golden() {
    for (const char* prefix : {"gnu", "clang", "c"})
      builds_.push_back({copy("kinds_v1_" + std::string(prefix)), prefix});
    seed = copy("seed_v1");
  }
  const std::vector<Build>& builds() const { return builds_; }
  std::string seed;

 private:
  std::string copy(const std::string& name) {
    const fs::path to = folder_ / (name + ".so");
    fs::copy_file(HARMONICS_SOURCE_DIR "/tests/plugins/golden/" + name + ".so", to);
    fs::permissions(to, fs::perms::owner_all);
    return to.string();
  }

  journeys::Folder folder_;
  std::vector<Build> builds_;
};

bool runs_here() {
#if defined(__x86_64__) && defined(__linux__)
  return true;
#else
  WARN("skipped: the golden binaries are for x86-64 Linux");
  return false;
#endif
}

}  // namespace

TEST_CASE("binaries of contract 1.0: functions, gradients and metrics") {
  if (!runs_here()) return;
  const Golden golden;
  for (const Build& b : golden.builds()) {
    const hx_plugin_abi says = read_descriptor(b.path);
    CHECK(says.abi_major == 1);
    CHECK(says.abi_minor == 0);
    CHECK(std::string(says.id) == "org.example." + b.prefix);
    check_functions(b);
    check_metric(b);
  }
}

TEST_CASE("binaries of contract 1.0: their items know it") {
  if (!runs_here()) return;
  const Golden golden;
  for (const Build& b : golden.builds())
    for (const auto& item : load_beside(b.path)) CHECK(item->contract_minor == 0);
}

TEST_CASE("binaries of contract 1.0: everything in them trains as calculated") {
  if (!runs_here()) return;
  const Golden golden;
  for (const Build& b : golden.builds()) check_training({b, b});
}

TEST_CASE("binaries of contract 1.0: two work side by side in one process") {
  if (!runs_here()) return;
  const Golden golden;
  for (const auto& [a, b] : {std::pair(0, 1), {1, 2}, {2, 0}}) {
    const Pair pair{golden.builds().at(static_cast<size_t>(a)), golden.builds().at(static_cast<size_t>(b))};
    check_training(pair);
    check_inference(pair);
  }
}

TEST_CASE("binaries of contract 1.0: implementations and devices") {
  if (!runs_here()) return;
  const Golden golden;
  for (const Build& b : golden.builds()) check_implementations(b);
}

TEST_CASE("binaries of contract 1.0: they are not offered operands of later contracts") {
  if (!runs_here()) return;
  const Golden golden;
  const TensorType x{DType::F32, {1, 1, 3, 4}}, lse{DType::F32, {1, 1, 3}}, lengths{DType::I32, {1}};
  const CallSiteInfo grown{
      "attention", AttributeMap().set("operands", "lengths"), {x, x, x, lengths}, {x, lse}, "cpu", 0};
  for (const Build& b : golden.builds()) {
    Registry registry;
    load_plugin(b.path, registry);
    size_t seen = 0;
    for (const uint32_t kind : {uint32_t{HX_DEVICE}, uint32_t{HX_IMPLEMENTATION}})
      for (const std::string& name : registry.names(kind)) {
        const ItemPtr item = registry.need(kind, name);
        CHECK(item->contract_minor == 0);
        if (kind == HX_IMPLEMENTATION)
          CHECK(declines(*item, grown).value_or("") ==
                "it is built for contract 1.0, but attributes of this call need contract 1.5");
        ++seen;
      }
    CHECK(seen >= 2);
  }
}

TEST_CASE("binaries of contract 1.0: the original sample works") {
  if (!runs_here()) return;
  const Golden golden;
  Registry registry;
  load_plugin(golden.seed, registry);
  const ItemPtr item = registry.need(HX_ACTIVATION, "my_act");
  CHECK(item->identity() == "seed_v1/my_act");
  const Ran ran = run(
      floats({3}, {-1, 0.5f, 4}), [&](const HTensor& x) { return call_activation(item, {}, x); }, true);
  CHECK(ran.count(Op::host_call) == 0);
  CHECK(numbers(ran.y)[1] == Approx(0.5 * steep(0.851)));
  CHECK(numbers(ran.dx)[1] == Approx(steep(0.851) + 0.851 * steep(0.851) * (1 - steep(0.851))));
}
