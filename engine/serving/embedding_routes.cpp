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
  return vector_route("/v1/embeddings", "Vectors of texts",
                      "As OpenAI's API: input is a text, a list of texts, a list of tokens or a list of such lists; "
                      "dimensions, encoding_format.",
                      R"({"input": ["Hello", "Good morning"]})");
}

ApiRoute ollama_embed_route() {
  return vector_route("/api/embed", "Vectors of texts, as Ollama computes them",
                      "A text that is too long is cut, unless truncate is false.", R"({"input": "Hello"})");
}

ApiRoute ollama_embeddings_route() {
  return vector_route("/api/embeddings", "The vector of a text, as older clients of Ollama request it",
                      "The text is the prompt.", R"({"prompt": "Hello"})");
}

}  // namespace harmonics::engine
