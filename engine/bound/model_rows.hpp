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
  std::vector<Binding> producers, consumers;  // by name of an input or result; without one, the first that is left
  int64_t batch = 64;                         // samples of one run, unless an address says
  uint64_t seed = 0;                          // of shuffled addresses
  CompileOptions compile;                     // registry: of streams and devices
  // Gets the values of each run; results without a consumer are not shown then.
  ValueFiles* values = nullptr;
};

struct RowReport {
  uint64_t samples = 0;
  double seconds = 0;
};

// Every result of the entry "forward" goes to a consumer, as samples in the order of the streams; results without one
// go to stdout:. Inputs with an axis for tokens take as many as the first stream's samples have. An input of whole
// numbers takes streams of any type whose numbers it has. Reads the streams to their end. Throws ErrorKind::Usage for
// an input without a producer, Shape for samples that do not fit, Stream for numbers out of range, and as streams do.
RowReport infer_rows(const Model& model, Executor& executor, RowSettings settings);

}  // namespace harmonics::engine
