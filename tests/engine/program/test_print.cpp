// Printed programs parse back exactly. Errors show their position.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <harmonics/ops.hpp>

#include "engine/base/source_text.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/host_function.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/print.hpp"
#include "tests/conformance/gradcheck.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using testing::random_tensor;

namespace {

// Equality; attribute values compare as text, since NaN equals nothing.
void check_equal(const Program& a, const Program& b) {
  REQUIRE(a.name == b.name);
  REQUIRE(a.scopes == b.scopes);
  REQUIRE(a.values.size() == b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i) {
    REQUIRE(a.values[i].type == b.values[i].type);
    REQUIRE(a.values[i].node == b.values[i].node);
    REQUIRE(a.values[i].output == b.values[i].output);
  }
  REQUIRE(a.nodes.size() == b.nodes.size());
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    INFO("node " << i << " " << print(a));
    REQUIRE(x.op == y.op);
    REQUIRE(x.attributes.str() == y.attributes.str());
    REQUIRE(x.inputs == y.inputs);
    REQUIRE(x.outputs == y.outputs);
    REQUIRE(x.callee == y.callee);
    REQUIRE(a.scope_of(x) == b.scope_of(y));
    REQUIRE(x.literal.empty() == y.literal.empty());
    if (x.literal) REQUIRE(std::memcmp(x.literal.bytes(), y.literal.bytes(), type_of(x.literal).bytes()) == 0);
    REQUIRE((x.host ? x.host->name() : "") == (y.host ? y.host->name() : ""));
  }
  const auto same = [](const std::vector<NamedValue>& p, const std::vector<NamedValue>& q) {
    REQUIRE(p.size() == q.size());
    for (size_t i = 0; i < p.size(); ++i) {
      REQUIRE(p[i].name == q[i].name);
      REQUIRE(p[i].value == q[i].value);
    }
  };
  same(a.outputs, b.outputs);
  same(a.updates, b.updates);
}

void check_round_trip(const Program& program) {
  const std::string text = print(program);
  const Program back = parse_program(text, "printed");
  check_equal(program, back);
  CHECK(print(back) == text);
}

// Appends a random operation on random earlier values of one shape.
HTensor random_step(std::mt19937& random, const Values& floats, const Values& bools) {
  const auto pick = [&](const Values& from) { return from[random() % from.size()]; };
  switch (random() % 10) {
    case 0:
      return pick(floats) + pick(floats);
    case 1:
      return pick(floats) * static_cast<double>(random()) * 1e-7;
    case 2:
      return select(pick(bools), pick(floats), pick(floats));
    case 3:
      return softmax(pick(floats));
    case 4:
      return reverse(pick(floats), {static_cast<int64_t>(random() % 2)});
    case 5:
      return linear(pick(floats), random_tensor({4, 4}, random(), -1, 1, DType::F32));
    case 6:
      return broadcast(reduce_max(pick(floats), {1}, true), {3, 4});
    case 7:
      return transpose(transpose(pick(floats), {1, 0}), {1, 0});
    case 8:
      return cast(top_k(pick(floats), 4).second, DType::F32);
    default:
      return call1(random() % 2 ? "tanh" : "neg", {pick(floats)});
  }
}

Program random_program(uint32_t seed) {
  std::mt19937 random(seed);
  Tracer tracer("random \"" + std::to_string(seed) + "\"\n");
  const TensorType type{DType::F32, {3, 4}};
  Values floats{tracer.input("x", type), tracer.parameter("hidden.weight", type), tracer.state("mean\t1", type)}, bools;
  bools.push_back(less(floats[0], floats[1]));
  const NodeScope scopes[] = {{},
                              {"hidden"},
                              {"hidden/deep-er.1", Phase::forward, "net.hmx:9:3"},
                              {"with space", Phase::loss},
                              {"\"@{}", Phase::decode, "a \"node\""},
                              {"gradient/MatMul"},
                              {"", Phase::observe},
                              {"", Phase::forward, "Gemm_1"}};
  for (int i = 0; i < 12; ++i) {
    const TraceScope scope(scopes[random() % std::size(scopes)]);
    floats.push_back(random_step(random, floats, bools));
    if (random() % 4 == 0) bools.push_back(equal(floats.back(), floats[random() % floats.size()]));
  }
  const HTensor loss = reduce_sum(floats.back() * floats[3], {0, 1});
  tracer.output("loss", loss);
  tracer.update("hidden.weight", gradient(tracer, loss, {floats[1]}).at(0));
  tracer.update("mean\t1", floats[4]);
  return tracer.take();
}

