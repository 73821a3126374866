// Models in safetensors files (huggingface.co/docs/safetensors).
#include <memory>

#include <harmonics/plugin.hpp>

#include "models.hpp"

HARMONICS_PLUGIN("harmonics.safetensors", "0.1.0", "Apache-2.0", "Harmonics");

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  harmonics::register_importer(registry, "safetensors", std::make_shared<safetensors::Importer>(),
                               "models in safetensors files whose metadata name an architecture",
                               {harmonics::Argument::flag("whole", false, "all lists of the metadata, long ones too")});
  harmonics::register_exporter(registry, "safetensors", std::make_shared<safetensors::Exporter>(),
                               "safetensors files, with the metadata as strings");
}
