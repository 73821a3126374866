#include "engine/serving/predictor.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/alternate_stack.hpp"
#include "engine/tensor/finite.hpp"

namespace harmonics::engine {

namespace {

// Maximum wait of a request for the end of a step. After it, the newest snapshot is used.
constexpr std::chrono::seconds kLongestWait{2};

// Returns the maximum over the outputs of the number of non-finite samples.
uint64_t not_finite_in(const Prediction& prediction, const ModelPorts& ports) {
  int64_t most = 0;
  for (size_t p = 0; p < ports.outputs.size(); ++p) {
    const TensorType& type = ports.outputs[p].sample;
    const BadRows bad = rows_not_finite(type.dtype, prediction.outputs[p].data(),
                                        static_cast<int64_t>(prediction.samples), type.shape.count());
    most = std::max(most, bad.rows);
  }
  return static_cast<uint64_t>(most);
}

Port port_of(const std::string& name, const TensorType& batched, int64_t classes) {
  return {name, {batched.dtype, batched.shape.from(1)}, classes};
}

}  // namespace

// The programs compiled for one run of a cycle, one per batch size.
class Predictor::Programs {
 public:
  Programs(const Model& model, int cycle, const CompileOptions& options, std::shared_ptr<Snapshots> snapshots,
           int64_t tokens)
      : snapshots_(std::move(snapshots)), executor_(make_sequential_executor()) {
    StepOptions o;
    o.mode = Mode::infer;
    o.tokens = tokens;
    for (size_t size = 0; size < std::size(kSizes); ++size) {
      o.batch = kSizes[size];
      const Lowered lowered = lower(model, o);
      if (size == 0) describe(model, cycle, lowered);
      compiled_[size] = std::make_unique<SnapshotStep>(lowered, *snapshots_, *executor_, options);
    }
    for (const Port& p : ports_->inputs)
      staged_.push_back(std::make_shared<Storage>(p.bytes() * static_cast<uint64_t>(kSizes[std::size(kSizes) - 1])));
  }

  const std::shared_ptr<const ModelPorts>& ports() const { return ports_; }
  Snapshots& snapshots() const { return *snapshots_; }

  // Throws for invalid class numbers before batching, so that other requests of the batch do not fail.
  void check(uint64_t samples, const std::vector<std::vector<std::byte>>& inputs) const {
    std::vector<const void*> pointers(inputs.size());
    for (uint64_t i = 0; i < samples; ++i) {
      for (size_t p = 0; p < inputs.size(); ++p) pointers[p] = inputs[p].data() + i * ports_->inputs[p].bytes();
      compiled_[0]->any().check_indices(pointers.data());
    }
  }

  // Computes samples [first, first + n) of these jobs as one batch; n is at most the largest batch size.
  void run(const Snapshot& weights, size_t size, uint64_t first, uint64_t n, std::vector<Job>& jobs) {
    CompiledStep& step = compiled_[size]->on(weights);
    std::vector<const void*> pointers;
    for (size_t p = 0; p < staged_.size(); ++p) {
      const uint64_t bytes = ports_->inputs[p].bytes();
      auto* to = static_cast<std::byte*>(staged_[p]->data());
      each_row(jobs, first, n, [&](Job& job, uint64_t row, uint64_t i) {
        std::memcpy(to + i * bytes, job.inputs[p].data() + row * bytes, bytes);
      });
      for (auto i = n; i < static_cast<uint64_t>(kSizes[size]); ++i)
        std::memcpy(to + i * bytes, to, bytes);  // padding rows
      pointers.push_back(to);
    }
    step.set(pointers.data(), 0, 1, 0);
    step.run();
    for (size_t p = 0; p < outputs_.size(); ++p) {
      const uint64_t bytes = ports_->outputs[p].bytes();
      const auto* from = static_cast<const std::byte*>(step.executable().output(outputs_[p]).bytes());
      each_row(jobs, first, n, [&](Job& job, uint64_t row, uint64_t i) {
        std::memcpy(job.result.outputs[p].data() + row * bytes, from + i * bytes, bytes);
      });
    }
  }

 private:
  void describe(const Model& model, int cycle, const Lowered& lowered) {
    auto ports = std::make_shared<ModelPorts>();
    ports->graph = model.name;
    ports->cycle = cycle;
    const std::vector<const Node*> leaves = lowered.program.leaves(Op::input);  // sample inputs come first
    for (size_t i = 0; i < lowered.inputs.size(); ++i)
      ports->inputs.push_back(
          port_of(leaves[i]->callee, lowered.program.type(leaves[i]->outputs.at(0)), lowered.index_limits[i]));
    for (const NamedValue& output : lowered.program.outputs) {
      outputs_.push_back(output.name);
      ports->outputs.push_back(port_of(result_name(output.name), lowered.program.type(output.value), 0));
    }
    ports_ = std::move(ports);
  }

  template <typename Body>
  static void each_row(std::vector<Job>& jobs, uint64_t first, uint64_t n, Body&& body) {
    uint64_t begin = 0;  // first row of the job among all rows
    for (Job& job : jobs) {
      const uint64_t from = std::max(begin, first), to = std::min(begin + job.samples, first + n);
      for (uint64_t row = from; row < to; ++row) body(job, row - begin, row - first);
      begin += job.samples;
    }
  }

  std::shared_ptr<Snapshots> snapshots_;
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<const ModelPorts> ports_;
  std::vector<std::string> outputs_;
  std::array<std::unique_ptr<SnapshotStep>, std::size(kSizes)> compiled_;
  std::vector<std::shared_ptr<Storage>> staged_;  // by input
};

Predictor::Predictor(PredictorSettings settings) : settings_(settings), thread_([this] { work(); }) {}

Predictor::~Predictor() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  arrived_.notify_all();
  thread_.join();
  const Error stopped(ErrorKind::Unavailable, "the run has ended", {}, {"send the request to another run"});
  for (Job& job : queue_) finish(job, &stopped);
}

