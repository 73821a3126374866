#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/engine/execution/compiled.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using harmonics::engine::testing::parallel_executors;

namespace {

struct Counts {
  std::vector<int> of;
};
void count_part(const void* context, uint32_t part) {
  ++const_cast<Counts*>(static_cast<const Counts*>(context))->of[part];
}

std::vector<std::unique_ptr<Executor>> executors() {
  std::vector<std::unique_ptr<Executor>> list;
  list.push_back(make_sequential_executor());
  for (int threads : {1, 2, 3})
    for (auto& executor : parallel_executors(threads)) list.push_back(std::move(executor));
  return list;
}

}  // namespace

TEST_CASE("executor: every part runs once") {
  for (const auto& executor : executors())
    for (uint32_t parts : {0u, 1u, 2u, 3u, 16u, 1000u}) {
      Counts counts{std::vector<int>(parts, 0)};
      executor->run(parts, count_part, &counts);
      REQUIRE(std::all_of(counts.of.begin(), counts.of.end(), [](int n) { return n == 1; }));
    }
}

TEST_CASE("executor: many short jobs with pauses") {
  for (const auto& executor : executors()) {
    Counts counts{std::vector<int>(4, 0)};
    for (int i = 0; i < 3000; ++i) executor->run(4, count_part, &counts);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    executor->run(4, count_part, &counts);
    CHECK(counts.of == std::vector<int>(4, 3001));
  }
}

TEST_CASE("executor: reports its number of threads") {
  CHECK(make_sequential_executor()->threads() == 1);
  CHECK(make_team_executor(0)->threads() == 1);
  CHECK(make_team_executor(2)->threads() == 2);
}

TEST_CASE("executor: the caller and the workers run parts") {
  struct Meeting {
    std::atomic<int> here{0};
    std::atomic<bool> met{false};
  };
  const auto meet = [](const void* context, uint32_t) {
    auto& m = *const_cast<Meeting*>(static_cast<const Meeting*>(context));
    ++m.here;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (m.here.load() < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (m.here.load() == 2) m.met = true;
  };
  for (const auto& executor : parallel_executors()) {
    Meeting meeting;
    executor->run(2, meet, &meeting);
    CHECK(meeting.met);
  }
}

// A thread that waits for all other parts runs no other part, so its parts must be stolen.
TEST_CASE("executor: parts of a blocked thread are stolen") {
  struct Job {
    uint32_t held;
    std::atomic<uint32_t> others{0};
    std::atomic<bool> in_time{false};
  };
  constexpr uint32_t kParts = 12;
  const auto body = [](const void* context, uint32_t part) {
    auto& job = *const_cast<Job*>(static_cast<const Job*>(context));
    if (part != job.held) {
      ++job.others;
      return;
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (job.others.load() < kParts - 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    job.in_time = job.others.load() == kParts - 1;
  };
  for (const auto& executor : parallel_executors())
    for (uint32_t held = 0; held < kParts; ++held) {
      Job job{held};
      executor->run(kParts, body, &job);
      CHECK(job.in_time);
    }
}

TEST_CASE("executor: callers from several threads are serialised") {
  const auto team = make_team_executor(2);
  Counts a{std::vector<int>(8, 0)}, b{std::vector<int>(8, 0)};
  std::thread other([&] {
    for (int i = 0; i < 500; ++i) team->run(8, count_part, &b);
  });
  for (int i = 0; i < 500; ++i) team->run(8, count_part, &a);
  other.join();
  CHECK(a.of == std::vector<int>(8, 500));
  CHECK(b.of == std::vector<int>(8, 500));
}
