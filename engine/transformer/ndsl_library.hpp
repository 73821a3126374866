// The `.ndsl` files of the folder models/, which the program carries.
#pragma once

namespace harmonics::engine {

struct BuiltinNdsl {
  const char* name;  // "Llama2.ndsl"
  const char* text;
};
extern const BuiltinNdsl kBuiltinNdsls[];
extern const unsigned kBuiltinNdslCount;

}  // namespace harmonics::engine
