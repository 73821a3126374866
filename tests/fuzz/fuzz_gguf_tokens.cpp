// Any input is the vocabulary of a GGUF file or an error. Every token decodes, and any text encodes to valid ids.
#include "plugins/gguf/vocabulary.hpp"
#include "formats/utf8.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine::testing;

namespace {

constexpr uint64_t kMostDecoded = 1000;
constexpr size_t kLongestText = 2000;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  const std::string_view bytes(exact.data(), size);
  return refusing([&] {
    const auto tokenizer = gguf::open_tokenizer(bytes, "input.gguf");
    const TextTokenizerInfo info = tokenizer->info();
    std::string text = "Hello, world's 123 end\n";
    for (uint64_t id = 0; id < info.tokens && id < kMostDecoded; ++id)
      if (const std::string piece = tokenizer->decode(static_cast<int32_t>(id), -1);
          !find_invalid_utf8(piece) && text.size() + piece.size() < kLongestText)
        text += piece;
    for (const uint32_t flags : {0u, uint32_t{HX_ENCODE_BOS | HX_ENCODE_EOS | HX_ENCODE_SPECIAL}})
      for (const int32_t id : tokenizer->encode(text, flags))
        require(id >= 0 && static_cast<uint64_t>(id) < info.tokens, "an id outside the vocabulary");
  });
}
