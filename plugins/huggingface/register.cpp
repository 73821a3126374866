// Models in Hugging Face folders (huggingface.co/docs/transformers/main_classes/configuration).
#include <memory>

#include <harmonics/plugin.hpp>

#include "models.hpp"
#include "tokenizer_files.hpp"

HARMONICS_PLUGIN("harmonics.huggingface", "0.1.0", "Apache-2.0", "Harmonics");

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  harmonics::register_importer(
      registry, "huggingface", std::make_shared<huggingface::Importer>(), "models in folders of Hugging Face",
      {harmonics::Argument::flag("whole", false, "tensors and metadata exactly as GGUF files have them"),
       harmonics::Argument::flag("weights", true, "the weights too; without them the settings alone")});
  harmonics::register_exporter(registry, "huggingface", std::make_shared<huggingface::Exporter>(),
                               "folders of Hugging Face: config.json, weights in safetensors and the tokenizer",
                               {harmonics::Argument::integer("shard-bytes", huggingface::kShardBytes,
                                                             "bytes of one file of weights; more go to further files, "
                                                             "with an index")
                                    .in("1..")});
  harmonics::register_tokenizer(registry, "huggingface", std::make_shared<huggingface::TokenizerFormat>(),
                                "tokenizer.json, and the tokenizer of a folder of Hugging Face");
}
