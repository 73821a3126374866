// What to say about a file that is not there.
#pragma once

#include <string>

namespace harmonics {

// "did you mean 'data/train-images.idx'?": the file of the folder whose name is nearest; else that the folder is not
// there, or where relative paths start. "" when there is nothing to say.
std::string advice_for_missing(const std::string& path);

}  // namespace harmonics
