// The files of specs/, compiled into the program.
#pragma once

namespace harmonics::engine {

struct BuiltinSpec {
  const char* name;  // "llama.json"
  const char* text;
};
extern const BuiltinSpec kBuiltinSpecs[];
extern const unsigned kBuiltinSpecCount;

}  // namespace harmonics::engine
