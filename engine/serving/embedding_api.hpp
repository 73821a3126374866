// Texts to vectors over HTTP, in the forms of OpenAI's and Ollama's APIs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/language/embedder.hpp"
#include "engine/language/tokenizer.hpp"
#include "engine/serving/http_handler.hpp"

namespace harmonics::engine {

enum class EmbeddingApi {
  openai,     // POST /v1/embeddings
  ollama,     // POST /api/embed
  ollama_one  // POST /api/embeddings
};

struct EmbeddingRequest {
  EmbeddingApi api = EmbeddingApi::openai;
  std::string model;  // as the client named it
  struct Input {
    std::string text;
    std::vector<int32_t> ids;  // instead of `text`
  };
  std::vector<Input> inputs;
  int64_t dimensions = 0;  // of each vector: its first ones, of length 1 again; 0: all
  bool base64 = false;     // vectors as f32, little-endian, in base64
  bool cuts = false;       // a text that is too long is cut; else it is an error
};

// Throws ErrorKind::Usage with the field.
EmbeddingRequest read_embedding_request(EmbeddingApi api, std::string_view body);
// The body of the reply. Throws ErrorKind::Usage for texts that the embedder refuses.
std::string embedding_reply(const EmbeddingRequest& request, const std::string& model, Embedder& embedder,
                            const Tokenizer& tokenizer);

// Computes vectors on a thread of its own, one request after the other.
class EmbeddingWorker {
 public:
  // Embedder and tokenizer must outlive it. `queue`: requests that may wait.
  EmbeddingWorker(Embedder& embedder, const Tokenizer& tokenizer, size_t queue);
  ~EmbeddingWorker();  // answers what waits with 503
  EmbeddingWorker(const EmbeddingWorker&) = delete;
  EmbeddingWorker& operator=(const EmbeddingWorker&) = delete;

  // Answers a request, now or later. `model`: its name in replies. [any thread]
  void answer(EmbeddingApi api, const ServiceRequest& request, const std::string& model, HttpHandler::Answer answer);

 private:
  struct Waiting {
    EmbeddingRequest request;
    std::string model;
    HttpHandler::Answer answer;
  };
  void work();

  Embedder& embedder_;
  const Tokenizer& tokenizer_;
  const size_t queue_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Waiting> waiting_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace harmonics::engine
