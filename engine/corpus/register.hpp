// Registers the producer `corpus`, which delivers rows of tokens.
#pragma once

#include <harmonics/function.hpp>

#include "engine/corpus/corpus.hpp"

namespace harmonics::engine {

void register_corpus(FunctionRegistry& registry);

// Returns the options of an address corpus:PATH?... A path that ends in .corpus.json is a file with a JSON description
// of the corpus; a path that begins with '{' is the description itself. Throws ErrorKind::Usage for invalid options,
// ErrorKind::Syntax for a malformed description.
CorpusOptions corpus_options(const std::string& path, const Arguments& given);
// Format and parse the JSON description of a corpus. `path` is used in messages.
std::string corpus_json(const CorpusOptions& options);
CorpusOptions parse_corpus_json(std::string_view text, const std::string& path);

}  // namespace harmonics::engine
