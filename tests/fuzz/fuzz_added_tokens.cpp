// Tokens are added to any tokenizer.json, or it is rejected. Added tokens are then present exactly once.
#include "engine/transformer/added_tokens.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  return refusing([&] {
    const std::vector<std::string> texts{"<|new|>", "<pad>", "<|new|>"};
    std::vector<std::pair<std::string, int64_t>> added, again;
    const std::string once = with_added_tokens({exact.data(), size}, texts, "fuzz", &added);
    require(added.size() <= 2, "a token twice");
    require(with_added_tokens(once, texts, "fuzz", &again) == once && again.empty(), "tokens that are added again");
  });
}
