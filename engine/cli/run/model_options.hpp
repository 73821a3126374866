// How the options say to read a language model.
#pragma once

#include "engine/cli/options/options.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/described.hpp"

namespace harmonics::engine::cli {

// --lora FILE[=SCALE]. A SCALE is a number; otherwise the sign belongs to the name.
std::vector<AdapterFile> adapter_files(const Options& options);

// Reads the file of --spec. Throws ErrorKind::Usage for a --set that is not NAME=VALUE.
ModelOptions model_options(const Options& options);
// Of models that a .ndsl text describes: --set, --seed. Throws ErrorKind::Usage for --spec.
DescribedOptions described_options(const Options& options);
// The same of a .ndsl file, with --weights.
NdslOptions ndsl_options(const Options& options);
// import_language_model() with --set; with --spec, which describes the tensors as they lie, import_model().
ImportedModel import_for(const std::string& path, const Options& options);

// How programs of a language model are compiled. Without --precision, rows that meet quantised weights are quantised on
// the CPU (Precision::int8): the products are bound by bytes only then.
CompileOptions text_compile_options(const Options& options);

}  // namespace harmonics::engine::cli
