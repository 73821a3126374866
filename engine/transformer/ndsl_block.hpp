// The block of one layer: steps of a `.ndsl` file as block operations, including implied ones.
#pragma once

#include <string>
#include <vector>

#include "engine/transformer/ndsl_layer.hpp"

namespace harmonics::engine {

class NdslBlock {
 public:
  // `settings`: of the layer. `experts`: whether MoE_FFN has experts in this layer; otherwise it is a dense SwiGLU_FFN.
  // Adds invalid steps to `faults`. `file` must outlive this object.
  NdslBlock(const ndsl::ModelFile& file, const ndsl::Block& block, const NdslSettings& settings, bool experts,
            NdslFaults& faults);

  BlockSpec spec() const;
  // Writes all steps of the layer. Returns the name of the residual stream after it.
  std::string lower(NdslLayer& layer, const std::string& residual) const;

 private:
  enum class Kind { norm, sublayer, residual, select, call };
  struct Part {
    Kind kind;
    ndsl::Operation step;
    NdslLevel config;
    std::vector<BlockOp> ops;
    bool printed = true;
  };

  void expand(const ndsl::Block& block, int depth);
  void add(const ndsl::Operation& step);
  void add_sublayer(const ndsl::Operation& step, const char* group, const std::vector<std::string>& usual,
                    NdslFamily family);
  void add_norm(const ndsl::Operation& step);
  void add_implied(const ndsl::Operation& before);
  void check_hints();
  std::string group_of(const ndsl::Operation& step, const char* usual);
  bool fuses(size_t part) const;

  const ndsl::ModelFile& file_;
  const NdslSettings& settings_;
  bool experts_, has_experts_ = false, qk_norm_ = false;
  bool sound_ = true;  // false: a part is missing, so errors that follow from this are not reported
  NdslFaults& faults_;
  std::string variant_;
  std::vector<Part> parts_;
  std::vector<std::string> groups_;
};

}  // namespace harmonics::engine
