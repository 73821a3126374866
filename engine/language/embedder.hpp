// Embedder: a text as one vector, of the model's last layer.
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

// How the vectors of a text's tokens become one.
enum class Pooling { mean, first, last };
// "mean", "first" or "cls", "last"; throws ErrorKind::Usage for another one.
Pooling pooling_named(const std::string& name);
// Of the metadata "ARCHITECTURE.pooling_type"; without it the last token's for models with caches, and the mean for
// others. Throws ErrorKind::Usage, with its name, for one that gives no vector of a text: none, rank.
Pooling pooling_of(const Model& model);

// Plans are compiled for the lengths of texts; the last few stay. Models without caches see the whole text at each
// token, so their plans have its exact length; others have the next of a few lengths, and what follows the text does
// not change it. Used by any threads, in turn.
class Embedder {
 public:
  // `model` needs the entry "embed" with the output "hidden" f32 [1, T, width]; throws ErrorKind::Usage otherwise.
  // Model and executor must outlive the embedder. `pooling`: none: pooling_of(model).
  Embedder(const Model& model, Executor& executor, CompileOptions options = {}, std::optional<Pooling> pooling = {});

  // The vector of a text, of length 1 unless it is zero. Throws ErrorKind::Usage for no tokens, for more than
  // context(), and for tokens outside the vocabulary.
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
  std::vector<Plan> plans_;  // the last used one at the end
};

}  // namespace harmonics::engine
