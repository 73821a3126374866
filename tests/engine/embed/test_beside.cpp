// Inference during training, and continued training on streams that can be read only once.
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include <harmonics/graph.hpp>

using namespace harmonics;

namespace {

// Counts steps and inference calls, and lets an inference call wait, halfway, until steps have ended.
struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  int trained = 0;     // activation calls by training
  bool asked = false;  // inference has reached an activation

  void wait_for(const std::function<bool()>& holds) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, holds);
  }
  void tell(const std::function<void()>& change) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      change();
    }
    changed.notify_all();
  }
};

// Rows of "y = 2 a - b + 1", unbounded. With a meeting, rows after the third batch of four arrive only once an
// inference call is halfway.
class Rows : public Producer {
 public:
  Rows(bool target, bool live, Meeting* meeting = nullptr) : target_(target), live_(live), meeting_(meeting) {}
  HTensor next() override {
    if (meeting_ && at_ == 12) meeting_->wait_for([&] { return meeting_->asked; });
    const float a = static_cast<float>(at_ % 7) / 7, b = static_cast<float>(at_ % 5) / 5, y = 2 * a - b + 1;
    const float xs[] = {a, b};
    if (at_ == end) return {};
    ++at_;
    return target_ ? HTensor(DType::F32, Shape{1}, &y) : HTensor(DType::F32, Shape{2}, xs);
  }
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    if (!live_) return std::nullopt;
    StreamInfo info;
    info.sample = target_ ? Shape{1} : Shape{2};
    info.live = true;
    return info;
  }
  bool cancel() override { return live_; }
  uint64_t end = UINT64_MAX;

 private:
  bool target_, live_;
  Meeting* meeting_;
  uint64_t at_ = 0;
};

// Eight rows, and then silence until it is cancelled.
class Silent : public Rows {
 public:
  Silent(bool target, Meeting& meeting) : Rows(target, true), meeting_(meeting) { end = 8; }
  HTensor next() override {
    const HTensor row = Rows::next();
    if (row) return row;
    meeting_.tell([&] { meeting_.asked = true; });
    meeting_.wait_for([&] { return cancelled_; });
    return {};
  }
  bool cancel() override {
    meeting_.tell([&] { cancelled_ = true; });
    return true;
  }

 private:
  Meeting& meeting_;
  bool cancelled_ = false;
};

// Returns its input. For a batch of one, waits until concurrent training has ended a step. Inputs of zeros come from
// the compiler's trial call.
class Passing : public ActivationFunction {
 public:
  explicit Passing(Meeting& meeting) : meeting_(meeting) {}
  HTensor operator()(const HTensor& x) const override {
    const float* values = x.data<float>();
    if (std::all_of(values, values + x.size(), [](float v) { return v == 0; })) return x;
    if (x.shape()[0] == 1) {
      int before = 0;
      meeting_.tell([&] { before = meeting_.trained, meeting_.asked = true; });
      if (waits) meeting_.wait_for([&] { return meeting_.trained >= before + 3; });  // two activations per step
    } else {
      meeting_.tell([&] { ++meeting_.trained; });
    }
    return HTensor(DType::F32, x.shape(), values);
  }
  HTensor gradient(const HTensor&, const HTensor&, const HTensor& dy) const override { return dy; }
  bool waits = false;

 private:
  Meeting& meeting_;
};

constexpr const char* kBesideFlow =
    "harmonic g { producer x; producer y; layer h {3}; layer o {1}; cycle { x -(affine, tanh)-> h; h -(affine(1), "
    "tanh)-> o; o <-(mse)- y; } }";

FitOptions steps_only(int64_t steps) {
  FitOptions o;
  o.steps = steps;
  o.batch = 4;
  o.threads = 1;
  o.optimizer = "sgd(lr=0.1)";
  return o;
}

HTensor question() {
  const float xs[] = {0.5f, 0.25f};
  return HTensor(DType::F32, Shape{2}, xs);
}
float answer(HarmonicGraph& g) { return g.infer(question()).data<float>()[0]; }

// Returns the result of inference after `steps` steps, without concurrent training.
float answer_after(int64_t steps) {
  Meeting meeting;
  HarmonicGraph g = parse_hmx_text(kBesideFlow);
  g.registerActivation("tanh", std::make_shared<Passing>(meeting));
  g.bindProducer("x", std::make_shared<Rows>(false, false));
  g.bindProducer("y", std::make_shared<Rows>(true, false));
  g.fit(steps_only(steps));
  return answer(g);
}

std::vector<float> weights(const HarmonicGraph& g) {
  std::vector<float> all;
  for (const std::string& name : g.weights()) {
    const HTensor w = g.weight(name);
    all.insert(all.end(), w.data<float>(), w.data<float>() + w.size());
  }
  return all;
}

struct KeptBeside : Consumer {
  std::vector<float> values;
  void push(const HTensor& sample) override { values.push_back(sample.data<float>()[0]); }
};

}  // namespace

