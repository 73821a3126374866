#include "engine/serving/embedding_service.hpp"

#include <boost/json.hpp>

#include "engine/serving/embedding_routes.hpp"
#include "engine/serving/json_text.hpp"
#include "engine/serving/route_table.hpp"

namespace harmonics::engine {

namespace {

constexpr const char* kVectorJson = "application/json";
const std::vector<RouteContent> kVectorBody = {{kVectorJson, nullptr}};

}  // namespace

const EmbeddingService::Route EmbeddingService::kRoutes[] = {
    {embeddings_route(), &EmbeddingService::embeddings},
    {ollama_embed_route(), &EmbeddingService::ollama_embed},
    {ollama_embeddings_route(), &EmbeddingService::ollama_embeddings},
    {{.method = "GET",
      .path = "/v1/models",
      .access = RouteAccess::reads,
      .summary = "The model",
      .text = "A list of one.",
      .reply = kVectorBody},
     &EmbeddingService::models},
    {{.method = "GET",
      .path = "/v1/models/{name}",
      .access = RouteAccess::reads,
      .summary = "The model, by its name",
      .text = "As an item of the list.",
      .parameters = {{"name", RouteParameter::In::path, "string", "the name of the model", true}},
      .reply = kVectorBody},
     &EmbeddingService::one_model},
    {{.method = "GET",
      .path = "/api/version",
      .access = RouteAccess::reads,
      .summary = "The version of Ollama's API",
      .text = "The release of Ollama whose requests are answered, and the version of the program.",
      .reply = kVectorBody},
     &EmbeddingService::version},
    {{.method = "GET",
      .path = "/healthz",
      .access = RouteAccess::open,
      .summary = "Whether requests are answered",
      .text = "An object with the status.",
      .reply = kVectorBody},
     &EmbeddingService::health},
    {{.method = "GET",
      .path = "/health",
      .access = RouteAccess::open,
      .summary = "As /healthz",
      .text = "The path of other servers of language models.",
      .reply = kVectorBody},
     &EmbeddingService::health},
    {{.method = "GET",
      .path = "/openapi.json",
      .access = RouteAccess::open,
      .summary = "This description of the API",
      .text = "OpenAPI 3.1.",
      .reply = kVectorBody},
     &EmbeddingService::describe},
    {{.method = "GET",
      .path = "/docs",
      .access = RouteAccess::open,
      .summary = "This description as a page",
      .text = "Lists the routes and lets you try them.",
      .reply = {{"text/html", nullptr}}},
     &EmbeddingService::file},
};

std::span<const EmbeddingService::Route> EmbeddingService::table() { return kRoutes; }
std::vector<const ApiRoute*> EmbeddingService::routes() { return listed_routes(table()); }
const std::string& EmbeddingService::known_paths() const {
  static const std::string text = listed_paths(routes());
  return text;
}

EmbeddingService::EmbeddingService(ServiceSettings settings, ServedModel model, EmbeddingWorker& worker)
    : settings_(std::move(settings)), model_(std::move(model)), worker_(worker) {}

void EmbeddingService::handle(ServiceRequest request, Answer answer) {
  const FoundRoute<Route> found = find_route(table(), request);
  if (!found.route && found.methods.empty()) return file(request, answer);
  if (!found.route) {
    ServiceReply reply = Service::refusal(405, "this path takes " + found.methods, "use " + found.methods);
    reply.headers.emplace_back("Allow", found.methods);
    return answer(refusal_at(request.path, std::move(reply)));
  }
  if (found.route->access != RouteAccess::open)
    if (const auto refused = Service::refuse(settings_, request, false))
      return answer(refusal_at(request.path, *refused));
  (this->*found.route->handle)(request, answer);
}

void EmbeddingService::embeddings(ServiceRequest& r, const Answer& answer) {
  worker_.answer(EmbeddingApi::openai, r, model_.name, answer);
}
void EmbeddingService::ollama_embed(ServiceRequest& r, const Answer& answer) {
  worker_.answer(EmbeddingApi::ollama, r, model_.name, answer);
}
void EmbeddingService::ollama_embeddings(ServiceRequest& r, const Answer& answer) {
  worker_.answer(EmbeddingApi::ollama_one, r, model_.name, answer);
}

void EmbeddingService::models(ServiceRequest&, const Answer& answer) { answer(models_reply(model_)); }
void EmbeddingService::one_model(ServiceRequest& r, const Answer& answer) {
  answer(model_reply(model_, r.path.substr(std::string_view("/v1/models/").size())));
}

void EmbeddingService::version(ServiceRequest&, const Answer& answer) { answer(version_reply()); }

void EmbeddingService::health(ServiceRequest&, const Answer& answer) { answer(Service::reply({{"status", "ok"}})); }

void EmbeddingService::describe(ServiceRequest&, const Answer& answer) {
  static const std::string document =
      openapi_document(routes(), "Embeddings of texts, as served by 'harmonics serve MODEL' for embedding models.");
  answer({200, "application/json", document, {}});
}

void EmbeddingService::file(ServiceRequest& r, const Answer& answer) {
  const auto found = files_.find(r.path);
  if (found == files_.end() || (r.method != "GET" && r.method != "HEAD"))
    return answer(refusal_at(r.path, Service::refusal(404, "unknown path", known_paths())));
  if (const auto refused = Service::refuse(settings_, r, false); refused && refused->status == 403)
    return answer(*refused);
  answer(found->second);
}

}  // namespace harmonics::engine
