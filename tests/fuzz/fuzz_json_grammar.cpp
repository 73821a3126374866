// Any JSON is a schema whose grammar can be read, or an error.
#include <boost/json.hpp>

#include "engine/language/grammar.hpp"
#include "engine/language/json_grammar.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  boost::json::error_code failed;
  boost::json::parse_options depth;
  depth.max_depth = 64;
  const boost::json::value schema =
      boost::json::parse(boost::json::string_view(reinterpret_cast<const char*>(data), size), failed, {}, depth);
  if (failed) return 0;
  return refusing([&] {
    const std::string grammar = grammar_of_schema(schema);
    require(grammar.find("root ::= ") == 0, "a grammar without a root");
    Grammar{grammar};
  });
}
