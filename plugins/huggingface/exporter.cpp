#include <algorithm>
#include <cstring>
#include <set>

#include <boost/json.hpp>

#include <harmonics/element_conversion.hpp>
#include <harmonics/element_type.hpp>
#include <harmonics/quantity.hpp>

#include "exported_config.hpp"
#include "exported_tokenizer.hpp"
#include "formats/safetensors.hpp"
#include "formats/utf8.hpp"
#include "models.hpp"
#include "mxfp4.hpp"
#include "row_order.hpp"
#include "weights.hpp"

namespace huggingface {

using namespace harmonics;

namespace {

// A matrix, or the bias of a matrix, in a tensor of GGUF.
struct Piece {
  const TensorToWrite* from = nullptr;
  const TensorRow* row = nullptr;
  Shape shape;
  uint64_t offset = 0, bytes = 0;  // in `from`
};

enum class Form { elements, codes, scales };  // the last two: of mxfp4

// A tensor of the folder: one matrix, the two halves of one, or as many of each expert.
struct Written {
  std::map<std::pair<int64_t, Half>, Piece> pieces;  // by expert
  Shape shape;
  DType dtype = DType::F32;
  Form form = Form::elements;
  int64_t experts = 0;  // 0: not a stack

  const TensorRow& row() const { return *pieces.begin()->second.row; }
};

std::string text_of(const MetadataMap& metadata, const std::string& key) {
  const auto at = metadata.find(key);
  const auto* text = at == metadata.end() ? nullptr : std::get_if<std::string>(&at->second);
  return text ? *text : "";
}

// Returns the metadata with the values that GGUF files may leave out: the defaults of config.json differ.
MetadataMap completed(MetadataMap metadata, const Architecture& a) {
  const auto add = [&](const char* key, MetadataValue value) {
    const auto is = [&](const MetadataRow& row) { return row.key == key; };
    if (std::any_of(a.metadata.begin(), a.metadata.end(), is)) metadata.emplace(a.key(key), std::move(value));
  };
  add("rope.freq_base", 10000.0);
  const double heads = number_of(metadata, a.key("attention.head_count"), 0);
  if (heads < 1) return metadata;
  add("attention.head_count_kv", static_cast<int64_t>(heads));
  add("attention.key_length", static_cast<int64_t>(number_of(metadata, a.key("embedding_length"), 0) / heads));
  return metadata;
}

class Folder {
 public:
  explicit Folder(const ModelToWrite& model) : model_(model) {
    const std::string name = text_of(model.metadata, "general.architecture");
    architecture_ = find_architecture(name, number_of(model.metadata, name + ".expert_count", 0) > 0);
    if (!architecture_)
      throw Error(ErrorKind::Weights,
                  "a model of the architecture " + shown_name(name) + " cannot be written as a folder of Hugging Face")
          .note("known ones: " + known_architectures());
    metadata_ = completed(model.metadata, *architecture_);
    permuted_ = text_of(model.metadata, architecture_->key("rope.pairing")) != "half";
    for (const TensorToWrite& tensor : model.tensors) add(tensor);
    for (auto& [name, w] : written_) finish(name, w);
    divide_blocks();
  }

