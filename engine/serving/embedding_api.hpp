// Text embeddings over HTTP, with the APIs of OpenAI and Ollama.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
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
  std::string model;  // as named by the client
  struct Input {
    std::string text;
    std::vector<int32_t> ids;  // instead of `text`
  };
  std::vector<Input> inputs;
  int64_t dimensions = 0;  // truncate vectors to their first dimensions and normalise them; 0: all dimensions
  bool base64 = false;     // return vectors as little-endian f32 in base64
  bool cuts = false;       // truncate texts that are too long; false: they are an error
};

// Parses a request. Throws ErrorKind::Usage with the name of an invalid field.
EmbeddingRequest read_embedding_request(EmbeddingApi api, std::string_view body);
// Computes the vectors and returns the body of the reply. Throws ErrorKind::Usage for texts that the embedder rejects,
// and ErrorKind::Unavailable when `stops`, if set, returns true; it is called before each text.
std::string embedding_reply(const EmbeddingRequest& request, const std::string& model, Embedder& embedder,
                            const Tokenizer& tokenizer, const std::function<bool()>& stops = nullptr);

// Computes vectors on its own thread, one request at a time.
class EmbeddingWorker {
 public:
  // Embedder and tokenizer must outlive the worker. `queue`: maximum number of waiting requests.
  EmbeddingWorker(Embedder& embedder, const Tokenizer& tokenizer, size_t queue);
  ~EmbeddingWorker();  // answers the current request and waiting ones with 503
  EmbeddingWorker(const EmbeddingWorker&) = delete;
  EmbeddingWorker& operator=(const EmbeddingWorker&) = delete;

  // [any thread] Answers a request, immediately or later. `model`: name of the model in replies.
  void answer(EmbeddingApi api, const ServiceRequest& request, const std::string& model, HttpHandler::Answer answer);

 private:
  struct Waiting {
    EmbeddingRequest request;
    std::string model;
    HttpHandler::Answer answer;
    std::shared_ptr<const std::atomic<bool>> gone = nullptr;  // whether the client has disconnected; null: unknown
    bool is_gone() const { return gone && *gone; }
  };
  void work();
  void answer_gone();

  Embedder& embedder_;
  const Tokenizer& tokenizer_;
  const size_t queue_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Waiting> waiting_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace harmonics::engine
