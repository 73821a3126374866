// Models in Hugging Face folders, identified by their config.json.
#pragma once

#include <harmonics/exporter.hpp>
#include <harmonics/importer.hpp>

namespace huggingface {

class Importer final : public harmonics::Importer {
 public:
  uint32_t probe(const harmonics::FileStart& file) const override;
  harmonics::ModelDescription open(const harmonics::ImportSource& source,
                                   const harmonics::Arguments& options) const override;
};

constexpr int64_t kShardBytes = 5'000'000'000;  // default limit of a weights file

// Writes config.json, the weights (model.safetensors, or several files with an index) and, if the metadata has one, the
// tokenizer's files. Elements of block types are written as f32, because other programs' safetensors files lack them.
class Exporter final : public harmonics::Exporter {
 public:
  uint32_t probe(const std::string& name) const override {
    return name == "config.json" ? HX_PROBE_CERTAIN : HX_PROBE_NO;
  }
  void write(const harmonics::ModelToWrite& model, const harmonics::Arguments& options,
             const harmonics::ExportSink& sink) const override;
};

}  // namespace huggingface
