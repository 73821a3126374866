// harmonics ctl: looks at a run and says what it shall do, over its control socket or its address.
#include <cmath>
#include <csignal>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/command.hpp"
#include "engine/cli/http_client.hpp"
#include "engine/cli/terminal.hpp"
#include "engine/serving/control_socket.hpp"

namespace harmonics::cli {

namespace json = boost::json;

namespace {

constexpr double kLongest = 120;  // seconds: a checkpoint of a large model

json::object message_of(const Options& options) {
  const std::string& action = options.files.at(1);
  const bool has_value = options.files.size() > 2;
  const std::string value = has_value ? options.files[2] : "";
  const auto number = [&](auto parse) {
    try {
      size_t used = 0;
      const auto v = parse(value, &used);
      if (used == value.size()) return v;
    } catch (const std::exception&) {  // said below
    }
    throw Error(ErrorKind::Usage, fmt::format("'{}' is no number", value), {}, {fmt::format("harmonics ctl {} {} NUMBER", options.files[0], action)});
  };
  json::object o{{"do", action == "lr" ? "learning_rate" : action}};
  if (action == "step" && has_value) o["count"] = number([](const std::string& s, size_t* used) { return std::stoll(s, used); });
  else if (action == "lr" && has_value) o["value"] = value == "schedule" ? json::value(nullptr) : json::value(number([](const std::string& s, size_t* used) { return std::stod(s, used); }));
  else if (action == "lr") throw Error(ErrorKind::Usage, "lr needs a number", {}, {"or the word 'schedule', which gives the schedule back"});
  else if (has_value) throw Error(ErrorKind::Usage, fmt::format("'{}' takes no value", action));
  return o;
}

std::string ask(const Options& options, const std::string& message) {
  const std::string& where = options.files[0];
  if (where.rfind("http:", 0) == 0) return http_request(where, "POST", "/v1/control", options.token, message, kLongest).body;
  ControlClient client(where);
  client.say(message);
  return client.hear(kLongest);
}

double number(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v && v->is_number() ? v->to_number<double>() : NAN;
}

std::string text(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v && v->is_string() ? std::string(v->get_string()) : "";
}

// What people want to know first.
void show(const json::object& s) {
  std::string line = fmt::format("{}: {}, step {}, {} samples", text(s, "graph"), text(s, "state"), thousands(static_cast<int64_t>(number(s, "step"))), thousands(static_cast<int64_t>(number(s, "samples"))));
  if (const double v = number(s, "samples_per_second"); v > 0) line += ", " + rate(v);
  if (const double v = number(s, "loss"); !std::isnan(v)) line += fmt::format(", loss {:.4g}", v);
  if (const double v = number(s, "learning_rate"); !std::isnan(v)) line += fmt::format(", lr {:.3g}", v);
  fmt::print("{}\n", line);
  if (const json::value* checkpoint = s.if_contains("checkpoint"); checkpoint && checkpoint->is_object())
    fmt::print("checkpoint: {}, {} ago\n", text(checkpoint->get_object(), "path"), duration(number(checkpoint->get_object(), "seconds_ago")));
  const json::value* streams = s.if_contains("streams");
  if (!streams || !streams->is_array()) return;
  for (const json::value& v : streams->get_array()) {
    if (!v.is_object()) continue;
    const json::object& stream = v.get_object();
    std::string about = fmt::format("{}: {}, {}", text(stream, "name"), text(stream, "state"), text(stream, "health"));
    if (const double queued = number(stream, "queued_samples"); !std::isnan(queued)) about += fmt::format(", {} wait", thousands(static_cast<int64_t>(queued)));
    if (const double lost = number(stream, "lost"); lost > 0) about += fmt::format(", {} lost", thousands(static_cast<int64_t>(lost)));
    if (const std::string error = text(stream, "last_error"); !error.empty()) about += ", " + error;
    fmt::print("{}\n", about);
  }
}

int follow(const Options& options) {
  if (options.files[0].rfind("http:", 0) == 0) throw Error(ErrorKind::Usage, "events of an address come over a WebSocket", {}, {"follow them over the control socket: run --control PATH"});
  ControlClient client(options.files[0]);
  client.say(R"({"do":"events"})");
  constexpr double kSilence = 70;  // a status comes every second at least
  try {
    for (;;) {
      fmt::print("{}\n", client.hear(kSilence));
      std::fflush(stdout);
    }
  } catch (const Error& e) {
    if (std::string_view(e.what()).ends_with("is over")) return kDone;
    throw;
  }
}

}  // namespace

int ctl_command(const Options& options) {
  if (options.files.size() < 2) throw Error(ErrorKind::Usage, "what shall the run do?", {}, {"harmonics ctl PATH|URL status|pause|resume|step|checkpoint|lr|stop|events"});
  const json::object message = message_of(options);
  if (options.files[1] == "events") return follow(options);
  json::value answer;
  try {
    answer = json::parse(ask(options, json::serialize(message)));
  } catch (const boost::system::system_error&) {
    throw Error(ErrorKind::Unavailable, fmt::format("what answers on {} is no run of harmonics", options.files[0]));
  }
  if (!answer.is_object()) throw Error(ErrorKind::Unavailable, fmt::format("what answers on {} is no run of harmonics", options.files[0]));
  const json::object& o = answer.get_object();
  if (o.contains("error")) {
    Error refused(ErrorKind::Usage, text(o, "error"));
    if (const std::string note = text(o, "note"); !note.empty()) refused.note(note);
    print_error(refused);
    return kFailed;
  }
  const json::value* status = o.if_contains("status");
  if (options.json) fmt::print("{}\n", json::serialize(options.files[1] == "status" && status ? *status : answer));
  else if (status && status->is_object()) show(status->get_object());
  return kDone;
}

}  // namespace harmonics::cli
