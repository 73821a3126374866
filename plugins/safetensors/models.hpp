// Models in safetensors files. The format's metadata has text values only: texts are stored unchanged, other values as
// JSON under the key "harmonics.value:KEY".
#pragma once

#include <string>
#include <string_view>

#include <harmonics/exporter.hpp>
#include <harmonics/importer.hpp>

#include "formats/safetensors.hpp"

namespace safetensors {

inline constexpr std::string_view kValue = "harmonics.value:";
inline constexpr size_t kLongestList = 4096;  // longer lists, such as vocabularies, are read on request only

class Importer final : public harmonics::Importer {
 public:
  // Returns LIKELY if the header has the metadata "general.architecture". Other files are weights without a model.
  uint32_t probe(const harmonics::FileStart& file) const override;
  harmonics::ModelDescription open(const harmonics::ImportSource& source,
                                   const harmonics::Arguments& options) const override;
};

class Exporter final : public harmonics::Exporter {
 public:
  uint32_t probe(const std::string& name) const override {
    constexpr std::string_view ending = ".safetensors";
    return name.size() > ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0
               ? HX_PROBE_CERTAIN
               : HX_PROBE_NO;
  }
  void write(const harmonics::ModelToWrite& model, const harmonics::Arguments& options,
             const harmonics::ExportSink& sink) const override;
};

// Returns the model description of a file's bytes.
harmonics::ModelDescription describe(std::string_view bytes, const std::string& path, bool whole);

// Returns the JSON of a value that is not a text. Throws ErrorKind::Weights for non-finite numbers.
std::string json_of(const std::string& key, const harmonics::MetadataValue& value);

}  // namespace safetensors
