#include "engine/training/schedule.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>
#include <harmonics/error.hpp>
#include <harmonics/training_abi.h>

#include "engine/contract/plugin_body.hpp"

namespace harmonics::engine {

namespace {

using Kind = SettingSpec::Kind;

constexpr double kPi = 3.14159265358979323846;
const SettingSpec kWarmup{
    "warmup", 0, Kind::span, {}, "length of the linear warmup from 0: steps, or below 1 a fraction of the run"};
const SettingSpec kFinal{"final", 0, Kind::part, {}, "final learning rate, as a fraction of lr"};

bool is_part(double span) { return span > 0 && span < 1; }

// Returns whether the schedule depends on the length of the run.
bool needs_end(const NamedSettings& s) {
  const std::string_view name = s.row->name;
  if (s.row->item) return (s.row->item->flags & HX_NEEDS_END) != 0;
  if (name == "linear" || name == "cosine" || name == "wsd") return true;
  return is_part(s.number("warmup")) || is_part(s.number("every"));
}

}  // namespace

const std::vector<NamedRow>& schedule_rows() {
  static const std::vector<NamedRow> rows = {
      {"constant", "constant learning rate", {kWarmup}},
      {"linear", "falls linearly to final times lr at the end of the run", {kWarmup, kFinal}},
      {"cosine", "falls along a half cosine to final times lr at the end of the run", {kWarmup, kFinal}},
      {"step",
       "multiplied by factor after each interval",
       {kWarmup,
        {"every", 0.3, Kind::span, {}, "steps, or below 1 a fraction of the run"},
        {"factor", 0.1, Kind::part, {}, "factor of the learning rate"}}},
      {"wsd",
       "warmup, stable, decay: constant, then falls linearly over the last part of the run",
       {kWarmup,
        {"decay", 0.2, Kind::span, {}, "length of the decay: steps, or below 1 a fraction of the run"},
        kFinal}},
  };
  return rows;
}

bool Schedule::is_constant() const { return settings.row->name == "constant" && settings.number("warmup") == 0; }

Schedule parse_schedule(std::string_view text, Registry& registry) {
  Schedule s{
      parse_named_settings("schedule", text, schedule_rows(), "cosine(warmup=500, final=0.1)", registry, HX_SCHEDULE)};
  if (s.settings.row->item) return s;
  for (const char* name : {"every", "decay"})
    for (const Setting& v : s.settings.values)
      if (v.spec->name == name && v.value == 0)
        throw Error(ErrorKind::Type, fmt::format("schedule setting '{}' is 0", name), {},
                    {fmt::format("give a whole number of steps, or a fraction of the run below 1, e.g. {}={:g}", name,
                                 v.spec->otherwise)});
  return s;
}

LearningRate::LearningRate(const Schedule& schedule, double lr, const Horizon& horizon)
    : schedule_(schedule), lr_(lr), horizon_(horizon), warmup_(schedule.settings.row->item ? 0 : setting("warmup")) {
  if (schedule_.settings.row->item) {
    arguments_ = std::make_shared<const AttributeMap>(schedule_.settings.attributes());
    view_ = std::make_shared<const AttributeView>(*arguments_);
  }
  if (!horizon_.steps && !horizon_.timed && needs_end(schedule_.settings))
    throw Error(ErrorKind::Usage,
                fmt::format("schedule '{}' depends on the length of the run, which is not known", schedule_.str()), {},
                {"give steps, epochs or for, e.g. --steps 1000; 'constant' and 'step(every=1000)' need no end"});
  if (arguments_) return;
  if (!horizon_.steps && setting("decay") >= 1)
    throw Error(
        ErrorKind::Usage,
        fmt::format("schedule 'wsd' decays over the last {:g} steps, but the run ends by time", setting("decay")), {},
        {"give a fraction of the run, e.g. decay=0.2"});
  if (is_part(warmup_) && !horizon_.timed) warmup_ = static_cast<double>(steps_of(warmup_));
  if (horizon_.timed && warmup_ > 0) return;
  warm_from_ = static_cast<int64_t>(warmup_);
  begin_ = horizon_.steps ? warmup_ / static_cast<double>(std::max<int64_t>(1, *horizon_.steps)) : 0;
}

int64_t LearningRate::steps_of(double span) const {
  return is_part(span) ? std::llround(span * static_cast<double>(*horizon_.steps)) : static_cast<int64_t>(span);
}

std::optional<std::string> LearningRate::note() const {
  if (!horizon_.steps || warmup_ < 1 || static_cast<double>(*horizon_.steps) > warmup_) return std::nullopt;
  return fmt::format("the run of {} steps ends within the schedule's warmup of {:g}", *horizon_.steps, warmup_);
}

// Asks the plugin for the rate at this step. Throws an error that names the plugin if the rate is unusable.
double LearningRate::of_plugin(int64_t step, double elapsed) const {
  const Item& item = *schedule_.settings.row->item;
  hx_run_point point{sizeof point, 0, step, horizon_.steps.value_or(0), -1};
  if (horizon_.steps)
    point.progress = static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, *horizon_.steps));
  if (horizon_.timed) point.progress = std::max(point.progress, elapsed);
  point.progress = std::min(point.progress, 1.0);
  double factor = 1;
  const hx_status status = item.table<hx_schedule_vt>().factor(item.self, view_->get(), &point, &factor);
  if (status != HX_OK) throw plugin_error(item, status);
  if (!(factor >= 0) || !std::isfinite(factor))
    throw Error(ErrorKind::Plugin, fmt::format("{} gives the factor {} at step {}; it must be a number of at least 0",
                                               spoken_name(item), factor, step));
  return lr_ * factor;
}

