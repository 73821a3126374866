// Reads files of examples: JSON lines, JSON arrays and plain text, which may be compressed with gzip or zstd.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/corpus/example.hpp"

namespace harmonics::engine {

struct ExampleFileOptions {
  std::string path;             // a file, a glob pattern, or a folder; see example_files()
  double validation = 0;        // share of the examples that is held out
  bool held_out = false;        // read the examples held out instead of the others
  bool skip_malformed = false;  // count malformed examples instead of throwing
  ExampleKind kind = ExampleKind::automatic;
};

struct ExampleCounts {
  uint64_t examples = 0, malformed = 0, others = 0;  // others: examples that are held out, or those that are not
  std::string first_malformed;                       // reason and position of the first malformed example
  std::optional<ExampleKind> kind;                   // kind of the JSON examples; none if all files are plain text
};

// Calls `take` with each example in order; for a preference with the chosen answer, then with the rejected one. A hash
// of each example's text decides whether it is held out, so that the choice does not depend on the order; of a plain
// text the last part is held out. Lines are limited to 64 MiB, JSON arrays to 1 GiB. Throws ErrorKind::NoInput for
// missing files, ErrorKind::Stream with file and line for malformed examples.
ExampleCounts read_examples(const ExampleFileOptions& options, const ExampleFormat& format,
                            const std::function<void(TextExample)>& take);

// Returns the distinct characters of all plain texts at `path`, sorted by code point. Throws the errors of
// read_examples(), and ErrorKind::Stream for JSON files.
std::u32string characters_of_files(const std::string& path);

// Returns the files at a path, sorted: the file itself, the matches of a glob pattern, or the .txt, .text, .md, .jsonl,
// .ndjson and .json files of a folder, which may be compressed. Throws ErrorKind::NoInput if there are none.
std::vector<std::string> example_files(const std::string& path);

}  // namespace harmonics::engine
