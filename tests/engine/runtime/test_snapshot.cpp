// Snapshots of a running cycle: each contains the complete weights of one step, and taking them changes nothing.
#include <catch2/catch.hpp>

#include <atomic>
#include <map>
#include <thread>

#include "engine/cycle/snapshot.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

using namespace std::chrono_literals;

constexpr const char* kNormNet = R"(harmonic g {
  producer x {32}; producer y {8}; layer h {16}; layer o;
  cycle { x -(affine, norm("batch"), relu)-> h -> o; o <-(cross_entropy)- y; }
})";

std::unique_ptr<BoundGraph> bound() {
  auto g = graph_of(kNormNet);
  bind_rows(*g, "x", {32}, numbers(32 * 640));
  std::vector<int64_t> y;
  for (int64_t i = 0; i < 640; ++i) y.push_back(i % 8);
  bind_rows<int64_t>(*g, "y", {}, y);
  return g;
}

std::string bytes_of_store(const ParameterStore& store) {
  std::string s;
  for (const auto& [name, t] : store.all())
    if (t.role != Role::moment && name.find('/') == std::string::npos)
      s.append(name).append(reinterpret_cast<const char*>(t.storage->data()), t.type.bytes());
  return s;
}

RunSettings some(int64_t accumulate, int64_t epochs) {
  RunSettings s = settings(16);
  s.epochs = epochs;
  s.accumulate = accumulate;
  return s;
}

// Returns the weights after every step of a run without readers.
std::map<int64_t, std::string> by_step(int64_t accumulate, int64_t epochs) {
  auto g = bound();
  std::map<int64_t, std::string> all;
  CycleRuntime runtime(*g, 0, some(accumulate, epochs));
  runtime.on_step(1, [&](const StepReport& r) { all[r.step] = bytes_of_store(g->store()); });
  runtime.run();
  return all;
}

// A stream that pauses after some samples until it is ended.
class Waiting : public Rows<float> {
 public:
  Waiting(Shape sample, std::vector<float> values, std::atomic<bool>& end)
      : Rows<float>(sample, std::move(values)), end_(end) {}
  HTensor next() override {
    HTensor t = Rows<float>::next();
    const auto deadline = std::chrono::steady_clock::now() + 200s;
    while (t.empty() && !end_ && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
    return t;
  }

 private:
  std::atomic<bool>& end_;
};

}  // namespace

TEST_CASE("snapshot: holds the weights of one step, and reading changes nothing") {
  const auto [accumulate, epochs] = GENERATE(std::pair<int64_t, int64_t>{1, 12}, std::pair<int64_t, int64_t>{3, 12});
  const std::map<int64_t, std::string> expected = by_step(accumulate, epochs);
  auto g = bound();
  CycleRuntime runtime(*g, 0, some(accumulate, epochs));
  std::vector<std::thread> readers;
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0}, read{0};
  std::shared_ptr<Snapshots> snapshots;
  runtime.keep_snapshots([&](const std::shared_ptr<Snapshots>& kept) {
    snapshots = kept;
    for (int i = 0; i < 2; ++i)
      readers.emplace_back([&, kept] {
        while (!over) {
          const auto s = kept->fresh(Snapshots::Clock::now() + 1s);
          const auto at = expected.find(s->version().step);
          if (s->version().step != 0 && (at == expected.end() || at->second != bytes_of_store(s->weights()))) ++wrong;
          ++read;
        }
      });
  });
  // Slow until enough has been read, independent of the machine's load.
  runtime.on_step(
      1, [&](const StepReport&) { std::this_thread::sleep_for(read <= 5 || snapshots->taken() <= 3 ? 50ms : 200us); });
  runtime.run();
  over = true;
  for (std::thread& t : readers) t.join();
  CHECK(wrong == 0);
  CHECK(read > 5);
  CHECK(snapshots->taken() > 3);
  CHECK(bytes_of_store(g->store()) == expected.rbegin()->second);
  const auto last = snapshots->newest();
  CHECK(last->version() == WeightsVersion{0, expected.rbegin()->first});
  CHECK(bytes_of_store(last->weights()) == expected.rbegin()->second);
}

TEST_CASE("snapshot: nothing is copied without a request, or again while the copy is recent") {
  auto g = bound();
  CycleRuntime runtime(*g, 0, some(1, 4));
  std::shared_ptr<Snapshots> snapshots;
  runtime.keep_snapshots([&](const std::shared_ptr<Snapshots>& kept) { snapshots = kept; });
  uint64_t before_last = 0;
  runtime.on_step(1, [&](const StepReport&) { before_last = snapshots->taken(); });
  runtime.run();
  CHECK(before_last == 1);
  CHECK(snapshots->taken() == 2);  // the first and the last

  std::mutex boundary;
  const auto kept = std::make_shared<Snapshots>(g->store(), WeightsVersion{0, 0});
  kept->attach(boundary);
  const auto begun = Snapshots::Clock::now();
  for (int64_t step = 1; Snapshots::Clock::now() - begun < 60ms || kept->taken() <= 2; ++step) {
    kept->newest();
    kept->fresh(Snapshots::Clock::now());
    const std::lock_guard<std::mutex> lock(boundary);
    kept->begin();
    kept->end(step);
  }
  const auto took = Snapshots::Clock::now() - begun;
  CHECK(kept->taken() > 2);
  CHECK(kept->taken() <= 2 + static_cast<uint64_t>(took / 5ms));
  kept->detach();
}

