// Tracing records what immediate evaluation computes; handles belong to one trace.
#include <catch2/catch.hpp>

#include <cstring>
#include <thread>

#include <harmonics/ops.hpp>

#include "engine/program/functional.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/op.hpp"
#include "engine/program/tracer.hpp"
#include "tests/conformance/gradcheck.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using testing::random_tensor;

namespace {

HTensor small_net(const HTensor& x, const HTensor& w, const HTensor& b) {
  const HTensor h = maximum(dot(x, w, {1}, {1}) + b, 0.0);
  return reduce_sum(exp(h - reduce_max(h, {1}, true)), {1});
}

size_t count(const Program& p, Op op) { return p.leaves(op).size(); }

}  // namespace

TEST_CASE("a recorded program computes the same bits as eager evaluation") {
  const Values in{random_tensor({5, 3}, 1, -1, 1, DType::F32), random_tensor({4, 3}, 2, -1, 1, DType::F32),
                  random_tensor({4}, 3, -1, 1, DType::F32)};
  Tracer tracer("net");
  tracer.output("y", small_net(tracer.input("x", type_of(in[0])), tracer.parameter("w", type_of(in[1])),
                               tracer.parameter("b", type_of(in[2]))));
  const Program program = tracer.take();
  const HTensor eager = small_net(in[0], in[1], in[2]);
  const HTensor run = interpret(program, {{"x", in[0]}, {"w", in[1]}, {"b", in[2]}}).at(0);
  REQUIRE(type_of(run) == type_of(eager));
  CHECK(std::memcmp(run.bytes(), eager.bytes(), type_of(run).bytes()) == 0);
}

TEST_CASE("trace: a leaf is one value") {
  Tracer tracer("leaves");
  const TensorType type{DType::F32, {2}};
  CHECK(tracer.id_of(tracer.parameter("w", type)) == tracer.id_of(tracer.parameter("w", type)));
  CHECK(tracer.id_of(tracer.parameter("w", type)) != tracer.id_of(tracer.state("w", type)));
  CHECK_THROWS_WITH(tracer.parameter("w", {DType::F32, {3}}),
                    "parameter 'w' is f32[2] already; it cannot be f32[3] as well");
  tracer.output("y", tracer.parameter("w", type));
  CHECK_THROWS_AS(tracer.output("y", tracer.parameter("w", type)), Error);
  CHECK(tracer.take().nodes.size() == 2);
}

TEST_CASE("trace: tensors become literals once and keep their values") {
  Tracer tracer("literals");
  const HTensor x = tracer.input("x", {DType::F32, {2}});
  HTensor two = HTensor::from<float>({2}, {2, 2});
  HTensor y = x * two + two;
  two.mutable_data<float>()[0] = 7;
  float outside[2] = {1, 1};
  y = y + view_of({DType::F32, {2}}, outside);
  outside[0] = 50;
  tracer.output("y", y);
  const Program program = tracer.take();
  CHECK(count(program, Op::literal) == 2);
  const HTensor r = interpret(program, {{"x", HTensor::from<float>({2}, {10, 20})}}).at(0);
  CHECK(r.data<float>()[0] == 23);
  CHECK(r.data<float>()[1] == 43);
}

TEST_CASE("trace: sources are recorded, operations on tensors computed") {
  Tracer tracer("sources");
  CHECK(full(DType::F32, {2}, 1).raw()->traced());
  CHECK_FALSE((HTensor::from<float>({1}, {1}) + HTensor::from<float>({1}, {2})).raw()->traced());
  {
    const TracePause pause;
    CHECK(Tracer::current() == nullptr);
    CHECK_FALSE(full(DType::F32, {2}, 1).raw()->traced());
  }
  CHECK(Tracer::current() == &tracer);
}

TEST_CASE("trace: reading a traced value is an error") {
  Tracer tracer("values");
  const HTensor x = tracer.input("x", {DType::F32, {2}});
  CHECK_THROWS_AS(x.data<float>(), detail::NeedsValues);
}

TEST_CASE("trace: handles are valid in their own trace only") {
  HTensor kept;
  {
    Tracer tracer("first");
    kept = tracer.input("x", {DType::F32, {2}});
    Tracer inner("second");
    CHECK_THROWS_WITH(neg(kept), Catch::Matchers::StartsWith(
                                     "a traced value of type f32[2] is used outside the trace it belongs to"));
    (void)inner.take();
    CHECK(Tracer::current() == &tracer);
    const HTensor y = neg(kept);
    tracer.output("y", y);
    (void)tracer.take();
    CHECK(Tracer::current() == nullptr);
    CHECK_THROWS_AS(tracer.id_of(y), Error);
  }
  CHECK_THROWS_WITH(neg(kept),
                    Catch::Matchers::StartsWith("neg: an operand is a traced value, but its trace has ended"));
  Tracer later("third");
  CHECK_THROWS_AS(neg(kept), Error);
}

TEST_CASE("trace: tracers are per thread") {
  Tracer tracer("here");
  Tracer* seen = &tracer;
  std::thread([&] { seen = Tracer::current(); }).join();
  CHECK(seen == nullptr);
}

TEST_CASE("trace: tracers may end in any order") {
  auto first = std::make_unique<Tracer>("first");
  auto second = std::make_unique<Tracer>("second");
  first.reset();
  CHECK(Tracer::current() == second.get());
  second.reset();
  CHECK(Tracer::current() == nullptr);
}

