// Settings of a `.ndsl` model: names with synonyms, and effective values for one operation of one layer.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dsl/ndsl/faults.hpp"

namespace harmonics::engine {

using NdslFaults = ndsl::Faults;

// A row of the table of settings.
struct NdslKey {
  enum class Kind { whole, real, truth, text, list, map };
  const char* name;
  Kind kind;
  std::vector<const char*> synonyms = {};  // names in Hugging Face configurations
  bool of_operations = false;              // allowed in the config of an operation
};
const std::vector<NdslKey>& ndsl_keys();

// One level of settings, by canonical name.
using NdslLevel = std::map<std::string, ndsl::Setting>;
// Returns settings by canonical name. Unknown ones are faults, with the nearest name. `of_operation`: allow only
// settings for the config of an operation.
NdslLevel ndsl_level(const ndsl::Settings& settings, bool of_operation, NdslFaults& faults);
// Returns the known settings of a Hugging Face configuration; ignores others.
NdslLevel ndsl_level_of_hf(const document::Document& config);
// Returns the settings that a folder without them has in transformers; null hides values of lower levels.
NdslLevel ndsl_level_of_defaults(const ndsl::Settings& settings, NdslFaults& faults);
// Parses settings given by the user. Throws ErrorKind::Usage for an unknown name or an invalid value.
NdslLevel ndsl_level_of_texts(const std::map<std::string, std::string>& texts);

// Several levels of settings; the first level that has a key takes precedence. Values of the wrong kind are faults.
class NdslSettings {
 public:
  NdslSettings(std::vector<const NdslLevel*> levels, NdslFaults& faults, ndsl::Place where)
      : levels_(std::move(levels)), faults_(faults), where_(std::move(where)) {}

  const ndsl::Setting* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }
  int64_t whole(const std::string& key, std::optional<int64_t> otherwise, int64_t least, int64_t most) const;
  // Returns a value from 1 to 2^31.
  int64_t size(const std::string& key, std::optional<int64_t> otherwise = {}) const;
  double real(const std::string& key, std::optional<double> otherwise) const;
  bool truth(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  const ndsl::Place& place_of(const std::string& key) const;  // position of its value, or of its user
  const ndsl::Place& where() const { return where_; }
  NdslFaults& faults() const { return faults_; }
  // Returns settings with one more level of higher precedence; if `below_first`, below the first level.
  NdslSettings over(const NdslLevel& level, ndsl::Place where, bool below_first) const;

 private:
  void missing(const std::string& key) const;
  std::vector<const NdslLevel*> levels_;
  NdslFaults& faults_;
  ndsl::Place where_;
};

}  // namespace harmonics::engine
