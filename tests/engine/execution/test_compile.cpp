#include <catch2/catch.hpp>

#include "tests/engine/execution/compiled.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("reference device: interpreter's bits on random programs with a poisoned arena") {
  const auto executor = make_sequential_executor();
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const RandomProgram random(seed);
    const Values expected = interpret(random.program(), random.numbers());
    CompileOptions options = on("reference");
    REQUIRE(same_bits(run_compiled(random.program(), random.numbers(), *executor, options), expected));
    options.fuse = false;
    options.disabled = {"cse", "simplify", "dce"};
    REQUIRE(same_bits(run_compiled(random.program(), random.numbers(), *executor, options), expected));
    options = on("reference");
    options.recompute = {"hidden*"};
    REQUIRE(same_bits(run_compiled(random.program(), random.numbers(), *executor, options), expected));
  }
}

TEST_CASE("running twice uses the updated parameters and new inputs") {
  Builder b;
  const ValueId x = b.input("x", {3}), w = b.parameter("w", {3});
  const ValueId sum = b.apply(Op::add, {x, w});
  b.output("y", sum);
  b.update("w", b.apply(Op::mul, {sum, sum}));
  MapBinding binding({{"w", HTensor::from<float>({3}, {1, 2, 3})}});
  const auto executor = make_sequential_executor();
  const auto executable = compile(b.program, &binding, *executor, on("reference"));
  REQUIRE(executable->input_names() == std::vector<std::string>{"x"});
  CHECK(executable->input_type(0) == TensorType{DType::F32, {3}});
  const HTensor first = HTensor::from<float>({3}, {0, 1, 2}), second = HTensor::from<float>({3}, {1, 1, 1});
  const void* inputs[1] = {first.bytes()};
  executable->run(inputs);
  CHECK(same_bits(executable->output("y"), HTensor::from<float>({3}, {1, 3, 5})));
  CHECK(same_bits(binding.tensor("w", {DType::F32, {3}}), HTensor::from<float>({3}, {1, 9, 25})));
  inputs[0] = second.bytes();
  executable->run(inputs);
  CHECK(same_bits(executable->output("y"), HTensor::from<float>({3}, {2, 10, 26})));
  CHECK(same_bits(binding.tensor("w", {DType::F32, {3}}), HTensor::from<float>({3}, {4, 100, 676})));
}

TEST_CASE("run_forward: changes no parameter or state") {
  Builder b;
  const ValueId x = b.input("x", {2}), w = b.parameter("w", {2}), mean = b.state("mean", {2});
  const ValueId loss = b.apply(Op::mul, {x, w});
  b.update("mean", b.apply(Op::maximum, {mean, loss}));
  b.scope("gradient/hidden");
  const ValueId g = b.apply(Op::neg, {x});
  b.scope("optimizer/w");
  b.update("w", b.apply(Op::sub, {w, g}));
  b.output("loss", loss);
  MapBinding binding({{"w", HTensor::from<float>({2}, {1, 2})}, {"mean", HTensor::from<float>({2}, {0, 0})}});
  const auto executor = make_sequential_executor();
  const auto executable = compile(b.program, &binding, *executor, on("reference"));
  const HTensor x_value = HTensor::from<float>({2}, {3, 4});
  const void* inputs[1] = {x_value.bytes()};
  const TensorType type{DType::F32, {2}};
  executable->run_forward(inputs);
  CHECK(same_bits(executable->output("loss"), HTensor::from<float>({2}, {3, 8})));
  CHECK(same_bits(binding.tensor("w", type), HTensor::from<float>({2}, {1, 2})));
  CHECK(same_bits(binding.tensor("mean", type), HTensor::from<float>({2}, {0, 0})));
  executable->run_rest(inputs);
  CHECK(same_bits(executable->output("loss"), HTensor::from<float>({2}, {3, 8})));
  CHECK(same_bits(binding.tensor("w", type), HTensor::from<float>({2}, {4, 6})));
  CHECK(same_bits(binding.tensor("mean", type), HTensor::from<float>({2}, {3, 8})));
}

