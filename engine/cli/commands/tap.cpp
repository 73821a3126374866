// harmonics tap: prints the samples of a producer or layer of a run as JSON lines.
#include <chrono>
#include <thread>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/remote/run_link.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

constexpr std::chrono::milliseconds kBetween{100};

// Escapes the name of an edge, which may contain any characters.
std::string in_query(const std::string& text) {
  std::string to;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    to += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return to;
}

json::object line_of(const json::object& look) {
  const json::array* samples = array_in(look, "samples");
  json::object line;
  for (const char* key : {"edge", "kind", "cycle", "step", "batch", "shape"})
    if (const json::value* v = look.if_contains(key)) line[key] = *v;
  line["values"] = samples && !samples->empty() ? samples->front() : json::value(nullptr);
  return line;
}

}  // namespace

int tap_command(const Options& options) {
  RunLink link(options.files.at(0), options.token);
  const std::string path = "/v1/tap?samples=1&edge=" + in_query(options.files.at(1));
  double seen = -1;
  uint64_t printed = 0;
  bool answered = false;
  while (printed < options.count.value_or(UINT64_MAX)) {
    const auto next = std::chrono::steady_clock::now() + kBetween;
    json::object look;
    try {
      look = link.get(path);
      answered = true;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Unavailable) throw;
      // Keeps polling a run that is starting. A finished run has no further samples.
      std::string state;
      try {
        state = text_in(link.get("/v1/status"), "state");
      } catch (const Error&) {
        if (!answered) throw;
        return kDone;
      }
      answered = true;
      if (state == "over" || state == "serving") throw;
    }
    // A paused or waiting run returns the same batch again.
    if (const double batch = number_in(look, "batch"); !look.empty() && batch != seen) {
      seen = batch;
      ++printed;
      print_json(line_of(look));
      flush_output();
    }
    std::this_thread::sleep_until(next);
  }
  return kDone;
}

}  // namespace harmonics::engine::cli
