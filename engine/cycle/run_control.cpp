#include "engine/cycle/run_control.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include <fmt/core.h>

#include <harmonics/error.hpp>

namespace harmonics::engine {

namespace {

using namespace std::chrono_literals;

// Time limit of a request that waits for the end of a step. The steps it requested may take longer.
constexpr auto kPatience = 5s;
// A stop from a signal handler cannot notify a waiting thread, so the paused run checks for it at this interval.
constexpr auto kPauseInterval = 50ms;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Returns 500 for "DIR/checkpoint-7-step-500.safetensors".
int64_t step_of(const std::string& path) {
  const size_t at = path.rfind("-step-");
  return at == std::string::npos ? 0 : std::atoll(path.c_str() + at + 6);
}

Health worst(Health a, Health b) { return a < b ? b : a; }

}  // namespace

const char* word(RunPhase phase) {
  switch (phase) {
    case RunPhase::starting:
      return "starting";
    case RunPhase::running:
      return "running";
    case RunPhase::pausing:
      return "pausing";
    case RunPhase::paused:
      return "paused";
    case RunPhase::stopping:
      return "stopping";
    case RunPhase::over:
      return "over";
    case RunPhase::serving:
      return "serving";
  }
  return "";
}

const char* word(Health health) {
  return health == Health::ok ? "ok" : health == Health::degraded ? "degraded" : "failed";
}

std::optional<double> StreamStatus::back_pressure() const {
  if (!of_live || of_live->window_bytes == 0) return std::nullopt;
  return std::min(1.0, static_cast<double>(of_live->queued_bytes) / static_cast<double>(of_live->window_bytes));
}

std::optional<double> StreamStatus::lag_seconds() const {
  if (!of_live) return std::nullopt;
  if (of_live->queued_samples == 0) return 0.0;
  if (rate <= 0) return std::nullopt;
  return static_cast<double>(of_live->queued_samples) / rate;
}

RunControl::RunControl(std::string graph, int cycles) : graph_(std::move(graph)), cycles_(cycles), rate_(kNone) {}

// ---- callable from any thread ----

RunPhase RunControl::phase() const {
  if (phase_ != RunPhase::running) return phase_;
  if (!paused_ || steps_left_ > 0) return RunPhase::running;
  return busy_ ? RunPhase::pausing : RunPhase::paused;
}

RunStatus RunControl::status() const {
  RunStatus s;
  const std::lock_guard<std::mutex> lock(mutex_);
  const double now = seconds();
  s.graph = graph_;
  s.phase = phase();
  s.cycle = scene_.cycle;
  s.cycles = cycles_;
  s.trains = scene_.trains;
  s.epoch = figures_.epoch + 1;
  s.epochs = scene_.epochs;
  s.step = figures_.step;
  s.samples = figures_.samples;
  s.seconds = figures_.seconds;
  s.samples_per_second = samples_.at(now);
  s.steps_per_second = steps_.at(now);
  s.fraction = figures_.fraction;
  for (size_t i = 0; i < scene_.metrics.size() && i < values_.size(); ++i)
    if (!std::isnan(values_[i])) s.metrics[scene_.metrics[i]] = values_[i];
  // A rate set from outside applies to the next step, so it is shown even while no step runs.
  const double set = learning_rate();
  s.learning_rate_set = !std::isnan(set);
  if (scene_.trains && (s.learning_rate_set || figures_.step > 0))
    s.learning_rate = s.learning_rate_set ? set : figures_.learning_rate;
  if (scene_.window > 0) {
    s.window.emplace();
    s.window->samples = figures_.windowed;
    s.window->of = scene_.window;
    constexpr std::string_view kWindow = "window.";
    for (auto it = s.metrics.lower_bound(std::string(kWindow)); it != s.metrics.end() && it->first.starts_with(kWindow);
         it = s.metrics.erase(it))
      s.window->metrics[it->first.substr(kWindow.size())] = it->second;
  }
  if (!checkpoint_.empty())
    s.checkpoint = RunStatus::LastCheckpoint{checkpoint_, step_of(checkpoint_),
                                             std::chrono::duration<double>(Clock::now() - checkpointed_).count()};
  s.checkpointing = scene_.checkpointing && (running_ || phase_ == RunPhase::starting);
  s.health = trouble_.empty() ? Health::ok : Health::degraded;
  for (const StreamProbe& probe : scene_.streams) {
    StreamStatus stream;
    stream.name = probe.name;
    stream.live = probe.live;
    stream.samples = static_cast<uint64_t>(figures_.samples) * probe.per_joint;
    stream.bytes = static_cast<uint64_t>(figures_.samples) * probe.joint_bytes;
    stream.rate = s.samples_per_second * static_cast<double>(probe.per_joint);
    stream.bytes_per_second = s.samples_per_second * static_cast<double>(probe.joint_bytes);
    if (probe.look) probe.look(stream);
    s.health = worst(s.health, stream.health);
    s.streams.push_back(std::move(stream));
  }
  s.notes = lines_;
  return s;
}

RunHistory RunControl::history() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return history_;
}

