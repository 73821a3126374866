// Runs a model on the samples of streams, without a flow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/address.hpp"
#include "engine/bound/traced_values.hpp"
#include "engine/execution/executable.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

struct RowSettings {
  std::vector<Binding> producers, consumers;  // by name of an input or result; "": the first unbound one
  int64_t batch = 64;                         // samples per run, unless an address specifies it
  uint64_t seed = 0;                          // for shuffling
  CompileOptions compile;                     // its registry has the streams and devices
  // Receives the values of each run. If it is set, results without a consumer are not printed.
  ValueFiles* values = nullptr;
};

struct RowReport {
  uint64_t samples = 0;
  double seconds = 0;
};

// Runs the entry "forward" on all samples of the streams and passes each result to its consumer, one sample at a time
// in stream order. Results without a consumer are printed to stdout. A token axis has the length of the first stream's
// samples. An integer input accepts streams of any type if its type can represent their numbers. Throws
// ErrorKind::Usage for an input without a producer, Shape for samples of another shape, Stream for numbers that cannot
// be represented, and the errors of streams.
RowReport infer_rows(const Model& model, Executor& executor, RowSettings settings);

}  // namespace harmonics::engine
