// Models in GGUF files with their matrices in another element type.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <harmonics/tensor.hpp>

#include "engine/execution/executable.hpp"

namespace harmonics::engine {

struct QuantizeOptions {
  DType dtype = DType::Q8_0;
  bool requantize = false;  // also matrices that are quantized already, whose errors add up
};

struct QuantizeResult {
  uint64_t tensors = 0, converted = 0;
  uint64_t bytes_before = 0, bytes_after = 0;  // of the tensors
  std::vector<std::string> unfit;              // matrices left as they are: their rows are not whole blocks
  double relative_error = 0;  // root of the mean square of what the conversion changes, over that of the weights
};

// The types that a file may be quantized to.
const std::vector<std::string>& quantized_types();

// Reads the GGUF file `from`, in all its parts, and writes `to` with the same metadata, vocabulary included. Converts
// weights of two and more axes, but for norms, positions and routers. `progress` gets the share that is done. The
// result does not depend on the executor's threads; memory is needed for one chunk of a tensor. Throws
// ErrorKind::Weights for malformed files and for quantized matrices without `requantize`, ErrorKind::Usage if both
// paths are one file, ErrorKind::Output if `to` cannot be written; then no part of it remains.
QuantizeResult quantize_gguf(const std::string& from, const std::string& to, const QuantizeOptions& options,
                             Executor& executor, const std::function<void(double)>& progress = {});

}  // namespace harmonics::engine
