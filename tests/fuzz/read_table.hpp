// Tables for fuzzing: samples kept in memory and samples read again from the text must be equal.
#pragma once

#include "producers/file/table.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

namespace harmonics::engine::testing {

// Applies the choices of an input's first byte to the options of every table; returns the remaining bits.
inline uint8_t choose(uint8_t choice, TableOptions& options) {
  const char* const kinds[] = {"auto", "number", "class"};
  const char* const selections[] = {"", "0", "1-2", "a,b", "a", "b.c"};
  const char* const missing[] = {"", "0", "mean", "nan"};
  options.as = kinds[choice % 3];
  choice /= 3;
  if (choice % 6) options.selection = selections[choice % 6];
  choice /= 6;
  if (choice % 4) options.missing = missing[choice % 4];
  return choice / 4;
}

// `rows` creates the rows of the input again.
template <typename Rows>
void read_both_ways(Rows rows, TableOptions options) {
  const auto kept = open_table(rows(), options);
  const std::vector<uint8_t> samples = read_everything(*kept);
  options.kept = 1;
  const auto again = open_table(rows(), options);
  require(kept->describe()->classes == again->describe()->classes, "classes differ");
  require(read_everything(*again) == samples, "samples differ when the text is read again");
}

}  // namespace harmonics::engine::testing
