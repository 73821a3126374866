// Thousands of simulated networks: acknowledged samples are not lost, no sample counts twice, all are in order, and
// finally all arrive.
#include <cstdlib>
#include <string>

#include "tests/wire/simulated.hpp"

using namespace harmonics::wire;
using namespace harmonics::wire::testing;

namespace {

// HARMONICS_SEED=N repeats one simulation; HARMONICS_WORLDS=N sets their number.
uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Totals {
  uint64_t worlds = 0, resent = 0, duplicates = 0, gaps = 0, sessions = 0, over_credit = 0, lost = 0, lives = 0;
};

Totals all_worlds(uint64_t first, uint64_t count, const std::function<Journey(std::mt19937_64&)>& journey) {
  Totals totals;
  const uint64_t one = setting("HARMONICS_SEED", 0);
  const uint64_t begin = one ? one : first, end = one ? one + 1 : first + count * setting("HARMONICS_WORLDS", 1);
  for (uint64_t seed = begin; seed < end; ++seed) {
    INFO("HARMONICS_SEED=" << seed);
    std::mt19937_64 random(seed ^ 0x9E3779B97F4A7C15);
    const Journey j = journey(random);
    World world(seed, j);
    REQUIRE(world.run());
    std::vector<uint64_t> whole(j.samples);
    for (uint64_t i = 0; i < j.samples; ++i) whole[i] = i;
    if (world.lost == 0) REQUIRE(world.applied.size() + world.receiver().position().seq >= j.samples);
    for (size_t i = 1; i < world.applied.size(); ++i) REQUIRE(world.applied[i] > world.applied[i - 1]);
    if (j.acknowledgement == Acknowledgement::Durable) REQUIRE(world.applied == whole);
    ++totals.worlds;
    totals.resent += world.resent, totals.duplicates += world.duplicates, totals.gaps += world.gaps,
        totals.sessions += world.sessions;
    totals.over_credit += world.over_credit, totals.lost += world.lost, totals.lives += world.lives.size() - 1;
  }
  return totals;
}

FaultRates some_weather(std::mt19937_64& random) {
  const auto upto = [&](uint64_t n) { return random() % 3 == 0 ? 0 : random() % (n + 1); };
  FaultRates w;
  w.lose = upto(150), w.duplicate = upto(150), w.damage = upto(60), w.delay = upto(300), w.cut = upto(20);
  w.leftovers = random() % 2 == 0;
  return w;
}

Journey some_journey(std::mt19937_64& random) {
  Journey j;
  j.samples = 50 + random() % 200;
  j.window_samples = 1 + random() % 60;
  j.window_bytes = 1 + random() % 1500;
  j.consumed_a_tick = 1 + random() % 8;
  j.checkpoint_every = 5 + random() % 150;
  j.weather = some_weather(random);
  return j;
}

}  // namespace

TEST_CASE("simulation: without faults everything is sent once") {
  const Totals t = all_worlds(1, 200, [](std::mt19937_64& random) {
    Journey j = some_journey(random);
    j.weather = {};
    return j;
  });
  CHECK(t.resent == 0);
  CHECK(t.duplicates == 0);
  CHECK(t.gaps == 0);
  CHECK(t.over_credit == 0);
  CHECK(t.sessions == t.worlds);
}

TEST_CASE("simulation: on a bad network everything arrives once and in order") {
  const Totals t = all_worlds(10000, 2000, some_journey);
  CHECK(t.lost == 0);
  CHECK(t.over_credit == 0);
  if (t.worlds > 1) CHECK((t.resent > 0 && t.duplicates > 0 && t.gaps > 0 && t.sessions > t.worlds));
}

TEST_CASE("simulation: killed receivers resume from their checkpoint") {
  const Totals t = all_worlds(20000, 2000, [](std::mt19937_64& random) {
    Journey j = some_journey(random);
    j.weather.kill_receiver = 1 + random() % 10;
    return j;
  });
  CHECK(t.lost == 0);
  if (t.worlds > 1) CHECK(t.lives > t.worlds);
}

TEST_CASE("simulation: killed senders resume with a source that can go back") {
  const Totals t = all_worlds(30000, 2000, [](std::mt19937_64& random) {
    Journey j = some_journey(random);
    j.weather.kill_receiver = random() % 8;
    j.weather.kill_sender = 1 + random() % 8;
    return j;
  });
  CHECK(t.lost == 0);
}

TEST_CASE("simulation: a sender without numbers continues the receiver's") {
  const Totals t = all_worlds(40000, 500, [](std::mt19937_64& random) {
    Journey j = some_journey(random);
    j.fresh = true;
    j.weather.kill_receiver = random() % 8;
    return j;
  });
  CHECK(t.lost == 0);
}

TEST_CASE("simulation: acknowledgement on receipt promises no more than that") {
  const auto received = [](std::mt19937_64& random) {
    Journey j = some_journey(random);
    j.acknowledgement = Acknowledgement::Received;
    return j;
  };
  CHECK(all_worlds(50000, 500, received).lost == 0);
  const Totals t = all_worlds(60000, 500, [&](std::mt19937_64& random) {
    Journey j = received(random);
    j.weather.kill_receiver = 1 + random() % 10;
    return j;
  });
  if (t.worlds > 1) CHECK(t.lost > 0);  // and the loss is counted
}

TEST_CASE("simulation: a sender with little memory asks for checkpoints") {
  const Totals t = all_worlds(70000, 300, [](std::mt19937_64& random) {
    Journey j = some_journey(random);
    j.keep_bytes = 300 + random() % 2000;
    j.checkpoint_every = 1000000;
    j.weather.until = 500;
    return j;
  });
  CHECK(t.lost == 0);
}
