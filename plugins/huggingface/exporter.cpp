#include <algorithm>
#include <cstring>
#include <set>

#include <boost/json.hpp>

#include <harmonics/element_conversion.hpp>
#include <harmonics/element_type.hpp>

#include "exported_config.hpp"
#include "exported_tokenizer.hpp"
#include "formats/safetensors.hpp"
#include "formats/utf8.hpp"
#include "models.hpp"
#include "weights.hpp"

namespace huggingface {

using namespace harmonics;

namespace {

// A tensor of the folder: some rows of a GGUF tensor, possibly transformed.
struct Written {
  const TensorToWrite* from = nullptr;
  const TensorRow* row = nullptr;
  Shape shape;
  DType dtype = DType::F32;
  uint64_t offset = 0, bytes = 0;  // in `from`
};

std::string text_of(const MetadataMap& metadata, const std::string& key) {
  const auto at = metadata.find(key);
  const auto* text = at == metadata.end() ? nullptr : std::get_if<std::string>(&at->second);
  return text ? *text : "";
}

class Folder {
 public:
  explicit Folder(const ModelToWrite& model) : model_(model) {
    const std::string name = text_of(model.metadata, "general.architecture");
    architecture_ = find_architecture(name);
    if (!architecture_)
      throw Error(ErrorKind::Weights,
                  "a model of the architecture " + shown_name(name) + " cannot be written as a folder of Hugging Face")
          .note("known ones: " + known_architectures());
    permuted_ = text_of(model.metadata, architecture_->key("rope.pairing")) != "half";
    for (const TensorToWrite& tensor : model.tensors) add(tensor);
  }

  std::string config() const {
    bool tied = false;
    for (const TensorRow& row : architecture_->tensors) tied = tied || (!row.tied.empty() && !written_.count(row.hf));
    MetadataMap metadata = model_.metadata;
    for (const auto& [name, w] : written_)
      for (const auto& [stored, setting] : {std::pair("model.embed_tokens.weight", "vocab_size"),
                                            std::pair("embeddings.word_embeddings.weight", "vocab_size"),
                                            std::pair("embeddings.token_type_embeddings.weight", "type_vocab_size")})
        if (name == stored) metadata[architecture_->key(architecture_->find_row(setting)->key)] = w.shape[0];
    std::set<DType> types;
    for (const auto& [name, w] : written_)
      if (w.shape.rank() > 1) types.insert(w.dtype);
    const DType dtype = types.size() == 1 ? *types.begin() : DType::F32;
    return config_text(metadata, *architecture_, tied, factors_,
                       dtype == DType::F16    ? "float16"
                       : dtype == DType::BF16 ? "bfloat16"
                                              : "float32");
  }

  // Writes one file, or several with an index, each of at most `most` bytes unless one tensor is larger.
  void write(const ExportSink& sink, uint64_t most) const {
    std::vector<std::pair<std::string, uint64_t>> all;
    uint64_t total = 0;
    for (const auto& [name, w] : written_) {
      all.emplace_back(name, bytes_of(w));
      total += all.back().second;
    }
    json::object map;
    const std::vector<SafetensorsShard> shards = safetensors_shards(all, most);
    for (const SafetensorsShard& shard : shards) {
      for (const std::string& name : shard.tensors) map[name] = shard.file;
      write_file(sink, shard.file, shard.tensors);
    }
    if (shards.size() == 1) return;
    sink.next_file(harmonics::kFolderIndex);
    sink.write(json::serialize(
                   json::object{{"metadata", json::object{{"total_size", total}}}, {"weight_map", std::move(map)}}) +
               "\n");
  }

  void write_file(const ExportSink& sink, const std::string& file, const std::vector<std::string>& names) const {
    sink.next_file(file);
    SafetensorsHeader header;
    header.metadata["format"] = "pt";
    for (const std::string& name : names) {
      const Written& w = written_.at(name);
      const std::vector<int64_t>& dims = w.shape.vector();
      header.tensors.push_back({name, w.dtype, std::vector<uint64_t>(dims.begin(), dims.end()), 0, 0});
    }
    order_as_written(header.tensors);
    uint64_t end = 0;
    for (TensorEntry& entry : header.tensors) {
      entry.begin = end;
      entry.end = end += bytes_of(written_.at(entry.name));
    }
    sink.write(write_safetensors_header(header));
    for (const TensorEntry& entry : header.tensors) write(written_.at(entry.name), entry.name, sink);
  }

