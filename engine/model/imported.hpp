// Models in files of other programs, as importers of plugins describe them: metadata, and tensors that stay where they
// lie in the mapped file.
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

// What a file says about its model beside the tensors. Keys are those of GGUF: "llama.block_count".
class ModelMetadata {
 public:
  ModelMetadata() = default;
  ModelMetadata(std::string path, AttributeMap values) : path_(std::move(path)), values_(std::move(values)) {}

  bool has(std::string_view key) const { return values_.has(key); }
  // Throw ErrorKind::Weights, with file and key, if the key is missing or has another type.
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;  // of an integer too
  const std::string& text(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }
  double number(std::string_view key, double otherwise) const { return has(key) ? number(key) : otherwise; }
  std::string text(std::string_view key, std::string otherwise) const { return has(key) ? text(key) : otherwise; }
  // The same, within least .. most.
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
  // By the names of GGUF: "blk.0.attn_q.weight". Views into the files, which they keep mapped; unaligned tensors are
  // copies.
  std::map<std::string, HTensor> tensors;
  std::map<std::string, std::string> origins;  // names in the file, of tensors that have others there

  std::string architecture() const { return metadata.text("general.architecture"); }
  const HTensor* find(const std::string& name) const;  // null: there is none
  // Throws ErrorKind::Weights, with the nearest name, if there is none.
  const HTensor& tensor(const std::string& name) const;
  // The same for a tensor that must have this type.
  const HTensor& tensor(const std::string& name, const TensorType& type) const;
  uint64_t parameters() const;  // elements of all tensors
  uint64_t bytes() const;       // of all files
  // Throws ErrorKind::InputOutput if a part of a file that was read is gone. Call it after the weights were read.
  void expect_whole() const;
};

struct ImportOptions {
  std::string importer;                                      // "": the one whose probe fits best
  std::vector<std::pair<std::string, std::string>> options;  // of the importer: name, text
};

// The file to import a model from: that of a folder is its config.json, as of Hugging Face.
inline constexpr const char* kFolderFile = "config.json";
std::string model_file(const std::string& path);
// Throws ErrorKind::NoInput if this is a folder without that file.
void expect_model_folder(const std::string& path);
// What to call the model of this file: its name without the ending, or that of its folder.
std::string model_name(const std::string& file);
// Throws ErrorKind::Weights if a further file of a model is not named by a name in its folder.
void expect_neighbour(const std::string& name);

// `path`: of a file or a folder. Throws ErrorKind::NoInput if the file cannot be read, ErrorKind::Weights if no
// importer reads it, it is malformed, or a tensor lies outside it, and ErrorKind::Plugin if the importer describes what
// cannot be (a name twice).
ImportedModel import_model(const std::string& path, Registry& registry, const ImportOptions& options = {});
// Returns whether the bytes of a file are a model that an importer reads.
bool is_importable(const std::string& path, std::string_view bytes, Registry& registry);
// Returns whether an importer reads the file or the folder: a model, and no flow. Files named .hmx are flows.
bool is_model(const std::string& path, Registry& registry);

}  // namespace harmonics::engine
