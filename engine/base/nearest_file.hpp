// Gives advice for a missing file.
#pragma once

#include <string>

namespace harmonics::engine {

// Returns "did you mean 'data/train-images.idx'?" with the most similar name in the folder, or a text that says that
// the folder is missing or where relative paths start; "" if the file exists or there is no advice.
std::string advice_for_missing(const std::string& path);

}  // namespace harmonics::engine