 private:
  [[noreturn]] static void refuse_tensor(const std::string& name, const std::string& what) {
    throw Error(ErrorKind::Weights, "the tensor " + shown_name(name) + " " + what);
  }

  void add(const TensorToWrite& tensor) {
    const std::string name(tensor.name);
    const bool is_factors = name == kRopeFactors || name == kShortFactors || name == kLongFactors;
    if (is_factors && tensor.dtype == DType::F32) {
      std::vector<float>& factors = factors_[name];
      factors.resize(tensor.bytes.size() / sizeof(float));
      if (!factors.empty()) std::memcpy(factors.data(), tensor.bytes.data(), factors.size() * sizeof(float));
      return;
    }
    std::string_view plain = name;
    int64_t expert = -1;  // "X[3]": one matrix of X
    if (const size_t open = plain.rfind('['); open != std::string_view::npos && plain.back() == ']') {
      expert = std::strtoll(name.c_str() + open + 1, nullptr, 10);
      plain = plain.substr(0, open);
    }
    for (const TensorRow& row : architecture_->tensors) {
      const auto at = match(row.name, plain);
      if (!at) continue;
      const DType dtype = is_stored(tensor.dtype) || row.add != 0 ? DType::F32 : tensor.dtype;
      if (!has_expert(row.hf) || expert >= 0) {
        put(filled(row.hf, {at->block, std::max(expert, int64_t{0})}),
            {&tensor, &row, tensor.shape, dtype, 0, tensor.bytes.size()});
        return;
      }
      if (tensor.shape.rank() != 3) refuse_tensor(name, "has no matrix for each expert");
      const uint64_t each = tensor.bytes.size() / static_cast<uint64_t>(std::max(tensor.shape[0], int64_t{1}));
      for (int64_t e = 0; e < tensor.shape[0]; ++e)
        put(filled(row.hf, {at->block, e}),
            {&tensor, &row, tensor.shape.from(1), dtype, static_cast<uint64_t>(e) * each, each});
      return;
    }
    refuse_tensor(name, "has no name in a folder of the architecture " + architecture_->name);
  }

  void put(const std::string& name, const Written& w) {
    if (!written_.emplace(name, w).second) refuse_tensor(name, "would be written twice");
  }

  static uint64_t bytes_of(const Written& w) {
    return w.dtype == w.from->dtype ? w.bytes : static_cast<uint64_t>(w.shape.count()) * sizeof(float);
  }

  void write(const Written& w, const std::string& name, const ExportSink& sink) const {
    std::string_view bytes = w.from->bytes.substr(w.offset, w.bytes);
    std::vector<float> values;
    if (w.dtype != w.from->dtype || w.row->add != 0) {
      if (!detail::find_conversion(w.from->dtype)) refuse_tensor(name, "is not a float");
      values.resize(static_cast<size_t>(w.shape.count()));
      decode_elements(w.from->dtype, bytes.data(), values.data(), w.shape.count());
      for (float& value : values) value -= static_cast<float>(w.row->add);
      bytes = {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
    }
    std::string permuted;
    if (permuted_ && !w.row->permute.empty()) {
      const auto rows = static_cast<uint64_t>(w.shape.rank() ? w.shape[0] : 0);
      const auto heads =
          static_cast<uint64_t>(std::max(0.0, number_of(model_.metadata, architecture_->key(w.row->permute), 0)));
      if (heads == 0 || rows % (2 * heads) != 0) refuse_tensor(name, "has rows that are not pairs of all heads");
      permuted.resize(bytes.size());
      interleave_rows(bytes.data(), permuted.data(), bytes.size(), rows, heads, true);
      bytes = permuted;
    }
    sink.write(bytes);
  }

  const ModelToWrite& model_;
  const Architecture* architecture_ = nullptr;
  bool permuted_ = true;
  std::map<std::string, Written> written_;
  std::map<std::string, std::vector<float>> factors_;
};

}  // namespace

void Exporter::write(const ModelToWrite& model, const Arguments& options, const ExportSink& sink) const {
  const Folder folder(model);
  const auto files = tokenizer_files(model.metadata);  // rejects an unsupported tokenizer before anything is written
  sink.write(folder.config());
  folder.write(sink, static_cast<uint64_t>(options.integer("shard-bytes", kShardBytes)));
  for (const auto& [name, text] : files) {
    sink.next_file(name);
    sink.write(text);
  }
}

}  // namespace huggingface
