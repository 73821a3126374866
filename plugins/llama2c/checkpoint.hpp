// Checkpoints of llama2.c in its first format (version 0): seven int32 numbers, then f32 weights in a fixed order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <harmonics/importer.hpp>

namespace llama2c {

// Returns HX_PROBE_CERTAIN for a later version, which read_checkpoint rejects with a remedy; HX_PROBE_LIKELY if the
// size matches the header; HX_PROBE_POSSIBLE if only the header is consistent.
uint32_t probe_checkpoint(std::string_view first, uint64_t size);

// Throws ErrorKind::Weights with the path, the position and the value found.
harmonics::ModelDescription read_checkpoint(std::string_view bytes, const std::string& path, double rope_base);

class CheckpointImporter final : public harmonics::Importer {
 public:
  uint32_t probe(const harmonics::FileStart& file) const override { return probe_checkpoint(file.first, file.size); }
  harmonics::ModelDescription open(const harmonics::ImportSource& source,
                                   const harmonics::Arguments& options) const override {
    return read_checkpoint(source.bytes(), source.path(), options.number("rope_base", 10000));
  }
};

}  // namespace llama2c
