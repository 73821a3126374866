// HttpHandler: the interface that HttpServer serves. Maps requests to replies.
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
  bool trusted = false;  // already authenticated: no token or host check required
  bool beyond = false;   // received at an address that other machines can reach: token required
  std::shared_ptr<const std::atomic<bool>> gone = nullptr;  // becomes true when the client disconnects; null: unknown
};

// A body that is sent while it is produced. Destroyed when it was sent completely, or when the client disconnects.
class ReplyStream {
 public:
  virtual ~ReplyStream() = default;
  // Calls `take` once with the next part of the body or its end, from any thread, possibly before next() returns.
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
  // Adds what a page of `origin` needs to read a reply that the server makes itself; "": the origin is unknown.
  virtual void admit(ServiceReply& /*reply*/, const std::string& /*origin*/) const {}
  // Returns this as the service of a run, which also serves WebSockets, or null for other handlers.
  virtual Service* of_run() { return nullptr; }
  // Returns the known paths, for messages.
  virtual const std::string& known_paths() const = 0;
};

}  // namespace harmonics::engine
