// Models and tokenizers in llama2.c's file formats (github.com/karpathy/llama2.c).
#include <memory>

#include <harmonics/plugin.hpp>

#include "checkpoint.hpp"
#include "vocabulary.hpp"

HARMONICS_PLUGIN("harmonics.llama2c", "0.1.0", "Apache-2.0", "Harmonics");

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  using harmonics::Argument;
  harmonics::register_importer(
      registry, "llama2c", std::make_shared<llama2c::CheckpointImporter>(), "checkpoints of llama2.c, version 0",
      {Argument::number("rope_base", "10000", "base of the rotary embedding's frequencies").in("0<..")});
  harmonics::register_tokenizer(registry, "llama2c", std::make_shared<llama2c::VocabularyFormat>(),
                                "tokenizers of llama2.c");
}
