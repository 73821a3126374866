#include "engine/runtime/cycle_runtime.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include <fmt/core.h>
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/task_arena.h>

#include "engine/runtime/metrics.hpp"

namespace harmonics {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr int64_t kDefaultEpochs = 10;
constexpr size_t kCurvePoints = 512;
constexpr size_t kInFlight = 2;

// A training curve of bounded size: when full, neighbours are averaged and every point covers twice the steps.
class Curve {
 public:
  void add(int64_t step, double seconds, double loss, double accuracy) {
    sum_loss_ += loss;
    sum_accuracy_ += accuracy;
    if (++pending_ < stride_) return;
    points_.push_back({step, seconds, sum_loss_ / static_cast<double>(pending_), accuracy < 0 ? -1 : sum_accuracy_ / static_cast<double>(pending_)});
    sum_loss_ = sum_accuracy_ = 0;
    pending_ = 0;
    if (points_.size() == kCurvePoints) halve();
  }
  std::vector<CurvePoint> take() { return std::move(points_); }
  Curve() { points_.reserve(kCurvePoints); }

 private:
  void halve() {
    for (size_t i = 0; i + 1 < points_.size(); i += 2)
      points_[i / 2] = {points_[i + 1].step, points_[i + 1].seconds, (points_[i].loss + points_[i + 1].loss) / 2, (points_[i].accuracy + points_[i + 1].accuracy) / 2};
    points_.resize(points_.size() / 2);
    stride_ *= 2;
  }
  std::vector<CurvePoint> points_;
  int64_t stride_ = 1, pending_ = 0;
  double sum_loss_ = 0, sum_accuracy_ = 0;
};

// One batch on its way through the stages.
struct Slot {
  std::vector<std::vector<std::byte>> streams;
  std::vector<const void*> pointers;
  std::vector<void*> targets;
  std::vector<std::vector<std::byte>> results;
  uint64_t count = 0, epoch = 0;
};

}  // namespace

class CycleRun {
 public:
  CycleRun(CycleRuntime& owner, CycleReport& report)
      : owner_(owner), graph_(owner.graph_), report_(report), settings_(graph_.settings(owner.cycle_, owner.settings_)),
        training_(graph_.graph().trains(owner.cycle_)), executor_(graph_.executor(owner.settings_.threads)) {
    plan();
  }

  void run() {
    namespace flow = oneapi::tbb::flow;
    const int threads = std::max(1, executor_.threads());
    oneapi::tbb::task_arena arena(threads);
    start_ = Clock::now();
    arena.execute([&] {
      flow::graph g;
      flow::input_node<Slot*> input(g, [this](oneapi::tbb::flow_control& control) { return next(control); });
      flow::limiter_node<Slot*> limiter(g, kInFlight);
      flow::function_node<Slot*, Slot*> step(g, flow::serial, [this](Slot* slot) { return this->step(slot); });
      flow::function_node<Slot*, flow::continue_msg> sink(g, flow::serial, [this](Slot* slot) { return deliver(slot), flow::continue_msg(); });
      flow::make_edge(input, limiter);
      flow::make_edge(limiter, step);
      flow::make_edge(step, sink);
      flow::make_edge(sink, limiter.decrementer());
      input.activate();
      g.wait_for_all();
    });
    finish();
  }

 private:
  using StepKey = std::pair<int64_t, std::set<int>>;  // batch, branches

