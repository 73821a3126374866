// Predictor: answers prediction requests with the weights of a snapshot, on its own thread. Combines waiting requests
// into batches.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/cycle/snapshot_step.hpp"
#include "engine/serving/answer_times.hpp"

namespace harmonics::engine {

// A named input or output.
struct Port {
  std::string name;
  TensorType sample;
  int64_t classes = 0;  // number of classes, if samples are class numbers; 0: not limited
  uint64_t bytes() const { return sample.bytes(); }
};

struct ModelPorts {
  std::string graph;
  int cycle = 0;
  std::vector<Port> inputs, outputs;
};

struct Prediction {
  WeightsVersion version;
  uint64_t samples = 0;
  std::vector<std::vector<std::byte>> outputs;  // by port; samples are contiguous
  uint64_t not_finite = 0;                      // samples with an output that is infinite or NaN
};

struct PredictorSettings {
  std::chrono::microseconds latency{2000};  // maximum wait of a batch's first request for others
  uint64_t queue = 1024;                    // maximum number of waiting samples
};

class Predictor {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kSizes[] = {1, 8, 32};  // batch sizes
  static constexpr uint64_t kMostSamples = 256;    // per request

  explicit Predictor(PredictorSettings settings = {});
  ~Predictor();  // answers waiting requests with an error
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  // Makes later requests use this model's entry "forward" with the weights of these snapshots. `cycle`: cycle of a
  // flow, for ModelPorts; `tokens`: see EntrySizes. Compiles, so it must be called on the thread of the model's front
  // end, while nothing else uses it. The model is not needed after the call.
  void serve(const Model& model, int cycle, const CompileOptions& options, std::shared_ptr<Snapshots> snapshots,
             int64_t tokens = 1);
  // Returns inputs and outputs, or null before the first serve().
  std::shared_ptr<const ModelPorts> ports() const;
  // Returns the newest weights, or null before the first serve().
  std::shared_ptr<const Snapshot> newest() const;

  // Called once, on the predictor's thread; exactly one argument is not null.
  using Answer = std::function<void(const Prediction*, const Error*)>;
  // Queues a request. `inputs`: by port, with contiguous samples. Throws ErrorKind::Usage if they do not match `ports`,
  // Stream for class numbers out of range, and Unavailable if the queue is full.
  void ask(const std::shared_ptr<const ModelPorts>& ports, uint64_t samples, std::vector<std::vector<std::byte>> inputs,
           Answer answer);

  AnswerTimes::Report report() const;

 private:
  class Programs;
  struct Job {
    std::shared_ptr<const ModelPorts> ports;
    uint64_t samples;
    std::vector<std::vector<std::byte>> inputs;
    Answer answer;
    Clock::time_point arrived;
    Prediction result;
  };

  void work();
  std::vector<Job> take_round(std::unique_lock<std::mutex>& lock);
  void answer(std::vector<Job>& round, Programs& programs);
  void finish(Job& job, const Error* error);

  const PredictorSettings settings_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Job> queue_;
  uint64_t queued_ = 0;  // in samples
  bool over_ = false;
  std::shared_ptr<Programs> programs_;
  AnswerTimes times_;
  std::thread thread_;
};

}  // namespace harmonics::engine
