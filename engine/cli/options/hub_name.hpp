// Names of models on the Hugging Face hub, which this program does not download.
#pragma once

#include <string>

namespace harmonics::engine::cli {

// The command that downloads the model of such a name: OWNER/NAME or OWNER/NAME:TYPE, with hf.co/, hf: or the like in
// front of it, or the address of one of its files. "" for other texts, such as names of files and of existing folders.
std::string download_command(const std::string& name);

}  // namespace harmonics::engine::cli
