// Any input is a llama2.c tokenizer or an error. Every token decodes, and encoded text decodes unchanged.
#include "formats/utf8.hpp"
#include "plugins/llama2c/vocabulary.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine::testing;

namespace {

constexpr size_t kMostDecoded = 1000, kLongestText = 2000;

std::string decoded(const llama2c::Vocabulary& vocabulary, const std::vector<int32_t>& ids) {
  std::string text;
  int32_t previous = -1;
  for (const int32_t id : ids) {
    require(id >= 0 && static_cast<uint64_t>(id) < vocabulary.info().tokens, "an id outside the vocabulary");
    text += vocabulary.decode(id, previous);
    previous = id;
  }
  return text;
}

// Uses the file's pieces as text, so that merges occur.
void encode_and_decode(const llama2c::Vocabulary& vocabulary, std::string_view bytes) {
  const std::string text(bytes.substr(0, kLongestText));
  const std::vector<int32_t> ids = vocabulary.encode(text, HX_ENCODE_BOS | HX_ENCODE_EOS);
  require(ids.size() <= text.size() + 3, "more tokens than bytes");
  require(ids.front() == 1 && ids.back() == 2, "a text without its begin or end");
  bool unknown = false;
  for (const int32_t id : ids) unknown = unknown || id == 0;
  const std::string back = decoded(vocabulary, ids);
  const bool same = back == text || back == " " + text || (!text.empty() && text[0] == ' ' && back == text.substr(1));
  require(unknown || same, "another text after decoding");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  const std::string_view bytes(exact.data(), size);
  require(llama2c::probe_vocabulary(bytes.substr(0, 1 << 16), size) <= HX_PROBE_CERTAIN, "a score above certain");
  return refusing([&] {
    const llama2c::Vocabulary vocabulary(bytes, "input.bin", 0);
    const TextTokenizerInfo info = vocabulary.info();
    require(info.tokens >= 3, "fewer tokens than special ones");
    for (uint64_t id = 0; id < info.tokens && id < kMostDecoded; ++id)
      require(vocabulary.decode(static_cast<int32_t>(id), 1).size() <= info.longest, "a token longer than the longest");
    encode_and_decode(vocabulary, bytes);
  });
}
