#include "formats/exact_json.hpp"

#include <algorithm>
#include <charconv>

#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>

namespace harmonics {

namespace {

// Builds values as boost::json::parser does, but converts real numbers itself.
struct Values {
  static constexpr size_t max_object_size = boost::json::object::max_size(),
                          max_array_size = boost::json::array::max_size(),
                          max_key_size = boost::json::string::max_size(),
                          max_string_size = boost::json::string::max_size();
  boost::json::value_stack stack;

  bool on_document_begin(boost::json::error_code&) { return true; }
  bool on_document_end(boost::json::error_code&) { return true; }
  bool on_object_begin(boost::json::error_code&) { return true; }
  bool on_array_begin(boost::json::error_code&) { return true; }
  bool on_object_end(size_t n, boost::json::error_code&) { return stack.push_object(n), true; }
  bool on_array_end(size_t n, boost::json::error_code&) { return stack.push_array(n), true; }
  bool on_key_part(boost::json::string_view s, size_t, boost::json::error_code&) { return stack.push_chars(s), true; }
  bool on_key(boost::json::string_view s, size_t, boost::json::error_code&) { return stack.push_key(s), true; }
  bool on_string_part(boost::json::string_view s, size_t, boost::json::error_code&) {
    return stack.push_chars(s), true;
  }
  bool on_string(boost::json::string_view s, size_t, boost::json::error_code&) { return stack.push_string(s), true; }
  bool on_number_part(boost::json::string_view, boost::json::error_code&) { return true; }
  bool on_int64(int64_t i, boost::json::string_view, boost::json::error_code&) { return stack.push_int64(i), true; }
  bool on_uint64(uint64_t u, boost::json::string_view, boost::json::error_code&) { return stack.push_uint64(u), true; }
  // `text` is the whole number, because the parser gets the whole document at once.
  bool on_double(double nearly, boost::json::string_view text, boost::json::error_code&) {
    double exact = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exact);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return stack.push_double(whole ? exact : nearly), true;  // out of range: infinite or zero
  }
  bool on_bool(bool b, boost::json::error_code&) { return stack.push_bool(b), true; }
  bool on_null(boost::json::error_code&) { return stack.push_null(), true; }
  bool on_comment_part(boost::json::string_view, boost::json::error_code&) { return true; }
  bool on_comment(boost::json::string_view, boost::json::error_code&) { return true; }
};

}  // namespace

boost::json::value parse_json(std::string_view text, boost::json::error_code& failed, size_t deepest, size_t* read) {
  boost::json::parse_options options;
  options.max_depth = deepest;
  boost::json::basic_parser<Values> parser(options);
  parser.handler().stack.reset();
  size_t used = parser.write_some(false, text.data(), text.size(), failed);
  if (!failed) {
    const size_t next = text.find_first_not_of(" \t\r\n", used);
    if (next != std::string_view::npos) failed = boost::json::error::extra_data;
  }
  if (read) *read = std::min(used, text.size());
  return failed ? boost::json::value() : parser.handler().stack.release();
}

boost::json::value parse_json(std::string_view text) {
  boost::json::error_code failed;
  boost::json::value value = parse_json(text, failed);
  if (failed) throw boost::system::system_error(failed);
  return value;
}

}  // namespace harmonics
