// Embedder: computes one vector for a text from the last layer of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/execution/executable.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

// How the vectors of the tokens are combined.
enum class Pooling { mean, first, last };
// Parses "mean", "first" or "cls", "last". Throws ErrorKind::Usage for other names.
Pooling pooling_named(const std::string& name);
// Returns the pooling in the metadata "ARCHITECTURE.pooling_type". Without it: last for models with caches, mean for
// others. Throws ErrorKind::Usage with the name for types that give no vector of a text: none, rank.
Pooling pooling_of(const Model& model);

// Compiles plans for lengths of texts and keeps the last few. In models without caches each token sees the whole text,
// so their plans have the exact length. Other texts are padded to one of a few lengths, which does not change their
// vectors. Thread-safe; calls run one at a time.
class Embedder {
 public:
  // `model` needs the entry "embed" with the output "hidden" f32 [1, T, width]; otherwise throws ErrorKind::Usage.
  // Model and executor must outlive the embedder. `pooling` defaults to pooling_of(model).
  Embedder(const Model& model, Executor& executor, CompileOptions options = {}, std::optional<Pooling> pooling = {});

  // Returns the vector of a text, normalised to length 1 unless it is zero. Throws ErrorKind::Usage for no tokens, for
  // more than context(), and for tokens outside the vocabulary.
  std::vector<float> embed(std::span<const int32_t> tokens);
  int64_t context() const { return model_.context; }
  Pooling pooling() const { return pooling_; }

 private:
  struct Plan {
    int64_t tokens = 0;
    std::unique_ptr<Executable> executable;
  };
  Plan& plan_for(int64_t tokens);
  int64_t planned_length(int64_t tokens) const;

  const Model& model_;
  Executor& executor_;
  const CompileOptions options_;
  const Pooling pooling_;
  const bool causal_;
  std::mutex mutex_;
  std::vector<Plan> plans_;  // most recently used last
};

}  // namespace harmonics::engine
