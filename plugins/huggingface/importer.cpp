#include <fstream>
#include <memory>
#include <optional>

#include "formats/utf8.hpp"
#include "four_bits.hpp"
#include "models.hpp"
#include "mxfp4.hpp"
#include "tokenizer_files.hpp"
#include "weights.hpp"

namespace huggingface {

using namespace harmonics;

namespace {

// Returns the pooling mode of sentence-transformers, numbered as in GGUF; none: the folder has no such file.
std::optional<int64_t> pooling_of(const std::string& path) {
  constexpr size_t kMost = 1 << 16;
  const size_t slash = path.find_last_of('/');
  const std::string name = (slash == std::string::npos ? "" : path.substr(0, slash + 1)) + "1_Pooling/config.json";
  std::ifstream in(name, std::ios::binary);
  if (!in) return {};
  std::string text(kMost + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  const Node config = Node::parse(text, name, kMost);
  std::optional<int64_t> pooling;
  for (const auto& [mode, number] : {std::pair("pooling_mode_mean_tokens", 1), std::pair("pooling_mode_cls_token", 2),
                                     std::pair("pooling_mode_lasttoken", 3)}) {
    if (!config[mode].truth(false)) continue;
    if (pooling) config[mode].fail("is one of several ways to pool, which is not implemented");
    pooling = number;
  }
  if (!pooling) config.fail("pools in a way that is not implemented");
  return pooling;
}

void add_settings_of_texts(const Beside& files, const std::string& path, int64_t vocabulary, bool whole,
                           ModelDescription& model) {
  FolderSettings settings = read_folder_settings(files);
  if (!settings.chat_template.empty()) model.metadata["tokenizer.chat_template"] = std::move(settings.chat_template);
  if (!settings.tools_template.empty())
    model.metadata["tokenizer.chat_template.tool_use"] = std::move(settings.tools_template);
  if (!settings.ends.empty()) model.metadata["huggingface.eos_token_ids"] = std::move(settings.ends);
  if (!whole) return;
  if (const auto tokenizer = read_folder_tokenizer(files, path, vocabulary)) {
    const auto kept = std::make_shared<std::vector<std::vector<std::string>>>();
    kept->reserve(4);  // no reallocation: views refer to the elements
    add_tokenizer_metadata(*tokenizer, path, model.metadata, *kept);
    model.keep = kept;
  }
}

// Returns configuration and tensors unchanged, for a caller with a description of the model.
ModelDescription described(const OtherModel& other, const ImportSource& source, const Arguments& options) {
  ModelDescription model;
  model.metadata["general.architecture"] = std::string("ndsl");
  if (!other.name.empty()) model.metadata[kClass] = other.name;
  model.metadata[kConfiguration] = std::string(source.bytes());
  if (!other.file.empty()) {
    const std::string_view text = source.beside(other.file).bytes;
    if (text.size() > kLongestConfig)
      refuse(source.path(), "is described by " + shown_name(other.file) + ", which has more than 1 MiB");
    model.metadata[kDescription] = std::string(text);
  }
  const bool weights = options.flag("weights");
  try {
    add_settings_of_texts(beside(source), source.path(), other.vocabulary, weights && options.flag("whole"), model);
  } catch (const Error& e) {  // the tokenizer may be given separately
    if (e.kind() != ErrorKind::Weights || !options.flag("whole")) throw;
    model.metadata[kNoTokenizer] = std::string(e.what());
  }
  if (!weights) return model;
  StoredWeights stored = read_weights(source);
  join_four_bits(stored, source);
  add_weights_as_they_lie(stored, model);
  return model;
}

}  // namespace

uint32_t Importer::probe(const FileStart& file) const {
  if (file.name != "config.json" || file.first.find('{') == std::string_view::npos) return HX_PROBE_NO;
  const bool named = file.first.find("\"architectures\"") != std::string_view::npos ||
                     file.first.find("\"model_type\"") != std::string_view::npos;
  return named ? HX_PROBE_LIKELY : HX_PROBE_NO;
}

ModelDescription Importer::open(const ImportSource& source, const Arguments& options) const {
  if (const auto other = other_model(source.bytes(), source.path())) return described(*other, source, options);
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
    add_settings_of_texts(beside(source), source.path(), 0, false, model);
    return model;
  }
  if (const auto types = model.metadata.find("@len:token_types.weight"); types != model.metadata.end()) {
    model.metadata["tokenizer.ggml.token_type_count"] = MetadataValue(types->second);
    model.metadata.erase(types);
    if (const auto pooling = pooling_of(source.path()))
      model.metadata[config.architecture->key("pooling_type")] = *pooling;
  }
  add_settings_of_texts(beside(source), source.path(), config.count("vocab_size", 0), options.flag("whole"), model);
  StoredWeights weights = read_weights(source);
  join_four_bits(weights, source);
  join_mxfp4(weights, source);
  add_weights(weights, config, source, options.flag("whole"), model);
  return model;
}

}  // namespace huggingface
