// Any body is a request for a response or for embeddings, or an error. An accepted request is a valid chat.
#include <memory>
#include <string>
#include <vector>

#include "engine/serving/embedding_api.hpp"
#include "engine/serving/responses.hpp"
#include "engine/serving/text_request.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  const std::string_view body(exact.data(), size);
  static const std::shared_ptr<ResponseStore> store = [] {
    auto made = std::make_shared<ResponseStore>();
    ResponseStore::Kept kept;
    kept.messages.push_back(boost::json::object{{"role", "user"}, {"content", "before"}});
    made->keep("resp-1", std::move(kept));
    return made;
  }();
  refusing([&] {
    const ReadResponse read = read_response_request(body, store);
    require(!read.record->messages.empty(), "a conversation without messages");
    const TextRequest text = read_text_request(TextApi::responses, read.chat, {});
    require(text.conversation.has_value(), "a response without a conversation");
  });
  for (const EmbeddingApi api : {EmbeddingApi::openai, EmbeddingApi::ollama, EmbeddingApi::ollama_one})
    refusing([&] {
      const EmbeddingRequest request = read_embedding_request(api, body);
      require(!request.inputs.empty(), "a request without inputs");
      for (const EmbeddingRequest::Input& input : request.inputs)
        require(!input.text.empty() || !input.ids.empty(), "an empty input");
    });
  return 0;
}
