// Any body is a text request, in each API, or an error.
#include "engine/serving/text_request.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  for (const TextApi api : {TextApi::chat, TextApi::completion, TextApi::ollama_chat, TextApi::ollama_generate})
    refusing([&] {
      const TextRequest request = read_text_request(api, {exact.data(), size}, {});
      require(request.settings.tokens >= 1, "a text without tokens");
      require(request.settings.temperature >= 0, "a negative temperature");
    });
  return 0;
}