Program with_literals(const Values& literals) {
  Tracer tracer("literals");
  int i = 0;
  for (const HTensor& t : literals) tracer.output(std::to_string(i++), t);
  return tracer.take();
}

// Returns the report without its first line, which is what().
std::string refusal(const std::string& body) {
  try {
    parse_program("program \"p\"\n" + body, "p.program");
  } catch (const SourceErrors& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("print: a scope's phase and origin") {
  const auto text = [](const std::string& scope) {
    return "program \"p\"\n%0: f32[] = input \"x\"" + scope + "\noutput \"y\" = %0\n";
  };
  const auto scope_in = [&](const std::string& scope) {
    const Program p = parse_program(text(scope), "p.program");
    return p.scope_of(p.nodes[0]);
  };
  // The format from before scopes had phases and origins.
  CHECK(scope_in("") == NodeScope());
  CHECK(scope_in(" @x.hidden") == NodeScope{"x.hidden"});
  CHECK(scope_in(" @gradient/x.hidden") == NodeScope{"x.hidden", Phase::gradient});
  CHECK(scope_in(" @recomputed/block/mlp") == NodeScope{"block/mlp", Phase::recomputed});
  CHECK(scope_in(" @optimizer") == NodeScope{"", Phase::optimizer});
  CHECK(scope_in(" @\"optimizer/a b\"") == NodeScope{"a b", Phase::optimizer});
  CHECK(scope_in(" @gradient/loss/output") == NodeScope{"loss/output", Phase::gradient});
  for (const char* scope :
       {" @x.h from \"net.hmx:9:3\"", " @decode/blk.0", " @forward/gradient/MatMul from \"MatMul\"",
        " @\"\" from \"Gemm 1\"", " @x.h in bf16", " @\"\" in fp8", " @gradient/x.h from \"net.hmx:9:3\" in fp16"})
    CHECK(print(parse_program(text(scope), "p.program")) == text(scope));
  CHECK(scope_in(" @forward/gradient/MatMul") == NodeScope{"gradient/MatMul"});
  CHECK(refusal("%0: f32[] = input \"x\" @h form \"net.hmx\"\n").find("expected from \"ORIGIN\"") != std::string::npos);
  CHECK(refusal("%0: f32[] = input \"x\" @h from net\n") != "no error");
  CHECK(scope_in(" @x.h from \"a\" in fp16") == NodeScope{"x.h", Phase::forward, "a", Rounding::fp16});
  for (const char* rounding : {"none", "fp32", "", "16"}) {
    CAPTURE(rounding);
    CHECK(refusal("%0: f32[] = input \"x\" @h in " + std::string(rounding) + "\n")
              .find("a product rounds to fp16, bf16 or fp8") != std::string::npos);
  }
  CHECK(refusal("%0: f32[] = input \"x\" @h from \"a\" to fp16\n").find("expected in ROUNDING") != std::string::npos);
}

TEST_CASE("print: one node per line") {
  Tracer tracer("mnist");
  const HTensor x = tracer.input("pixels", {DType::F32, {64, 784}}),
                w = tracer.parameter("digits.weight", {DType::F32, {10, 784}});
  HTensor y;
  {
    const TraceScope scope("digits");
    y = call1("linear", {x, w}, Attributes().set("activation", "relu"));
  }
  tracer.output("top", top_k(y * 0.5, 3).first);
  tracer.output("rate", HTensor::from<float>({1, 1}, {0.1f}));
  tracer.update("digits.weight", neg(w));
  CHECK(print(tracer.take()) == R"(program "mnist"
%0: f32[64, 784] = input "pixels"
%1: f32[10, 784] = parameter "digits.weight"
%2: f32[64, 10] = linear(%0, %1) {activation = "relu"} @digits
%3: f32[64, 10] = full() {dtype = f32, shape = [64, 10], value = 0.5}
%4: f32[64, 10] = mul(%2, %3)
%5: f32[64, 3], %6: i64[64, 3] = top_k(%4) {k = 3}
%7: f32[1, 1] = literal [0.1]
%8: f32[10, 784] = neg(%1)
output "top" = %5
output "rate" = %7
update "digits.weight" = %8
)");
}

TEST_CASE("print: random programs read back exactly") {
  for (uint32_t seed = 0; seed < 60; ++seed) check_round_trip(random_program(seed));
}

TEST_CASE("print: a program read back computes the same bits") {
  const Program program = random_program(7), back = parse_program(print(program), "printed");
  const std::map<std::string, HTensor> leaves{{"x", random_tensor({3, 4}, 1, -1, 1, DType::F32)},
                                              {"hidden.weight", random_tensor({3, 4}, 2, -1, 1, DType::F32)},
                                              {"mean\t1", random_tensor({3, 4}, 3, -1, 1, DType::F32)}};
  const Values a = interpret(program, leaves), b = interpret(back, leaves);
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(std::memcmp(a[i].bytes(), b[i].bytes(), type_of(a[i]).bytes()) == 0);
}

TEST_CASE("print: literals of every type and size read back bit for bit") {
  Values literals;
  for (uint32_t d = 0; d <= static_cast<uint32_t>(DType::F64); ++d)
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{2, 0, 3}, Shape{5}, Shape{3, 4}, Shape{70}})
      literals.push_back(random_tensor(shape, d + 1, -99, 99, static_cast<DType>(d)));
  const float inf = std::numeric_limits<float>::infinity(), tiny = std::numeric_limits<float>::denorm_min();
  literals.push_back(HTensor::from<float>({6}, {inf, -inf, -0.0f, tiny, 3.4028235e38f, 0.1f}));
  literals.push_back(HTensor::from<float>({2}, {1.0f, std::nanf("7")}));
  literals.push_back(
      HTensor::from<int64_t>({2}, {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}));
  literals.push_back(HTensor::from<uint64_t>({1}, {std::numeric_limits<uint64_t>::max()}));
  check_round_trip(with_literals(literals));
}

