// Any input is a flow or a readable error. A parsed flow prints as text that parses to the same flow; the readable
// parts of any other text are examined without a crash.
#include <cstdio>
#include <cstdlib>

#include "dsl/hmx/print.hpp"
#include "dsl/load.hpp"
#include "engine/flow/graph.hpp"
#include "tests/dsl/same_flow.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

void require(bool holds, const char* what, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "%s:\n%s\n", what, text.c_str());
  std::abort();
}

void require_places(const SourceErrors& errors) {
  require(!errors.errors().empty() && errors.errors().size() <= 20, "between one and twenty errors", errors.what());
  for (const Error& error : errors.errors()) require(error.span().line > 0, "an error without a place", error.what());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto source = std::make_shared<const SourceText>("input.hmx", text);
  std::optional<Flow> flow;
  try {
    flow = parse_flow(source);
  } catch (const FlowErrors& errors) {
    require_places(errors);
    for (const Harmonic& harmonic : errors.read().harmonics)
      for (const Error& error : examine(errors.read(), harmonic, Registry::global()).errors)
        require(error.span().line > 0, "an error without a place", error.what());
    return 0;
  } catch (const SourceErrors& errors) {
    require_places(errors);
    return 0;
  }
  const std::string printed = to_text(*flow);
  try {
    const Flow again = parse_flow(std::make_shared<const SourceText>("printed.hmx", printed));
    require(same_flow(*flow, again), "printing changed the flow", printed);
    require(to_text(again) == printed, "printing twice differs", printed);
  } catch (const Error& error) {
    require(false, error.what(), printed);
  }
  return 0;
}
