// Values inside a run: what each layer, block and operation computes, written as files of safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/file.hpp"
#include "engine/bound/bound_graph.hpp"

namespace harmonics::engine {

// Writes the values of each run to a file of its own: FOLDER/0.safetensors, FOLDER/1.safetensors and so on. Tensors
// have the names that `explain` shows ("hidden", "blk.0.QKV.q"); results and inputs have their own, and results named
// like a layer are that layer's. Metadata: the model, the number of the file's first sample, and of its samples.
class ValueFiles {
 public:
  // Makes the folder. Throws ErrorKind::Output if it cannot.
  ValueFiles(std::string folder, std::string model, FileCalls& calls = FileCalls::system());
  // Values of the last run of a step that StepOptions::observe lowered. `streams`: one buffer for each of
  // Lowered::inputs. Of `batch` samples the first `n` count: others are left out, where the first axis of a value is a
  // multiple of the batch.
  void write(const CompiledStep& step, const void* const* streams, int64_t n, int64_t batch);
  uint64_t samples() const { return samples_; }
  size_t tensors() const { return tensors_; }  // in the last file

 private:
  std::string folder_, model_;
  FileCalls& calls_;
  uint64_t files_ = 0, samples_ = 0;
  size_t tensors_ = 0;
};

// Runs a cycle of a flow without its taps over its streams, to their end, and takes the first branch of every
// condition.
void trace_flow(BoundGraph& graph, int cycle, const RunSettings& run, ValueFiles& to);

// Runs the entry "forward" once for a sequence of tokens. Throws ErrorKind::Usage for a model with other inputs.
void trace_tokens(const Model& model, Executor& executor, const CompileOptions& compile,
                  const std::vector<int32_t>& tokens, ValueFiles& to);

}  // namespace harmonics::engine
