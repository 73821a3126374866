// Any input is a program or an error with its position. A parsed program prints as text that parses to the same
// program.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/base/source_text.hpp"
#include "engine/program/print.hpp"

using namespace harmonics;
using namespace harmonics::engine;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::string printed;
  try {
    printed = print(parse_program(text, "input.program"));
  } catch (const SourceErrors&) {
    return 0;
  }
  // From here on an exception is a bug.
  if (print(parse_program(printed, "printed.program")) != printed) {
    std::fprintf(stderr, "does not read back:\n%s\n", printed.c_str());
    std::abort();
  }
  return 0;
}