TEST_CASE("print: attributes of every kind read back") {
  Tracer tracer("attributes");
  Node n{};
  n.op = Op::neg;
  n.attributes.set("a", std::vector<double>{})
      .set("b", std::vector<int64_t>{})
      .set("c", std::vector<double>{1, -2.5e-300});
  n.attributes.set("d", std::nan(""))
      .set("e", -std::numeric_limits<double>::infinity())
      .set("f", 3.0)
      .set("g", int64_t{3});
  n.attributes.set("strange name", true).set("h", std::string("\x01\x7f\\\"\n\tä")).set("dtype", int64_t{-4});
  const HTensor x = tracer.input("x", {DType::F32, {}});
  tracer.output("y", tracer.append(std::move(n), {x}, {type_of(x)}).at(0));
  check_round_trip(tracer.take());
}

TEST_CASE("print: a host function reads back by name and cannot run") {
  class Host : public HostFunction {
   public:
    std::string name() const override { return "activation 'mine' (plugin \"x\")"; }
    std::vector<HTensor> run(const std::vector<HTensor>& in) const override { return in; }
    std::vector<HTensor> gradient(const std::vector<HTensor>&, const std::vector<HTensor>&,
                                  const std::vector<HTensor>&) const override {
      return {};
    }
  };
  Tracer tracer("host");
  Node n{};
  n.op = Op::host_call;
  n.host = std::make_shared<Host>();
  const HTensor x = tracer.input("x", {DType::F32, {}});
  tracer.output("y", tracer.append(std::move(n), {x}, {type_of(x)}).at(0));
  const Program program = tracer.take();
  check_round_trip(program);
  CHECK_THROWS_WITH(
      interpret(parse_program(print(program), "p"), {{"x", HTensor::scalar(1)}}),
      "activation 'mine' (plugin \"x\") was read from a program's text, which holds its name but not its code");
}

TEST_CASE("comments, empty lines and other numbers of values are read") {
  const Program p = parse_program(
      "# a program\n\nprogram \"p\" # named p\n%7 : f32[ 2 ]=input \"x\"\n\n%3: f32[2] = call \"relu\" ( %7 )\r\n"
      "output \"y\" = %3",
      "p");
  CHECK(print(p) == "program \"p\"\n%0: f32[2] = input \"x\"\n%1: f32[2] = relu(%0)\noutput \"y\" = %1\n");
}

