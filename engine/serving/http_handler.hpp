// What HttpServer serves: requests in, replies out.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/serving/predict_request.hpp"

namespace harmonics::engine {

class Service;

// A request as received over HTTP.
struct ServiceRequest : RequestTarget {
  std::string method, content_type, authorization, host, origin, body;
  bool trusted = false;  // already authenticated: needs no token or host check
  bool beyond = false;   // arrived at an address that other machines can reach: needs the token
  std::shared_ptr<const std::atomic<bool>> gone = nullptr;  // turns true when the client hangs up; null: not watched
};

// A body that is sent as it is made. Destroyed when all was sent, or when the client is gone.
class ReplyStream {
 public:
  virtual ~ReplyStream() = default;
  // Calls `take` once, from any thread, possibly before next() returns: with more of the body, or its end.
  using Take = std::function<void(std::string more, bool last)>;
  virtual void next(Take take) = 0;
};

struct ServiceReply {
  int status = 200;
  std::string content_type = "application/json", body;
  std::vector<std::pair<std::string, std::string>> headers;
  std::shared_ptr<ReplyStream> stream = nullptr;  // instead of `body`
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Called once, from any thread, possibly before handle() returns.
  using Answer = std::function<void(ServiceReply)>;
  virtual void handle(ServiceRequest request, Answer answer) = 0;
  // The service of a run, which also serves WebSockets. Null: it is none.
  virtual Service* of_run() { return nullptr; }
  // For messages.
  virtual const std::string& known_paths() const = 0;
};

}  // namespace harmonics::engine
