#include "weights.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include <harmonics/element_conversion.hpp>
#include <harmonics/element_type.hpp>
#include <harmonics/quantity.hpp>

#include "formats/safetensors.hpp"
#include "formats/utf8.hpp"
#include "mxfp4.hpp"
#include "row_order.hpp"
#include "tokenizer_files.hpp"

namespace huggingface {

using namespace harmonics;

namespace {

constexpr size_t kLongestIndex = 64 << 20;
constexpr size_t kListed = 8;  // maximum number of names in a message
constexpr int64_t kMostBlocks = 100'000;

void add_file(const ImportSource& source, const std::string& name, StoredWeights& to) {
  const ImportSource::File file = source.beside(name);
  const SafetensorsHeader header =
      read_safetensors_header(file.bytes.data(), file.bytes.size(), {name, ErrorKind::Weights});
  for (const TensorEntry& t : header.tensors) {
    StoredWeight weight{t.dtype, t.shape, header.data_offset + t.begin, file.index, {}};
    weight.bytes = file.bytes.substr(weight.offset, t.end - t.begin);
    if (!to.emplace(t.name, weight).second)
      refuse(source.path(), "has the tensor " + shown_name(t.name) + " in two files", "copy the folder again");
  }
}

Node index_of(const ImportSource& source) {
  return Node::parse(source.beside(harmonics::kFolderIndex).bytes, harmonics::kFolderIndex,
                     kLongestIndex)["weight_map"];
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kListed; ++i) text += (i ? ", " : "") + names[i];
  return text + (names.size() > kListed ? " and " + std::to_string(names.size() - kListed) + " more" : "");
}

std::string both(const std::string& stored, const std::string& name) {
  return shown_name(stored) + " (" + shown_name(name) + " of GGUF)";
}

void expect_all(const std::map<std::string, MappedWeight>& mapped, const Config& config, const std::string& path) {
  const int64_t blocks = config.count("block_count", 0), experts = config.count("expert_count", 0);
  if (blocks < 0 || blocks > kMostBlocks || experts < 0 || experts > kMostBlocks)
    refuse(path, "has " + std::to_string(blocks) + " blocks of " + std::to_string(experts) + " experts");
  std::vector<std::string> missing;
  for (const TensorRow& row : config.architecture->tensors) {
    if ((config.tied && !row.tied.empty()) || !config.has(row)) continue;
    for (int64_t block = 0; block < (has_block(row.name) ? blocks : 1); ++block) {
      const std::string name = filled(row.name, {block, 0});
      const auto at = mapped.find(name);
      for (int64_t e = 0; e < (has_expert(row.hf) ? experts : 1); ++e)
        if (at == mapped.end() || !at->second.parts.count(e)) missing.push_back(both(filled(row.hf, {block, e}), name));
    }
  }
  if (!missing.empty())
    refuse(path, "lacks " + std::string(missing.size() == 1 ? "the tensor " : "the tensors ") + listed(missing),
           "copy the folder again, all of its files");
}

Shape shape_of(const StoredWeight& weight) {
  return Shape(std::vector<int64_t>(weight.shape.begin(), weight.shape.end()));
}

class Adding {
 public:
  Adding(const StoredWeights& weights, const Config& config, const ImportSource& source, ModelDescription& model)
      : weights_(weights), config_(config), source_(source), model_(model) {}

  void add(const std::string& name, const MappedWeight& mapped, bool whole) {
    const TensorRow& row = *mapped.row;
    const std::string& first = mapped.parts.begin()->second;
    const StoredWeight& weight = weights_.at(first);
    const bool is_vector = weight.shape.size() == 1 || row.is_bias();
    const bool narrow = is_vector && (weight.dtype == DType::F16 || weight.dtype == DType::BF16);
    if (has_expert(row.hf)) {
      if (!weight.scales.empty())
        refuse(source_.path(), "has the tensor " + both(first, name) +
                                   " in blocks, which are implemented for all experts "
                                   "in one tensor");
      if (whole) return stack(name, mapped);
      for (const auto& [e, stored] : mapped.parts) as_it_is(name + "[" + std::to_string(e) + "]", stored);
    } else if (!weight.scales.empty() || row.half != Half::whole || row.transposed || !row.by_head.empty() ||
               (whole && !row.permute.empty())) {
      rearrange(name, first, row, whole);
    } else if (row.add != 0 || narrow) {
      widen(name, first, static_cast<float>(row.add));
    } else {
      as_it_is(name, first);
    }
  }

  void computed(const std::string& name, const std::vector<float>& values) {
    const auto bytes = values.size() * sizeof(float);
    std::memcpy(room(name, DType::F32, Shape{static_cast<int64_t>(values.size())}, bytes, ""), values.data(), bytes);
  }

 private:
  void as_it_is(const std::string& name, const std::string& stored) {
    const StoredWeight& weight = weights_.at(stored);
    model_.tensors.push_back(
        {name, weight.dtype, shape_of(weight), weight.offset, weight.bytes.size(), weight.file, stored});
  }

