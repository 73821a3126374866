// Summarises a file of tables or arrays: its columns and their addresses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/json/fwd.hpp>

#include "engine/base/address.hpp"

namespace harmonics::engine::cli {

struct ColumnSummary {
  std::string name, address;   // the address is a value for --producer NAME=
  std::string type;            // integer, number, words, mixed, missing; element type of an array
  std::vector<int64_t> shape;  // of one sample; empty: a single value
  uint64_t missing = 0;
  std::optional<double> least, greatest;  // of numeric columns
  std::optional<uint64_t> classes;        // number of distinct values; none: too many, or not counted
  std::vector<std::string> values;        // the first distinct values, for words
};

struct FileSummary {
  std::string path;
  uint64_t rows = 0;
  std::vector<ColumnSummary> columns;
};

// Summarises a whole CSV, TSV, JSON lines or NPZ file. Returns none if the address selects a part or has another
// format.
std::optional<FileSummary> summary_of_file(const Address& address);
std::string summary_text(const FileSummary& summary);
boost::json::array columns_json(const FileSummary& summary);

}  // namespace harmonics::engine::cli