TEST_CASE("parse: errors show their position") {
  CHECK(refusal("%0: f32[2] = input \"x\"\n%1: f32[2] = tanhh(%0)\n") ==
        "p.program:3:14: error: there is no operation 'tanhh'\n"
        "%1: f32[2] = tanhh(%0)\n"
        "             ^~~~~\n"
        "help: did you mean 'tanh'?\n");
  CHECK(refusal("%0: f32[2] = input \"x\"\n%1: f32[3] = neg(%0)\n") ==
        "p.program:3:1: error: the result is f32[2], not f32[3]\n"
        "%1: f32[3] = neg(%0)\n"
        "^~~~~~~~~~~~~~~~~~~~\n");
  const std::pair<const char*, const char*> cases[] = {
      {"%1: f32[2] = neg(%0)", "p.program:2:18: error: %0 is used before it is defined"},
      {"%0: f32[2] = input \"x\"\n%0: f32[2] = input \"y\"", "%0 is defined twice"},
      {"%0: f32[2], %0: f32[2] = input \"x\"", "%0 is defined twice"},
      {"%0: f32[2] = input \"x\"\n%1: f32[2] = input \"x\"", "a second input 'x'"},
      {"%0: f32[2], %1: f32[2] = input \"x\"", "this has one result, not 2"},
      {"%0: f33[2] = input \"x\"", "unknown element type 'f33'"},
      {"%0: f32[-2] = input \"x\"", "negative dimension in [-2]"},
      {"%0: f32[9223372036854775807, 9223372036854775807] = input \"x\"", "overflows"},
      {"%0: f32[1,1,1,1,1,1,1,1,1] = input \"x\"", "at most 8 dimensions, not 9"},
      {"%0: f32[x] = input \"x\"", "expected the size of an axis"},
      {"%0: f32[2] = literal [1]", "1 number cannot fill f32[2]"},
      {"%0: i8[1] = literal [300]", "'300' is not a number of type i8"},
      {"%0: f32[1] = literal bytes \"00\"", "2 hexadecimal digits cannot fill the 4 bytes of f32[1]"},
      {"%0: bool[1] = literal bytes \"02\"", "'02' is not a byte of bool[1]"},
      {"%0: u8[1] = literal bytes \"x2\"", "'x2' is not a byte of u8[1]"},
      {"%0: u8[1] = literal 3", "a literal is a list of numbers or bytes"},
      {"%0: f32[2] = input \"x", "the text is not closed"},
      {"%0: f32[2] = input \"\\q\"", "unknown escape in a string"},
      {"%0: f32[2] = input \"x\" y", "expected the end of the line, found 'y'"},
      {"%0: f32[2] = input \"x\"\n%1: f32[2] = neg(%0) {a = 1, a = 2}", "attribute 'a' is defined twice"},
      {"%0: f32[2] = input \"x\"\n%1: f32[2] = neg(%0) {a = [1, 2.0]}",
       "a list holds whole numbers, or numbers that all have a point"},
      {"%0: f32[2] = input \"x\"\n%1: f32[2] = neg(%0) {a = 99999999999999999999}",
       "expected a number, a list, a string"},
      {"%0: f32[2] = input \"x\"\n%1: f32[2] = neg(%0, %0)", "neg takes 1 operand, not 2"},
      {"%0: f32[2] = input \"x\"\n%1: f32[2] = softmax(%0, %0)", "softmax"},
      {"%0: f32[2] = input \"x\"\n%1: f32[2], %2: f32[2] = neg(%0)", "the operation has 1 result, not 2"},
      {"output \"y\" = %0", "%0 is used before it is defined"},
      {"%0: f32[2] = input \"x\"\noutput \"y\" = %0\noutput \"y\" = %0", "'y' is defined twice"},
      {"%0: f32[2] = parameter \"w\"\n%1: f32[] = literal [1.0]\nupdate \"w\" = %1",
       "update 'w' is f32[], its leaf f32[2]"},
      {"hello", "expected a value such as %3, output or update"},
      {"%99999999999999999999: f32[] = input \"x\"", "expected the number of a value"},
  };
  for (const auto& [text, error] : cases) {
    INFO(text);
    CHECK_THAT(refusal(text), Catch::Matchers::Contains(error));
  }
  CHECK_THROWS_WITH(parse_program("", "p"), Catch::Matchers::Contains("a program's text begins with program \"NAME\""));
}

TEST_CASE("parse: damaged texts parse or are rejected") {
  std::mt19937 random(3);
  const std::string good = print(random_program(11));
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (uint32_t k = 0; k <= random() % 3; ++k) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 9);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 9));
          break;
        default:
          text[at] = good[random() % good.size()];
      }
    }
    try {
      const Program p = parse_program(text, "damaged");
      CHECK(print(parse_program(print(p), "again")) == print(p));
    } catch (const SourceErrors&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
  CHECK(refused < 3000);
}
