// UTF-8 text as symbols: windows of characters, each an index into the vocabulary.
#pragma once

#include <memory>
#include <string>

#include "producers/file/windows.hpp"

namespace harmonics {

struct TextOptions {
  std::string vocabulary;  // its characters in order; empty: those of the text, sorted by code point
  bool learned = false;    // `vocabulary` was learned with the weights
  WindowOptions windows;   // the vocabulary always covers the whole text
};

std::shared_ptr<Producer> read_text(const FileBytesPtr& file, const TextOptions& options);

}  // namespace harmonics
