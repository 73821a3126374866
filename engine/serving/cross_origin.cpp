#include "engine/serving/cross_origin.hpp"

#include <algorithm>

#include <fmt/core.h>

#include <harmonics/error.hpp>

namespace harmonics::engine {

namespace {

void allow(ServiceReply& reply, const std::string& origin) {
  reply.headers.emplace_back("Access-Control-Allow-Origin", origin);
  reply.headers.emplace_back("Access-Control-Expose-Headers", "Retry-After");
  reply.headers.emplace_back("Vary", "Origin");
}

ServiceReply permission(const std::string& origin) {
  ServiceReply reply{204, "", "", {}};
  allow(reply, origin);
  reply.headers.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE");
  reply.headers.emplace_back("Access-Control-Allow-Headers", "*, Authorization");  // '*' does not include it
  reply.headers.emplace_back("Access-Control-Max-Age", "600");                     // seconds
  return reply;
}

}  // namespace

void check_origin(const std::string& text) {
  if (text == "*") return;
  const size_t scheme = text.find("://");
  const auto is_printed = [](char c) { return c > ' ' && c < 0x7f && c != ',' && c != '*'; };
  const bool is_origin = scheme != std::string::npos && scheme > 0 && scheme + 3 < text.size() &&
                         text.find_first_of("/?#@", scheme + 3) == std::string::npos &&
                         std::all_of(text.begin(), text.end(), is_printed);
  if (!is_origin)
    throw Error(ErrorKind::Usage, fmt::format("'{}' is no origin of pages", text), {},
                {"write scheme, host and port, such as https://chat.example.org, or '*' for all pages"});
}

CrossOrigin::CrossOrigin(HttpHandler& handler, std::vector<std::string> origins)
    : handler_(handler), origins_(std::move(origins)) {}

bool CrossOrigin::allows(const std::string& origin) const {
  return std::any_of(origins_.begin(), origins_.end(), [&](const std::string& o) { return o == "*" || o == origin; });
}

void CrossOrigin::admit(ServiceReply& reply, const std::string& origin) const {
  if (!origin.empty() && allows(origin)) return allow(reply, origin);
  if (!origin.empty()) return;
  if (allows("*"))
    allow(reply, "*");
  else if (origins_.size() == 1)
    allow(reply, origins_.front());
}

void CrossOrigin::handle(ServiceRequest r, Answer answer) {
  if (r.origin.empty() || !allows(r.origin)) return handler_.handle(std::move(r), std::move(answer));
  if (r.method == "OPTIONS") return answer(permission(r.origin));
  const std::string origin = std::exchange(r.origin, "");
  handler_.handle(std::move(r), [answer = std::move(answer), origin](ServiceReply reply) {
    allow(reply, origin);
    answer(std::move(reply));
  });
}

}  // namespace harmonics::engine
