// Quantization of models in GGUF files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <harmonics/tensor.hpp>

#include "engine/execution/executable.hpp"
#include "engine/model/importance.hpp"
#include "engine/model/type_mix.hpp"

namespace harmonics::engine {

struct QuantizeOptions {
  TypeMix mix = type_mix_named("q8_0");
  TypeOverrides overrides;
  const ImportanceMatrix* importance = nullptr;  // null: uniform
  bool requantize = false;                       // also convert matrices that are already quantized; errors add up
  bool keep_split = false;                       // write as many files as the model has
};

// How a tensor is converted.
struct QuantizedTensor {
  std::string name;
  std::vector<uint64_t> shape;  // row-major
  std::string_view from, to;    // type names of the format
  uint64_t bytes_before = 0, bytes_after = 0;
  bool fallback = false;    // its rows are not a multiple of the block size of the mix's type
  bool importance = false;  // its errors are weighted by column
};

struct QuantizeResult {
  std::vector<QuantizedTensor> tensors;  // in the order of the file
  std::vector<std::string> files;        // files written, beginning with the one to open
  uint64_t converted = 0;
  uint64_t bytes_before = 0, bytes_after = 0;  // of all tensors
  double elements = 0;                         // of all tensors
  double relative_error = 0;                   // RMS of the conversion error divided by the RMS of the weights
  double bits_per_weight() const { return elements > 0 ? static_cast<double>(bytes_after) * 8 / elements : 0; }
};

// Returns the types that matrices of a model may be converted to when it is opened.
const std::vector<std::string>& quantized_types();

// Returns what quantize_gguf() would write, without conversion errors. Throws as it does.
QuantizeResult plan_quantization(const std::string& from, const QuantizeOptions& options);

// Reads the GGUF file `from` with all its parts, and writes `to` with the same metadata, including the vocabulary, and
// the types of the mix. With `keep_split`, each part of `from` becomes a part of the output, named after `to` without
// ".gguf" or "-00001-of-0000N.gguf". `progress` receives the fraction done. The result does not depend on the number of
// threads. Memory is needed only for one chunk of a tensor. Throws ErrorKind::Weights for malformed files, for
// quantized matrices without `requantize`, and for importance of other shapes; ErrorKind::Usage if a file would be both
// read and written; ErrorKind::Output if `to` cannot be written, in which case no partial output remains.
QuantizeResult quantize_gguf(const std::string& from, const std::string& to, const QuantizeOptions& options,
                             Executor& executor, const std::function<void(double)>& progress = {});

}  // namespace harmonics::engine
