#include "engine/model/weights_version.hpp"

#include <charconv>
#include <limits>

#include <fmt/core.h>

#include <harmonics/error.hpp>

namespace harmonics::engine {

namespace {

constexpr const char *kCycle = "harmonics.cycle", *kStep = "harmonics.step";

int64_t count_in(const std::string& text, int64_t least, int64_t most, const char* key, const std::string& file) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || last != end || value < least || value > most)
    throw Error(ErrorKind::Weights,
                fmt::format("{}: the metadata '{}' must be a number of at least {}", file, key, least));
  return value;
}

}  // namespace

void record_version(const WeightsVersion& version, std::map<std::string, std::string>& metadata) {
  metadata[kCycle] = std::to_string(version.cycle + 1);
  metadata[kStep] = std::to_string(version.step);
}

std::optional<WeightsVersion> read_version(const std::map<std::string, std::string>& metadata,
                                           const std::string& file) {
  const auto step = metadata.find(kStep), cycle = metadata.find(kCycle);
  if (step == metadata.end()) return std::nullopt;
  WeightsVersion version;
  version.step = count_in(step->second, 0, std::numeric_limits<int64_t>::max(), kStep, file);
  if (cycle != metadata.end())
    version.cycle = static_cast<int>(count_in(cycle->second, 1, std::numeric_limits<int>::max(), kCycle, file)) - 1;
  return version;
}

}  // namespace harmonics::engine
