// RunLink: a connection to a run in another process, over its control socket or its address.
#pragma once

#include <optional>
#include <string>

#include <boost/json/object.hpp>

#include "engine/serving/control_socket.hpp"

namespace harmonics::engine::cli {

class RunLink {
 public:
  // `where` is http://HOST:PORT, or the path of a control socket. The address may contain the token like that of the
  // page: /#token=TEXT.
  RunLink(std::string where, std::string token);

  const std::string& where() const { return where_; }
  // Returns the answer to GET "/v1/...". Throws ErrorKind::Unavailable if the request may succeed later or there is no
  // answer, Denied without the token, and Usage for other errors.
  boost::json::object get(const std::string& path);
  // Sends a message of docs/live.md and returns the answer. An error of the run is its member "error".
  boost::json::object control(const boost::json::object& message);

 private:
  boost::json::object ask(const std::string& message, double seconds);
  boost::json::object parsed(const std::string& text) const;

  std::string where_, token_;
  bool http_;
  std::optional<ControlClient> socket_;
};

// Return a member; NaN, "" or null if it is missing or has another type.
double number_in(const boost::json::object& o, const char* key);
std::string text_in(const boost::json::object& o, const char* key);
const boost::json::object* object_in(const boost::json::object& o, const char* key);
const boost::json::array* array_in(const boost::json::object& o, const char* key);

// Returns "12 dropped on the edge, 3 without a partner, 1 late, 4 filled in" for a stream's status; "" if there were
// none.
std::string left_out_text(const boost::json::object& stream);

// Returns a number as "600,000", or "–" for NaN.
std::string count_text(double v);

}  // namespace harmonics::engine::cli