void Predictor::serve(const Model& model, int cycle, const CompileOptions& options,
                      std::shared_ptr<Snapshots> snapshots, int64_t tokens) {
  auto programs = std::make_shared<Programs>(model, cycle, options, std::move(snapshots), tokens);
  const std::lock_guard<std::mutex> lock(mutex_);
  programs_.swap(programs);
}

std::shared_ptr<const ModelPorts> Predictor::ports() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return programs_ ? programs_->ports() : nullptr;
}

std::shared_ptr<const Snapshot> Predictor::newest() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return programs_ ? programs_->snapshots().newest() : nullptr;
}

AnswerTimes::Report Predictor::report() const {
  AnswerTimes::Report report = times_.report();
  const std::lock_guard<std::mutex> lock(mutex_);
  report.queued = queued_;
  report.queue_limit = settings_.queue;
  return report;
}

void Predictor::ask(const std::shared_ptr<const ModelPorts>& ports, uint64_t samples,
                    std::vector<std::vector<std::byte>> inputs, Answer answer) {
  if (samples == 0 || samples > kMostSamples)
    throw Error(ErrorKind::Usage, fmt::format("the request has {}", quantity(samples, "sample")), {},
                {fmt::format("send 1 to {} samples per request", kMostSamples)});
  std::shared_ptr<Programs> programs;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    programs = programs_;
  }
  if (!programs || programs->ports() != ports)
    throw Error(ErrorKind::Unavailable, "another cycle of the flow has started", {}, {"try again"});
  for (size_t p = 0; p < inputs.size(); ++p)
    if (inputs.size() != ports->inputs.size() || inputs[p].size() != samples * ports->inputs[p].bytes())
      throw Error(ErrorKind::Usage, "the inputs do not have the model's shape");
  programs->check(samples, inputs);
  std::unique_lock<std::mutex> lock(mutex_);
  if (over_) throw Error(ErrorKind::Unavailable, "the run has ended", {}, {"send the request to another run"});
  if (queued_ + samples > settings_.queue) {
    lock.unlock();
    times_.refused();
    throw Error(ErrorKind::Unavailable,
                fmt::format("the queue is full: it holds at most {}", quantity(settings_.queue, "sample")), {},
                {"try again later, or with fewer samples per request"});
  }
  queued_ += samples;
  queue_.push_back({ports, samples, std::move(inputs), std::move(answer), Clock::now(), {}});
  arrived_.notify_one();
}

// Takes waiting requests, up to the largest batch size in total; a single request may exceed it.
std::vector<Predictor::Job> Predictor::take_round(std::unique_lock<std::mutex>& lock) {
  const auto most = static_cast<uint64_t>(kSizes[std::size(kSizes) - 1]);
  arrived_.wait(lock, [&] { return over_ || !queue_.empty(); });
  if (!over_)
    arrived_.wait_until(lock, queue_.front().arrived + settings_.latency, [&] { return over_ || queued_ >= most; });
  std::vector<Job> round;
  if (over_) return round;
  uint64_t taken = 0;
  while (!queue_.empty() && (round.empty() || taken + queue_.front().samples <= most) &&
         (round.empty() || queue_.front().ports == round.front().ports)) {
    taken += queue_.front().samples;
    round.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  queued_ -= taken;
  return round;
}

void Predictor::work() {
  const AlternateStack stack;
  for (;;) {
    std::unique_lock<std::mutex> lock(mutex_);
    std::vector<Job> round = take_round(lock);
    if (round.empty()) return;
    const std::shared_ptr<Programs> programs = programs_;
    lock.unlock();
    try {
      if (programs->ports() != round.front().ports)
        throw Error(ErrorKind::Unavailable, "another cycle of the flow has started", {}, {"try again"});
      answer(round, *programs);
    } catch (const Error& e) {
      for (Job& job : round) finish(job, &e);
    } catch (const std::exception& e) {
      const Error error(ErrorKind::Internal, e.what());
      for (Job& job : round) finish(job, &error);
    }
  }
}

void Predictor::answer(std::vector<Job>& round, Programs& programs) {
  uint64_t rows = 0;
  for (Job& job : round) {
    rows += job.samples;
    job.result.samples = job.samples;
    for (const Port& p : job.ports->outputs) job.result.outputs.emplace_back(p.bytes() * job.samples);
  }
  const auto weights = programs.snapshots().fresh(round.front().arrived + kLongestWait);
  for (uint64_t first = 0; first < rows;) {
    size_t size = 0;  // the largest size that is at least half filled
    while (size + 1 < std::size(kSizes) && static_cast<uint64_t>(kSizes[size + 1]) <= 2 * (rows - first)) ++size;
    const uint64_t n = std::min(rows - first, static_cast<uint64_t>(kSizes[size]));
    programs.run(*weights, size, first, n, round);
    times_.batch();
    first += n;
  }
  for (Job& job : round) {
    job.result.version = weights->version();
    job.result.not_finite = not_finite_in(job.result, *job.ports);
    finish(job, nullptr);
  }
}

void Predictor::finish(Job& job, const Error* error) {
  if (!job.answer) return;
  if (error)
    times_.failed();
  else
    times_.answered(job.samples, job.result.not_finite, Clock::now() - job.arrived);
  std::exchange(job.answer, nullptr)(error ? nullptr : &job.result, error);
}

}  // namespace harmonics::engine
