// Web pages: the files of page/, compiled into the program.
#pragma once

#include "engine/serving/embedding_service.hpp"
#include "engine/serving/language_service.hpp"
#include "engine/serving/service.hpp"

namespace harmonics::engine {

struct PageFile {
  const char *name, *text;
};
// Generated from the files of page/ by the build.
extern const PageFile kPageFiles[];
extern const unsigned kPageFileCount;

// Serves the page of a run at "/", its other files, and the description of the API.
void put_page(Service& service);
// Serves the description of the API at "/docs", and its files.
void put_docs(Service& service);
void put_docs(EmbeddingService& service);
// Serves the chat page at "/", and the description of the API.
void put_chat_page(LanguageService& service);

}  // namespace harmonics::engine
