// RunLink: a run in another process, over its control socket or its address.
#pragma once

#include <optional>
#include <string>

#include <boost/json/object.hpp>

#include "engine/serving/control_socket.hpp"

namespace harmonics::cli {

class RunLink {
 public:
  // `where`: http://HOST:PORT, or the path of a control socket. The token may also stand in the address, as the page's
  // does: /#token=TEXT.
  RunLink(std::string where, std::string token);

  const std::string& where() const { return where_; }
  // What GET gives for "/v1/...". What the run refuses is thrown: ErrorKind::Unavailable what may go later (and when
  // nobody answers), Denied without the token, Usage anything else.
  boost::json::object get(const std::string& path);
  // As docs/live.md says; what it refuses is in the object as "error".
  boost::json::object control(const boost::json::object& message);

 private:
  boost::json::object ask(const std::string& message, double seconds);
  boost::json::object parsed(const std::string& text) const;

  std::string where_, token_;
  bool http_;
  std::optional<ControlClient> socket_;
};

// NaN, "" and null when it is not there or something else.
double number_in(const boost::json::object& o, const char* key);
std::string text_in(const boost::json::object& o, const char* key);
const boost::json::object* object_in(const boost::json::object& o, const char* key);
const boost::json::array* array_in(const boost::json::object& o, const char* key);

// "12 dropped on the edge, 3 without a partner, 1 late, 4 filled in" of a stream's status; empty: none.
std::string left_out_text(const boost::json::object& stream);

// A number as "600,000"; "–" of what is none.
std::string count_text(double v);

}  // namespace harmonics::cli
