// Writes the intermediate values of a run, by layer, block and operation, as safetensors files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/file.hpp"
#include "engine/bound/bound_graph.hpp"

namespace harmonics::engine {

// Writes one file per run: FOLDER/0.safetensors, FOLDER/1.safetensors and so on. Tensors have the names that `explain`
// shows ("hidden", "blk.0.QKV.q"). Results and inputs have their own names; a layer takes precedence over a result or
// input of the same name. Metadata: the model, the index of the file's first sample, and the number of its samples.
class ValueFiles {
 public:
  // Creates the folder. Throws ErrorKind::Output on failure.
  ValueFiles(std::string folder, std::string model, FileCalls& calls = FileCalls::system());
  // Writes the values of the last run of a step lowered with StepOptions::observe. `streams` has one buffer for each of
  // Lowered::inputs. Only the first `n` of `batch` samples are written, if the first axis of a value is a multiple of
  // the batch.
  void write(const CompiledStep& step, const void* const* streams, int64_t n, int64_t batch);
  uint64_t samples() const { return samples_; }
  size_t tensors() const { return tensors_; }  // in the last file

 private:
  std::string folder_, model_;
  FileCalls& calls_;
  uint64_t files_ = 0, samples_ = 0;
  size_t tensors_ = 0;
};

// Runs a cycle in inference mode over its streams to their end and writes the values of each batch. Takes the first
// branch of every condition.
void trace_flow(BoundGraph& graph, int cycle, const RunSettings& run, ValueFiles& to);

// Runs the entry "forward" once for a sequence of tokens and writes its values. Throws ErrorKind::Usage for a model
// with other inputs.
void trace_tokens(const Model& model, Executor& executor, const CompileOptions& compile,
                  const std::vector<int32_t>& tokens, ValueFiles& to);

}  // namespace harmonics::engine
