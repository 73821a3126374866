// Files of examples: JSON lines, JSON lists and plain text, also packed by gzip or zstd.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/corpus/example.hpp"

namespace harmonics::engine {

struct ExampleFileOptions {
  std::string path;             // a file, a pattern, or a folder: all its .txt, .md, .jsonl and .json files
  double validation = 0;        // the share that is held out
  bool held_out = false;        // read that share, and not the rest
  bool skip_malformed = false;  // count malformed lines instead of refusing the file
  ExampleKind kind = ExampleKind::automatic;
};

struct ExampleCounts {
  uint64_t examples = 0, malformed = 0;
  std::string first_malformed;      // what is wrong about the first of them, with its place
  std::optional<ExampleKind> kind;  // of the examples that are no plain text
};

// Calls `take` with each example, in order; of a preference with the chosen answer, then with the rejected one.
// Examples are held out by a hash of their own text, so that the choice does not depend on their order; of plain texts,
// the last part of each file is. Lines are limited to 64 MiB, JSON lists and their files to 1 GiB. Throws
// ErrorKind::NoInput for missing files, ErrorKind::Stream with file and line for malformed examples.
ExampleCounts read_examples(const ExampleFileOptions& options, const ExampleFormat& format,
                            const std::function<void(TextExample)>& take);

// The characters of all plain texts that `path` names, each once, by code point. Throws as read_examples does, and
// ErrorKind::Stream for files of JSON.
std::u32string characters_of_files(const std::string& path);

// The files that a path names, sorted. Throws ErrorKind::NoInput if there is none.
std::vector<std::string> example_files(const std::string& path);

}  // namespace harmonics::engine