TEST_CASE("snapshot: readers copy for themselves while a stream waits") {
  auto g = graph_of("harmonic g { producer x {2}; layer o {2}; cycle { x -> o; o <-(mse)- x; } }");
  std::atomic<bool> end{false};
  bind_producer(*g, "x", std::make_shared<Waiting>(Shape{2}, numbers(2 * 40), end)->live());
  RunSettings s = settings(1);
  CycleRuntime runtime(*g, 0, s);
  std::shared_ptr<Snapshots> snapshots;
  std::atomic<int64_t> steps{0};
  std::atomic<bool> ready{false};
  runtime.keep_snapshots([&](const std::shared_ptr<Snapshots>& kept) { snapshots = kept, ready = true; });
  runtime.on_step(1, [&](const StepReport& r) { steps = r.step; });
  std::thread run([&] { runtime.run(); });
  const auto deadline = std::chrono::steady_clock::now() + 100s;
  while ((!ready || steps < 40) && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  CHECK(steps == 40);
  std::this_thread::sleep_for(10ms);
  const auto begun = Snapshots::Clock::now();
  const auto snapshot = snapshots->fresh(begun + 100s);
  CHECK(snapshot->version().step == 40);
  CHECK(Snapshots::Clock::now() - begun < 90s);
  end = true;
  runtime.stop();
  run.join();
}

TEST_CASE("snapshot: readers that hold every buffer stop no step") {
  auto g = graph_of("harmonic g { producer x {2}; layer o {2}; cycle { x -> o; o <-(mse)- x; } }");
  bind_rows(*g, "x", {2}, numbers(8));
  declare(*g);
  std::mutex boundary;
  const auto kept = std::make_shared<Snapshots>(g->store(), WeightsVersion{0, 0});
  kept->attach(boundary);
  std::vector<std::shared_ptr<const Snapshot>> held{kept->newest()};
  const auto step = [&](int64_t n) {
    std::this_thread::sleep_for(6ms);
    kept->fresh(Snapshots::Clock::now());  // requests a copy
    const std::lock_guard<std::mutex> lock(boundary);
    kept->begin();
    kept->end(n);
  };
  for (int64_t n = 1; n <= 5; ++n) {
    step(n);
    held.push_back(kept->newest());
  }
  CHECK(held[0]->version().step == 0);
  CHECK(held[5]->version() == held[2]->version());
  held.erase(held.begin());
  step(6);
  CHECK(kept->newest()->version().step == 6);
  held.clear();
  kept->detach();
}

TEST_CASE("snapshot: a tensor that no program of the cycle changes is copied once to each buffer") {
  auto g = graph_of("harmonic g { producer x {2}; layer o {2}; cycle { x -> o; o <-(mse)- x; } }");
  bind_rows(*g, "x", {2}, numbers(8));
  declare(*g);
  std::mutex boundary;
  const auto kept = std::make_shared<Snapshots>(g->store(), WeightsVersion{0, 0},
                                                [](const std::string& name) { return name.ends_with("bias"); });
  kept->attach(boundary);
  const auto first_number = [](const ParameterStore& store, const std::string& end) {
    for (const auto& [name, t] : store.all())
      if (name.ends_with(end)) return *static_cast<const float*>(t.data());
    return -1.0f;
  };
  const float before = first_number(g->store(), "weight");
  for (int64_t step = 1; step <= 2; ++step) {
    for (const auto& [name, t] : g->store().all())
      *static_cast<float*>(g->store().find(name)->change()) = static_cast<float>(step);
    const std::lock_guard<std::mutex> lock(boundary);
    kept->begin();
    kept->end(step);
    kept->settle();
  }
  const auto second_use_of_the_buffer = kept->newest();
  CHECK(second_use_of_the_buffer->version().step == 2);
  CHECK(first_number(second_use_of_the_buffer->weights(), "bias") == 2);
  CHECK(first_number(second_use_of_the_buffer->weights(), "weight") == before);
  kept->detach();
}

TEST_CASE("snapshot: a cycle that trains some of the weights gives readers all of them") {
  auto g = graph_of(R"(harmonic g {
    producer x {4}; producer y {3}; layer h {4}; layer o;
    x -(affine, tanh)-> h;
    cycle { h -> o; o <-(cross_entropy(only="*.o.*"))- y; }
  })");
  bind_rows(*g, "x", {4}, numbers(4 * 64));
  std::vector<int64_t> y;
  for (int64_t i = 0; i < 64; ++i) y.push_back(i % 3);
  bind_rows<int64_t>(*g, "y", {}, y);
  CycleRuntime runtime(*g, 0, some(1, 2));
  std::shared_ptr<Snapshots> snapshots;
  runtime.keep_snapshots([&](const std::shared_ptr<Snapshots>& kept) { snapshots = kept; });
  std::string wrong;
  runtime.on_step(1, [&](const StepReport&) {
    snapshots->settle();
    if (bytes_of_store(snapshots->newest()->weights()) != bytes_of_store(g->store())) wrong += "x";
  });
  runtime.run();
  CHECK(wrong.empty());
  CHECK(bytes_of_store(snapshots->newest()->weights()) == bytes_of_store(g->store()));
}
