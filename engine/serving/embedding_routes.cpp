#include "engine/serving/embedding_routes.hpp"

namespace harmonics::engine {

namespace {

ApiRoute vector_route(const char* path, const char* summary, const char* text, const char* example) {
  const std::vector<RouteContent> any = {{"application/json", nullptr}};
  return {.method = "POST",
          .path = path,
          .access = RouteAccess::reads,
          .summary = summary,
          .text = text,
          .body = any,
          .example = example,
          .reply = any};
}

}  // namespace

ApiRoute embeddings_route() {
  return vector_route("/v1/embeddings", "Embeddings of texts",
                      "As OpenAI's API: input is a text, a list of texts, a list of tokens or a list of such lists; "
                      "dimensions, encoding_format.",
                      R"({"input": ["Hello", "Good morning"]})");
}

ApiRoute ollama_embed_route() {
  return vector_route("/api/embed", "Embeddings of texts, as computed by Ollama",
                      "A text that is too long is cut, unless truncate is false.", R"({"input": "Hello"})");
}

ApiRoute ollama_embeddings_route() {
  return vector_route("/api/embeddings", "The embedding of a text, for older clients of Ollama",
                      "The text is the prompt.", R"({"prompt": "Hello"})");
}

}  // namespace harmonics::engine
