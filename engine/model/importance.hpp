// How much the columns of a model's matrices matter: the means of the squared inputs of each linear map, gathered from
// text. Quantization weighs its errors by them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/origin.hpp"

namespace harmonics::engine {

// Of one matrix [.., rows, columns], or of a stack of them with inputs of their own.
struct ColumnImportance {
  int64_t columns = 0;
  std::vector<double> squares;  // [matrices, columns]: sums of squared inputs
  std::vector<double> counts;   // [matrices]: how many inputs are in the sums; 0: the matrix was not used
  int64_t matrices() const { return static_cast<int64_t>(counts.size()); }
  // The means of a matrix, scaled so that they average to 1; ones for a matrix that was not used.
  std::vector<float> weights(int64_t matrix) const;
};

struct ImportanceMatrix {
  std::map<std::string, ColumnImportance> tensors;  // by name, "blk.0.attn_q.weight"
  std::vector<std::string> datasets;                // what it was gathered from
  int64_t chunks = 0, chunk_tokens = 0;             // 0: unknown
};

// Reads both forms of llama.cpp's importance matrices: GGUF files with the tensors NAME.in_sum2 and NAME.counts, and
// the binary form before them. Throws an error of the file's kind with the place for damaged files and for numbers that
// are negative or not finite. Allocates in proportion to the bytes.
ImportanceMatrix read_importance(std::string_view bytes, const Origin& file);
ImportanceMatrix read_importance(const std::string& path);

// Writes the GGUF form; the file is replaced as a whole or not at all.
void write_importance(const ImportanceMatrix& matrix, const std::string& path);

}  // namespace harmonics::engine
