#include "engine/language/template_budget.hpp"

#include <algorithm>

#include <fmt/core.h>
#include <harmonics/error.hpp>

namespace harmonics::engine::jinja {

namespace {

// What each value and byte of the input adds. A message has five values or more; templates of models take up to 300
// steps for one and copy its text up to ten times. Those that look for later messages at each call of a tool take 26
// steps for each pair.
constexpr uint64_t kStepsOfValue = 500, kStepsOfByte = 2, kBytesOfByte = 32, kOutputOfByte = 16;
constexpr uint64_t kBytesOfValue = 16;  // as texts: keys, quotes, tags around them
constexpr TemplateWork kMost = {20'000'000, uint64_t{64} << 20, uint64_t{16} << 20};

[[noreturn]] void fail_limit(const char* what, uint64_t limit, const char* unit) {
  throw Error(ErrorKind::Usage, fmt::format("the template {} more than {} {}, the limit for these messages: check its "
                                            "loops, or use another template",
                                            what, limit, unit));
}

}  // namespace

RunLimits limits_for(uint64_t values, uint64_t bytes) {
  constexpr uint64_t kLargest = uint64_t{1} << 40;  // no product overflows
  values = std::min(values, kLargest);
  bytes = std::min(bytes, kLargest);
  const uint64_t size = bytes + values * kBytesOfValue;
  RunLimits limits;
  const auto grow = [](uint64_t& limit, uint64_t more, uint64_t most) { limit = std::min(limit + more, most); };
  grow(limits.most.steps, values * kStepsOfValue + bytes * kStepsOfByte, kMost.steps);
  grow(limits.most.bytes, size * kBytesOfByte, kMost.bytes);
  grow(limits.most.output, size * kOutputOfByte, kMost.output);
  return limits;
}

void Budget::fail_steps() const { fail_limit("takes", limits_.most.steps, "steps"); }
void Budget::fail_bytes() const { fail_limit("makes values of", limits_.most.bytes, "bytes"); }
void Budget::fail_output() const { fail_limit("writes", limits_.most.output, "bytes"); }
void Budget::fail_depth() const {
  throw Error(ErrorKind::Usage, fmt::format("the template calls itself more than {} deep", limits_.depth));
}

}  // namespace harmonics::engine::jinja
