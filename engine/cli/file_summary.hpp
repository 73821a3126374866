// What a file of tables or arrays holds: its columns, and how each is written as an address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/json/fwd.hpp>

#include "engine/base/address.hpp"

namespace harmonics::cli {

struct ColumnSummary {
  std::string name, address;   // to write behind --producer NAME=
  std::string type;            // integer, number, words, mixed, missing; of an array its element type
  std::vector<int64_t> shape;  // of one sample; empty: a single value
  uint64_t missing = 0;
  std::optional<double> least, greatest;  // of numbers
  std::optional<uint64_t> classes;        // different values; none: too many were found, or they were not counted
  std::vector<std::string> values;        // the first of them, of words
};

struct FileSummary {
  std::string path;
  uint64_t rows = 0;
  std::vector<ColumnSummary> columns;
};

// Of CSV, TSV, JSON lines and NPZ, read as a whole; none: the address names a part, or is of another format.
std::optional<FileSummary> summary_of_file(const Address& address);
std::string summary_text(const FileSummary& summary);
boost::json::array columns_json(const FileSummary& summary);

}  // namespace harmonics::cli
