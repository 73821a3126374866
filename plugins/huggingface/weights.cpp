#include "weights.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include <harmonics/element_conversion.hpp>
#include <harmonics/element_type.hpp>

#include "formats/safetensors.hpp"
#include "formats/utf8.hpp"
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
    if (config.tied && !row.tied.empty()) continue;
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
    const bool narrow = weight.shape.size() == 1 && (weight.dtype == DType::F16 || weight.dtype == DType::BF16);
    if (has_expert(row.hf)) {
      if (whole) return stack(name, mapped);
      for (const auto& [e, stored] : mapped.parts) as_it_is(name + "[" + std::to_string(e) + "]", stored);
    } else if (row.add != 0 || narrow) {
      widen(name, first, static_cast<float>(row.add));
    } else if (whole && !row.permute.empty()) {
      permute(name, first, config_.count(row.permute.c_str(), 0));
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

  void permute(const std::string& name, const std::string& stored, int64_t heads) {
    const StoredWeight& weight = weights_.at(stored);
    const uint64_t rows = weight.shape.empty() ? 0 : weight.shape[0],
                   n = static_cast<uint64_t>(std::max(heads, int64_t{0}));
    if (n == 0 || rows % (2 * n) != 0)
      refuse(source_.path(), "has the tensor " + both(stored, name) + " of " + std::to_string(rows) + " rows, and " +
                                 std::to_string(heads) + " heads need pairs of rows");
    char* to = room(name, weight.dtype, shape_of(weight), weight.bytes.size(), stored);
    interleave_rows(weight.bytes.data(), to, weight.bytes.size(), rows, n, false);
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

void interleave_rows(const char* from, char* to, uint64_t bytes, uint64_t rows, uint64_t heads, bool backwards) {
  const uint64_t row = bytes / rows, half = rows / heads / 2;
  for (uint64_t head = 0; head < heads; ++head)
    for (uint64_t pair = 0; pair < half; ++pair)
      for (uint64_t side = 0; side < 2; ++side) {
        const uint64_t apart = (head * 2 + side) * half + pair, together = (head * half + pair) * 2 + side;
        std::memcpy(to + (backwards ? apart : together) * row, from + (backwards ? together : apart) * row, row);
      }
}

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
    for (const TensorRow& row : a.tensors) {
      const auto at = match(row.hf, name);
      if (!at) continue;
      if (at->block >= config.count("block_count", 0) && has_block(row.hf)) return false;
      if (has_expert(row.hf) && at->expert >= config.count("expert_count", 0)) return false;
      if (config.tied && !row.tied.empty()) return true;  // a copy of the tied tensor
      MappedWeight& weight = mapped[filled(row.name, *at)];
      weight.row = &row;
      weight.parts.emplace(at->expert, stored);
      return true;
    }
    return std::any_of(a.ignored.begin(), a.ignored.end(),
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
