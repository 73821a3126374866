// Writes models as GGUF files, version 3, in one part.
#pragma once

#include <harmonics/exporter.hpp>

namespace gguf {

class Exporter final : public harmonics::Exporter {
 public:
  uint32_t probe(const std::string& name) const override {
    return name.size() > 5 && name.compare(name.size() - 5, 5, ".gguf") == 0 ? HX_PROBE_CERTAIN : HX_PROBE_NO;
  }
  void write(const harmonics::ModelToWrite& model, const harmonics::Arguments& options,
             const harmonics::ExportSink& sink) const override;
};

}  // namespace gguf
