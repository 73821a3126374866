// JSON output of the program, and its schemas.
#pragma once

#include <string>

#include <boost/json.hpp>

#include "tests/journeys/shell.hpp"

namespace journeys {

namespace json = boost::json;

inline json::value schema(const std::string& name) {
  return json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/" + name + ".json"));
}

// Returns the object on the last line.
inline json::object last_line(const std::string& out) {
  const size_t last = out.rfind('\n', out.size() - 2);
  return json::parse(out.substr(last == std::string::npos ? 0 : last + 1)).as_object();
}

}  // namespace journeys