  char* room(const std::string& name, DType dtype, const Shape& shape, uint64_t bytes, const std::string& stored) {
    const ImportSource::Memory memory = source_.memory(bytes);
    model_.tensors.push_back({name, dtype, shape, 0, bytes, memory.index, stored});
    return memory.data;
  }

  void widen(const std::string& name, const std::string& stored, float more) {
    const StoredWeight& weight = weights_.at(stored);
    if (!detail::find_conversion(weight.dtype))
      refuse(source_.path(), "has the tensor " + both(stored, name) + " as " +
                                 std::string(element_type(weight.dtype).name) + ", which is not a float");
    const Shape shape = shape_of(weight);
    const int64_t count = shape.count();
    std::vector<float> values(static_cast<size_t>(count));
    decode_elements(weight.dtype, weight.bytes.data(), values.data(), count);
    for (float& value : values) value += more;
    const uint64_t bytes = values.size() * sizeof(float);
    char* to = room(name, DType::F32, shape, bytes, stored);
    if (bytes) std::memcpy(to, values.data(), bytes);
  }

  // Adds some rows of each matrix, or all in another order.
  void rearrange(const std::string& name, const std::string& stored, const TensorRow& row, bool whole) {
    const StoredWeight& weight = weights_.at(stored);
    const auto fail = [&](const std::string& what) {
      refuse(source_.path(), "has the tensor " + both(stored, name) + " " + what);
    };
    const size_t rank = weight.shape.size(), sides = row.is_bias() ? 1 : 2;
    if (rank != sides + (row.is_stack() ? 1 : 0)) fail("of shape " + shape_of(weight).str());
    std::vector<int64_t> shape = shape_of(weight).vector();
    TensorRow how = row;
    if (!weight.scales.empty() || row.is_bias()) how.transposed = false;  // blocks lie along a row of GGUF's
    if (how.transposed) std::swap(shape[rank - 2], shape[rank - 1]);
    const uint64_t matrices = row.is_stack() ? weight.shape[0] : 1;
    const auto rows = static_cast<uint64_t>(shape[rank - sides]),
               columns = row.is_bias() ? uint64_t{1} : static_cast<uint64_t>(shape[rank - 1]);
    if (matrices == 0 || rows == 0 || columns == 0) fail("of shape " + shape_of(weight).str());
    const std::string& key = row.permute.empty() ? row.by_head : row.permute;
    const auto heads = key.empty() ? 0 : static_cast<uint64_t>(std::max(config_.count(key.c_str(), 0), int64_t{0}));
    const RowOrder order =
        row_order(how, rows, heads, [&](const std::string& why) { fail("of " + quantity(rows, "row") + ", " + why); });
    shape[rank - sides] = static_cast<int64_t>(order.rows.size());
    const uint64_t bytes = weight.bytes.size() / matrices / rows, taken = order.rows.size() * bytes;
    if (!whole && row.is_stack() && !how.transposed && weight.scales.empty() &&
        (row.half == Half::first || row.half == Half::second)) {  // contiguous rows stay where they are
      for (uint64_t e = 0; e < matrices; ++e)
        model_.tensors.push_back({name + "[" + std::to_string(e) + "]", weight.dtype,
                                  Shape(std::vector<int64_t>(shape.begin() + 1, shape.end())),
                                  weight.offset + (e * rows + order.rows.front()) * bytes, taken, weight.file, stored});
      return;
    }
    if (how.transposed && element_type(weight.dtype).block != 1)
      fail("in blocks of the type " + std::string(element_type(weight.dtype).name) + ", which cannot be transposed");
    if (!weight.scales.empty()) {
      const uint64_t blocks = bytes / kCodesOfBlock, whole_row = blocks * element_type(weight.dtype).block_bytes;
      char* to = room(name, weight.dtype, Shape(shape), matrices * order.rows.size() * whole_row, stored);
      for (uint64_t e = 0; e < matrices; ++e)
        for (const uint64_t from : order.rows) {
          join_blocks(weight.bytes.data() + (e * rows + from) * bytes,
                      weight.scales.data() + (e * rows + from) * blocks, blocks, to);
          to += whole_row;
        }
      return;
    }
    std::vector<char> read;
    const bool widened = row.is_bias() && weight.dtype != DType::F32;
    if (widened && !detail::find_conversion(weight.dtype)) fail("which is not a float");
    if (widened) read.resize(matrices * taken);
    const auto elements = static_cast<int64_t>(matrices * order.rows.size() * columns);
    char* to = room(name, widened ? DType::F32 : weight.dtype, Shape(shape),
                    widened ? static_cast<uint64_t>(elements) * sizeof(float) : matrices * taken, stored);
    for (uint64_t e = 0; e < matrices; ++e)
      read_rows(order, weight.bytes.data() + e * rows * bytes, (widened ? read.data() : to) + e * taken, bytes,
                columns);
    if (widened) decode_elements(weight.dtype, read.data(), reinterpret_cast<float*>(to), elements);
  }

