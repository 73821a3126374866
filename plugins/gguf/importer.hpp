// Reads models in GGUF files of one or more parts.
#pragma once

#include <harmonics/importer.hpp>

#include "formats/gguf.hpp"

namespace gguf {

class Importer final : public harmonics::Importer {
 public:
  uint32_t probe(const harmonics::FileStart& file) const override {
    return harmonics::is_gguf(file.first) ? HX_PROBE_CERTAIN : HX_PROBE_NO;
  }
  harmonics::ModelDescription open(const harmonics::ImportSource& source,
                                   const harmonics::Arguments& options) const override;
};

// Converts metadata to the engine's types: numbers, texts, and lists of numbers. Lists of texts (vocabularies) and
// lists beyond the engine's limit are omitted; only their length is stored, under "@len:KEY", since the tokenizer reads
// them itself. `whole`: omits nothing.
harmonics::MetadataMap metadata_of(const harmonics::GgufFile& file, const std::string& path, bool whole = false);

}  // namespace gguf