std::vector<LogLine> RunControl::log(uint64_t after) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<LogLine> lines;
  std::copy_if(log_.begin(), log_.end(), std::back_inserter(lines),
               [&](const LogLine& line) { return line.number > after; });
  return lines;
}

std::vector<RunRow> RunControl::epochs(uint64_t after) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<RunRow> rows;
  std::copy_if(epochs_.begin(), epochs_.end(), std::back_inserter(rows),
               [&](const RunRow& row) { return row.number > after; });
  return rows;
}

std::shared_ptr<const BatchSample> RunControl::sample(Clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto before = sample_;
  sample_wanted_.store(true, std::memory_order_relaxed);
  changed_.wait_until(lock, deadline, [&] { return sample_ != before || !running_; });
  return sample_;
}

void RunControl::expect_running(const char* what) const {
  if (running_ && phase_ == RunPhase::running) return;
  throw Error(ErrorKind::Usage, fmt::format("the run cannot be {} now", what), {},
              {fmt::format("the run is {}", word(phase()))});
}

void RunControl::pause() {
  std::unique_lock<std::mutex> lock(mutex_);
  expect_running("paused");
  paused_ = true;
  steps_left_ = 0;
  changed_.wait_for(lock, kPatience, [&] { return !busy_ || !running_; });
}

void RunControl::resume() {
  const std::lock_guard<std::mutex> lock(mutex_);
  expect_running("resumed");
  paused_ = false;
  steps_left_ = 0;
  wake_.notify_all();
}

void RunControl::step(int64_t count) {
  std::unique_lock<std::mutex> lock(mutex_);
  expect_running("stepped");
  if (!paused_) throw Error(ErrorKind::Usage, "the run is not paused", {}, {"pause it first"});
  if (count < 1 || count > int64_t{1} << 40)
    throw Error(ErrorKind::Usage, fmt::format("a count of {} steps is not possible", count), {},
                {"give a number of at least 1"});
  steps_left_ += count;
  wake_.notify_all();
  changed_.wait_for(lock, kPatience, [&] { return (steps_left_ == 0 && !busy_) || !running_ || !paused_; });
}

void RunControl::set_learning_rate(std::optional<double> rate) {
  const std::lock_guard<std::mutex> lock(mutex_);
  expect_running("given a learning rate");
  if (!scene_.trains)
    throw Error(ErrorKind::Usage, "this cycle does not train", {}, {"only cycles that train have a learning rate"});
  if (rate && !(*rate >= 0 && *rate <= 1e6))
    throw Error(ErrorKind::Usage, fmt::format("a learning rate of {:g} is not possible", *rate), {},
                {"give a number of at least 0, or null for the schedule's rate"});
  rate_.store(rate.value_or(kNone), std::memory_order_relaxed);
}

void RunControl::checkpoint() {
  const std::lock_guard<std::mutex> acting(acting_);
  std::function<bool()> write;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    expect_running("checkpointed");
    if (!scene_.checkpointing)
      throw Error(ErrorKind::Usage, "this run keeps no checkpoints", {}, {"start it with --checkpoint DIR"});
    write = scene_.checkpoint;
  }
  if (!write()) throw Error(ErrorKind::Usage, "no step has finished yet", {}, {"try again"});
}

void RunControl::stop() {
  const std::lock_guard<std::mutex> acting(acting_);
  std::function<void()> stop;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!running_ || phase_ != RunPhase::serving) expect_running("stopped");
    stop = scene_.stop;
    phase_ = RunPhase::stopping;
  }
  stop();
  wake_.notify_all();
}

// The changer waits for the end of a step, so no lock is held during the change: the end of the run takes them all.
LayerChanger& RunControl::changer() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  expect_running("changed");
  if (!changer_) throw Error(ErrorKind::Usage, "the layers of this run cannot be changed");
  return *changer_;
}

