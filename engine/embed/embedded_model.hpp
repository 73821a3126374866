// Implements hx_model and hx_sequence: a model and its weights, run as a whole, one layer at a time, or along a
// sequence with caches.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <harmonics/graph_abi.h>

#include "engine/flow/compiled_step.hpp"
#include "engine/language/decoder.hpp"
#include "engine/transformer/ndsl_compile.hpp"

namespace harmonics::engine {

// Thread-safe.
class EmbeddedModel {
 public:
  // `name`: a registered or built-in model, a `.ndsl` file, or a file or folder that an importer reads.
  EmbeddedModel(const std::string& name, const hx_model_options& options);
  EmbeddedModel(const EmbeddedModel&) = delete;
  EmbeddedModel& operator=(const EmbeddedModel&) = delete;

  // Returns the results of the entry "forward" for tokens, i32 [tokens] or [batch, tokens]. `all`: also returns every
  // observable value. Results have a batch axis if the tokens have one.
  std::vector<std::pair<std::string, HTensor>> values(const HTensor& tokens, bool all);
  // Returns the description of the model. Throws ErrorKind::Usage if it is not described as `.ndsl` or lacks the layer.
  const CompiledNdsl& description(int64_t layer) const;
  // Returns the output of a layer for `hidden`, f32 [tokens, hidden] or [batch, tokens, hidden]. `precision` applies to
  // this call; "" uses that of the model.
  HTensor run_layer(int64_t layer, const std::string& precision, const HTensor& hidden);
  // Returns the decoder for sequences with caches. Throws ErrorKind::Usage if the model has no caches.
  Decoder& decoder();

 private:
  struct LayerPlan {
    std::unique_ptr<Executable> executable;
    std::string output;
  };
  struct Sizes {
    int64_t batch, tokens;
    auto operator<=>(const Sizes&) const = default;
  };

  Lowered lowered(const Sizes& sizes, bool all) const;
  CompiledStep& step(const Sizes& sizes, bool all);
  LayerPlan& plan(int64_t layer, const std::string& precision, const Sizes& sizes);
  std::string value_after(int64_t layer) const;  // -1: the embedding

  std::string name_;
  Model model_;
  std::shared_ptr<const CompiledNdsl> compiled_;  // null if the model has no `.ndsl` description
  CompileOptions compile_;
  std::unique_ptr<Executor> executor_;
  std::mutex mutex_;  // guards the members below
  std::map<std::pair<Sizes, bool>, std::unique_ptr<CompiledStep>> steps_;
  std::map<std::tuple<int64_t, std::string, Sizes>, LayerPlan> layers_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace harmonics::engine

struct hx_model {
  std::shared_ptr<harmonics::engine::EmbeddedModel> model;
};

struct hx_sequence {
  std::shared_ptr<harmonics::engine::EmbeddedModel> model;  // must outlive the session
  std::unique_ptr<harmonics::engine::Session> session;
};
