// The producer corpus: rows of tokens.
#pragma once

#include <harmonics/function.hpp>

#include "engine/corpus/corpus.hpp"

namespace harmonics::engine {

void register_corpus(FunctionRegistry& registry);

// The options of an address corpus:PATH?... A path that ends in .corpus.json names a description of several data sets
// (corpus_json); one that begins with '{' is such a description. Throws ErrorKind::Usage for wrong options,
// ErrorKind::Syntax for a malformed description.
CorpusOptions corpus_options(const std::string& path, const Arguments& given);
// The description of a corpus as a file has it.
std::string corpus_json(const CorpusOptions& options);
CorpusOptions parse_corpus_json(std::string_view text, const std::string& path);

}  // namespace harmonics::engine
