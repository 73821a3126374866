// LanguageService: serves a language model with the HTTP APIs of OpenAI and Ollama.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/language/chat_template.hpp"
#include "engine/serving/api_route.hpp"
#include "engine/serving/embedding_api.hpp"
#include "engine/serving/responses.hpp"
#include "engine/serving/service.hpp"
#include "engine/serving/text_request.hpp"
#include "engine/serving/text_worker.hpp"

namespace harmonics::engine {

// Description of the model in replies.
struct ServedModel {
  std::string name, architecture;
  uint64_t bytes = 0, parameters = 0;
  int64_t context = 0, vocabulary = 0;
  int64_t since = 0;                           // seconds since 1970
  std::string quantization = {}, digest = {};  // "Q4_K_M", or "" if unknown; 64 hexadecimal digits
  std::map<std::string, int64_t> sizes = {};   // metadata of the architecture: "llama.block_count"
};

// Return the replies to GET /v1/models and /v1/models/NAME (404 for another name).
ServiceReply models_reply(const ServedModel& model);
ServiceReply version_reply();  // to GET /api/version
ServiceReply model_reply(const ServedModel& model, const std::string& name);
// Returns a refusal {"error", "note"} in the form of OpenAI's errors if the path belongs to that API.
ServiceReply refusal_at(const std::string& path, ServiceReply refusal);

class LanguageService : public HttpHandler {
 public:
  // Worker, tokenizer and format must outlive the service. `usual`: defaults for requests.
  LanguageService(ServiceSettings settings, ServedModel model, TextWorker& worker, const Tokenizer& tokenizer,
                  const ChatTemplate& format, ContinuationSettings usual);

  // Serves a file to GET requests without a token. Must be called before requests arrive.
  void put(const std::string& path, ServiceReply file) { files_[path] = std::move(file); }
  // Also serves text embeddings. The worker must outlive the service. Must be called before requests arrive.
  void serve_vectors(EmbeddingWorker& worker) { vectors_ = &worker; }
  void handle(ServiceRequest request, Answer answer) override;
  const std::string& known_paths() const override;
  static std::vector<const ApiRoute*> routes();

 private:
  struct Route : ApiRoute {
    void (LanguageService::*handle)(ServiceRequest& request, const Answer& answer);
  };
  static const Route kRoutes[];
  static std::span<const Route> table();

  void chat(ServiceRequest& request, const Answer& answer);
  void completion(ServiceRequest& request, const Answer& answer);
  void responses(ServiceRequest& request, const Answer& answer);
  void kept_response(ServiceRequest& request, const Answer& answer);
  void forget_response(ServiceRequest& request, const Answer& answer);
  void embeddings(ServiceRequest& request, const Answer& answer);
  void ollama_embed(ServiceRequest& request, const Answer& answer);
  void ollama_embeddings(ServiceRequest& request, const Answer& answer);
  void embed(EmbeddingApi api, ServiceRequest& request, const Answer& answer);
  void ollama_chat(ServiceRequest& request, const Answer& answer);
  void ollama_generate(ServiceRequest& request, const Answer& answer);
  void models(ServiceRequest& request, const Answer& answer);
  void one_model(ServiceRequest& request, const Answer& answer);
  void tokenize(ServiceRequest& request, const Answer& answer);
  void detokenize(ServiceRequest& request, const Answer& answer);
  void tokenizer_info(ServiceRequest& request, const Answer& answer);
  void apply_template(ServiceRequest& request, const Answer& answer);
  void tags(ServiceRequest& request, const Answer& answer);
  void show(ServiceRequest& request, const Answer& answer);
  void running(ServiceRequest& request, const Answer& answer);
  void version(ServiceRequest& request, const Answer& answer);
  void metrics(ServiceRequest& request, const Answer& answer);
  void health(ServiceRequest& request, const Answer& answer);
  void describe(ServiceRequest& request, const Answer& answer);
  void file(ServiceRequest& request, const Answer& answer);
  void write_text(TextApi api, ServiceRequest& request, const Answer& answer,
                  std::shared_ptr<const ResponseRecord> response = nullptr);
  TextJob::Prompt prompt_of(TextRequest& request, size_t index, std::string& text) const;
  boost::json::object ollama_model() const;

  const ServiceSettings settings_;
  const ServedModel model_;
  TextWorker& worker_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& format_;
  const ContinuationSettings usual_;
  std::map<std::string, ServiceReply> files_;
  EmbeddingWorker* vectors_ = nullptr;
  const std::shared_ptr<ResponseStore> kept_ = std::make_shared<ResponseStore>();
  std::atomic<uint64_t> number_{0};  // number of texts so far
};

}  // namespace harmonics::engine
