// Describes files of models and tokenizers for `inspect`.
#pragma once

#include <string>

#include "engine/cli/options/options.hpp"

namespace harmonics::engine::cli {

// Describes the file if an importer or a tokenizer reads it. Returns false if none does or it is not a regular file.
bool inspect_model_file(const std::string& path, const Options& options);

}  // namespace harmonics::engine::cli
