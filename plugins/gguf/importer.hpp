// Models in GGUF files, also in several parts.
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

// Metadata as the engine takes it: numbers, texts, and lists of numbers. Lists of texts, which are vocabularies, and
// longer lists than the engine takes are left out but for their length, under "@len:" and the key; the tokenizer reads
// them itself. With `whole` nothing is left out.
harmonics::MetadataMap metadata_of(const harmonics::GgufFile& file, const std::string& path, bool whole = false);

}  // namespace gguf
