// The example calls that `inspect` shows for functionals and primitives.
#include <catch2/catch.hpp>

#include "engine/conformance/call_text.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/op.hpp"
#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

std::string shown(const std::string& op) {
  const std::optional<CallExample> call = shortest_call(op);
  return call ? call_text(*call) : "none";
}

}  // namespace

TEST_CASE("call text: the call shown of every functional works") {
  for (const FunctionalPtr& functional : FunctionalTable::global().all()) {
    INFO(functional->name);
    const std::optional<CallExample> call = shortest_call(functional->name);
    REQUIRE(call);
    INFO(call_text(*call));
    CHECK_FALSE(apply(call->op, call->attributes, call->inputs).empty());
  }
}

TEST_CASE("call text: the call shown of every primitive works") {
  for (const OpRow& row : op_rows()) {
    if (!find_op(row.name) || row.family == Family::control) continue;
    INFO(std::string(row.name));
    const std::optional<CallExample> call = shortest_call(std::string(row.name));
    REQUIRE(call);
    INFO(call_text(*call));
    CHECK_FALSE(apply(call->op, call->attributes, call->inputs).empty());
  }
}

TEST_CASE("call text: inputs have the names of the signature, attributes those that a call needs") {
  CHECK(shown("relu").rfind("call(\"relu\", {x})  // x f32[", 0) == 0);
  CHECK(shown("attention").rfind("call(\"attention\", {q, k, v})  // q f32[", 0) == 0);
  CHECK(shown("linear").rfind("call(\"linear\", {x, weight})  // x f32[", 0) == 0);
  CHECK(shown("conv").rfind("call(\"conv\", {x, weight})  // x f32[", 0) == 0);
  CHECK(shown("max_pool").rfind("call(\"max_pool\", {x}, Attributes().set(\"kernel\", std::vector<int64_t>{", 0) == 0);
  CHECK(shown("lstm").rfind("call(\"lstm\", {x, w_ih, w_hh})  // ", 0) == 0);
  CHECK(shown("adamw").rfind("call(\"adamw\", {w, g, m, v, lr, step})  // ", 0) == 0);
  CHECK(
      shown("update_all").rfind("call(\"update_all\", {tensors1, tensors2, tensors3, tensors4, lr}, Attributes()", 0) ==
      0);
  CHECK(shown("add") == "call(\"add\", {x, y})  // x f32[2, 3], y f32[2, 3]");
  CHECK(shown("select") == "call(\"select\", {condition, x, y})  // condition bool[2, 3], x f32[2, 3], y f32[2, 3]");
  CHECK(shown("bit_xor") == "call(\"bit_xor\", {x, y})  // x i32[2, 3], y i32[2, 3]");
  CHECK(shown("logical_not") == "call(\"logical_not\", {x})  // x bool[2, 3]");
}
