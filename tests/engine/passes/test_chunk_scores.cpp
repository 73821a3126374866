// chunk_scores: computes the last linear map and its cross entropy in chunks of rows.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <functional>

#include <harmonics/ops.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "tests/engine/execution/training_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr int64_t kRows = 6, kTokens = 7, kWide = 5, kClasses = 11;

// The mean loss of texts over labels of at least 0. `add` extends the program, given the scores and the loss.
struct ScoredProgram {
  Program program;
  std::map<std::string, HTensor> numbers;

  explicit ScoredProgram(bool learns, bool with_bias = true,
                         const std::function<HTensor(const HTensor& scores, const HTensor& mean)>& add = {}) {
    Tracer tracer("scores");
    const HTensor x = tracer.input("x", {DType::F32, {kRows, kTokens, kWide}}),
                  labels = tracer.input("labels", {DType::I32, {kRows, kTokens}}),
                  weight = tracer.parameter("weight", {DType::F32, {kClasses, kWide}}),
                  bias = tracer.parameter("bias", {DType::F32, {kClasses}});
    const HTensor scores = with_bias ? linear(x, weight, bias) : linear(x, weight);
    const HTensor each = apply("softmax_cross_entropy", {}, {scores, maximum(labels, 0.0)}).at(0);
    const HTensor counts = less_equal(0.0, labels);
    const HTensor count = reduce_sum(cast(counts, DType::F32), {0, 1});
    HTensor loss = reduce_sum(select(counts, each, zeros_like(each)), {0, 1}) / count;
    if (add) loss = add(scores, loss);
    tracer.output("loss", loss);
    if (learns) {
      std::vector<HTensor> wrt{x, weight};
      if (with_bias) wrt.push_back(bias);
      const std::vector<HTensor> gradients = gradient(tracer, loss, wrt);
      for (size_t i = 0; i < gradients.size(); ++i) tracer.output("gradient" + std::to_string(i), gradients[i]);
    }
    program = dce(cse(simplify(tracer.take())));
    numbers["x"] = noise({kRows, kTokens, kWide}, 1, 1.0f);
    numbers["weight"] = noise({kClasses, kWide}, 2, 1.0f);
    if (with_bias) numbers["bias"] = noise({kClasses}, 3, 1.0f);
    std::vector<int32_t> classes;
    for (int64_t i = 0; i < kRows * kTokens; ++i) classes.push_back(static_cast<int32_t>(i * 5 % (kClasses + 1)) - 1);
    numbers["labels"] = HTensor::from({kRows, kTokens}, classes);
  }
};

int64_t calls_named(const Program& program, const std::string& name) {
  return std::count_if(program.nodes.begin(), program.nodes.end(),
                       [&](const Node& n) { return n.op == Op::call && n.callee == name; });
}

void check_close(const Program& a, const Program& b, const std::map<std::string, HTensor>& numbers) {
  const Values x = interpret(a, numbers), y = interpret(b, numbers);
  REQUIRE(x.size() == y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    REQUIRE(x[i].shape() == y[i].shape());
    for (int64_t j = 0; j < x[i].size(); ++j)
      CHECK(std::abs(x[i].data<float>()[j] - y[i].data<float>()[j]) <= 1e-6f + 1e-5f * std::abs(x[i].data<float>()[j]));
  }
}

}  // namespace

TEST_CASE("chunk_scores: a loss that learns, with the gradients of x, weight and bias") {
  for (const bool with_bias : {true, false}) {
    const ScoredProgram p(true, with_bias);
    const Program chunked = chunk_scores(p.program, 0);
    CHECK(calls_named(chunked, "linear_cross_entropy_step") == 1);
    CHECK(calls_named(chunked, "linear") == 0);
    CHECK(calls_named(chunked, "softmax_cross_entropy_grad") == 0);
    check_close(p.program, chunked, p.numbers);
    // The loss is computed before the first step of the backward pass.
    bool behind = false;
    const ValueId loss = chunked.outputs[0].value;
    for (const Node& node : chunked.nodes) {
      behind = behind || !is_forward(chunked, node);
      if (!behind) continue;
      CHECK(std::find(node.outputs.begin(), node.outputs.end(), loss) == node.outputs.end());
    }
  }
}

TEST_CASE("chunk_scores: a loss that does not learn") {
  const ScoredProgram p(false);
  const Program chunked = chunk_scores(p.program, 0);
  CHECK(calls_named(chunked, "linear_cross_entropy") == 1);
  CHECK(calls_named(chunked, "softmax_cross_entropy") == 0);
  check_close(p.program, chunked, p.numbers);
}

TEST_CASE("chunk_scores: scores that something else reads, and small ones, stay whole") {
  const ScoredProgram plain(true);
  CHECK(calls_named(chunk_scores(plain.program, 1 << 20), "linear") == 1);
  const ScoredProgram read(true, true, [](const HTensor& scores, const HTensor& mean) {
    return mean + 0.001 * reduce_sum(scores * scores, {0, 1, 2});
  });
  CHECK(calls_named(chunk_scores(read.program, 0), "linear") == 1);
  check_close(read.program, chunk_scores(read.program, 0), read.numbers);
}

TEST_CASE("chunk_scores: a gradient that depends on the loss keeps the scores whole") {
  const ScoredProgram squared(true, true, [](const HTensor&, const HTensor& mean) { return mean * mean; });
  CHECK(calls_named(chunk_scores(squared.program, 0), "linear") == 1);
}

TEST_CASE("chunk_scores: a step holds an eighth of the scores") {
  Tracer tracer("wide");
  constexpr int64_t kMany = 1024, kVocabulary = 32768;
  const HTensor x = tracer.input("x", {DType::F32, {kMany, 8}}), labels = tracer.input("labels", {DType::I32, {kMany}}),
                weight = tracer.parameter("weight", {DType::F32, {kVocabulary, 8}});
  const HTensor each = apply("softmax_cross_entropy", {}, {linear(x, weight), labels}).at(0);
  const HTensor loss = reduce_mean(each, {0});
  const std::vector<HTensor> gradients = gradient(tracer, loss, {x, weight});
  tracer.output("loss", loss);
  tracer.output("dx", gradients[0]);
  tracer.output("dweight", gradients[1]);
  const Program program = tracer.take();
  const auto executor = make_sequential_executor();
  MapBinding binding({{"weight", noise({kVocabulary, 8}, 1, 1.0f)}});
  CompileOptions whole = on("cpu");
  whole.disabled = {"chunk_scores"};
  const uint64_t scores = static_cast<uint64_t>(kMany * kVocabulary) * 4, dweight = kVocabulary * 8 * 4;
  CHECK(compile(program, &binding, *executor, whole)->memory().arena_bytes >= scores);
  CHECK(compile(program, &binding, *executor, on("cpu"))->memory().arena_bytes <= scores / 8 + 3 * dweight);
}