TEST_CASE("trace: nodes have the current scope") {
  Tracer tracer("scopes");
  HTensor x = tracer.input("x", {DType::F32, {2}});
  {
    const TraceScope hidden("hidden");
    x = neg(x);
    {
      const TraceScope deeper("hidden/deeper");
      x = exp(x);
    }
    x = neg(x);
  }
  x = log(x);
  tracer.output("y", x);
  const Program p = tracer.take();
  std::vector<std::string> scopes;
  for (const Node& n : p.nodes) scopes.push_back(p.scope_of(n).path);
  CHECK(scopes == std::vector<std::string>{"", "hidden", "hidden/deeper", "hidden", ""});
}

TEST_CASE("trace: a scope of a path alone keeps phase and origin") {
  Tracer tracer("scopes");
  tracer.set_scope({"", Phase::decode, "model.onnx"});
  const HTensor x = tracer.input("x", {DType::F32, {2}});
  {
    const TraceScope block("block");
    tracer.output("y", neg(x));
  }
  CHECK(tracer.scope() == NodeScope{"", Phase::decode, "model.onnx"});
  const Program p = tracer.take();
  CHECK(p.scope_of(p.producer(p.outputs[0].value)) == NodeScope{"block", Phase::decode, "model.onnx"});
}

TEST_CASE("trace: an update replaces the earlier one and has its leaf's type") {
  Tracer tracer("updates");
  const HTensor s = tracer.state("s", {DType::F32, {2}});
  tracer.update("s", s + s);
  tracer.update("s", neg(s));
  {
    Tracer wrong("wrong");
    wrong.update("s", reduce_sum(wrong.state("s", {DType::F32, {2}}), {0}));
    CHECK_THROWS_WITH(wrong.take(), "program 'wrong': update 's' is f32[], its leaf f32[2]");
  }
  const Program p = tracer.take();
  REQUIRE(p.updates.size() == 1);
  CHECK(interpret(p, {{"s", HTensor::from<float>({2}, {1, 2})}}).at(0).data<float>()[1] == -2);
}

TEST_CASE("trace: a functional is a call if traced, else its body") {
  const HTensor x = random_tensor({3, 4}, 1, -2, 2, DType::F32), w = random_tensor({5, 4}, 2, -1, 1, DType::F32);
  Tracer tracer("call");
  const HTensor y = linear(tracer.input("x", type_of(x)), tracer.parameter("w", type_of(w)));
  CHECK(type_of(y) == TensorType{DType::F32, {3, 5}});
  tracer.output("y", softmax(y));
  const Program p = tracer.take();
  CHECK(count(p, Op::call) == 2);
  CHECK(p.nodes.size() == 4);
  const HTensor run = interpret(p, {{"x", x}, {"w", w}}).at(0), eager = softmax(linear(x, w));
  CHECK(std::memcmp(run.bytes(), eager.bytes(), type_of(run).bytes()) == 0);
}

TEST_CASE("a body is traced once per attributes and types") {
  const FunctionalPtr found = FunctionalTable::global().find("linear");
  const Functional& linear = *found;
  const std::vector<TensorType> a{{DType::F32, {2, 3}}, {DType::F32, {4, 3}}},
      b{{DType::F32, {5, 3}}, {DType::F32, {4, 3}}};
  AttributeMap relu;
  relu.set("activation", std::string("relu"));
  CHECK(body_program(linear, {}, a) == body_program(linear, {}, a));
  CHECK(body_program(linear, {}, a) != body_program(linear, {}, b));
  CHECK(body_program(linear, {}, a) != body_program(linear, relu, a));
}

TEST_CASE("functional table: replaced functionals stay valid for holders") {
  FunctionalTable table;
  Functional f;
  f.name = "twice";
  f.body = [](const AttributeMap&, std::span<const HTensor> in) { return Values{in[0] + in[0]}; };
  table.add(f);
  const FunctionalPtr first = table.find("twice");
  f.description = "new";
  table.add(f);
  CHECK(first->description.empty());
  CHECK(table.find("twice")->description == "new");
  CHECK(table.all().size() == 1);
  CHECK(table.find("thrice") == nullptr);
}

TEST_CASE("eager gather and scatter_add refuse indices out of range") {
  const HTensor x = random_tensor({4, 3}, 1);
  CHECK_THROWS_WITH(gather(x, HTensor::from<int64_t>({2}, {1, 4})),
                    "gather: index 4 is out of range for axis 0 of f64[4, 3]");
  CHECK_THROWS_WITH(gather(x, HTensor::from<int32_t>({1}, {-1}), 1),
                    "gather: index -1 is out of range for axis 1 of f64[4, 3]");
  CHECK_THROWS_WITH(scatter_add(x, HTensor::from<int64_t>({1}, {9}), HTensor(DType::F64, {1, 3})),
                    "scatter_add: index 9 is out of range for axis 0 of f64[4, 3]");
}

TEST_CASE("interpret: a missing leaf or another type is an error") {
  Tracer tracer("leaves");
  tracer.output("y", neg(tracer.parameter("w", {DType::F32, {2}})));
  const Program p = tracer.take();
  CHECK_THROWS_WITH(interpret(p, {}), "parameter 'w' has no value");
  CHECK_THROWS_WITH(interpret(p, {{"w", HTensor(DType::F32, {3})}}),
                    "parameter 'w' is f32[2], the value given is f32[3]");
}

TEST_CASE("every row of the table is complete") {
  for (const OpRow& row : op_rows()) {
    INFO(row.name);
    CHECK(find_any_op(row.name) == &row);
    CHECK(op_name(row.op) == row.name);
    const bool plain = row.family != Family::leaf && row.family != Family::control;
    CHECK((find_op(row.name) != nullptr) == plain);
    if (!plain) continue;
    CHECK(row.infer != nullptr);
    CHECK(row.evaluate != nullptr);
  }
  CHECK(find_op("input") == nullptr);
  CHECK(is_elementwise(Op::add));
  CHECK_FALSE(is_elementwise(Op::dot));
}
