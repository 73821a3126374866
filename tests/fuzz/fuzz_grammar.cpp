// Any input is a grammar or an error. Texts are matched in bounded memory, and every byte reported as allowed is
// accepted.
#include "engine/language/grammar.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  return refusing([&] {
    GrammarText text(std::make_shared<const Grammar>(std::string_view(exact.data(), size)));
    for (int step = 0; step < 64 && text.may_go_on(); ++step) {
      const std::array<bool, 256> next = text.next_bytes();
      size_t chosen = static_cast<size_t>(step * 37) % 256, tried = 0;
      while (tried < 256 && !next[chosen]) chosen = (chosen + 1) % 256, ++tried;
      require(tried < 256, "a text that may go on, but with no byte");
      const char byte = static_cast<char>(static_cast<unsigned char>(chosen));
      const bool allowed = text.allows({&byte, 1});
      require(text.append({&byte, 1}) == allowed, "a byte that is allowed and refused");
      if (!allowed) break;  // too many alternatives, or too deep nesting
    }
  });
}
