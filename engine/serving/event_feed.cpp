#include "engine/serving/event_feed.hpp"

#include <charconv>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/serving/json_text.hpp"

namespace harmonics::engine {

namespace json = boost::json;

namespace {

double seconds_of(const std::string& text) {
  double v = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (failed != std::errc() || end != text.data() + text.size() || !(v >= 0.05 && v <= 60))
    throw Error(ErrorKind::Usage, "'every' is not a number of seconds from 0.05 to 60", {}, {"write ?every=0.25"});
  return v;
}

json::object metrics_of(const std::map<std::string, double>& metrics) {
  json::object o;
  for (const auto& [name, value] : metrics) o[name] = json_number(value);
  return o;
}

}  // namespace

EventFeed::EventFeed(Service& service, const std::map<std::string, std::string>& query) : service_(service) {
  if (const auto at = query.find("every"); at != query.end())
    every_ = std::chrono::duration<double>(seconds_of(at->second));
  if (const auto at = query.find("layers"); at != query.end()) layers_ = at->second == "true" || at->second == "1";
}

// Adds a message. If the client is slow, drops it instead of queueing.
void EventFeed::tell(const char* kind, json::object content) {
  ++number_;
  if (!can_take_) {
    ++dropped_;
    return;
  }
  json::object message{{"kind", kind}, {"number", number_}};
  for (auto& [key, value] : content) message[key] = std::move(value);
  messages_.push_back(json_line(message));
}

void EventFeed::hello() {
  const std::vector<LogLine> lines = service_.run().log(0);
  if (!lines.empty()) line_ = lines.back().number;
  if (const auto rows = service_.run().epochs(0); !rows.empty()) row_ = rows.back().number;
  tell("hello", {{"status", service_.status()},
                 {"graph", service_.graph()},
                 {"history", json_of(service_.run().history())},
                 {"log", json_of(lines)}});
}

void EventFeed::news(const RunStatus& s) {
  for (const LogLine& line : service_.run().log(line_)) {
    line_ = line.number;
    tell("log", {{"line", json_of(line)}});
  }
  for (const RunRow& row : service_.run().epochs(row_)) {
    row_ = row.number;
    tell("epoch", {{"step", row.step},
                   {"epoch", row.epoch},
                   {"samples", row.samples},
                   {"seconds", row.seconds},
                   {"samples_per_second", json_number(row.samples_per_second)},
                   {"learning_rate", row.learning_rate},
                   {"metrics", metrics_of(row.metrics)}});
  }
  if (s.step == step_) return;
  step_ = s.step;
  tell("step", {{"step", s.step},
                {"epoch", s.epoch},
                {"samples", s.samples},
                {"seconds", s.seconds},
                {"samples_per_second", json_number(s.samples_per_second)},
                {"learning_rate", s.learning_rate.value_or(0)},
                {"metrics", metrics_of(s.metrics)}});
}

std::vector<std::string> EventFeed::tick(Clock::time_point now, bool can_take) {
  can_take_ = can_take;
  messages_.clear();
  if (!begun_) {
    if (!can_take) return {};
    begun_ = true;
    hello();
    next_status_ = now + std::chrono::duration_cast<Clock::duration>(every_);
    return std::move(messages_);
  }
  const RunStatus status = service_.run().status();
  news(status);
  if (now >= next_status_) {
    next_status_ = now + std::chrono::duration_cast<Clock::duration>(every_);
    tell("status", can_take ? json::object{{"status", service_.status()}, {"dropped", dropped_}} : json::object{});
  }
  if (layers_)
    if (auto cards = service_.layers_since(layers_seen_)) tell("layers", {{"layers", std::move(*cards)}});
  return std::move(messages_);
}

}  // namespace harmonics::engine
