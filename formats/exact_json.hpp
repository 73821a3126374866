// JSON as Boost.JSON values whose numbers are the doubles nearest to their text. The parser of Boost.JSON 1.81 is off
// by one unit in the last place for about one in six texts of 17 digits.
#pragma once

#include <cstddef>
#include <string_view>

#include <boost/json/error.hpp>
#include <boost/json/value.hpp>

namespace harmonics {

// Parses a whole text, at most `deepest` levels deep. On failure sets `failed` and returns null; `*read`, if given, is
// the count of bytes before the error. Values are the last ones of repeated keys.
boost::json::value parse_json(std::string_view text, boost::json::error_code& failed, size_t deepest = 64,
                              size_t* read = nullptr);

// Throws boost::system::system_error.
boost::json::value parse_json(std::string_view text);

}  // namespace harmonics
