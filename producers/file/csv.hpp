// CSV and TSV: numbers become f32, a single column of integers or words becomes classes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "producers/file/array.hpp"

namespace harmonics {

struct CsvOptions {
  std::string header = "auto";           // true, false, auto
  std::string delimiter = "auto";        // one character, "tab", auto
  std::string as = "auto";               // number, class, auto
  std::optional<std::string> missing;    // stands in for missing cells
  std::vector<std::string> symbols;      // the words of a class column in order; empty: sorted as found
  std::optional<std::string> selection;  // label · 3 · 0-3 · a,b; absent: all columns
};

// Reads the selected columns of all rows. One column gives scalars, several give vectors.
ArrayLayout read_csv(const FileBytesPtr& file, const CsvOptions& options);

}  // namespace harmonics
