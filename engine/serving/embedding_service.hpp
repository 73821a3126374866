// EmbeddingService: serves a model that only computes text embeddings.
#pragma once

#include <map>
#include <span>
#include <string>

#include "engine/serving/embedding_api.hpp"
#include "engine/serving/language_service.hpp"

namespace harmonics::engine {

class EmbeddingService : public HttpHandler {
 public:
  // The worker must outlive the service.
  EmbeddingService(ServiceSettings settings, ServedModel model, EmbeddingWorker& worker);

  // Serves a file to GET requests without a token. Must be called before requests arrive.
  void put(const std::string& path, ServiceReply file) { files_[path] = std::move(file); }
  void handle(ServiceRequest request, Answer answer) override;
  const std::string& known_paths() const override;
  static std::vector<const ApiRoute*> routes();

 private:
  struct Route : ApiRoute {
    void (EmbeddingService::*handle)(ServiceRequest& request, const Answer& answer);
  };
  static const Route kRoutes[];
  static std::span<const Route> table();
  void embeddings(ServiceRequest& request, const Answer& answer);
  void ollama_embed(ServiceRequest& request, const Answer& answer);
  void ollama_embeddings(ServiceRequest& request, const Answer& answer);
  void models(ServiceRequest& request, const Answer& answer);
  void one_model(ServiceRequest& request, const Answer& answer);
  void version(ServiceRequest& request, const Answer& answer);
  void health(ServiceRequest& request, const Answer& answer);
  void describe(ServiceRequest& request, const Answer& answer);
  void file(ServiceRequest& request, const Answer& answer);

  const ServiceSettings settings_;
  const ServedModel model_;
  EmbeddingWorker& worker_;
  std::map<std::string, ServiceReply> files_;
};

}  // namespace harmonics::engine
