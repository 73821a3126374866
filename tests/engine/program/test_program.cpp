// verify() detects every kind of invalid program.
#include <catch2/catch.hpp>

#include <harmonics/ops.hpp>

#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using Catch::Matchers::Contains;

namespace {
Program sound() {
  Tracer tracer("p");
  const HTensor x = tracer.input("x", {DType::F32, {2, 3}}), w = tracer.parameter("w", {DType::F32, {4, 3}});
  tracer.output("y", exp(linear(x, w)) + 1.0);
  tracer.update("w", w * 0.5);
  return tracer.take();
}
size_t index_of(const Program& p, Op op) {
  for (size_t i = 0; i < p.nodes.size(); ++i)
    if (p.nodes[i].op == op) return i;
  FAIL("no such node");
  return 0;
}
}  // namespace

TEST_CASE("program: a traced program verifies and finds leaves by name") {
  const Program p = sound();
  CHECK_NOTHROW(verify(p));
  REQUIRE(p.leaf(Op::input, "x"));
  CHECK(p.type(p.leaf(Op::input, "x")->outputs[0]).str() == "f32[2, 3]");
  CHECK(p.leaf(Op::parameter, "x") == nullptr);
  CHECK(p.leaves(Op::parameter).size() == 1);
  REQUIRE(p.output("y"));
  CHECK(p.producer(p.output("y")->value).op == Op::add);
  CHECK(p.output("z") == nullptr);
}

TEST_CASE("verify refuses broken programs") {
  Program p = sound();
  SECTION("order") {
    std::swap(p.nodes[index_of(p, Op::exp)], p.nodes[index_of(p, Op::call)]);
    CHECK_THROWS_WITH(verify(p), Contains("before it is made"));
  }
  SECTION("a value id that does not exist") {
    p.nodes[index_of(p, Op::exp)].inputs[0] = 1000;
    CHECK_THROWS_WITH(verify(p), Contains("it reads %1000 before it is made"));
  }
  SECTION("arity") {
    p.nodes[index_of(p, Op::add)].inputs.pop_back();
    CHECK_THROWS_WITH(verify(p), Contains("add takes 2 operands, not 1"));
  }
  SECTION("a type that inference does not give") {
    p.values[p.nodes[index_of(p, Op::exp)].outputs[0]].type = {DType::F32, {7}};
    CHECK_THROWS_WITH(verify(p), Contains("result 0 is f32[7], inference gives f32[2, 4]"));
  }
  SECTION("a call of nothing") {
    p.nodes[index_of(p, Op::call)].callee = "nothing";
    CHECK_THROWS_WITH(verify(p), Contains("there is no functional 'nothing'"));
  }
  SECTION("a literal without numbers") {
    Node n{};
    n.op = Op::literal;
    p.append(n, {{DType::F32, {}}});
    CHECK_THROWS_WITH(verify(p), Contains("a literal without numbers"));
  }
  SECTION("two leaves of one name") {
    Node n{};
    n.op = Op::input;
    n.callee = "x";
    p.append(n, {{DType::F32, {}}});
    CHECK_THROWS_WITH(verify(p), Contains("a second leaf of this name"));
  }
  SECTION("an output nothing makes") {
    p.outputs.push_back({"z", 1000});
    CHECK_THROWS_WITH(verify(p), Contains("output 'z' is a value nothing makes"));
  }
  SECTION("two outputs of one name") {
    p.outputs.push_back(p.outputs[0]);
    CHECK_THROWS_WITH(verify(p), Contains("two values for output 'y'"));
  }
  SECTION("an update of another type") {
    p.updates[0].value = p.outputs[0].value;
    CHECK_THROWS_WITH(verify(p), Contains("update 'w' is f32[2, 4], its leaf f32[4, 3]"));
  }
  SECTION("a scope that does not exist") {
    p.nodes[0].scope = 9;
    CHECK_THROWS_WITH(verify(p), Contains("its scope does not exist"));
  }
  SECTION("a value whose maker is another") {
    p.values[0].node = 3;
    CHECK_THROWS_WITH(verify(p), Contains("names another node as its producer"));
  }
}
