#include "importer.hpp"

#include "formats/utf8.hpp"

namespace gguf {

using namespace harmonics;

namespace {

constexpr uint64_t kLongestList = 4096;
constexpr uint64_t kMostParts = 1000;

[[noreturn]] void refuse(const std::string& path, const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::Weights, "'" + path + "' " + what).note(remedy);
}

std::string known_types() {
  std::string names;
  for (uint32_t number = 0; number < 64; ++number)
    if (const GgufType* type = find_gguf_type(number); type && dtype_of(*type))
      names += (names.empty() ? "" : ", ") + std::string(type->name);
  return names;
}

void add_tensors(const GgufFile& file, const std::string& path, uint32_t index, ModelDescription& model) {
  for (const GgufTensor& tensor : file.tensors) {
    const auto dtype = dtype_of(*tensor.type);
    if (!dtype)
      refuse(path,
             "has the tensor " + shown_name(std::string(tensor.name)) + " in the type " +
                 std::string(tensor.type->name) + ", which cannot be computed with",
             "convert the model to one of " + known_types());
    std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end());
    model.tensors.push_back({std::string(tensor.name), *dtype, Shape(shape), tensor.offset, tensor.bytes, index});
  }
}

uint64_t count_of(const GgufFile& file, const char* key) {
  const GgufValue* value = file.find(key);
  const auto count = value ? value->integer() : std::nullopt;
  return count && *count > 0 ? static_cast<uint64_t>(*count) : 0;
}

// Adds the other parts of a model that is stored in several files. `first` is the open one.
void add_parts(const GgufFile& first, const ImportSource& source, uint64_t parts, ModelDescription& model) {
  const std::string path = source.path();
  const std::string name = path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
  if (parts > kMostParts)
    refuse(path, "says that it is one of " + std::to_string(parts) + " parts; the limit is 1000",
           "fetch the file again");
  if (count_of(first, "split.no") != 0)
    refuse(path, "is part " + std::to_string(count_of(first, "split.no") + 1) + " of " + std::to_string(parts),
           "open the first part");
  for (uint64_t part = 1; part < parts; ++part) {
    const auto wanted = gguf_part_name(name, part, parts);
    if (!wanted)
      refuse(path, "is the first of " + std::to_string(parts) + " parts, but its name does not determine the others",
             "name it like 'model-00001-of-0000" + std::to_string(parts) + ".gguf'");
    const ImportSource::File beside = source.beside(*wanted);
    const GgufFile file = read_gguf(beside.bytes, {*wanted, ErrorKind::Weights});
    if (count_of(file, "split.no") != part || count_of(file, "split.count") != parts)
      refuse(*wanted, "is not part " + std::to_string(part + 1) + " of " + std::to_string(parts),
             "put the parts of one model into one folder");
    add_tensors(file, *wanted, beside.index, model);
  }
  const uint64_t tensors = count_of(first, "split.tensors.count");
  if (tensors && tensors != model.tensors.size())
    refuse(path,
           "has " + std::to_string(model.tensors.size()) + " tensors in its " + std::to_string(parts) +
               " parts; the first says " + std::to_string(tensors),
           "put the parts of one model into one folder");
}

std::vector<std::string_view> checked(std::vector<std::string_view> texts, const std::string& path,
                                      const std::string& key) {
  for (size_t i = 0; i < texts.size(); ++i)
    if (find_invalid_utf8(texts[i]))
      refuse(path, "has the metadata " + shown_name(key) + " whose item " + std::to_string(i) + " is not UTF-8",
             "convert the model again");
  return texts;
}

}  // namespace

MetadataMap metadata_of(const GgufFile& file, const std::string& path, bool whole) {
  MetadataMap all;
  for (const auto& [key, value] : file.metadata) {
    const std::string name(key);
    if (const auto truth = value.truth()) {
      all[name] = *truth;
    } else if (const auto integer = value.integer()) {
      all[name] = *integer;
    } else if (const auto number = value.number()) {
      all[name] = *number;
    } else if (const auto text = value.text()) {
      if (find_invalid_utf8(*text) || text->find('\0') != std::string_view::npos)
        refuse(path, "has the metadata " + shown_name(name) + ", which is not a string", "convert the model again");
      all[name] = std::string(*text);
    } else {
      const bool wanted = whole || value.size() <= kLongestList;
      auto integers = wanted ? value.integers() : std::nullopt;
      auto numbers = wanted && !integers ? value.numbers() : std::nullopt;
      if (integers)
        all[name] = std::move(*integers);
      else if (numbers)
        all[name] = std::move(*numbers);
      else if (auto texts = whole ? value.texts() : std::nullopt)
        all[name] = checked(std::move(*texts), path, name);
      else if (whole)
        refuse(path, "has the metadata " + shown_name(name) + ", a list of " + std::string(name_of(value.items())),
               "only lists of numbers and lists of strings can be converted");
      else if (value.kind() == GgufKind::List)
        all["@len:" + name] = static_cast<int64_t>(value.size());
    }
  }
  return all;
}

ModelDescription Importer::open(const ImportSource& source, const Arguments& options) const {
  const GgufFile file = read_gguf(source.bytes(), {source.path(), ErrorKind::Weights});
  ModelDescription model;
  model.metadata = metadata_of(file, source.path(), options.flag("whole"));
  add_tensors(file, source.path(), 0, model);
  if (const uint64_t parts = count_of(file, "split.count"); parts > 1) add_parts(file, source, parts, model);
  return model;
}

}  // namespace gguf
