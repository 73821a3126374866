#include "models.hpp"
#include "weights.hpp"

namespace huggingface {

using namespace harmonics;

uint32_t Importer::probe(const FileStart& file) const {
  if (file.name != "config.json" || file.first.find('{') == std::string_view::npos) return HX_PROBE_NO;
  const bool named = file.first.find("\"architectures\"") != std::string_view::npos ||
                     file.first.find("\"model_type\"") != std::string_view::npos;
  return named ? HX_PROBE_LIKELY : HX_PROBE_NO;
}

ModelDescription Importer::open(const ImportSource& source, const Arguments& options) const {
  Config config = read_config(source.bytes(), source.path());
  ModelDescription model;
  model.metadata = config.metadata;
  if (!options.flag("weights")) {
    const std::vector<std::string> names = indexed_names(source);
    if (!names.empty()) map_weights(names, config, source.path());
    const Architecture& a = *config.architecture;
    model.metadata["@len:token_embd.weight"] = config.count("vocab_size", 0);
    model.metadata["huggingface.tied_embeddings"] = config.tied;
    for (const TensorRow& row : a.tensors)
      if (!row.permute.empty()) model.metadata[a.key("rope.pairing")] = std::string("half");
    return model;
  }
  model.metadata.erase("@len:token_types.weight");
  add_weights(read_weights(source), config, source, options.flag("whole"), model);
  return model;
}

}  // namespace huggingface
