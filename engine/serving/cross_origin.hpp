// CrossOrigin: lets pages of named origins send requests to another handler (https://fetch.spec.whatwg.org, CORS).
#pragma once

#include <string>
#include <vector>

#include "engine/serving/http_handler.hpp"

namespace harmonics::engine {

// An origin is a scheme, a host and a port, such as "https://chat.example.org" or "app://obsidian.md"; "*" is every
// one. Throws ErrorKind::Usage for texts that are no origin.
void check_origin(const std::string& text);

class CrossOrigin : public HttpHandler {
 public:
  // `handler` must outlive this. Without origins all requests are forwarded unchanged.
  CrossOrigin(HttpHandler& handler, std::vector<std::string> origins);
  // Requests from pages of the named origins count as those of programs: their token is checked, their origin is not.
  // Browsers ask with OPTIONS whether they may send a request; this answers them.
  void handle(ServiceRequest request, Answer answer) override;
  // A page of an unknown origin can read the reply if all pages may, or if it is of the only named origin.
  void admit(ServiceReply& reply, const std::string& origin) const override;
  Service* of_run() override { return handler_.of_run(); }
  const std::string& known_paths() const override { return handler_.known_paths(); }

 private:
  bool allows(const std::string& origin) const;

  HttpHandler& handler_;
  const std::vector<std::string> origins_;
};

}  // namespace harmonics::engine
