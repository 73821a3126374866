// The trait BlockPart, which recomputation and memory reports use.
#include <catch2/catch.hpp>

#include "engine/program/functional.hpp"

namespace harmonics::engine {

namespace {

BlockPart part_named(const char* callee) {
  Node node{};
  node.op = Op::call;
  node.callee = callee;
  return part_of(node);
}

}  // namespace

TEST_CASE("block parts: norms, attention, activations, maps and products have theirs") {
  for (const char* name : {"rms_norm", "layer_norm"}) CHECK(part_named(name) == BlockPart::norm);
  CHECK(part_named("attention") == BlockPart::attention);
  for (const char* name : {"silu", "gelu", "relu", "elu", "leaky_relu", "softplus"})
    CHECK(part_named(name) == BlockPart::activation);
  for (const char* name : {"linear", "grouped_linear"}) CHECK(part_named(name) == BlockPart::map);
  for (const char* name : {"dot_add", "dot_sum", "fused_dot", "linear_cross_entropy"})
    CHECK(part_named(name) == BlockPart::product);
  CHECK(part_named("conv") == BlockPart::convolution);
}

TEST_CASE("block parts: gradients, other functionals and primitives have none") {
  for (const char* name : {"gelu_grad", "rms_norm_grad", "attention_grad", "softmax", "no_such_functional"})
    CHECK(part_named(name) == BlockPart::none);
  Node node{};
  node.op = Op::dot;
  CHECK(part_of(node) == BlockPart::none);
}

}  // namespace harmonics::engine