LayerChange RunControl::change_layer(const std::string& layer, const std::vector<ArgumentText>& arguments) {
  return changer().change_layer(layer, arguments);
}

LayerChange RunControl::undo_layer() { return changer().undo_layer(); }

void RunControl::set_changer(LayerChanger* changer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  changer_ = changer;
}

// ---- called by the running cycle ----

void RunControl::expect(const std::vector<std::string>& producers, bool checkpointing) {
  const std::lock_guard<std::mutex> lock(mutex_);
  scene_.checkpointing = checkpointing;
  scene_.streams.clear();
  for (const std::string& name : producers)
    scene_.streams.push_back({name, false, 1, 0, [](StreamStatus& stream) { stream.state = "waiting"; }});
}

void RunControl::begin(RunScene scene) {
  const std::lock_guard<std::mutex> lock(mutex_);
  scene_ = std::move(scene);
  figures_ = scene_.from;
  sample_ = nullptr;
  sample_wanted_.store(true, std::memory_order_relaxed);
  values_.assign(scene_.metrics.size(), kNone);
  history_.begin(scene_.metrics);
  samples_.begin(seconds(), static_cast<double>(figures_.samples));
  steps_.begin(seconds(), static_cast<double>(figures_.step));
  running_ = true;
  paused_ = busy_ = false;
  steps_left_ = 0;
  phase_ = RunPhase::running;
  rate_.store(scene_.learning_rate.value_or(kNone), std::memory_order_relaxed);
}

void RunControl::end(bool over) {
  const std::lock_guard<std::mutex> acting(acting_);
  const std::lock_guard<std::mutex> lock(mutex_);
  running_ = paused_ = busy_ = false;
  for (StreamProbe& probe : scene_.streams) probe.look = nullptr;
  scene_.stop = nullptr;
  scene_.checkpoint = nullptr;
  phase_ = over || scene_.cycle + 1 >= cycles_ ? RunPhase::over : RunPhase::starting;
  changed_.notify_all();
}

bool RunControl::enter() {
  const std::lock_guard<std::mutex> lock(mutex_);
  busy_ = !paused_ || steps_left_ > 0;
  return busy_;
}

void RunControl::wait_while_held() {
  std::unique_lock<std::mutex> lock(mutex_);
  wake_.wait_for(lock, kPauseInterval, [&] { return !paused_ || steps_left_ > 0; });
}

bool RunControl::holds() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return paused_ && steps_left_ <= busy_;
}

void RunControl::give_sample(std::shared_ptr<const BatchSample> sample) {
  sample_wanted_.store(false, std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(mutex_);
  sample_ = std::move(sample);
  changed_.notify_all();
}

void RunControl::leave(const RunFigures& figures, const std::vector<double>& values) {
  const std::lock_guard<std::mutex> lock(mutex_);
  figures_ = figures;
  std::copy_n(values.begin(), std::min(values.size(), values_.size()), values_.begin());
  const double now = seconds();
  samples_.add(now, static_cast<double>(figures.samples));
  steps_.add(now, static_cast<double>(figures.step));
  if (history_.wants(figures.step))
    history_.add({figures.step, figures.seconds, samples_.at(now), figures.learning_rate}, values_);
  busy_ = false;
  if (steps_left_ > 0) --steps_left_;
  if (paused_) changed_.notify_all();
}

void RunControl::end_epoch(RunRow row) {
  const std::lock_guard<std::mutex> lock(mutex_);
  row.number = ++rows_;
  epochs_.push_back(std::move(row));
  if (epochs_.size() > kEpochRows) epochs_.pop_front();
}

void RunControl::note(const char* level, std::string text) {
  constexpr size_t kLongest = 4096;
  if (text.size() > kLongest) text.resize(kLongest);
  const std::lock_guard<std::mutex> lock(mutex_);
  log_.push_back({++lines_, figures_.seconds, level, std::move(text)});
  if (log_.size() > kLogLines) log_.pop_front();
}

void RunControl::checkpointed(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (path == checkpoint_) return;
  checkpoint_ = path;
  checkpointed_ = Clock::now();
  trouble_.clear();
}

void RunControl::not_checkpointed(const std::string& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  trouble_ = why;
}

void RunControl::set_phase(RunPhase phase) {
  const std::lock_guard<std::mutex> lock(mutex_);
  phase_ = phase;
}

}  // namespace harmonics::engine
