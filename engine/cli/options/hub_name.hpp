// Recognises names of models on the Hugging Face hub, which this program does not download.
#pragma once

#include <string>

namespace harmonics::engine::cli {

// Returns the command that downloads the model of a name: OWNER/NAME or OWNER/NAME:TYPE, which may follow hf.co/, hf:
// and similar prefixes, or the address of one of its files. Returns "" for other texts, such as names of files and
// existing folders.
std::string download_command(const std::string& name);

}  // namespace harmonics::engine::cli
