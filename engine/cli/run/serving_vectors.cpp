#include "engine/cli/run/serving_vectors.hpp"

#include <chrono>
#include <ctime>
#include <memory>

#include <fmt/core.h>

#include "engine/cli/run/embedding_model.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/serving.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/model/imported.hpp"
#include "engine/serving/cross_origin.hpp"
#include "engine/serving/embedding_service.hpp"
#include "engine/serving/http_server.hpp"
#include "engine/serving/page.hpp"

namespace harmonics::engine::cli {

ServedVectors::ServedVectors(const Model& model, Executor& executor, const Tokenizer& tokenizer,
                             const Options& options) {
  try {
    embedder.emplace(model, executor, text_compile_options(options), given_pooling(options));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Usage || !options.pooling.empty()) throw;
    return;
  }
  worker.emplace(*embedder, tokenizer, static_cast<size_t>(options.queue));
}

bool gives_only_vectors(const Options& options) {
  const ImportedModel imported = imported_for_texts(options);
  return !resolve_spec(imported, model_options(options))->has_caches();
}

int serve_vectors(const Options& options, const std::vector<ListenAddress>& addresses, const ServiceSettings& settings,
                  const std::function<int()>& wait) {
  EmbeddingModel model(options);
  EmbeddingWorker worker(model.embedder, *model.tokenizer, static_cast<size_t>(options.queue));
  ServedModel served;
  served.name = model_name(model.imported.path);
  served.architecture = model.imported.metadata.text("general.architecture", "");
  served.parameters = model.imported.parameters();
  served.context = model.model.context;
  served.vocabulary = model.model.vocabulary;
  served.since = static_cast<int64_t>(std::time(nullptr));
  EmbeddingService service(settings, served, worker);
  put_docs(service);
  CrossOrigin handler(service, options.origins);
  std::vector<std::unique_ptr<HttpServer>> servers;
  for (const ListenAddress& address : addresses) {
    servers.push_back(std::make_unique<HttpServer>(handler, address, text_limits(options)));
    const bool needed = !settings.loopback && options.token.empty();
    say(fmt::format("serving on {}{}", servers.back()->url(), needed ? " · token " + settings.token : ""));
  }
  const int signal = wait();
  for (const auto& server : servers) server->finish(std::chrono::seconds(10));
  return signal;
}

}  // namespace harmonics::engine::cli
