// Builders for the steps and tensors of layers, used by the rows of block operations.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/transformer/ndsl_compile.hpp"

namespace harmonics::engine {

// One operation of a block. A step of the file may consist of several operations.
struct BlockOp {
  std::string name;             // "QKV"
  const ndsl::Operation* step;  // step of the file with its settings
  std::string group;            // tensor group: "attention", "ln1"
};

enum class NdslFamily { norm, attention, feed_forward, experts };

class NdslLayer;

// A row of the table of block operations.
struct BlockRow {
  const char* name;
  NdslFamily family;
  void (*lower)(NdslLayer&);
};
const std::vector<BlockRow>& block_rows();

// State shared by all layers of a model during compilation.
class NdslBuilder {
 public:
  NdslBuilder(CompiledNdsl& to, NdslFaults& faults) : to_(to), faults_(faults) {}

  CompiledNdsl& compiled() { return to_; }
  NdslFaults& faults() { return faults_; }
  std::string fresh(const char* hint);  // returns a unique name for a value
  // Adds a tensor and its binding. Returns its name.
  std::string tensor(NdslTensor tensor);
  void alias(const std::string& name, std::vector<std::string> tensors);
  // Appends later steps to `to`, until called again.
  void write_to(std::vector<specs::Step>& to) { steps_ = &to; }
  specs::Step& step(const char* op, const ndsl::Place& place);
  // Sets the operation of the block that the next steps belong to; "": none.
  void set_operation(const std::string& name) { operation_ = name; }
  // Makes a value of the steps so far available to observers.
  void observe(const std::string& name, const std::string& value);
  std::string rope(const NdslSettings& settings, int64_t head, bool window);

 private:
  static void scale_attention(const ndsl::Setting& scaling, const std::string& kind, double context, double longest,
                              specs::Rope& rope);
  std::vector<double> factors_of(const ndsl::Setting& scaling, const char* name);
  CompiledNdsl& to_;
  NdslFaults& faults_;
  std::vector<specs::Step>* steps_ = nullptr;
  std::string operation_;
  int64_t values_ = 0;
};

// Writes the tensors and the step of a norm. Returns the name of the result.
std::string lower_norm(NdslBuilder& to, const NdslSettings& settings, const std::string& op, const std::string& tensor,
                       const std::string& alias, const std::string& in);

// Returns whether a layer has shared experts, which every token uses.
bool has_shared_experts(const NdslSettings& settings);

// Returns a dropout rate in [0, 1); other values are faults.
double dropout_of(const NdslSettings& settings, const char* key);
// Writes a dropout step and returns the name of its result, or returns `in` if the rate is 0.
std::string with_dropout(NdslBuilder& to, const NdslSettings& settings, const char* key, const std::string& in);

class NdslLayer {
 public:
  NdslLayer(NdslBuilder& builder, int64_t number, const NdslSettings& settings)
      : to(builder), number_(number), settings_(settings) {}

  NdslBuilder& to;
  // For rows: names of the operation's input, and of its result, which is the next input; "" keeps `in`.
  std::string in, out;
  std::string q, k, v, gate, up, router, router_bias, shared;
  const NdslSettings& settings() const { return *own_; }
  const ndsl::Place& place() const { return own_->where(); }
  int64_t number() const { return number_; }
  const std::string& group() const { return group_; }
  const std::string& op() const { return op_; }  // operation of the step in the file: "GELU_FFN"
  bool window() const { return window_; }
  // Returns "blk.3.attn_q.weight" for ("attn_q", "weight"), or "blk.3.NAME.attn_q.weight" for a group with its own
  // name.
  std::string tensor_name(const std::string& part, const char* kind) const;
  std::string alias_name(const std::string& part) const;  // "blocks[3].attention.out_weight"
  // Writes a linear map with its weight [n, k] and bias. Returns the name of the result.
  std::string linear(const std::string& from, const std::string& part, int64_t n, int64_t k, bool bias, bool residual,
                     int64_t heads, const char* hint);
  std::string reshaped(const std::string& from, std::vector<int64_t> dims, const char* hint);

  void begin();  // begins a step of the block
  void call(const ndsl::Operation& step);
  // Selects from two values by the input, the condition.
  void select(const ndsl::Operation& step, const NdslLevel& config, const std::string& a, const std::string& b);
  // Lowers one operation of a step.
  void run(const BlockOp& op, const NdslLevel& config);
  void set_window(bool window) { window_ = window; }
  // False: a part of the block was omitted because of errors.
  void set_sound(bool sound) { sound_ = sound; }
  bool sound() const { return sound_; }
  // Names a result for observers: "QKV.q". The second result of that name is "QKV.q.2".
  void observe(const std::string& name, const std::string& value);

 private:
  int64_t number_;
  const NdslSettings& settings_;
  const NdslSettings* own_ = nullptr;
  std::string group_, op_;
  std::set<std::string> observed_;
  bool window_ = false, sound_ = true;
};

}  // namespace harmonics::engine
