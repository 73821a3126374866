// UTF-8 text as symbols: windows of characters, each an index into the vocabulary.
#pragma once

#include <memory>
#include <string>

#include "producers/file/windows.hpp"

namespace harmonics {

struct TextOptions {
  std::string vocabulary;  // its characters in order; empty: the text's own, sorted by code point
  bool learned = false;    // `vocabulary` is that which weights learned
  WindowOptions windows;   // the vocabulary is always that of the whole text
};

std::shared_ptr<Producer> read_text(const FileBytesPtr& file, const TextOptions& options);

}  // namespace harmonics