TEST_CASE("updates: parameters can be swapped, outputs keep old values") {
  Builder b;
  const ValueId a = b.parameter("a", {2}), c = b.parameter("c", {2});
  b.output("old a", a);
  b.update("a", c);
  b.update("c", a);
  MapBinding binding({{"a", HTensor::from<float>({2}, {1, 2})}, {"c", HTensor::from<float>({2}, {3, 4})}});
  const auto executor = make_sequential_executor();
  const auto executable = compile(b.program, &binding, *executor, on("reference"));
  executable->run(nullptr);
  const TensorType type{DType::F32, {2}};
  CHECK(same_bits(executable->output("old a"), HTensor::from<float>({2}, {1, 2})));
  CHECK(same_bits(binding.tensor("a", type), HTensor::from<float>({2}, {3, 4})));
  CHECK(same_bits(binding.tensor("c", type), HTensor::from<float>({2}, {1, 2})));
}

TEST_CASE("indices outside their axis are clamped in compiled programs") {
  Builder b;
  const ValueId table = b.input("table", {3, 2}), at = b.input("at", {4}, DType::I64);
  b.output("rows", b.apply(Op::gather, {table, at}, AttributeMap().set("axis", int64_t{0})));
  const auto executor = make_sequential_executor();
  const auto executable = compile(b.program, nullptr, *executor, on("reference"));
  const HTensor rows = HTensor::from<float>({3, 2}, {0, 1, 2, 3, 4, 5}),
                indices = HTensor::from<int64_t>({4}, {-7, 1, 2, 99});
  const std::map<std::string, HTensor> numbers{{"table", rows}, {"at", indices}};
  executable->run(input_pointers(*executable, numbers).data());
  CHECK(same_bits(executable->output("rows"), HTensor::from<float>({4, 2}, {0, 1, 2, 3, 4, 5, 4, 5})));
}

TEST_CASE("compile options: unknown names are rejected") {
  Builder b;
  b.output("y", b.input("x", {2}));
  const auto executor = make_sequential_executor();
  const auto message = [&](const CompileOptions& options) -> std::string {
    try {
      compile(b.program, nullptr, *executor, options);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  CompileOptions options = on("reference");
  options.disabled = {"ces"};
  CHECK(message(options) == "there is no pass 'ces' to switch off");
  options.disabled = {"inline_calls"};
  CHECK(message(options) == "the pass 'inline_calls' cannot be switched off");
  const auto executable = compile(b.program, nullptr, *executor, on("reference"));
  CHECK_THROWS_WITH(executable->output("z"), "program 'test' has no output 'z'");
}

TEST_CASE("compile options: observe gets the program after each pass") {
  const RandomProgram random(3);
  std::vector<std::string> seen;
  CompileOptions options = on("reference");
  options.observe = [&](const std::string& pass, const Program& program) {
    verify(program);
    seen.push_back(pass);
  };
  MapBinding binding(random.numbers());
  const auto executor = make_sequential_executor();
  compile(random.program(), &binding, *executor, options);
  CHECK(seen == std::vector<std::string>{"simplify",
                                         "cse",
                                         "dce",
                                         "set_precision",
                                         "select",
                                         "chunk_scores",
                                         "absorb_conversions",
                                         "transpose_weights",
                                         "fuse_calls",
                                         "recompute",
                                         "inline_calls",
                                         "select",
                                         "simplify",
                                         "cse",
                                         "dce",
                                         "convert_operands",
                                         "fuse_pooling",
                                         "fuse_updates",
                                         "absorb_conversions",
                                         "accumulate_products",
                                         "sum_with_products",
                                         "recompute_elementwise",
                                         "keep_derivatives",
                                         "finish_products",
                                         "fuse_elementwise",
                                         "fuse_reductions",
                                         "advance_updates",
                                         "join_updates"});
}
