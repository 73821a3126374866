#include "engine/base/model_limits.hpp"

#include <algorithm>
#include <charconv>

#include <unistd.h>

#include "engine/base/byte_count.hpp"

namespace harmonics::engine {

namespace {

Budget budget(uint64_t most, const char* unit, const char* reason, const char* remedy) {
  return Budget({most, unit, reason, remedy, ErrorKind::Shape, true});
}

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorKind::Usage, "'" + text + "' contains no limits", {},
              {"write one or more of steps=2000000,weights=64G,seconds=60"});
}

uint64_t whole(const std::string& text, const std::string& value) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number == 0) refuse(text);
  return number;
}

}  // namespace

Budget ModelLimits::for_steps() const {
  return budget(steps, "steps", "of one program", "allow more: --limits steps=N");
}

Budget ModelLimits::for_weights() const {
  if (weights > 0) return budget(weights, "bytes", "", "allow more: --limits weights=SIZE");
  const auto memory = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return budget(memory, "bytes", "the machine's memory",
                "make the layers smaller, or allow more: --limits weights=SIZE");
}

ModelLimits parse_model_limits(const std::string& text) {
  ModelLimits limits;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size()), equals = text.find('=', at);
    if (equals == std::string::npos || equals > comma) refuse(text);
    const std::string name = text.substr(at, equals - at), value = text.substr(equals + 1, comma - equals - 1);
    if (name == "steps")
      limits.steps = whole(text, value);
    else if (name == "seconds")
      limits.seconds = whole(text, value);
    else if (name == "weights" && parse_byte_count(value))
      limits.weights = *parse_byte_count(value);
    else
      refuse(text);
    at = comma + 1;
  }
  return limits;
}

CompileTime::CompileTime(const ModelLimits& limits)
    : seconds_(budget(limits.seconds, "seconds", "of compiling one program", "allow more: --limits seconds=N")) {}

void CompileTime::check(const std::string& doing) {
  const auto passed = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begun_);
  seconds_.reach(static_cast<uint64_t>(passed.count()), "the flow", doing);
}

}  // namespace harmonics::engine
