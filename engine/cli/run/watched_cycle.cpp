#include "engine/cli/run/watched_cycle.hpp"

#include <cmath>

#include <fmt/core.h>

#include "engine/cli/run/run_outcome.hpp"
#include "engine/cli/run/sample_texts.hpp"

namespace harmonics::engine::cli {

WatchedCycle::WatchedCycle(BoundGraph& graph, const Options& options, int cycle, bool trains)
    : graph_(graph),
      options_(options),
      cycle_(cycle),
      trains_(trains),
      line_(options.quiet || !trains, options.tokens_of_sample),
      epochs_(options.tokens_of_sample, options.has_perplexity),
      meter_(options) {
  for (const std::string& path : options.logs) logs_.push_back(make_run_log(path));
  if (!options.tensorboard.empty()) logs_.push_back(make_tensorboard_log(options.tensorboard));
}

void WatchedCycle::attach(CycleRuntime& runtime, std::function<void()> starting) {
  runtime.on_start(
      [this, starting = std::move(starting)](const std::vector<std::string>& names, const Beginning& from) {
        starting();
        if (trains_)
          for (auto& log : logs_) log->begin(names, from);
      });
  runtime.on_progress([this](const Progress& p) { show(p); });
  runtime.on_note([this](const std::string& text) { note(text); });
  if (!trains_) return;
  runtime.on_epoch([this](const EpochReport& e, const Progress& p) { close_epoch(e, p); });
  const SampleSettings& samples = options_.samples;
  if (samples.every > 0) runtime.on_pause(samples.every, [this](const StepReport& r) { sample(r); });
  if (logs_.empty()) return;
  runtime.on_event([this](const RunEvent& e) {
    write({"event", e.epoch, e.step, e.samples, e.seconds, e.samples_per_second, e.learning_rate, {}, e.kind, e.text});
  });
  if (options_.log_every > 0)
    runtime.on_step(options_.log_every, [this](const StepReport& r) {
      LogRow row{"step", r.epoch, r.step, r.samples, r.seconds, r.samples_per_second, r.learning_rate, r.metrics};
      row.rates = meter_.at(r.samples_per_second, r.products, r.seconds);
      write(row);
    });
}

void WatchedCycle::note(const std::string& text) {
  line_.clear();
  print_note(text);
}

void WatchedCycle::write(const LogRow& row) {
  for (auto& log : logs_)
    if (const auto text = log->write(row)) note(*text);
}

void WatchedCycle::show(const Progress& p) {
  if (!line_.is_due(p)) return;
  const RunRates rates = meter_.at(p.samples_per_second, p.products, p.seconds);
  line_.show(p, rates.peak_share, rates.resident);
}

void WatchedCycle::close_epoch(const EpochReport& e, const Progress& p) {
  if (!logs_.empty()) log_epoch(e, p);
  if (options_.quiet) return;
  line_.clear();
  epochs_.show(e, graph_.settings(cycle_, options_.run).schedule.is_constant());
}

void WatchedCycle::log_epoch(const EpochReport& e, const Progress& p) {
  LogRow row{"epoch", e.epoch, e.step, p.samples, p.seconds, speed_of(e), e.learning_rate, e.figures};
  row.values["loss"] = e.loss;
  if (e.accuracy >= 0) row.values[e.accuracy_name] = e.accuracy;
  if (e.validation) {
    for (const auto& [name, value] : e.validation->all()) row.values["val." + name] = value;
    if (options_.tokens_of_sample > 0 && options_.has_perplexity)
      row.values["val.perplexity"] = std::exp(e.validation->loss);
  }
  row.rates = meter_.at(row.samples_per_second, p.products, p.seconds);
  write(row);
}

// Generates and logs texts of the language model. After a failure the run continues without further texts.
void WatchedCycle::sample(const StepReport& r) {
  if (!samples_) return;
  const uint64_t seed = static_cast<uint64_t>(options_.run.seed.value_or(0)) + static_cast<uint64_t>(r.step);
  try {
    for (const SampledText& one : sample_texts(graph_, options_.samples, options_.run, seed)) {
      line_.clear();
      if (!options_.quiet) say(fmt::format("step {}: {}{}", thousands(r.step), one.prompt, one.text));
      write({"event",
             r.epoch,
             r.step,
             r.samples,
             r.seconds,
             r.samples_per_second,
             r.learning_rate,
             {},
             "sample",
             one.prompt + one.text});
    }
  } catch (const Error& e) {
    samples_ = false;
    note(fmt::format("no more texts are sampled: {}", e.what()));
  }
}

void WatchedCycle::end() {
  line_.clear();
  epochs_.end();
  for (const auto& log : logs_)
    if (const auto text = log->gap()) note(*text);
}

}  // namespace harmonics::engine::cli
