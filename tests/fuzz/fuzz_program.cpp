// Any bytes are a program or a refusal with its place; what reads prints to a text that reads to the same.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/base/source_text.hpp"
#include "engine/program/print.hpp"

using namespace harmonics;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::string printed;
  try {
    printed = print(parse_program(text, "input.program"));
  } catch (const SourceErrors&) {
    return 0;
  }
  // From here on an exception is a finding.
  if (print(parse_program(printed, "printed.program")) != printed) {
    std::fprintf(stderr, "does not read back:\n%s\n", printed.c_str());
    std::abort();
  }
  return 0;
}
