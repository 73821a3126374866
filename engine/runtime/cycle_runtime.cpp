#include "engine/runtime/cycle_runtime.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include <fmt/core.h>
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/task_arena.h>

#include "engine/runtime/curve.hpp"
#include "engine/runtime/metrics.hpp"
#include "engine/runtime/not_finite.hpp"

namespace harmonics {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr int64_t kDefaultEpochs = 10;
constexpr size_t kInFlight = 2;

// One batch on its way through the stages.
struct Slot {
  std::vector<std::vector<std::byte>> streams;
  std::vector<const void*> pointers;
  std::vector<void*> targets;
  std::vector<std::vector<std::byte>> results;
  std::vector<char> delivers;  // by result: did this step make it
  uint64_t count = 0, epoch = 0;
  size_t sequence = 0;
};

// A compiled step with everything it reports resolved, so that a step looks nothing up by name.
struct StepProgram {
  std::unique_ptr<CompiledStep> step;
  std::vector<size_t> loss_metrics, accuracy_metrics;  // by Lowered::losses
  std::vector<const HTensor*> results;                 // by wanted node; null: this branch does not drive it
};

// The programs of one set of active branches.
struct BranchPrograms {
  std::map<int64_t, StepProgram> by_batch;
  std::unique_ptr<CompiledStep> update;  // steps from what the batches of a group have gathered; null: each batch is a step
};

// What the batches of one step add up to.
struct GroupSums {
  int64_t batches = 0, samples = 0;
  double loss = 0, measured = 0, correct = 0, judged = 0;
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
      // A serial node may start its next message before it has handed on the last: order is restored by number.
      flow::sequencer_node<Slot*> in_order(g, [](Slot* slot) { return slot->sequence; });
      flow::function_node<Slot*, flow::continue_msg> sink(g, flow::serial, [this](Slot* slot) { return deliver(slot), flow::continue_msg(); });
      flow::make_edge(input, limiter);
      flow::make_edge(limiter, step);
      flow::make_edge(step, in_order);
      flow::make_edge(in_order, sink);
      flow::make_edge(sink, limiter.decrementer());
      input.activate();
      g.wait_for_all();
    });
    finish();
  }

 private:
  std::string name_of(int n) const { return graph_.graph().nodes[static_cast<size_t>(n)].name; }

  void plan() {
    const Graph& g = graph_.graph();
    producers_ = g.producers_used(owner_.cycle_, training_);
    if (producers_.empty()) throw Error(ErrorKind::Usage, fmt::format("no producer feeds this cycle of '{}'", g.name));
    for (int n : producers_)
      if (!graph_.streams().bound(n)) throw Error(ErrorKind::Usage, fmt::format("producer '{}' is not bound", name_of(n)), {}, {fmt::format("bind it: --producer {}=file:PATH", name_of(n))});
    for (int n : graph_.results(owner_.cycle_)) {
      const bool consumer = g.nodes[static_cast<size_t>(n)].kind == DeclarationKind::Consumer;
      if (graph_.sinks().count(consumer ? n : -1) && (consumer || !training_)) wanted_.push_back(n);
    }
    result_types_.resize(wanted_.size());
    reader_ = graph_.streams().reader(g, producers_, static_cast<uint64_t>(settings_.batch), training_ && owner_.settings_.shuffle, settings_.seed);
    reader_->begin(0);
    for (int n : producers_) live_ = live_ || graph_.streams().source(n).info().live;
    const uint64_t size = reader_->size();
    batch_ = size > 0 ? std::min<uint64_t>(size, static_cast<uint64_t>(settings_.batch)) : static_cast<uint64_t>(settings_.batch);
    plan_epochs();
    declare_metrics();
    if (training_) {
      forget_moments();
      rate_.emplace(settings_.schedule, settings_.optimizer.lr, horizon(size));
      if (const auto note = rate_->note()) report_.notes.push_back(*note);
    }
    compile_first(size);
    check_until();
    for (Slot& slot : slots_) allocate(slot);
  }

  // A pass that ends without anybody having said how many there are: ten of them train, one infers.
  void plan_epochs() {
    const bool conditions = settings_.steps || settings_.seconds || !settings_.until.empty();
    epochs_ = settings_.epochs.value_or(!training_ ? 1 : conditions ? -1 : kDefaultEpochs);
  }

  Horizon horizon(uint64_t size) const {
    Horizon h{settings_.steps, settings_.seconds.has_value()};
    if (epochs_ < 0 || size == 0) return h;
    const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    const int64_t steps = epochs_ * up(up(static_cast<int64_t>(size), static_cast<int64_t>(batch_)), settings_.accumulate);
    h.steps = std::min(h.steps.value_or(steps), steps);
    return h;
  }

  // Step numbers begin anew with every cycle, so the moments they correct do too.
  void forget_moments() {
    for (const auto& [name, t] : graph_.store().all())
      if (t.role == Role::moment) std::memset(t.storage->data(), 0, t.type.bytes());
  }

  void declare_metrics() {
    loss_metric_ = metrics_.declare("loss");
    if (!training_) return;
    for (const GraphTap& t : graph_.graph().taps) {
      metrics_.declare(name_of(t.layer) + ".loss");
      metrics_.declare(name_of(t.layer) + ".accuracy");
    }
  }

  // Before the clock starts. With conditions inside the cycle every branch is traced, so that its mistakes show now.
  void compile_first(uint64_t size) {
    constexpr size_t kTraced = 6;
    std::vector<int> here;
    for (size_t i = 0; i < graph_.graph().conditionals.size(); ++i)
      if (graph_.graph().conditionals[i].cycle == owner_.cycle_) here.push_back(static_cast<int>(i));
    const size_t traced = std::min(here.size(), kTraced);
    for (size_t choice = 0; !here.empty() && choice < size_t{1} << traced; ++choice) {
      branches_.clear();
      for (size_t i = 0; i < here.size(); ++i) branches_.insert(2 * here[i] + (i < traced && (choice >> i & 1) ? 0 : 1));
      learn(graph_.lower(options(static_cast<int64_t>(batch_))));
    }
    choose_branches();
    compiled(static_cast<int64_t>(batch_));
    if (size % batch_ != 0 && epochs_ != 0 && here.empty()) compiled(static_cast<int64_t>(size % batch_));
  }

  // What a program measures and hands out.
  void learn(const Lowered& lowered) {
    if (lowered.program.output("loss")) measured_.insert("loss");
    for (const LossInfo& info : lowered.losses) {
      measured_.insert(info.name + ".loss");
      if (info.accuracy) measured_.insert(info.name + ".accuracy");
    }
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const auto it = lowered.values.find(wanted_[i]);
      if (it == lowered.values.end()) continue;
      const TensorType type = lowered.program.values[lowered.program.output(it->second)->value].type;
      const TensorType sample{type.dtype, type.shape.from(1)};
      if (result_types_[i] && *result_types_[i] != sample)
        throw Error(ErrorKind::Shape, fmt::format("'{}' receives {} in one branch and {} in another", name_of(wanted_[i]), result_types_[i]->str(), sample.str()));
      result_types_[i] = sample;
    }
  }

  // A condition on what no step of this cycle measures would never hold.
  void check_until() const {
    if (!training_) return;
    for (const Comparison& c : settings_.until) {
      if (measured_.count(c.metric)) continue;
      std::string known;
      for (const std::string& name : measured_) known += (known.empty() ? "" : ", ") + name;
      throw Error(ErrorKind::Name, fmt::format("'until {}' can never hold: this cycle does not measure '{}'", c.metric, c.metric), c.span, {"it measures " + known});
    }
  }

  void allocate(Slot& slot) {
    for (size_t i = 0; i < producers_.size(); ++i) {
      auto& bytes = slot.streams.emplace_back(reader_->bytes(i) * batch_ + 64);
      // 64-byte aligned inside the buffer: kernels read it directly.
      void* p = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
      slot.targets.push_back(p);
      slot.pointers.push_back(p);
    }
    for (const auto& type : result_types_) slot.results.emplace_back(type ? type->bytes() * batch_ : 0);
    slot.delivers.resize(wanted_.size());
  }

  LoweringOptions options(int64_t batch) {
    LoweringOptions o;
    o.mode = training_ ? Mode::train : Mode::infer;
    o.cycle = owner_.cycle_;
    o.batch = batch;
    o.seed = settings_.seed;
    o.branches = branches_;
    static_cast<UpdateSettings&>(o) = settings_;
    if (gathers()) o.accumulate = static_cast<double>(batch) / static_cast<double>(batch_);
    o.wanted = wanted_;
    return o;
  }

  bool gathers() const { return training_ && settings_.accumulate > 1; }

  StepProgram& compiled(int64_t batch) {
    const auto it = programs_->by_batch.find(batch);
    if (it != programs_->by_batch.end()) return it->second;
    CompileOptions c;
    c.device = owner_.settings_.device;
    c.registry = &graph_.registry();
    StepProgram p;
    p.step = std::make_unique<CompiledStep>(graph_.lower(options(batch)), graph_.store(), executor_, c);
    const Lowered& lowered = p.step->lowered();
    learn(lowered);
    if (gathers() && !programs_->update && !lowered.trained.empty()) {
      Lowered update;
      update.program = accumulated_update(graph_.graph().name, graph_.store(), settings_, lowered.trained);
      programs_->update = std::make_unique<CompiledStep>(std::move(update), graph_.store(), executor_, c);
    }
    for (const LossInfo& info : lowered.losses) {
      p.loss_metrics.push_back(metrics_.declare(info.name + ".loss"));
      p.accuracy_metrics.push_back(metrics_.declare(info.name + ".accuracy"));
    }
    for (int n : wanted_) {
      const auto value = lowered.values.find(n);
      p.results.push_back(value == lowered.values.end() ? nullptr : &p.step->executable().output(value->second));
    }
    return programs_->by_batch.emplace(batch, std::move(p)).first->second;
  }

  // ---- input stage ----
  Slot* next(oneapi::tbb::flow_control& control) {
    if (stopping()) return control.stop(), nullptr;
    Slot& slot = slots_[next_slot_];
    slot.count = reader_->read(batch_, slot.targets.data());
    while (slot.count == 0) {
      if (reader_->position() == 0) throw Error(ErrorKind::Stream, fmt::format("the streams of '{}' hold no sample", graph_.graph().name));
      ++read_epoch_;
      if (live_) {
        stream_ended_.store(true, std::memory_order_relaxed);
        return control.stop(), nullptr;
      }
      if (epochs_ >= 0 && static_cast<int64_t>(read_epoch_) >= epochs_) {
        passes_ended_.store(true, std::memory_order_relaxed);
        return control.stop(), nullptr;
      }
      reader_->begin(read_epoch_);
      slot.count = reader_->read(batch_, slot.targets.data());
    }
    slot.sequence = read_++;
    slot.epoch = read_epoch_;
    next_slot_ = (next_slot_ + 1) % slots_.size();
    return &slot;
  }

  bool stopping() const { return owner_.stop_.load(std::memory_order_relaxed) || finished_.load(std::memory_order_relaxed) || epochs_ == 0 || settings_.steps.value_or(1) <= 0; }

  // ---- step stage ----
  Slot* step(Slot* slot) {
    if (stopping()) {
      slot->count = 0;
      return slot;
    }
    if (slot->epoch != epoch_) {
      end_step();
      close_epoch(slot->epoch);
      if (stopping()) {
        slot->count = 0;
        return slot;
      }
    }
    if (group_.batches == 0) choose_branches();
    const auto count = static_cast<int64_t>(slot->count);
    StepProgram& p = compiled(count);
    CompiledStep& program = *p.step;
    program.check_indices(slot->pointers.data());
    program.set(slot->pointers.data(), next_rate(), ++batches_, settings_.seed);
    program.set_keep(group_.batches > 0);
    if (program.loss()) {
      program.run_forward();
      if (!std::isfinite(*program.loss())) diverged(program, *slot);
      program.run_rest();
    } else {
      program.run();
    }
    samples_ += count;
    epoch_samples_ += count;
    group_.samples += count;
    measure(p, static_cast<double>(count));
    for (size_t i = 0; i < wanted_.size(); ++i) {
      slot->delivers[i] = p.results[i] != nullptr;
      if (p.results[i]) std::memcpy(slot->results[i].data(), p.results[i]->bytes(), result_types_[i]->bytes() * slot->count);
    }
    if (++group_.batches >= (training_ ? settings_.accumulate : 1)) end_step();
    return slot;
  }

  float next_rate() {
    if (rate_) report_.learning_rate = rate_->at(step_, settings_.seconds ? now_ / *settings_.seconds : 0);
    return static_cast<float>(report_.learning_rate);
  }

  // After the last batch of a step: of its group, or of the pass.
  void end_step() {
    if (group_.batches == 0) return;
    if (CompiledStep* update = programs_->update.get()) {
      update->set(nullptr, next_rate(), step_ + 1, settings_.seed);
      update->set_scale(static_cast<float>(static_cast<double>(batch_) / static_cast<double>(group_.samples)));
      update->run();
    }
    ++step_;
    ++epoch_steps_;
    now_ = seconds_since(start_);
    count_group();
    check_conditions();
  }

  void choose_branches() {
    const auto& conditionals = graph_.graph().conditionals;
    bool same = programs_ != nullptr;
    held_.resize(conditionals.size());
    for (size_t i = 0; i < conditionals.size(); ++i) {
      const char holds = metrics_.holds(conditionals[i].metric);
      same = same && holds == held_[i];
      held_[i] = holds;
    }
    if (same) return;
    branches_.clear();
    for (size_t i = 0; i < conditionals.size(); ++i)
      if (conditionals[i].cycle == owner_.cycle_) branches_.insert(static_cast<int>(2 * i + (held_[i] ? 0 : 1)));
    programs_ = &steps_[branches_];
  }

  void measure(const StepProgram& p, double count) {
    const CompiledStep& program = *p.step;
    if (!program.loss()) return;
    const double loss = *program.loss();
    metrics_.add(loss_metric_, loss, count);
    double accuracy = -1;
    const auto& losses = program.lowered().losses;
    for (size_t i = 0; i < losses.size(); ++i) {
      metrics_.add(p.loss_metrics[i], *program.layer_loss(i), count);
      if (const float* correct = program.correct(i)) {
        const double right = *correct / static_cast<double>(losses[i].counted);
        metrics_.add(p.accuracy_metrics[i], right, count);
        if (accuracy < 0) accuracy = right, accuracy_metric_ = p.accuracy_metrics[i];
      }
    }
    group_.loss += loss * count;
    group_.measured += count;
    if (accuracy >= 0) {
      group_.correct += accuracy * count;
      group_.judged += count;
    }
  }

  void count_group() {
    metrics_.end_step();
    epoch_loss_ += group_.loss;
    epoch_measured_ += group_.measured;
    epoch_correct_ += group_.correct;
    epoch_judged_ += group_.judged;
    if (group_.measured > 0) curve_.add(step_, now_, group_.loss / group_.measured, group_.judged > 0 ? group_.correct / group_.judged : -1);
    group_ = {};
  }

  void check_conditions() {
    if (settings_.steps && step_ >= *settings_.steps) finish_because("steps");
    if (settings_.seconds && now_ >= *settings_.seconds) finish_because("for");
    for (const Comparison& c : settings_.until)
      if (metrics_.holds(c)) finish_because(fmt::format("until {} {} {:g}", c.metric, c.op, c.value));
    if (owner_.progress_ && now_ >= next_progress_) {
      next_progress_ = now_ + 0.1;
      owner_.progress_(progress(now_));
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
    p.loss = metrics_.value(loss_metric_);
    if (accuracy_metric_) p.accuracy = metrics_.value(*accuracy_metric_);
    if (epochs_ > 0 && reader_->size() > 0) p.fraction = static_cast<double>(samples_) / static_cast<double>(reader_->size() * static_cast<uint64_t>(epochs_));
    if (settings_.steps) p.fraction = std::max(p.fraction, static_cast<double>(step_) / static_cast<double>(*settings_.steps));
    if (settings_.seconds) p.fraction = std::max(p.fraction, now / *settings_.seconds);
    return p;
  }

  void close_epoch(uint64_t next_epoch) {
    if (epoch_steps_ > 0) {
      const double now = seconds_since(start_);
      EpochReport e{static_cast<int64_t>(epoch_) + 1, epoch_steps_, epoch_samples_, now - epoch_start_, epoch_measured_ > 0 ? epoch_loss_ / epoch_measured_ : 0, epoch_judged_ > 0 ? epoch_correct_ / epoch_judged_ : -1, report_.learning_rate};
      report_.by_epoch.push_back(e);
      epoch_start_ = now;
      if (owner_.epoch_) owner_.epoch_(e);
    }
    epoch_ = next_epoch;
    epoch_steps_ = epoch_samples_ = 0;
    epoch_loss_ = epoch_correct_ = epoch_measured_ = epoch_judged_ = 0;
  }

  [[noreturn]] void diverged(const CompiledStep& program, const Slot& slot) {
    LoweringOptions o = options(static_cast<int64_t>(slot.count));
    o.observe = true;
    const NotFinite step{graph_, producers_, slot.pointers, static_cast<int64_t>(slot.count), step_, slot.epoch + 1, *program.loss()};
    report_not_finite(step, o, executor_, owner_.settings_.device);
  }

  // ---- output stage ----
  void deliver(Slot* slot) {
    if (slot->count == 0) return;
    const Graph& g = graph_.graph();
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const bool consumer = g.nodes[static_cast<size_t>(wanted_[i])].kind == DeclarationKind::Consumer;
      if (slot->delivers[i]) graph_.sinks().at(consumer ? wanted_[i] : -1)->push(result_types_[i]->dtype, result_types_[i]->shape, slot->count, slot->results[i].data());
    }
  }

  void finish() {
    if (!stopping()) end_step();  // a step cut short by anything but the end of the streams is not taken
    const size_t whole = report_.by_epoch.size();  // passes that another one followed
    close_epoch(epoch_);
    if (report_.stopped_by.empty()) report_.stopped_by = stream_ended_ ? "end of streams" : owner_.stop_.load() ? "interrupt" : "epochs";
    report_.steps = step_;
    report_.samples = samples_;
    report_.seconds = seconds_since(start_);
    report_.samples_per_second = report_.seconds > 0 ? static_cast<double>(samples_) / report_.seconds : 0;
    report_.loss = metrics_.value(loss_metric_);
    report_.epochs = static_cast<int64_t>(whole);
    if (report_.by_epoch.size() > whole) {
      const auto samples = static_cast<uint64_t>(report_.by_epoch.back().samples);
      report_.epochs += reader_->size() > 0 ? samples == reader_->size() : (stream_ended_ || passes_ended_) && !finished_ && !owner_.stop_;
    }
    if (!report_.by_epoch.empty()) report_.accuracy = report_.by_epoch.back().accuracy;
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
  std::vector<std::optional<TensorType>> result_types_;  // by wanted node, of one sample
  std::unique_ptr<JointReader> reader_;
  uint64_t batch_ = 1;
  int64_t epochs_ = -1;
  bool live_ = false;
  std::array<Slot, kInFlight + 2> slots_;  // one more may be read before the limiter holds, one is being refilled
  size_t next_slot_ = 0, read_ = 0;
  uint64_t read_epoch_ = 0;
  std::atomic<bool> finished_{false}, passes_ended_{false}, stream_ended_{false};

  std::map<std::set<int>, BranchPrograms> steps_;  // by active branches
  BranchPrograms* programs_ = nullptr;             // of the branches chosen now
  std::set<int> branches_;
  std::vector<char> held_;  // by conditional
  std::set<std::string> measured_;
  Metrics metrics_;
  size_t loss_metric_ = 0;
  std::optional<size_t> accuracy_metric_;
  Curve curve_;
  std::optional<LearningRate> rate_;  // training
  GroupSums group_;
  Clock::time_point start_;
  double now_ = 0, next_progress_ = 0, epoch_start_ = 0;
  int64_t step_ = 0, batches_ = 0, samples_ = 0, epoch_steps_ = 0, epoch_samples_ = 0;
  uint64_t epoch_ = 0;
  double epoch_loss_ = 0, epoch_correct_ = 0, epoch_measured_ = 0, epoch_judged_ = 0;
};

CycleRuntime::CycleRuntime(HarmonicGraph& graph, int cycle, RunSettings settings) : graph_(graph), cycle_(cycle), settings_(std::move(settings)) {}
CycleRuntime::~CycleRuntime() = default;

CycleReport CycleRuntime::run() {
  CycleReport report;
  CycleRun(*this, report).run();
  return report;
}

}  // namespace harmonics
