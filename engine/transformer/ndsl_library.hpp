// The `.ndsl` files of models/, compiled into the program.
#pragma once

namespace harmonics::engine {

struct BuiltinNdsl {
  const char* name;  // "Llama2.ndsl"
  const char* text;
};
extern const BuiltinNdsl kBuiltinNdsls[];
extern const unsigned kBuiltinNdslCount;

}  // namespace harmonics::engine
