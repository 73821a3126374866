#include <memory>

#include "models.hpp"
#include "tokenizer_files.hpp"
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
  const Beside files = beside(source);
  FolderSettings settings = read_folder_settings(files);
  if (!settings.chat_template.empty()) model.metadata["tokenizer.chat_template"] = std::move(settings.chat_template);
  if (!settings.ends.empty()) model.metadata["huggingface.eos_token_ids"] = std::move(settings.ends);
  if (options.flag("whole"))
    if (const auto tokenizer = read_folder_tokenizer(files, source.path(), config.count("vocab_size", 0))) {
      const auto kept = std::make_shared<std::vector<std::vector<std::string>>>();
      kept->reserve(4);  // views into them stay valid
      add_tokenizer_metadata(*tokenizer, source.path(), model.metadata, *kept);
      model.keep = kept;
    }
  add_weights(read_weights(source), config, source, options.flag("whole"), model);
  return model;
}

}  // namespace huggingface
