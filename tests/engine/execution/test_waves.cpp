// Waves separate dependent steps and preserve their order.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>

#include "engine/execution/waves.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

struct Steps {
  std::vector<std::byte> memory = std::vector<std::byte>(64);
  std::vector<StepShape> shapes;
  std::vector<StepAccess> access;
  std::vector<std::vector<uint32_t>> parts;  // memory that shapes point to
  std::vector<int> contexts = std::vector<int>(1000);

  Steps() { parts.reserve(1000); }
  StepAccess& add(std::vector<uint32_t> of_phases, double nanoseconds = 1e5) {
    parts.push_back(std::move(of_phases));
    shapes.push_back({&contexts[shapes.size()], static_cast<uint32_t>(parts.back().size()), parts.back().data()});
    access.push_back({{}, nanoseconds, false});
    return access.back();
  }
  MemorySpan span(size_t begin, size_t end, bool written) const {
    return {memory.data() + begin, memory.data() + end, written};
  }
  Waves make(size_t rest) const { return make_waves(shapes, access, rest); }
};

bool clash(const StepAccess& a, const StepAccess& b) {
  for (const MemorySpan& x : a.spans)
    for (const MemorySpan& y : b.spans)
      if ((x.written || y.written) && x.begin < y.end && y.begin < x.end) return true;
  return false;
}

// Returns the wave phase of every step's phases. Checks that each part occurs once.
std::map<std::pair<uint32_t, uint32_t>, size_t> places(const Steps& steps, const Waves& waves) {
  std::map<std::pair<uint32_t, uint32_t>, size_t> place;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> parts;
  for (size_t p = 0; p < waves.phases.size(); ++p)
    for (uint32_t i = 0; i < waves.phases[p].count; ++i) {
      const WaveJob& j = waves.jobs[waves.phases[p].first + i];
      const auto [it, first] = place.emplace(std::pair(j.step, j.phase), p);
      REQUIRE((first || it->second == p));
      parts[{j.step, j.phase}].push_back(j.part);
    }
  for (uint32_t s = 0; s < steps.shapes.size(); ++s)
    for (uint32_t phase = 0; phase < steps.shapes[s].phases; ++phase) {
      std::vector<uint32_t>& got = parts[{s, phase}];
      std::sort(got.begin(), got.end());
      REQUIRE(got.size() == steps.shapes[s].parts[phase]);
      for (uint32_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == i);
    }
  return place;
}

}  // namespace

TEST_CASE("waves: turned parts are the parts of each thread in reverse order") {
  for (const uint32_t threads : {1u, 2u, 3u, 7u})
    for (const uint32_t parts : {1u, 2u, 5u, 16u, 61u})
      for (uint32_t t = 0; t < threads; ++t) {
        const uint32_t begin = first_part(parts, threads, t), end = first_part(parts, threads, t + 1);
        for (uint32_t part = begin; part < end; ++part)
          CHECK(turned_part(parts, threads, part) == begin + end - 1 - part);
      }
}

TEST_CASE("waves: steps without conflicts share a wave") {
  Steps s;
  s.add({4}).spans = {s.span(0, 8, false), s.span(8, 16, true)};
  s.add({2, 3}).spans = {s.span(0, 8, false), s.span(16, 24, true)};
  const Waves w = s.make(2);
  REQUIRE(w.phases.size() == 2);
  CHECK(w.phases[0].count == 6);
  CHECK(w.phases[1].count == 3);
  CHECK(w.rest == 2);
  // Each half of the jobs contains half of both steps.
  int of_first = 0;
  for (int i = 0; i < 3; ++i) of_first += w.jobs[static_cast<size_t>(i)].step == 0;
  CHECK(of_first == 2);
}

TEST_CASE("waves: each kind of memory conflict begins a new wave") {
  for (const auto& [first, second] : {std::pair(true, false), {false, true}, {true, true}}) {
    Steps s;
    s.add({2}).spans = {s.span(0, 8, first)};
    s.add({2}).spans = {s.span(7, 9, second)};
    CHECK(s.make(2).phases.size() == 2);
  }
  Steps s;
  s.add({2}).spans = {s.span(0, 8, true)};
  s.add({2}).spans = {s.span(8, 9, true)};
  CHECK(s.make(2).phases.size() == 1);
  CHECK(s.make(1).phases.size() == 2);  // the end of the forward pass still separates the steps
  CHECK(s.make(1).rest == 1);
}

TEST_CASE("waves: steps of one kernel and exclusive steps are separated") {
  Steps s;
  s.add({2});
  s.add({2});
  s.shapes[1].context = s.shapes[0].context;
  CHECK(s.make(0).phases.size() == 2);
  s.shapes[1].context = &s.contexts[7];
  s.access[1].alone = true;
  CHECK(s.make(0).phases.size() == 2);
}

TEST_CASE("waves: little work is not parallel") {
  Steps s;
  s.add({1}, 1000);
  s.add({1}, 900);
  CHECK_FALSE(s.make(2).phases.at(0).parallel);
  s.add({1}, 9000);
  CHECK_FALSE(s.make(3).phases.at(0).parallel);  // the longest step limits the gain
  s.add({1}, 9000);
  CHECK(s.make(4).phases.at(0).parallel);
}

TEST_CASE("waves: random plans keep all dependences") {
  std::mt19937 random(11);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (int round = 0; round < 300; ++round) {
    Steps s;
    const size_t count = 1 + below(12);
    for (size_t i = 0; i < count; ++i) {
      std::vector<uint32_t> parts;
      for (size_t p = 0; p <= below(3); ++p) parts.push_back(static_cast<uint32_t>(1 + below(5)));
      StepAccess& a = s.add(parts, static_cast<double>(below(20000)));
      for (size_t k = 0; k < 3; ++k) {
        const size_t begin = below(60);
        a.spans.push_back(s.span(begin, begin + 1 + below(4), k == 2));
      }
      a.alone = below(9) == 0;
    }
    const size_t rest = below(count + 1);
    const Waves w = s.make(rest);
    auto place = places(s, w);
    for (uint32_t a = 0; a < count; ++a)
      for (uint32_t b = a + 1; b < count; ++b) {
        const size_t last_of_a = place.at({a, s.shapes[a].phases - 1}), first_of_b = place.at({b, 0});
        if (clash(s.access[a], s.access[b]) || s.access[a].alone || s.access[b].alone || (a < rest && b >= rest))
          REQUIRE(last_of_a < first_of_b);
      }
    for (uint32_t i = 0; i < count; ++i) REQUIRE((i < rest) == (place.at({i, 0}) < w.rest));
  }
}
