// Samples sent by HTTP requests to the address of --serve. Connects the producer with the server, which is independent
// of streams.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <harmonics/function.hpp>

namespace harmonics {

std::shared_ptr<Producer> open_http(const std::string& path, const Arguments& options);
std::vector<Argument> http_options();
// Declares that the producer http:NAME will be opened. Until then, requests with samples get 503.
void expect_http(const std::string& name);

struct SentSamples {
  std::string content_type, body;
};
struct SentAnswer {
  int status = 200;  // HTTP status
  uint64_t accepted = 0, refused = 0;
  std::string first_refusal;  // "": none
  std::string error, note;    // for status codes other than 200 and 202
};
// Passes a body to the producer http:NAME. Answers exactly once, from any thread: when its samples are in memory, or
// when it is rejected.
void send_by_http(const std::string& name, SentSamples samples, std::function<void(SentAnswer)> answer);

}  // namespace harmonics