  std::string config() const {
    bool tied = false;
    for (const TensorRow& row : architecture_->tensors) tied = tied || (!row.tied.empty() && !written_.count(row.hf));
    MetadataMap metadata = metadata_;
    for (const auto& [name, w] : written_)
      for (const auto& [tensor, setting] :
           {std::pair("token_embd.weight", "vocab_size"), std::pair("token_types.weight", "type_vocab_size")})
        if (const MetadataRow* row = architecture_->find_row(setting); row && w.row().name == tensor)
          metadata[architecture_->key(row->key)] = w.shape[0];
    std::set<DType> types;
    bool blocks = false;
    for (const auto& [name, w] : written_) {
      blocks = blocks || w.form == Form::codes;
      if (w.shape.rank() > 1 && !w.row().is_bias() && w.form == Form::elements) types.insert(w.dtype);
    }
    const DType dtype = types.size() == 1 ? *types.begin() : DType::F32;
    return config_text(metadata, *architecture_,
                       {tied, blocks, switches(), factors_,
                        dtype == DType::F16    ? "float16"
                        : dtype == DType::BF16 ? "bfloat16"
                                               : "float32"});
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
      if (!row.is_stack() || expert >= 0) {
        put(row, *at, std::max(expert, int64_t{0}), {&tensor, &row, tensor.shape, 0, tensor.bytes.size()}, name);
        return;
      }
      if (tensor.shape.rank() != (row.is_bias() ? 2u : 3u)) refuse_tensor(name, "has no matrix for each expert");
      const uint64_t each = tensor.bytes.size() / static_cast<uint64_t>(std::max(tensor.shape[0], int64_t{1}));
      for (int64_t e = 0; e < tensor.shape[0]; ++e)
        put(row, *at, e, {&tensor, &row, tensor.shape.from(1), static_cast<uint64_t>(e) * each, each}, name);
      return;
    }
    refuse_tensor(name, "has no name in a folder of the architecture " + architecture_->name);
  }

  void put(const TensorRow& row, Place place, int64_t expert, const Piece& piece, const std::string& name) {
    place.expert = expert;
    Written& w = written_[filled(row.hf, place)];
    const bool stack = row.is_stack() && !has_expert(row.hf);
    if (stack) w.experts = std::max(w.experts, expert + 1);
    if (!w.pieces.emplace(std::pair(stack ? expert : 0, row.half), piece).second)
      refuse_tensor(name, "would be written twice");
  }

  // Sets type and shape.
  void finish(const std::string& name, Written& w) const {
    const Piece& first = w.pieces.begin()->second;
    const size_t halves = first.row->half == Half::whole ? 1 : 2;
    if (w.pieces.size() != halves * static_cast<size_t>(std::max(w.experts, int64_t{1})))
      refuse_tensor(name, "would lack parts: the model has " + quantity(w.pieces.size(), "part") + " of it");
    w.dtype = first.from->dtype;
    bool blocks = w.experts > 0 && first.row->transposed;
    for (const auto& [key, piece] : w.pieces) {
      if (piece.shape != first.shape) refuse_tensor(name, "would consist of parts of different shapes");
      blocks = blocks && piece.from->dtype == DType::MXFP4;
      if (is_stored(piece.from->dtype) || piece.row->add != 0 || piece.from->dtype != w.dtype) w.dtype = DType::F32;
    }
    std::vector<int64_t> shape = first.shape.vector();
    const size_t sides = first.row->is_bias() ? 1 : 2;
    if (halves == 2 || first.row->transposed || w.experts > 0) {
      if (shape.size() != sides) refuse_tensor(name, "would have the shape " + first.shape.str());
      shape[0] *= static_cast<int64_t>(halves);
      if (blocks) {
        w.form = Form::codes;
      } else if (first.row->transposed && sides == 2) {
        std::swap(shape[0], shape[1]);
      }
      if (w.experts > 0) shape.insert(shape.begin(), w.experts);
    }
    w.shape = Shape(shape);
  }

  // Divides tensors of mxfp4 into their two tensors of the folder.
  void divide_blocks() {
    std::map<std::string, Written> parts;
    for (auto at = written_.begin(); at != written_.end();) {
      if (at->second.form == Form::elements) {
        ++at;
        continue;
      }
      Written w = std::move(at->second);
      std::vector<int64_t> shape = w.shape.vector();
      shape.back() /= static_cast<int64_t>(2 * kCodesOfBlock);
      w.dtype = DType::U8, w.form = Form::scales, w.shape = Shape(shape);
      parts[at->first + kScales] = w;
      shape.push_back(kCodesOfBlock);
      w.form = Form::codes, w.shape = Shape(shape);
      parts[at->first + kBlocks] = std::move(w);
      at = written_.erase(at);
    }
    written_.merge(parts);
  }

