// Network faults between a sender and its receiver: every sample arrives once, in order and undamaged, soon after the
// fault.
#include "tests/transports/chaos_world.hpp"
#include "tests/transports/checks.hpp"

using namespace transports;

namespace {

constexpr uint64_t kSeed = 20260;

// Runs scenarios in parallel: they mostly wait.
void live_through_all(const std::vector<ChaosWorld>& worlds) {
  std::vector<ChaosVerdict> verdicts(worlds.size());
  {
    std::vector<std::unique_ptr<Worker>> workers;
    for (size_t i = 0; i < worlds.size(); ++i)
      workers.push_back(std::make_unique<Worker>([&, i] { verdicts[i] = live_through(worlds[i]); }));
  }
  for (size_t i = 0; i < worlds.size(); ++i) {
    INFO(worlds[i].kind << ", seed " << worlds[i].seed << ": " << verdicts[i].str());
    CHECK(verdicts[i].error == "");
    CHECK(verdicts[i].samples > 0);
  }
}

std::vector<ChaosWorld> one_of_each(const std::string& kind) {
  std::vector<ChaosWorld> worlds;
  for (const Fault fault : all_faults())
    worlds.push_back({kind, kSeed + worlds.size(), single_storms(kSeed + worlds.size(), {fault})});
  return worlds;
}

}  // namespace

TEST_CASE("chaos: the seed determines the faults") {
  const auto told = [](const std::vector<Storm>& storms) {
    std::string text;
    for (const Storm& s : storms)
      text += s.str() + " " + std::to_string(s.calm.count()) + " " + std::to_string(s.lasts.count()) + "\n";
    return text;
  };
  CHECK(told(mixed_storms(7, all_faults(), 20)) == told(mixed_storms(7, all_faults(), 20)));
  CHECK(told(mixed_storms(7, all_faults(), 20)) != told(mixed_storms(8, all_faults(), 20)));
  CHECK(told(single_storms(7, all_faults())) == told(single_storms(7, all_faults())));
}

TEST_CASE("chaos: no single network fault loses a sample") {
  const Deadline deadline;
#ifdef HARMONICS_WITH_ZMQ
  const std::string kind = GENERATE(as<std::string>{}, "tcp", "zmq+router");
#else
  const std::string kind = "tcp";
#endif
  live_through_all(one_of_each(kind));
}

TEST_CASE("chaos: no mixture of network faults loses a sample") {
  const Deadline deadline;
  std::vector<ChaosWorld> worlds;
  for (uint64_t i = 0; i < 4; ++i)
    worlds.push_back({"tcp", kSeed + 100 + i, mixed_storms(kSeed + 100 + i, all_faults(), 2)});
#ifdef HARMONICS_WITH_ZMQ
  for (uint64_t i = 0; i < 4; ++i)
    worlds.push_back({"zmq+router", kSeed + 200 + i, mixed_storms(kSeed + 200 + i, all_faults(), 2)});
#endif
  live_through_all(worlds);
}
