// Reads the parts of one `.ndsl` file. model_file.cpp combines files.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "dsl/document/fields.hpp"
#include "dsl/ndsl/model_file.hpp"

namespace harmonics::engine::ndsl {

// One file, before it is merged with the file that it extends.
struct FilePart {
  ModelFile model;
  std::optional<Named> extends;
  std::vector<Named> imports;
  bool has_block = false, has_layers = false, has_embedding = false, has_final_norm = false, has_head = false;
  std::vector<Error> errors;      // parts with an error are omitted from the model
  std::set<std::string> doubted;  // document::Problems::doubted()
};

class FileReader {
 public:
  explicit FileReader(const document::Document& document) : document_(document), problems_(document.source) {}
  FilePart read();  // throws if there are too many errors

 private:
  Place place(Span span) const { return {document_.source, span}; }
  Named named(const document::Node& node) const { return {node.text, place(node.span)}; }
  void architecture(const document::Node& node);
  Block block(const document::Node& node, const std::string& what);
  std::optional<Operation> operation(const document::Node& node);
  std::map<std::string, Block> blocks(const document::Node& node, const std::string& what);
  Settings settings(const document::Node& node, const std::string& what, bool with_nulls = false);
  void layers(const document::Node& node);
  void layer_rule(const document::Node& node);
  std::optional<std::pair<int64_t, int64_t>> range(const document::Node& node);
  Variation variation(const document::Node& node);
  void mapping(const document::Node& node);
  std::optional<Source> source(const document::Node& node, int depth);
  void weights(const document::Node& node, Operation& to);
  void expect_plain(const std::string& name, Span where);
  std::vector<Named> names(document::Fields& fields, const char* key);
  std::optional<Named> name(document::Fields& fields, const char* key);

  const document::Document& document_;
  document::Problems problems_;
  FilePart part_;
};

}  // namespace harmonics::engine::ndsl
