#include "engine/cli/remote/run_link.hpp"

#include <algorithm>
#include <cmath>

#include <unistd.h>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/remote/http_client.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "formats/exact_json.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

constexpr double kLook = 15, kLongest = 120;  // seconds; a checkpoint of a large model takes long

constexpr const char* kTokenAdvice =
    "give it with --token TEXT, or in HARMONICS_TOKEN; it was printed when the run began";

ErrorKind kind_of(double code) {
  return code == 503 || code == 429   ? ErrorKind::Unavailable
         : code == 401 || code == 403 ? ErrorKind::Denied
                                      : ErrorKind::Usage;
}

}  // namespace

RunLink::RunLink(std::string where, std::string token)
    : where_(std::move(where)), token_(std::move(token)), http_(where_.rfind("http:", 0) == 0) {
  if (where_.starts_with("https:"))
    throw Error(ErrorKind::Usage, fmt::format("'{}' is not the address of a run: runs answer without TLS", where_), {},
                {"write http://127.0.0.1:8080; between machines use a tunnel (ssh -L)"});
  constexpr std::string_view kToken = "#token=";
  const size_t at = http_ ? where_.find(kToken) : std::string::npos;
  // A name like "127.0.0.1:8080" without such a socket is an address.
  const size_t colon = where_.rfind(':');
  const bool port = !http_ && colon != std::string::npos && colon + 1 < where_.size() &&
                    where_.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  if (port && ::access(where_.c_str(), F_OK) != 0)
    throw Error(ErrorKind::Usage, fmt::format("'{}' is neither a control socket nor an address", where_), {},
                {"write http://" + where_});
  if (at == std::string::npos) return;
  if (token_.empty()) token_ = where_.substr(at + kToken.size());
  where_.erase(at);
}

json::object RunLink::parsed(const std::string& text) const {
  try {
    json::value answer = parse_json(text);
    if (answer.is_object()) return std::move(answer.get_object());
  } catch (const boost::system::system_error&) {  // reported below
  }
  throw Error(ErrorKind::Unavailable, fmt::format("the server at {} is not a harmonics run", where_));
}

json::object RunLink::ask(const std::string& message, double seconds) {
  try {
    if (!socket_) socket_.emplace(where_);
    socket_->say(message);
    return parsed(socket_->hear(seconds));
  } catch (const Error&) {
    socket_.reset();  // a late answer would be read as that of a later request
    throw;
  }
}

json::object RunLink::get(const std::string& path) {
  json::object answer;
  double code = 0;
  if (http_) {
    const HttpAnswer reply = http_request(where_, "GET", path, token_, "", kLook);
    answer = parsed(reply.body);
    code = reply.status;
  } else {
    answer = ask(json::serialize(json::object{{"do", "get"}, {"path", path}}), kLook);
    code = number_in(answer, "code");
  }
  if (!answer.contains("error")) return answer;
  Error refused(kind_of(code), text_in(answer, "error"));
  if (code == 401)
    refused.note(kTokenAdvice);
  else if (const std::string note = text_in(answer, "note"); !note.empty())
    refused.note(note);
  throw refused;
}

json::object RunLink::control(const json::object& message) {
  if (http_) {
    const HttpAnswer reply = http_request(where_, "POST", "/v1/control", token_, json::serialize(message), kLongest);
    json::object answer = parsed(reply.body);
    if (reply.status == 401) answer["note"] = kTokenAdvice;
    return answer;
  }
  return ask(json::serialize(message), kLongest);
}

double number_in(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v && v->is_number() ? v->to_number<double>() : NAN;
}

std::string left_out_text(const json::object& stream) {
  constexpr std::pair<const char*, const char*> kCounts[] = {
      {"dropped", "dropped on the edge"}, {"unpaired", "without a partner"}, {"late", "late"}, {"filled", "filled in"}};
  std::string text;
  for (const auto& [key, word] : kCounts)
    if (const double n = number_in(stream, key); n > 0)
      text += fmt::format("{}{:.0f} {}", text.empty() ? "" : ", ", n, word);
  return text;
}

std::string text_in(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v && v->is_string() ? std::string(v->get_string()) : "";
}

const json::object* object_in(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v ? v->if_object() : nullptr;
}

const json::array* array_in(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v ? v->if_array() : nullptr;
}

std::string count_text(double v) {
  return std::isnan(v) ? "–" : thousands(static_cast<int64_t>(std::clamp(v, -9e15, 9e15)));
}

}  // namespace harmonics::engine::cli
