// Token files: contiguous u16 or u32 numbers, as tokenizers write them, read in windows.
#pragma once

#include <memory>

#include "producers/file/windows.hpp"

namespace harmonics {

struct TokenOptions {
  WindowOptions windows;
  std::string dtype;   // u16, u32; "": u16
  uint64_t vocab = 0;  // upper bound of the tokens, exclusive; 0: determined from the file
};

std::shared_ptr<Producer> read_tokens(const FileBytesPtr& file, const TokenOptions& options);

}  // namespace harmonics
