// harmonics ctl: inspects and controls a run, over its control socket or its address.
#include <cmath>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/remote/run_link.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/serving/control_socket.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

// Returns the message for 'layer NAME ARGUMENT=VALUE...'. Values are texts, which the run reads by their types.
json::object layer_message(const Options& options) {
  const std::string usage = fmt::format("harmonics ctl {} layer NAME ARGUMENT=VALUE", options.files[0]);
  if (options.files.size() < 4)
    throw Error(ErrorKind::Usage, "layer needs a name and arguments", {}, {usage + "; ARGUMENT= restores the default"});
  json::object arguments;
  for (size_t i = 3; i < options.files.size(); ++i) {
    const std::string& text = options.files[i];
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(ErrorKind::Usage, fmt::format("'{}' gives no argument a value", text), {}, {usage});
    const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
    if (arguments.contains(name)) throw Error(ErrorKind::Usage, fmt::format("'{}' is given twice", name));
    arguments[name] = value.empty() ? json::value(nullptr) : json::value(value);
  }
  return {{"do", "layer"}, {"layer", options.files[2]}, {"arguments", std::move(arguments)}};
}

json::object message_of(const Options& options) {
  const std::string& action = options.files.at(1);
  if (action == "layer") return layer_message(options);
  if (options.files.size() > 3) throw Error(ErrorKind::Usage, fmt::format("'{}' takes one value at most", action));
  const bool has_value = options.files.size() > 2;
  const std::string value = has_value ? options.files[2] : "";
  const auto number = [&](auto parse) {
    try {
      size_t used = 0;
      const auto v = parse(value, &used);
      if (used == value.size()) return v;
    } catch (const std::exception&) {  // reported below
    }
    throw Error(ErrorKind::Usage, fmt::format("'{}' is not a number", value), {},
                {fmt::format("harmonics ctl {} {} NUMBER", options.files[0], action)});
  };
  json::object o{{"do", action == "lr" ? "learning_rate" : action}};
  if (action == "step" && has_value) {
    o["count"] = number([](const std::string& s, size_t* used) { return std::stoll(s, used); });
  } else if (action == "lr" && has_value && value == "schedule") {
    o["value"] = nullptr;
  } else if (action == "lr" && has_value) {
    const double rate = number([](const std::string& s, size_t* used) { return std::stod(s, used); });
    if (!(rate >= 0) || !std::isfinite(rate))
      throw Error(ErrorKind::Usage, fmt::format("a learning rate of {} is not possible", value), {},
                  {"give a number of at least 0, or the word 'schedule' to return to the schedule"});
    o["value"] = rate;
  } else if (action == "lr") {
    throw Error(ErrorKind::Usage, "lr needs a number", {}, {"or the word 'schedule' to return to the schedule"});
  } else if (has_value) {
    throw Error(ErrorKind::Usage, fmt::format("'{}' takes no value", action));
  }
  return o;
}

// Prints what 'layer' or 'undo' changed.
void show_change(const json::object& change) {
  const json::array* arguments = array_in(change, "arguments");
  if (!arguments) return;
  for (const json::value& v : *arguments)
    if (const json::object* a = v.if_object())
      print("{}: {} = {} (was {})\n", text_in(change, "layer"), text_in(*a, "name"), text_in(*a, "after"),
            text_in(*a, "before"));
}

// Prints the status of a run, the most important values first.
void show(const json::object& s) {
  std::string line = fmt::format("{}: {}, step {}, {} samples", text_in(s, "graph"), text_in(s, "state"),
                                 count_text(number_in(s, "step")), count_text(number_in(s, "samples")));
  if (const double v = number_in(s, "samples_per_second"); v > 0) line += ", " + rate(v);
  if (const double v = number_in(s, "loss"); !std::isnan(v)) line += fmt::format(", loss {:.4g}", v);
  if (const double v = number_in(s, "learning_rate"); !std::isnan(v)) line += fmt::format(", lr {:.3g}", v);
  print("{}\n", line);
  if (const json::value* checkpoint = s.if_contains("checkpoint"); checkpoint && checkpoint->is_object())
    print("checkpoint: {}, {} ago\n", text_in(checkpoint->get_object(), "path"),
          duration(number_in(checkpoint->get_object(), "seconds_ago")));
  const json::value* streams = s.if_contains("streams");
  if (!streams || !streams->is_array()) return;
  for (const json::value& v : streams->get_array()) {
    if (!v.is_object()) continue;
    const json::object& stream = v.get_object();
    std::string about =
        fmt::format("{}: {}, {}", text_in(stream, "name"), text_in(stream, "state"), text_in(stream, "health"));
    if (const double queued = number_in(stream, "queued_samples"); !std::isnan(queued))
      about += fmt::format(", {} wait", count_text(queued));
    if (const double lost = number_in(stream, "lost"); lost > 0) about += fmt::format(", {} lost", count_text(lost));
    if (const std::string out = left_out_text(stream); !out.empty()) about += ", " + out;
    if (const std::string error = text_in(stream, "last_error"); !error.empty()) about += ", " + error;
    print("{}\n", about);
  }
}

int follow_events(const Options& options) {
  if (options.files[0].rfind("http:", 0) == 0)
    throw Error(ErrorKind::Usage, "events of an address come over a WebSocket", {},
                {"follow them over the control socket: run --control PATH"});
  ControlClient client(options.files[0]);
  client.say(R"({"do":"events"})");
  constexpr double kSilence = 70;  // seconds without a message; a run sends statuses far more often
  try {
    for (;;) {
      print_json_line(client.hear(kSilence));
      flush_output();
    }
  } catch (const Error& e) {
    if (std::string_view(e.what()).ends_with("is over")) return kDone;
    throw;
  }
}

}  // namespace

int ctl_command(const Options& options) {
  if (options.files.size() < 2)
    throw Error(ErrorKind::Usage, "no command is given", {},
                {"harmonics ctl PATH|URL status|pause|resume|step|checkpoint|lr|layer|undo|stop|events"});
  const json::object message = message_of(options);
  if (options.files[1] == "events") return follow_events(options);
  const json::object o = RunLink(options.files[0], options.token).control(message);
  if (o.contains("error")) {
    Error refused(ErrorKind::Usage, text_in(o, "error"));
    if (const std::string note = text_in(o, "note"); !note.empty()) refused.note(note);
    print_error(refused);
    return kFailed;
  }
  const json::value* status = o.if_contains("status");
  if (options.json)
    print_json(options.files[1] == "status" && status ? *status : json::value(o));
  else {
    if (const json::object* change = object_in(o, "change")) show_change(*change);
    if (status && status->is_object()) show(status->get_object());
  }
  return kDone;
}

}  // namespace harmonics::engine::cli
