// Models and tokenizers in GGUF files (github.com/ggml-org/ggml/blob/master/docs/gguf.md).
#include <memory>

#include <harmonics/plugin.hpp>

#include "exporter.hpp"
#include "importer.hpp"
#include "vocabulary.hpp"

HARMONICS_PLUGIN("harmonics.gguf", "0.1.0", "Apache-2.0", "Harmonics");

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  harmonics::register_importer(
      registry, "gguf", std::make_shared<gguf::Importer>(), "models in GGUF files",
      {harmonics::Argument::flag("whole", false, "all lists of the metadata, vocabularies too")});
  harmonics::register_exporter(registry, "gguf", std::make_shared<gguf::Exporter>(), "GGUF files, version 3");
  harmonics::register_tokenizer(registry, "gguf", std::make_shared<gguf::TokenizerFormat>(),
                                "the tokenizer in a GGUF file: SentencePiece, byte pairs, Unigram or WordPiece");
}
