// UTF-8 text as symbols: windows of characters, each the index of its place in the vocabulary.
#pragma once

#include <memory>
#include <string>

#include "producers/file/windows.hpp"

namespace harmonics {

struct TextOptions {
  std::string vocabulary;  // its characters in order; empty: the text's own, sorted by code point
  WindowOptions windows;   // the vocabulary is always the whole text's
};

std::shared_ptr<Producer> read_text(const FileBytesPtr& file, const TextOptions& options);

}  // namespace harmonics
