// Models in file formats of other programs, read by importers of plugins: metadata, and tensors as views of the mapped
// file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/file.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/tensor/attributes.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

// Metadata of a model file. Keys are those of GGUF: "llama.block_count".
class ModelMetadata {
 public:
  ModelMetadata() = default;
  ModelMetadata(std::string path, AttributeMap values) : path_(std::move(path)), values_(std::move(values)) {}

  bool has(std::string_view key) const { return values_.has(key); }
  // Throw ErrorKind::Weights, with file and key, if the key is missing or has another type.
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;  // accepts integers too
  const std::string& text(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }
  double number(std::string_view key, double otherwise) const { return has(key) ? number(key) : otherwise; }
  std::string text(std::string_view key, std::string otherwise) const { return has(key) ? text(key) : otherwise; }
  // Same; also throws if the value is outside [least, most].
  int64_t integer_within(std::string_view key, int64_t least, int64_t most) const;

  const AttributeMap& values() const { return values_; }

 private:
  [[noreturn]] void refuse(std::string_view key, const std::string& what) const;
  const AttributeValue& value(std::string_view key) const;

  std::string path_;
  AttributeMap values_;
};

struct ImportedModel {
  std::string path;
  ItemPtr importer;
  std::shared_ptr<const MappedFile> file;                 // the file at `path`; null: a model in memory
  std::vector<std::shared_ptr<const MappedFile>> others;  // further files of the model
  ModelMetadata metadata;
  // By GGUF name: "blk.0.attn_q.weight". Views of the files, which they keep mapped; unaligned tensors are copies.
  std::map<std::string, HTensor> tensors;
  std::map<std::string, std::string> origins;  // names in the file, for tensors where they differ

  std::string architecture() const { return metadata.text("general.architecture"); }
  const HTensor* find(const std::string& name) const;  // null: unknown name
  // Throws ErrorKind::Weights, with the nearest name, for an unknown name.
  const HTensor& tensor(const std::string& name) const;
  // Same; also throws if the tensor has another type.
  const HTensor& tensor(const std::string& name, const TensorType& type) const;
  uint64_t parameters() const;  // total number of elements
  uint64_t bytes() const;       // total size of the files
  // Throws ErrorKind::InputOutput if a file was truncated while it was read. Must be called after reading the weights.
  void expect_whole() const;
};

struct ImportOptions {
  std::string importer;                                      // "": the one whose probe scores highest
  std::vector<std::pair<std::string, std::string>> options;  // options of the importer: name, text
};

// Returns the file to import a model from: config.json of a Hugging Face folder, or the path itself.
inline constexpr const char* kFolderFile = "config.json";
std::string model_file(const std::string& path);
// Throws ErrorKind::NoInput if the path is a folder without config.json.
void expect_model_folder(const std::string& path);
// Returns a display name for the model: the file name without extension, or the folder name for config.json.
std::string model_name(const std::string& file);
// Throws ErrorKind::Weights unless `name`, of a further file of a model, is a plain file name without folders.
void expect_neighbour(const std::string& name);

// Imports a model from a file or a folder. Throws ErrorKind::NoInput if the file cannot be read; ErrorKind::Weights if
// no importer reads it, it is malformed, or a tensor exceeds it; ErrorKind::Plugin if the importer's description is
// invalid, for example with a duplicate name; ErrorKind::Usage for a flow.
ImportedModel import_model(const std::string& path, Registry& registry, const ImportOptions& options = {});
// Returns whether an importer recognizes the bytes of a file.
bool is_importable(const std::string& path, std::string_view bytes, Registry& registry);
// Returns whether an importer recognizes the file or the folder as a model. Files named *.hmx are flows. Throws
// ErrorKind::Weights for a GGUF file that no importer reads.
bool is_model(const std::string& path, Registry& registry);

}  // namespace harmonics::engine
