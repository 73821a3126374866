// Converts flags to options for reading language models.
#pragma once

#include "engine/cli/options/options.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/described.hpp"

namespace harmonics::engine::cli {

// Parses --lora FILE[=SCALE]. SCALE is a number; otherwise '=' is part of the file's name.
std::vector<AdapterFile> adapter_files(const Options& options);

// Returns the options of a model, with the file of --spec. Throws ErrorKind::Usage for a --set that is not NAME=VALUE.
ModelOptions model_options(const Options& options);
// Returns the options of a model described by a .ndsl text: --set, --seed. Throws ErrorKind::Usage for --spec.
DescribedOptions described_options(const Options& options);
// Returns the options of a .ndsl file: those of described_options() and --weights.
NdslOptions ndsl_options(const Options& options);
// Imports a language model with --set. With --spec, which describes the tensors as stored, imports them unchanged.
ImportedModel import_for(const std::string& path, const Options& options);

// Returns the compile options of a language model. Without --precision, the CPU quantises rows for products with
// quantised weights (Precision::int8), because only then the products are bound by memory bandwidth.
CompileOptions text_compile_options(const Options& options);

}  // namespace harmonics::engine::cli