  void plan() {
    const Graph& g = graph_.graph();
    producers_ = g.producers_used(owner_.cycle_, training_);
    if (producers_.empty()) throw Error(ErrorKind::Usage, fmt::format("no producer feeds this cycle of '{}'", g.name));
    for (int n : producers_)
      if (!graph_.streams().bound(n))
        throw Error(ErrorKind::Usage, fmt::format("producer '{}' is not bound", g.nodes[static_cast<size_t>(n)].name), {}, {fmt::format("bind it: --producer {}=file:PATH", g.nodes[static_cast<size_t>(n)].name)});
    for (int n : graph_.results(owner_.cycle_)) {
      const bool consumer = g.nodes[static_cast<size_t>(n)].kind == DeclarationKind::Consumer;
      if (graph_.sinks().count(consumer ? n : -1) && (consumer || !training_)) wanted_.push_back(n);
    }
    reader_ = graph_.streams().reader(g, producers_, static_cast<uint64_t>(settings_.batch), training_ && owner_.settings_.shuffle, settings_.seed);
    reader_->begin(0);
    epochs_ = settings_.epochs.value_or(-1);
    if (!settings_.epochs && !settings_.steps && !settings_.seconds && settings_.until.empty() && reader_->size() > 0) epochs_ = training_ ? kDefaultEpochs : 1;
    if (!training_ && !settings_.epochs && reader_->size() > 0) epochs_ = 1;
    declare_metrics();
    for (Slot& slot : slots_) {
      for (size_t i = 0; i < producers_.size(); ++i) slot.streams.emplace_back(reader_->bytes(i) * static_cast<size_t>(settings_.batch) + 64);
      for (auto& s : slot.streams) {
        // 64-byte aligned inside the buffer: kernels read it directly.
        void* p = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(s.data()) + 63) / 64 * 64);
        slot.targets.push_back(p);
        slot.pointers.push_back(p);
      }
    }
    compiled(settings_.batch);  // before the clock starts
    if (const uint64_t n = reader_->size(); n % static_cast<uint64_t>(settings_.batch) != 0 && epochs_ != 0 && g.conditionals.empty())
      compiled(static_cast<int64_t>(n % static_cast<uint64_t>(settings_.batch)));
    for (Slot& slot : slots_)
      for (int n : wanted_) slot.results.emplace_back(result_bytes(n));
  }

  void declare_metrics() {
    loss_metric_ = metrics_.declare("loss");
    if (!training_) return;
    for (const GraphTap& t : graph_.graph().taps) {
      const std::string& name = graph_.graph().nodes[static_cast<size_t>(t.layer)].name;
      metrics_.declare(name + ".loss");
      metrics_.declare(name + ".accuracy");
    }
  }

  LoweringOptions options(int64_t batch) {
    LoweringOptions o;
    o.mode = training_ ? Mode::train : Mode::infer;
    o.cycle = owner_.cycle_;
    o.batch = batch;
    o.seed = settings_.seed;
    o.branches = branches_;
    o.optimizer = settings_.optimizer;
    o.wanted = wanted_;
    return o;
  }

  CompiledStep& compiled(int64_t batch) {
    const auto it = steps_.find({batch, branches_});
    if (it != steps_.end()) return *it->second;
    CompileOptions c;
    c.device = owner_.settings_.device;
    c.registry = &graph_.registry();
    auto step = std::make_unique<CompiledStep>(graph_.lower(options(batch)), graph_.store(), executor_, c);
    return *steps_.emplace(StepKey{batch, branches_}, std::move(step)).first->second;
  }

  size_t result_bytes(int n) { return type_of(compiled(settings_.batch).executable().output("out:" + graph_.graph().nodes[static_cast<size_t>(n)].name)).bytes(); }

  // ---- input stage ----
  Slot* next(oneapi::tbb::flow_control& control) {
    if (stopping()) return control.stop(), nullptr;
    Slot& slot = slots_[next_slot_];
    slot.count = reader_->read(slot.targets.data());
    while (slot.count == 0) {
      if (reader_->position() == 0) throw Error(ErrorKind::Stream, fmt::format("the streams of '{}' hold no sample", graph_.graph().name));
      ++read_epoch_;
      if (epochs_ >= 0 && static_cast<int64_t>(read_epoch_) >= epochs_) {
        ended_.store(true, std::memory_order_relaxed);
        return control.stop(), nullptr;
      }
      reader_->begin(read_epoch_);
      slot.count = reader_->read(slot.targets.data());
    }
    slot.epoch = read_epoch_;
    next_slot_ = (next_slot_ + 1) % slots_.size();
    return &slot;
  }

  bool stopping() const { return owner_.stop_.load(std::memory_order_relaxed) || finished_.load(std::memory_order_relaxed) || epochs_ == 0; }

  // ---- step stage ----
  Slot* step(Slot* slot) {
    if (stopping()) {
      slot->count = 0;
      return slot;
    }
    if (slot->epoch != epoch_) close_epoch(slot->epoch);
    choose_branches();
    const auto count = static_cast<int64_t>(slot->count);
    CompiledStep& program = compiled(count);
    program.set(slot->pointers.data(), static_cast<float>(settings_.optimizer.lr), step_ + 1, settings_.seed);
    if (program.loss()) {
      program.run_forward();
      if (!std::isfinite(*program.loss())) diverged(program, *slot);
      program.run_rest();
    } else {
      program.run();
    }
    ++step_;
    samples_ += count;
    epoch_samples_ += count;
    ++epoch_steps_;
    measure(program, static_cast<double>(count));
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const HTensor& value = program.executable().output("out:" + graph_.graph().nodes[static_cast<size_t>(wanted_[i])].name);
      std::memcpy(slot->results[i].data(), value.bytes(), type_of(value).bytes());
    }
    check_conditions();
    return slot;
  }

  void choose_branches() {
    const auto& conditionals = graph_.graph().conditionals;
    if (conditionals.empty()) return;
    branches_.clear();
    for (size_t i = 0; i < conditionals.size(); ++i)
      if (conditionals[i].cycle == owner_.cycle_) branches_.insert(static_cast<int>(2 * i + (metrics_.holds(conditionals[i].metric) ? 0 : 1)));
  }

  void measure(const CompiledStep& program, double count) {
    if (!program.loss()) return;
    const double loss = *program.loss();
    metrics_.add(loss_metric_, loss, count);
    double accuracy = -1;
    const auto& losses = program.lowered().losses;
    for (size_t i = 0; i < losses.size(); ++i) {
      metrics_.add(metrics_.declare(losses[i].name + ".loss"), *program.layer_loss(i), count);
      if (const float* correct = program.correct(i)) {
        const double right = *correct / static_cast<double>(losses[i].counted);
        metrics_.add(metrics_.declare(losses[i].name + ".accuracy"), right, count);
        if (accuracy < 0) accuracy = right, accuracy_name_ = &losses[i].name;
      }
    }
    epoch_loss_ += loss * count;
    if (accuracy >= 0) epoch_correct_ += accuracy * count;
    has_accuracy_ = accuracy >= 0;
    last_loss_ = loss;
    last_accuracy_ = accuracy;
    curve_.add(step_, seconds_since(start_), loss, accuracy);
  }

  void check_conditions() {
    const double now = seconds_since(start_);
    if (settings_.steps && step_ >= *settings_.steps) finish_because("steps");
    if (settings_.seconds && now >= *settings_.seconds) finish_because("for");
    for (const Comparison& c : settings_.until)
      if (metrics_.holds(c)) finish_because(fmt::format("until {} {} {:g}", c.metric, c.op, c.value));
    if (owner_.progress_ && now >= next_progress_) {
      next_progress_ = now + 0.1;
      owner_.progress_(progress(now));
    }
  }

  void finish_because(std::string reason) {
    if (finished_.exchange(true)) return;
    report_.stopped_by = std::move(reason);
  }

  Progress progress(double now) const {
    Progress p;
    p.epoch = static_cast<int64_t>(epoch_);
    p.epochs = epochs_ > 0 ? epochs_ : 0;
    p.step = step_;
    p.samples = samples_;
    p.seconds = now;
    p.samples_per_second = now > 0 ? static_cast<double>(samples_) / now : 0;
    p.loss = metrics_.value("loss", 0);
    if (accuracy_name_) p.accuracy = metrics_.value(*accuracy_name_ + ".accuracy", -1);
    if (epochs_ > 0 && reader_->size() > 0) p.fraction = static_cast<double>(samples_) / static_cast<double>(reader_->size() * static_cast<uint64_t>(epochs_));
    if (settings_.steps) p.fraction = std::max(p.fraction, static_cast<double>(step_) / static_cast<double>(*settings_.steps));
    if (settings_.seconds) p.fraction = std::max(p.fraction, now / *settings_.seconds);
    return p;
  }

  void close_epoch(uint64_t next_epoch) {
    if (epoch_steps_ > 0) {
      const double n = static_cast<double>(epoch_samples_), now = seconds_since(start_);
      EpochReport e{static_cast<int64_t>(epoch_) + 1, epoch_steps_, epoch_samples_, now - epoch_start_, epoch_loss_ / n, has_accuracy_ ? epoch_correct_ / n : -1};
      report_.by_epoch.push_back(e);
      epoch_start_ = now;
      if (owner_.epoch_) owner_.epoch_(e);
    }
    epoch_ = next_epoch;
    epoch_steps_ = epoch_samples_ = 0;
    epoch_loss_ = epoch_correct_ = 0;
  }

  // The loss is not finite and nothing has been changed yet: look at every layer of the same step to name the first bad one.
  [[noreturn]] void diverged(const CompiledStep& program, const Slot& slot) {
    const Graph& g = graph_.graph();
    LoweringOptions o = options(static_cast<int64_t>(slot.count));
    o.mode = Mode::evaluate;
    o.observe = true;
    CompileOptions c;
    c.device = owner_.settings_.device;
    c.registry = &graph_.registry();
    CompiledStep look(graph_.lower(o), graph_.store(), executor_, c);
    look.set(slot.pointers.data(), 0, step_ + 1, settings_.seed);
    look.run();
    std::string where = "the loss itself: every layer is finite";
    for (int n : g.order()) {
      const std::string& name = g.nodes[static_cast<size_t>(n)].name;
      if (!look.lowered().program.output("value:" + name)) continue;
      const HTensor& v = look.executable().output("value:" + name);
      const float* p = v.data<float>();
      const int64_t size = v.size(), per_sample = size / static_cast<int64_t>(slot.count);
      const int64_t bad = std::find_if(p, p + size, [](float x) { return !std::isfinite(x); }) - p;
      if (bad == size) continue;
      where = fmt::format("layer '{}', sample {} of the batch", name, bad / per_sample);
      break;
    }
    throw Error(ErrorKind::Diverged, fmt::format("the loss is {} at step {} (epoch {}); first not finite: {}", *program.loss(), step_ + 1, slot.epoch + 1, where), {},
                {"note: the weights are those after step " + std::to_string(step_) + ", all finite", "lower the learning rate (--optimizer 'adamw(lr=1e-4)') or look at the data of that step"});
  }

  // ---- output stage ----
  void deliver(Slot* slot) {
    if (slot->count == 0) return;
    const Graph& g = graph_.graph();
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const int n = wanted_[i];
      const bool consumer = g.nodes[static_cast<size_t>(n)].kind == DeclarationKind::Consumer;
      const TensorType type = type_of(steps_.begin()->second->executable().output("out:" + g.nodes[static_cast<size_t>(n)].name));
      graph_.sinks().at(consumer ? n : -1)->push(type.dtype, type.shape.from(1), slot->count, slot->results[i].data());
    }
  }

  void finish() {
    close_epoch(epoch_);
    if (report_.stopped_by.empty()) report_.stopped_by = owner_.stop_.load() ? "interrupt" : epochs_ >= 0 ? "epochs" : "end of streams";
    report_.steps = step_;
    report_.samples = samples_;
    report_.seconds = seconds_since(start_);
    report_.samples_per_second = report_.seconds > 0 ? static_cast<double>(samples_) / report_.seconds : 0;
    report_.loss = metrics_.value("loss", 0);
    for (const EpochReport& e : report_.by_epoch) {
      report_.epochs += e.samples > 0 && (reader_->size() == 0 || static_cast<uint64_t>(e.samples) == reader_->size());
      report_.accuracy = e.accuracy;
    }
    report_.metrics = metrics_.all();
    report_.curve = curve_.take();
    for (size_t i = 0; i < producers_.size(); ++i)
      if (reader_->left_over(i) > 0)
        report_.notes.push_back(fmt::format("producer '{}' had {} samples left over at the end of a pass", graph_.graph().nodes[static_cast<size_t>(producers_[i])].name, reader_->left_over(i)));
    if (owner_.progress_) owner_.progress_(progress(report_.seconds));
  }

  CycleRuntime& owner_;
  HarmonicGraph& graph_;
  CycleReport& report_;
  ResolvedSettings settings_;
  bool training_;
  Executor& executor_;

  std::vector<int> producers_, wanted_;
  std::unique_ptr<JointReader> reader_;
  int64_t epochs_ = -1;
  std::array<Slot, kInFlight + 2> slots_;  // one more may be read before the limiter holds, one is being refilled
  size_t next_slot_ = 0;
  uint64_t read_epoch_ = 0;
  std::atomic<bool> finished_{false}, ended_{false};

  std::map<StepKey, std::unique_ptr<CompiledStep>> steps_;
  std::set<int> branches_;
  Metrics metrics_;
  size_t loss_metric_ = 0;
  Curve curve_;
  Clock::time_point start_;
  double next_progress_ = 0, epoch_start_ = 0;
  int64_t step_ = 0, samples_ = 0, epoch_steps_ = 0, epoch_samples_ = 0;
  uint64_t epoch_ = 0;
  double epoch_loss_ = 0, epoch_correct_ = 0, last_loss_ = 0, last_accuracy_ = -1;
  bool has_accuracy_ = false;
  const std::string* accuracy_name_ = nullptr;
};

