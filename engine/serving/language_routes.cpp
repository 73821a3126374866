// The one table of the routes of a language model's HTTP API.
#include <fmt/core.h>

#include "engine/serving/language_service.hpp"

namespace harmonics::engine {

namespace {

constexpr const char* kJsonType = "application/json";
const std::vector<RouteContent> kAnyJson = {{kJsonType, nullptr}}, kHtml = {{"text/html", nullptr}},
                                kEventStream = {{kJsonType, nullptr}, {"text/event-stream", nullptr}},
                                kJsonLines = {{kJsonType, nullptr}, {"application/x-ndjson", nullptr}};
constexpr const char* kHello = R"({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 32})";

}  // namespace

const LanguageService::Route LanguageService::kRoutes[] = {
    {{.method = "POST",
      .path = "/v1/chat/completions",
      .access = RouteAccess::reads,
      .summary = "Answer a conversation",
      .text = "As OpenAI's API: messages, temperature, top_p, max_tokens, stop, seed, penalties, logit_bias, logprobs, "
              "response_format, tools, stream.",
      .body = kAnyJson,
      .example = kHello,
      .reply = kEventStream},
     &LanguageService::chat},
    {{.method = "POST",
      .path = "/v1/completions",
      .access = RouteAccess::reads,
      .summary = "Continue a text",
      .text = "As OpenAI's API. The prompt is one text, or one list of tokens.",
      .body = kAnyJson,
      .example = R"({"prompt": "Once upon a time", "max_tokens": 32})",
      .reply = kEventStream},
     &LanguageService::completion},
    {{.method = "GET",
      .path = "/v1/models",
      .access = RouteAccess::reads,
      .summary = "The model",
      .text = "A list of one.",
      .reply = kAnyJson},
     &LanguageService::models},
    {{.method = "POST",
      .path = "/api/chat",
      .access = RouteAccess::reads,
      .summary = "Answer a conversation, as Ollama does",
      .text = "Lines of JSON unless stream is false.",
      .body = kAnyJson,
      .example = R"({"messages": [{"role": "user", "content": "Hello"}], "stream": false})",
      .reply = kJsonLines},
     &LanguageService::ollama_chat},
    {{.method = "POST",
      .path = "/api/generate",
      .access = RouteAccess::reads,
      .summary = "Answer a message, as Ollama does",
      .text = "With raw, the prompt is continued as it is.",
      .body = kAnyJson,
      .example = R"({"prompt": "Hello", "stream": false})",
      .reply = kJsonLines},
     &LanguageService::ollama_generate},
    {{.method = "GET",
      .path = "/api/tags",
      .access = RouteAccess::reads,
      .summary = "The model, as Ollama lists it",
      .text = "A list of one.",
      .reply = kAnyJson},
     &LanguageService::tags},
    {{.method = "POST",
      .path = "/api/show",
      .access = RouteAccess::reads,
      .summary = "Template and sizes of the model",
      .text = "As Ollama's API.",
      .body = kAnyJson,
      .example = "{}",
      .reply = kAnyJson},
     &LanguageService::show},
    {{.method = "GET",
      .path = "/api/ps",
      .access = RouteAccess::reads,
      .summary = "The model that is loaded",
      .text = "As Ollama's API.",
      .reply = kAnyJson},
     &LanguageService::running},
    {{.method = "GET",
      .path = "/api/version",
      .access = RouteAccess::reads,
      .summary = "The version of the program",
      .text = "As Ollama's API.",
      .reply = kAnyJson},
     &LanguageService::version},
    {{.method = "GET",
      .path = "/metrics",
      .access = RouteAccess::reads,
      .summary = "Metrics for Prometheus",
      .text = "Text format 0.0.4.",
      .reply = {{"text/plain", nullptr}}},
     &LanguageService::metrics},
    {{.method = "GET",
      .path = "/healthz",
      .access = RouteAccess::open,
      .summary = "Whether requests are answered",
      .text = "Texts that are written and that wait.",
      .reply = kAnyJson},
     &LanguageService::health},
    {{.method = "GET",
      .path = "/openapi.json",
      .access = RouteAccess::open,
      .summary = "This description of the API",
      .text = "OpenAPI 3.1.",
      .reply = kAnyJson},
     &LanguageService::describe},
    {{.method = "GET",
      .path = "/docs",
      .access = RouteAccess::open,
      .summary = "This description as a page",
      .text = "Lists the routes and tries them.",
      .reply = kHtml},
     &LanguageService::file},
    {{.method = "GET",
      .path = "/",
      .access = RouteAccess::open,
      .summary = "A page to talk with the model",
      .text = "The conversation stays in the browser.",
      .reply = kHtml},
     &LanguageService::file},
};

std::span<const LanguageService::Route> LanguageService::table() { return kRoutes; }

std::vector<const ApiRoute*> LanguageService::routes() {
  std::vector<const ApiRoute*> all;
  for (const Route& route : table()) all.push_back(&route);
  return all;
}

const std::string& LanguageService::known_paths() const {
  static const std::string text = [] {
    std::string all;
    for (const Route& route : table()) all += fmt::format("{}{} {}", all.empty() ? "" : "; ", route.method, route.path);
    return all;
  }();
  return text;
}

}  // namespace harmonics::engine
