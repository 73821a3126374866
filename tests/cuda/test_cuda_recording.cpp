// Captured operations depend on those whose memory they use, and on no others.
#include "tests/cuda/emulated_device.hpp"

#include "kernels/cuda/recording.hpp"
#include "tests/engine/execution/arriving.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::cuda;
using namespace harmonics::cuda::testing;

namespace {

// A captured stream; operations are numbered from 1.
class Captured {
 public:
  Captured() {
    REQUIRE(driver_->open_stream(&stream_) == 0);
    REQUIRE(driver_->begin_capture(stream_) == 0);
    recording_.emplace(*driver_, stream_);
  }
  ~Captured() {
    void* graph = nullptr;
    driver_->end_capture(stream_, &graph);
    driver_->release_graph(graph);
    driver_->close_stream(stream_);
  }
  // Captures an operation. Returns the operations that it depends on.
  std::vector<size_t> add(const std::vector<Extent>& extents, int jobs = 1) {
    REQUIRE(recording_->begin(extents) == 0);
    const std::vector<size_t> before = front();
    put(jobs);
    REQUIRE(recording_->end() == 0);
    return before;
  }
  std::vector<size_t> join(bool foreign) {
    REQUIRE(recording_->join(foreign) == 0);
    return front();
  }
  void put(int jobs) {
    for (int i = 0; i < jobs; ++i) REQUIRE(driver_->copy(nullptr, nullptr, 0, stream_) == 0);
  }

 private:
  std::vector<size_t> front() {
    std::vector<void*> nodes;
    REQUIRE(driver_->front(stream_, nodes) == 0);
    std::vector<size_t> numbers;
    for (void* node : nodes) numbers.push_back(reinterpret_cast<size_t>(node));
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  }

  std::unique_ptr<Driver> driver_ = open_driver();
  void* stream_ = nullptr;
  std::optional<Recording> recording_;
};

using Numbers = std::vector<size_t>;
Extent reads(uint64_t begin, uint64_t end) { return {begin, end, false}; }
Extent writes(uint64_t begin, uint64_t end) { return {begin, end, true}; }

}  // namespace

TEST_CASE("cuda recording: an operation waits for those whose memory it uses") {
  const FreshSettings fresh;
  Captured c;
  CHECK(c.add({writes(0, 10)}) == Numbers{});                     // 1
  CHECK(c.add({writes(10, 20)}) == Numbers{});                    // 2
  CHECK(c.add({reads(5, 6), writes(20, 30)}) == Numbers{1});      // 3
  CHECK(c.add({reads(5, 6), writes(30, 40)}) == Numbers{1});      // 4: concurrent with 3
  CHECK(c.add({reads(20, 30), reads(30, 40)}) == Numbers{3, 4});  // 5: not on 1, on which 3 and 4 depend
  CHECK(c.add({writes(0, 10)}) == Numbers{3, 4});                 // 6: after their reads
  CHECK(c.add({reads(9, 11), writes(50, 60)}) == Numbers{2, 6});  // 7
  CHECK(c.add({reads(10, 20), reads(10, 20)}, 0) == Numbers{2});  // nothing is captured
  CHECK(c.add({writes(60, 70)}, 3) == Numbers{});                 // 8 to 10, one after another
  CHECK(c.add({reads(60, 61)}) == Numbers{10});                   // 11
  CHECK(c.join(false) == Numbers{5, 7, 11});                      // an event
  CHECK(c.add({writes(70, 80)}) == Numbers{});                    // 12: concurrent with it
  CHECK(c.join(true) == Numbers{5, 7, 11, 12});
  c.put(2);                                        // 13, 14: foreign operations
  CHECK(c.add({writes(90, 100)}) == Numbers{14});  // 15
}

TEST_CASE("cuda: each binding awaits the event of its own recording") {
  const FreshSettings fresh;
  EmulatedDevice with;
  const auto step = harmonics::engine::testing::training_step(8, {12, 10, 10}, "sgd");
  ParameterStore store;
  harmonics::engine::testing::declare(store, step);
  const auto plan = compile(step.program, &store, *with.executor, with.options());
  const float* loss = plan->output("loss").data<float>();
  std::vector<std::shared_ptr<Storage>> memory;
  std::vector<std::shared_ptr<DeviceTensor>> others;
  for (const BoundState& s : plan->states()) {
    memory.push_back(std::make_shared<Storage>(s.type.bytes()));
    std::memcpy(memory.back()->data(), step.numbers.at(s.name).bytes(), s.type.bytes());
    others.push_back(std::make_shared<DeviceTensor>(plan->queue(), memory.back()->data(), s.type.bytes()));
  }
  const std::vector<std::shared_ptr<DeviceTensor>> own(others.size());
  HTensor bad = harmonics::engine::testing::copy_of(step.numbers.at("x"));
  bad.mutable_data<float>()[7] = INFINITY;
  for (int i = 0; i < 8; ++i) {
    INFO(i);
    const bool spoilt = i == 4 || i == 7;
    plan->bind(i % 2 == 0 ? own : others);
    auto numbers = step.numbers;
    if (spoilt) numbers["x"] = bad;
    const auto inputs = harmonics::engine::testing::input_pointers(*plan, numbers);
    CHECK(plan->run_if_finite(inputs.data(), loss) == !spoilt);
  }
}
