// Routes for text embeddings, shared by several services.
#pragma once

#include "engine/serving/api_route.hpp"

namespace harmonics::engine {

ApiRoute embeddings_route();         // POST /v1/embeddings
ApiRoute ollama_embed_route();       // POST /api/embed
ApiRoute ollama_embeddings_route();  // POST /api/embeddings

}  // namespace harmonics::engine
