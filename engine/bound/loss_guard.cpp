#include "engine/bound/loss_guard.hpp"

#include <cmath>

#include <fmt/core.h>

#include "engine/plugin/named_settings.hpp"

namespace harmonics::engine {

namespace {

constexpr double kMostPatience = 1e6;
constexpr const char* kGuardExample = "deviations=6, patience=3";

const std::vector<NamedRow>& guard_rows() {
  using Kind = SettingSpec::Kind;
  static const std::vector<NamedRow> rows = {
      {"skip",
       "skips batches whose loss is not finite, or far above the recent losses",
       {{"deviations", 6, Kind::number, {}, "standard deviations above the mean; 0: only losses that are not finite"},
        {"patience", 3, Kind::number, {}, "number of skipped batches in a row that ends the run"},
        {"then", 0, Kind::choice, "stop|checkpoint",
         "stop: end the run; checkpoint: continue with the weights of the last checkpoint"}}}};
  return rows;
}

}  // namespace

std::string LossGuardSettings::str() const {
  return fmt::format("deviations={:g}, patience={}, then={}", deviations, patience, returns ? "checkpoint" : "stop");
}

LossGuardSettings parse_loss_guard(std::string_view text) {
  const NamedSettings named = parse_named_settings("loss guard", fmt::format("skip({})", text), guard_rows(),
                                                   kGuardExample, Registry::global(), 0);
  const double patience = named.number("patience");
  if (!(patience >= 1 && patience <= kMostPatience && patience == std::trunc(patience)))
    throw Error(ErrorKind::Type, fmt::format("loss guard setting 'patience' has the value '{:g}'", patience), {},
                {fmt::format("give a whole number from 1 to {:g}, e.g. patience=3", kMostPatience)});
  return {named.number("deviations"), static_cast<int64_t>(patience), named.number("then") > 0, ""};
}

}  // namespace harmonics::engine
