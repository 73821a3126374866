// Importance matrices: the mean squared inputs of each linear map, gathered from text. Quantization weights its errors
// by them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/origin.hpp"

namespace harmonics::engine {

// Importance of the columns of one matrix [.., rows, columns], or of a stack of matrices with separate inputs.
struct ColumnImportance {
  int64_t columns = 0;
  std::vector<double> squares;  // [matrices, columns]: sums of squared inputs
  std::vector<double> counts;   // [matrices]: number of inputs in the sums; 0: the matrix was not used
  int64_t matrices() const { return static_cast<int64_t>(counts.size()); }
  // Returns the means for a matrix, scaled to average 1; all ones for a matrix that was not used.
  std::vector<float> weights(int64_t matrix) const;
};

struct ImportanceMatrix {
  std::map<std::string, ColumnImportance> tensors;  // by name, "blk.0.attn_q.weight"
  std::vector<std::string> datasets;                // texts it was gathered from
  int64_t chunks = 0, chunk_tokens = 0;             // 0: unknown
};

// Reads both formats of llama.cpp's importance matrices: GGUF files with the tensors NAME.in_sum2 and NAME.counts, and
// the older binary format. Throws an error of the file's kind, with the location, for damaged files and for numbers
// that are negative or not finite. Allocates in proportion to the file size.
ImportanceMatrix read_importance(std::string_view bytes, const Origin& file);
ImportanceMatrix read_importance(const std::string& path);

// Writes the GGUF format. Replaces the file atomically.
void write_importance(const ImportanceMatrix& matrix, const std::string& path);

}  // namespace harmonics::engine