CycleRuntime::CycleRuntime(HarmonicGraph& graph, int cycle, RunSettings settings) : graph_(graph), cycle_(cycle), settings_(std::move(settings)) {}
CycleRuntime::~CycleRuntime() = default;

CycleReport CycleRuntime::run() {
  CycleReport report;
  CycleRun(*this, report).run();
  return report;
}

Evaluation evaluate(HarmonicGraph& graph, int cycle, StreamSet& streams, const RunSettings& run) {
  const ResolvedSettings settings = graph.settings(cycle, run);
  const std::vector<int> producers = graph.graph().producers_used(cycle, true);
  for (int n : producers)
    if (!streams.bound(n))
      throw Error(ErrorKind::Usage, fmt::format("producer '{}' has no test data", graph.graph().nodes[static_cast<size_t>(n)].name), {}, {fmt::format("give it: --test {}=file:PATH", graph.graph().nodes[static_cast<size_t>(n)].name)});
  std::unique_ptr<JointReader> reader = streams.reader(graph.graph(), producers, static_cast<uint64_t>(settings.batch), false, settings.seed);
  if (reader->size() == 0) throw Error(ErrorKind::Usage, "test data must be finite");
  reader->begin(0);
  const auto start = Clock::now();
  std::vector<std::shared_ptr<Storage>> buffers;
  std::vector<void*> targets;
  for (size_t i = 0; i < producers.size(); ++i) {
    buffers.push_back(std::make_shared<Storage>(reader->bytes(i) * static_cast<size_t>(settings.batch)));
    targets.push_back(buffers.back()->data());
  }
  std::map<uint64_t, std::unique_ptr<CompiledStep>> steps;
  Evaluation result;
  double loss = 0, correct = 0, counted = 0;
  while (const uint64_t n = reader->read(targets.data())) {
    auto& step = steps[n];
    if (!step) {
      LoweringOptions o;
      o.mode = Mode::evaluate;
      o.cycle = cycle;
      o.batch = static_cast<int64_t>(n);
      o.seed = settings.seed;
      for (size_t i = 0; i < graph.graph().conditionals.size(); ++i)
        if (graph.graph().conditionals[i].cycle == cycle) o.branches.insert(static_cast<int>(2 * i));
      CompileOptions c;
      c.device = run.device;
      c.registry = &graph.registry();
      step = std::make_unique<CompiledStep>(graph.lower(o), graph.store(), graph.executor(run.threads), c);
    }
    step->set(const_cast<const void* const*>(targets.data()), 0, 1, settings.seed);
    step->run();
    if (!step->loss()) throw Error(ErrorKind::Usage, "this cycle has no training tap, so nothing can be tested");
    loss += static_cast<double>(*step->loss()) * static_cast<double>(n);
    for (size_t i = 0; i < step->lowered().losses.size(); ++i)
      if (const float* right = step->correct(i)) {
        correct += *right;
        counted += static_cast<double>(step->lowered().losses[i].counted);
        break;
      }
    result.samples += static_cast<int64_t>(n);
  }
  result.loss = result.samples ? loss / static_cast<double>(result.samples) : 0;
  if (counted > 0) result.accuracy = correct / counted;
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace harmonics