  void stack(const std::string& name, const MappedWeight& mapped) {
    const StoredWeight& first = weights_.at(mapped.parts.begin()->second);
    std::vector<int64_t> shape(first.shape.begin(), first.shape.end());
    shape.insert(shape.begin(), static_cast<int64_t>(mapped.parts.size()));
    for (const auto& [e, stored] : mapped.parts)
      if (weights_.at(stored).shape != first.shape || weights_.at(stored).dtype != first.dtype)
        refuse(source_.path(), "has the tensor " + both(stored, name) + " of another type than the first expert's");
    char* to = room(name, first.dtype, Shape(shape), first.bytes.size() * mapped.parts.size(), name);
    for (const auto& [e, stored] : mapped.parts)
      std::memcpy(to + static_cast<size_t>(e) * first.bytes.size(), weights_.at(stored).bytes.data(),
                  first.bytes.size());
  }

  const StoredWeights& weights_;
  const Config& config_;
  const ImportSource& source_;
  ModelDescription& model_;
};

}  // namespace

StoredWeights read_weights(const ImportSource& source) {
  StoredWeights weights;
  try {
    add_file(source, harmonics::kFolderWeights, weights);
    return weights;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::NoInput) throw;
  }
  Node map;
  try {
    map = index_of(source);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::NoInput) throw;
    Error missing(ErrorKind::NoInput, std::string("beside '") + source.path() + "' there is neither " +
                                          harmonics::kFolderWeights + " nor " + harmonics::kFolderIndex);
    missing.note("weights are read from safetensors files");
    for (const char* pickled : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
      if (beside(source)(pickled))
        missing.note(std::string("the folder has ") + pickled +
                     "; to convert it, in Python: transformers.AutoModelForCausalLM.from_pretrained(FOLDER)"
                     ".save_pretrained(FOLDER)");
    throw missing;
  }
  std::set<std::string> files;
  for (const auto& [name, file] : map.entries()) files.emplace(file.text());
  for (const std::string& file : files) add_file(source, file, weights);
  std::vector<std::string> absent;
  for (const auto& [name, file] : map.entries())
    if (!weights.count(std::string(name))) absent.push_back(shown_name(std::string(name)));
  if (!absent.empty())
    refuse(source.path(), "has tensors in its index and not in its files: " + listed(absent), "copy the folder again");
  return weights;
}

std::vector<std::string> indexed_names(const ImportSource& source) {
  std::vector<std::string> names;
  try {
    for (const auto& [name, file] : index_of(source).entries()) names.emplace_back(name);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::NoInput) throw;
  }
  join_names_of_blocks(names);
  return names;
}

std::map<std::string, MappedWeight> map_weights(const std::vector<std::string>& names, const Config& config,
                                                const std::string& path) {
  const Architecture& a = *config.architecture;
  std::map<std::string, MappedWeight> mapped;
  std::vector<std::string> surplus;
  const auto place = [&](const std::string& stored) {
    std::string_view name = stored;
    if (!a.prefix.empty() && name.starts_with(a.prefix)) name.remove_prefix(a.prefix.size());
    bool found = false;  // of more than one row, if each takes a part
    for (const TensorRow& row : a.tensors) {
      const auto at = config.has(row) ? match(row.hf, name) : std::nullopt;
      if (!at) continue;
      if (at->block >= config.count("block_count", 0) && has_block(row.hf)) return false;
      if (has_expert(row.hf) && at->expert >= config.count("expert_count", 0)) return false;
      if (config.tied && !row.tied.empty()) return true;  // a copy of the tied tensor
      MappedWeight& weight = mapped[filled(row.name, *at)];
      weight.row = &row;
      weight.parts.emplace(at->expert, stored);
      found = true;
    }
    return found || std::any_of(a.ignored.begin(), a.ignored.end(),
                                [&](const std::string& pattern) { return match(pattern, name).has_value(); });
  };
  for (const std::string& stored : names)
    if (!place(stored)) surplus.push_back(shown_name(stored));
  expect_all(mapped, config, path);
  if (!surplus.empty())
    refuse(path,
           "has " + std::string(surplus.size() == 1 ? "the tensor " : "the tensors ") + listed(surplus) +
               ", which a model of the architecture " + a.name + " does not compute with",
           "remove them if they change no result");
  return mapped;
}

void add_weights_as_they_lie(const StoredWeights& weights, ModelDescription& model) {
  for (const auto& [name, weight] : weights)
    model.tensors.push_back({name, weight.dtype, shape_of(weight), weight.offset, weight.bytes.size(), weight.file});
}

void add_weights(const StoredWeights& weights, const Config& config, const ImportSource& source, bool whole,
                 ModelDescription& model) {
  std::vector<std::string> names;
  for (const auto& [name, weight] : weights) names.push_back(name);
  Adding adding(weights, config, source, model);
  for (const auto& [name, mapped] : map_weights(names, config, source.path())) {
    adding.add(name, mapped, whole);
    if (!whole && !mapped.row->permute.empty())
      model.metadata[config.architecture->key("rope.pairing")] = std::string("half");
  }
  for (const auto& [tensor, factors] : config.rope_factors) adding.computed(tensor, factors);
}

}  // namespace huggingface
