// CSV and TSV: header, delimiter and quotes; table.hpp interprets the cells.
#pragma once

#include <memory>
#include <string>

#include "producers/file/table.hpp"

namespace harmonics {

struct CsvOptions : TableOptions {
  std::string header = "auto";     // true, false, auto
  std::string delimiter = "auto";  // one character, "tab", auto
};

// Detects delimiter, header and columns by the first rows; every row must have as many cells as the first.
std::unique_ptr<TableRows> csv_rows(const FileBytesPtr& file, const CsvOptions& options);

}  // namespace harmonics
