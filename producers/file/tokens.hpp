// Token files: u16 or u32 numbers back to back, as tokenizers write them, read in windows.
#pragma once

#include <memory>

#include "producers/file/windows.hpp"

namespace harmonics {

struct TokenOptions {
  WindowOptions windows;
  std::string dtype;   // u16, u32; "": u16
  uint64_t vocab = 0;  // all tokens are below; 0: counted
};

std::shared_ptr<Producer> read_tokens(const FileBytesPtr& file, const TokenOptions& options);

}  // namespace harmonics
