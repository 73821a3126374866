// Models in safetensors files. The format's metadata are texts: texts are stored as they are, other values as JSON
// under the key "harmonics.value:KEY".
#pragma once

#include <string>
#include <string_view>

#include <harmonics/exporter.hpp>
#include <harmonics/importer.hpp>

#include "formats/safetensors.hpp"

namespace safetensors {

inline constexpr std::string_view kValue = "harmonics.value:";
inline constexpr size_t kLongestList = 4096;  // longer ones, such as vocabularies, are read on request

class Importer final : public harmonics::Importer {
 public:
  // LIKELY if the beginning has the metadata "general.architecture": other files are weights without a model.
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

// The description of the bytes of a file.
harmonics::ModelDescription describe(std::string_view bytes, const std::string& path, bool whole);

// JSON of a value that is no text. Throws ErrorKind::Weights for numbers that are not finite.
std::string json_of(const std::string& key, const harmonics::MetadataValue& value);

}  // namespace safetensors
