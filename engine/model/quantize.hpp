// Models in GGUF files with their matrices in another element type.
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
  const ImportanceMatrix* importance = nullptr;  // null: all columns matter alike
  bool requantize = false;                       // also matrices that are quantized already, whose errors add up
  bool keep_split = false;                       // a model in several files stays in as many
};

// What happens to a tensor.
struct QuantizedTensor {
  std::string name;
  std::vector<uint64_t> shape;  // row-major
  std::string_view from, to;    // types, as the format names them
  uint64_t bytes_before = 0, bytes_after = 0;
  bool fallback = false;    // its rows are no whole blocks of the mix's type
  bool importance = false;  // its errors are weighed by column
};

struct QuantizeResult {
  std::vector<QuantizedTensor> tensors;  // in the order of the file
  std::vector<std::string> files;        // written, the one to open first
  uint64_t converted = 0;
  uint64_t bytes_before = 0, bytes_after = 0;  // of the tensors
  double elements = 0;                         // of all tensors
  double relative_error = 0;  // root of the mean square of what the conversion changes, over that of the weights
  double bits_per_weight() const { return elements > 0 ? static_cast<double>(bytes_after) * 8 / elements : 0; }
};

// The types that matrices of a model may be converted to when it is opened.
const std::vector<std::string>& quantized_types();

// What quantize_gguf() would write, without errors of weights. Throws as it does.
QuantizeResult plan_quantization(const std::string& from, const QuantizeOptions& options);

// Reads the GGUF file `from`, in all its parts, and writes `to` with the same metadata, vocabulary included, and the
// types of the mix. With `keep_split` the tensors of each part of `from` go to a part of their own: `to` without
// ".gguf", or without "-00001-of-0000N.gguf", names them. `progress` gets the share that is done. The result does not
// depend on the executor's threads; memory is needed for one chunk of a tensor. Throws ErrorKind::Weights for malformed
// files, for quantized matrices without `requantize` and for importance of other shapes, ErrorKind::Usage if a file
// would be read and written, ErrorKind::Output if `to` cannot be written; then nothing of it remains.
QuantizeResult quantize_gguf(const std::string& from, const std::string& to, const QuantizeOptions& options,
                             Executor& executor, const std::function<void(double)>& progress = {});

}  // namespace harmonics::engine