TEST_CASE("beside: inference from another thread uses the weights of a single step") {
  Meeting meeting;
  const auto passing = std::make_shared<Passing>(meeting);
  passing->waits = true;
  HarmonicGraph g = parse_hmx_text(kBesideFlow);
  g.registerActivation("tanh", passing);
  g.bindProducer("x", std::make_shared<Rows>(false, false, &meeting));
  g.bindProducer("y", std::make_shared<Rows>(true, false, &meeting));
  bool answered = false;
  FitOptions o = steps_only(1000000);
  o.progress = [&](const FitProgress&) {
    const std::lock_guard<std::mutex> lock(meeting.mutex);
    return !answered;
  };
  std::thread training([&] { g.fit(o); });
  meeting.wait_for([&] { return meeting.trained == 6; });  // in the third step: the stream then waits before more
                                                           // samples
  const float got = answer(g);                             // its two layers run steps apart
  meeting.tell([&] { answered = true; });
  training.join();
  CHECK(got == answer_after(3));
}

TEST_CASE("beside: inference is called by several threads and by the run itself") {
  Meeting meeting;
  HarmonicGraph g = parse_hmx_text(kBesideFlow);
  g.registerActivation("tanh", std::make_shared<Passing>(meeting));
  g.bindProducer("x", std::make_shared<Rows>(false, false));
  g.bindProducer("y", std::make_shared<Rows>(true, false));
  std::vector<float> known;
  for (int64_t step = 0; step <= 20; ++step) known.push_back(answer_after(step));
  float after_first = 0, after_last = 0;
  FitOptions o = steps_only(20);
  o.progress = [&](const FitProgress& p) {
    (p.step == 1 ? after_first : after_last) = answer(g);
    return true;
  };
  std::vector<std::vector<float>> answers(3);
  std::vector<std::thread> asking;
  for (auto& mine : answers)
    asking.emplace_back([&] {
      for (int i = 0; i < 50; ++i) mine.push_back(answer(g));
    });
  g.fit(o);
  for (std::thread& t : asking) t.join();
  CHECK(after_first == known[1]);
  CHECK(after_last == known[20]);
  for (const auto& mine : answers)
    for (const float a : mine) CHECK(std::find(known.begin(), known.end(), a) != known.end());
}

TEST_CASE("stop_fit: ends a fit that waits for a silent stream") {
  Meeting meeting;
  HarmonicGraph g = parse_hmx_text(kBesideFlow);
  g.registerActivation("tanh", std::make_shared<Passing>(meeting));
  g.bindProducer("x", std::make_shared<Silent>(false, meeting));
  g.bindProducer("y", std::make_shared<Silent>(true, meeting));
  g.stop_fit();  // no fit runs
  FitReport report;
  std::thread training([&] { report = g.fit(steps_only(1000000)); });
  meeting.wait_for([&] { return meeting.asked; });
  g.stop_fit();
  training.join();
  CHECK(report.steps == 2);
  CHECK(report.stopped_by == "interrupt");
}

TEST_CASE("continued training: another fit continues a read-once stream where the last one stopped") {
  for (const bool live : {true, false}) {
    INFO(live);
    const auto bound = [&](uint64_t end) {
      HarmonicGraph g = parse_hmx_text(kBesideFlow);
      for (const bool target : {false, true}) {
        const auto rows = std::make_shared<Rows>(target, live);
        rows->end = end;
        g.bindProducer(target ? "y" : "x", rows);
      }
      return g;
    };
    HarmonicGraph once = bound(UINT64_MAX), parts = bound(UINT64_MAX);
    once.fit(steps_only(6));
    CHECK(parts.fit(steps_only(2)).steps == 2);
    CHECK(weights(parts) != weights(once));
    FitOptions stopped = steps_only(1000);
    stopped.progress = [](const FitProgress& p) { return p.step < 1; };
    CHECK(parts.fit(stopped).steps == 1);
    CHECK(parts.fit(steps_only(3)).steps == 3);
    CHECK(weights(parts) == weights(once));

    HarmonicGraph ends = bound(22);
    CHECK(ends.fit(steps_only(3)).stopped_by == "steps");
    const FitReport rest = ends.fit(steps_only(1000));
    CHECK(rest.stopped_by == "end of streams");
    CHECK(rest.samples == 10);
    CHECK(ends.fit(steps_only(5)).samples == 0);
  }
}

TEST_CASE("continued training: a fit with a time limit loses no arriving sample") {
  HarmonicGraph g = parse_hmx_text(
      "harmonic g { producer x; producer y; consumer c; layer o {1}; cycle { x -> o; o <- y; y -> c; } }");
  const auto kept = std::make_shared<KeptBeside>();
  g.bindProducer("x", std::make_shared<Rows>(false, true));
  g.bindProducer("y", std::make_shared<Rows>(true, true));
  g.bindConsumer("c", kept);
  for (int i = 0; i < 3; ++i) CHECK(g.fit(std::chrono::milliseconds(30)).stopped_by == "for");
  for (size_t n = 0; n < kept->values.size(); ++n)
    REQUIRE(kept->values[n] == 2 * (static_cast<float>(n % 7) / 7) - static_cast<float>(n % 5) / 5 + 1);
}