double LearningRate::at(int64_t step, double elapsed) {
  if (arguments_) return of_plugin(step, elapsed);
  double progress =
      horizon_.steps ? static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, *horizon_.steps)) : 0;
  if (horizon_.timed) progress = std::max(progress, elapsed);
  progress = std::min(progress, 1.0);
  if (is_part(warmup_) && progress < warmup_) return lr_ * progress / warmup_;
  if (!is_part(warmup_) && static_cast<double>(step) < warmup_)
    return lr_ * static_cast<double>(step + 1) / (warmup_ + 1);
  if (!warm_from_) end_warmup(step, progress);
  return lr_ * factor(step, progress);
}

// Also of a run that is resumed, or asks for its first rate, after the warmup: where that ended follows from its pace.
void LearningRate::end_warmup(int64_t step, double progress) {
  const auto steps = static_cast<double>(step);
  if (is_part(warmup_)) {
    begin_ = warmup_;
    warm_from_ = std::llround(steps * warmup_ / progress);
  } else {
    begin_ = progress * warmup_ / steps;
    warm_from_ = static_cast<int64_t>(warmup_);
  }
}

double LearningRate::factor(int64_t step, double progress) const {
  const std::string_view name = schedule_.settings.row->name;
  if (name == "constant") return 1;
  if (name == "step") return dropped(step, progress);
  if (name == "wsd") return decaying(step, progress);
  const double part = begin_ < 1 ? (progress - begin_) / (1 - begin_) : 1;
  return falling(name == "linear" ? 1 - part : (1 + std::cos(kPi * part)) / 2);
}

// Interpolates linearly from the final factor (height 0) to 1 (height 1).
double LearningRate::falling(double height) const { return setting("final") + (1 - setting("final")) * height; }

double LearningRate::dropped(int64_t step, double progress) const {
  const double every = setting("every");
  const double drops = is_part(every) && horizon_.timed
                           ? std::floor((progress - begin_) / every)
                           : static_cast<double>((step - *warm_from_) / std::max<int64_t>(1, steps_of(every)));
  return std::pow(setting("factor"), drops);
}

double LearningRate::decaying(int64_t step, double progress) const {
  if (!horizon_.timed) {
    const int64_t end = *horizon_.steps,
                  length = std::clamp<int64_t>(steps_of(setting("decay")), 1, std::max<int64_t>(1, end - *warm_from_));
    return falling(std::clamp(static_cast<double>(end - step) / static_cast<double>(length), 0.0, 1.0));
  }
  double length = setting("decay");
  if (length >= 1) length /= static_cast<double>(std::max<int64_t>(1, *horizon_.steps));
  return falling(std::clamp((1 - progress) / std::min(length, 1.0), 0.0, 1.0));
}

}  // namespace harmonics::engine