  // Returns the settings by which tensors exist. Of those of one setting, a model has all or none.
  std::map<std::string, bool> switches() const {
    std::map<std::string, bool> on;
    std::set<std::string> patterns;
    for (const auto& [name, w] : written_)
      for (const auto& [key, piece] : w.pieces) patterns.insert(piece.row->hf);
    for (const TensorRow& row : architecture_->tensors) {
      if (row.when.empty()) continue;
      const auto [at, added] = on.emplace(row.when, patterns.count(row.hf) != 0);
      if (!added && at->second != (patterns.count(row.hf) != 0))
        refuse_tensor(row.name, "is in a model without others of the setting " + row.when + ", or the reverse");
    }
    return on;
  }

  static uint64_t bytes_of(const Written& w) {
    return static_cast<uint64_t>(w.shape.count()) * element_type(w.dtype).block_bytes;  // not a type of blocks
  }

  RowOrder order_of(const TensorRow& row, const Shape& piece, const std::string& name, Form form) const {
    TensorRow how = row;
    if (!permuted_) how.permute.clear();
    if (row.is_bias() || form != Form::elements) how.transposed = false;
    const std::string& key = how.permute.empty() ? how.by_head : how.permute;
    const double heads = key.empty() ? 0 : number_of(metadata_, architecture_->key(key), 0);
    const auto rows = static_cast<uint64_t>(piece.rank() ? piece[0] : 1) * (row.half == Half::whole ? 1 : 2);
    return row_order(how, rows, static_cast<uint64_t>(std::max(0.0, heads)),
                     [&](const std::string& why) { refuse_tensor(name, "has " + quantity(rows, "row") + ", " + why); });
  }

  // Writes matrix by matrix.
  void write(const Written& w, const std::string& name, const ExportSink& sink) const {
    const auto last = std::prev(w.pieces.end())->first.first;
    for (int64_t e = 0; e <= last; ++e) {
      std::string all;  // the matrix, if its parts or its rows move
      for (auto at = w.pieces.lower_bound({e, Half::whole}); at != w.pieces.end() && at->first.first == e; ++at)
        write_piece(w, at->second, name, sink, all);
      sink.write(all);
    }
  }

  void write_piece(const Written& w, const Piece& piece, const std::string& name, const ExportSink& sink,
                   std::string& all) const {
    std::string_view bytes = piece.from->bytes.substr(piece.offset, piece.bytes);
    const RowOrder order = order_of(*piece.row, piece.shape, name, w.form);
    const uint64_t columns = piece.shape.rank() > 1 ? static_cast<uint64_t>(piece.shape.from(1).count()) : 1;
    std::vector<float> values;
    std::string parted;
    if (w.form != Form::elements) {
      const uint64_t blocks = bytes.size() / (kCodesOfBlock + 1);
      std::string codes(blocks * kCodesOfBlock, '\0'), scales(blocks, '\0');
      part_blocks(bytes.data(), blocks, codes.data(), scales.data());
      parted = w.form == Form::codes ? std::move(codes) : std::move(scales);
      bytes = parted;
    } else if (w.dtype != piece.from->dtype || piece.row->add != 0) {
      if (!detail::find_conversion(piece.from->dtype)) refuse_tensor(name, "is not a float");
      values.resize(static_cast<size_t>(piece.shape.count()));
      decode_elements(piece.from->dtype, bytes.data(), values.data(), piece.shape.count());
      for (float& value : values) value -= static_cast<float>(piece.row->add);
      bytes = {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
    }
    if (order.same()) return sink.write(bytes);
    const uint64_t row = order.rows.empty() ? 0 : bytes.size() / order.rows.size();
    all.resize(row * order.folder_rows);
    write_rows(order, bytes.data(), all.data(), row, columns);
  }

  const ModelToWrite& model_;
  MetadataMap metadata_;
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
