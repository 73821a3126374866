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

namespace {

// The mean loss over a frozen weight of another type, and the gradients of x and bias.
Program scored_by_frozen(DType type, int64_t rows, int64_t classes, int64_t width) {
  Tracer tracer("frozen");
  const HTensor x = tracer.input("x", {DType::F32, {rows, width}}),
                labels = tracer.input("labels", {DType::I32, {rows}}),
                weight = tracer.parameter("weight", {type, {classes, width}}),
                bias = tracer.parameter("bias", {DType::F32, {classes}});
  const HTensor loss = reduce_mean(apply("softmax_cross_entropy", {}, {linear(x, weight, bias), labels}).at(0), {0});
  tracer.output("loss", loss);
  const std::vector<HTensor> gradients = gradient(tracer, loss, {x, bias});
  tracer.output("dx", gradients[0]);
  tracer.output("dbias", gradients[1]);
  return dce(cse(simplify(tracer.take())));
}

}  // namespace

TEST_CASE("chunk_scores: a frozen weight of another type is decoded in each chunk") {
  for (const DType type : {DType::BF16, DType::F16, DType::Q8_0}) {
    CAPTURE(dtype_name(type));
    constexpr int64_t rows = 200, classes = 33, width = 32;
    const Program program = scored_by_frozen(type, rows, classes, width), chunked = chunk_scores(program, 0);
    CHECK(calls_named(program, "linear") == 2);
    CHECK(calls_named(chunked, "linear_cross_entropy_step") == 1);
    CHECK(calls_named(chunked, "linear") == 0);
    std::vector<int32_t> labels;
    for (int64_t i = 0; i < rows; ++i) labels.push_back(static_cast<int32_t>(i * 7 % classes));
    check_close(program, chunked,
                {{"x", noise({rows, width}, 1, 1.0f)},
                 {"weight", cast(noise({classes, width}, 2, 1.0f), type)},
                 {"bias", noise({classes}, 3, 1.0f)},
                 {"labels", HTensor::from({rows}, labels)}});
  }
  constexpr int64_t rows = 1024, classes = 32'768, width = 64;
  const auto executor = make_sequential_executor();
  MapBinding binding(
      {{"weight", cast(noise({classes, width}, 1, 1.0f), DType::Q8_0)}, {"bias", noise({classes}, 2, 1.0f)}});
  const uint64_t scores = rows * classes * 4, in_f32 = classes * width * 4;
  CHECK(compile(scored_by_frozen(DType::Q8_0, rows, classes, width), &binding, *executor, on("cpu"))
            ->memory()
            .arena_bytes <= scores / 8 + in_f32 / 2);
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

namespace {

constexpr int64_t kPlannedWidth = 2;

// The program of a loss of `rows` tokens with `classes` scores each, and its gradients. `softcap`: 0: none.
Program scored(int64_t rows, int64_t classes, double softcap) {
  Tracer tracer("wide");
  const HTensor x = tracer.input("x", {DType::F32, {rows, kPlannedWidth}}),
                labels = tracer.input("labels", {DType::I32, {rows}}),
                weight = tracer.parameter("weight", {DType::F32, {classes, kPlannedWidth}});
  if (softcap > 0) {
    const HTensor dloss = full(DType::F32, {rows}, 1.0 / static_cast<double>(rows));
    const std::vector<HTensor> results =
        apply("linear_cross_entropy_step", AttributeMap().set("softcap", softcap), {x, weight, labels, dloss});
    for (size_t i = 0; i < results.size(); ++i) tracer.output("result" + std::to_string(i), results[i]);
    return tracer.take();
  }
  const HTensor loss = reduce_mean(apply("softmax_cross_entropy", {}, {linear(x, weight), labels}).at(0), {0});
  const std::vector<HTensor> gradients = gradient(tracer, loss, {x, weight});
  tracer.output("loss", loss);
  tracer.output("dx", gradients[0]);
  tracer.output("dweight", gradients[1]);
  return tracer.take();
}

uint64_t planned_bytes(const Program& program, int64_t classes, bool chunked) {
  const auto executor = make_sequential_executor();
  MapBinding binding({{"weight", noise({classes, kPlannedWidth}, 1, 1.0f)}});
  CompileOptions options = on("cpu");
  if (!chunked) options.disabled = {"chunk_scores"};
  return compile(program, &binding, *executor, options)->memory().arena_bytes;
}

}  // namespace

TEST_CASE("chunk_scores: a step holds an eighth of the scores, however many tokens it has") {
  const auto [rows, classes] = GENERATE(table<int64_t, int64_t>({{8, 1 << 20},
                                                                 {64, 1 << 18},
                                                                 {100, 100'003},
                                                                 {256, 50'257},
                                                                 {1000, 32'768},
                                                                 {1024, 32'768},
                                                                 {1030, 32'768},
                                                                 {2000, 8'192}}));
  CAPTURE(rows, classes);
  const auto scores = static_cast<uint64_t>(rows * classes) * 4;
  const auto weight = static_cast<uint64_t>(classes * kPlannedWidth) * 4;
  const Program program = scored(rows, classes, 0);
  CHECK(planned_bytes(program, classes, false) >= scores);
  CHECK(planned_bytes(program, classes, true) <= scores / 8 + 3 * weight);
}

TEST_CASE("chunk_scores: a step with capped scores holds an eighth of them") {
  const auto rows = GENERATE(64, 256, 1500, 2048);
  CAPTURE(rows);
  constexpr int64_t kVocabulary = 1 << 16;
  const auto scores = static_cast<uint64_t>(rows * kVocabulary) * 4;
  const uint64_t weight = kVocabulary * kPlannedWidth * 4;
  CHECK(planned_bytes(scored(rows, kVocabulary, 30), kVocabulary, true) <= scores / 8 + 3 * weight);
}

TEST_CASE("linear_cross_entropy: slices of the classes have the values of the whole") {
  const HTensor x = noise({kRows, kTokens, kWide}, 1, 2.0f), weight = noise({kClasses, kWide}, 2, 2.0f),
                bias = noise({kClasses}, 3, 1.0f), dloss = noise({kRows, kTokens}, 4, 1.0f),
                dlse = noise({kRows, kTokens}, 5, 1.0f);
  std::vector<int32_t> classes;
  for (int64_t i = 0; i < kRows * kTokens; ++i) classes.push_back(static_cast<int32_t>(i * 5 % (kClasses + 1)) - 1);
  const HTensor labels = HTensor::from({kRows, kTokens}, classes);
  const auto all = [&](AttributeMap how, double softcap) {
    how.set("ignored", int64_t{-1});
    if (softcap > 0) how.set("softcap", softcap);
    std::vector<HTensor> results = apply("linear_cross_entropy", how, {x, weight, labels, bias});
    const HTensor lse = results[1];
    const auto add = [&](const std::vector<HTensor>& more) { results.insert(results.end(), more.begin(), more.end()); };
    add(apply("linear_cross_entropy_step", how, {x, weight, labels, dloss, bias}));
    add(apply("linear_cross_entropy_step", how, {x, weight, labels, dloss}));
    add(apply("linear_cross_entropy_grad", AttributeMap(how).set("operands", std::string("dlse,bias")),
              {x, weight, labels, lse, dloss, dlse, bias}));
    return results;
  };
  const double softcap = GENERATE(0.0, 1.5);
  const int64_t chunk = GENERATE(0, 5), slice = GENERATE(1, 3, 4, 10);
  CAPTURE(softcap, chunk, slice);
  const std::vector<HTensor> whole = all({}, softcap),
                             sliced = all(AttributeMap().set("chunk", chunk).set("slice", slice), softcap);
  REQUIRE(whole.size() == sliced.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    REQUIRE(whole[i].shape() == sliced[i].shape());
    for (int64_t j = 0; j < whole[i].size(); ++j)
      CHECK(sliced[i].data<float>()[j] == Approx(whole[i].data<float>()[j]).epsilon(1e-5).margin(1e-5));
  }
}

TEST_CASE("linear_cross_entropy: a frozen weight in slices gives loss and dx of the whole") {
  const auto type = GENERATE(DType::F32, DType::BF16, DType::F16);
  const double softcap = GENERATE(0.0, 1.5);
  const int64_t chunk = GENERATE(0, 5), slice = GENERATE(1, 3, 4, 10);
  const bool with_bias = GENERATE(true, false);
  CAPTURE(dtype_name(type), softcap, chunk, slice, with_bias);
  // Scores of up to about 40: some rows are sure of a class.
  const HTensor x = noise({kRows, kTokens, kWide}, 1, 8.0f), weight = cast(noise({kClasses, kWide}, 2, 2.0f), type),
                dloss = noise({kRows, kTokens}, 4, 1.0f);
  std::vector<int32_t> classes;  // of -1 to 12: ignored, and of no class
  for (int64_t i = 0; i < kRows * kTokens; ++i) classes.push_back(static_cast<int32_t>(i * 5 % (kClasses + 3)) - 1);
  const HTensor labels = HTensor::from({kRows, kTokens}, classes);
  std::vector<HTensor> operands{x, weight, labels, dloss};
  if (with_bias) operands.push_back(noise({kClasses}, 3, 1.0f));
  AttributeMap how;
  how.set("ignored", int64_t{-1});
  if (softcap > 0) how.set("softcap", softcap);
  std::vector<HTensor> wide = operands;
  wide[1] = cast(weight, DType::F32);
  const std::vector<HTensor> whole = apply("linear_cross_entropy_step", how, wide),
                             sliced = apply("linear_cross_entropy_step",
                                            how.set("frozen", true).set("chunk", chunk).set("slice", slice), operands);
  REQUIRE(sliced.size() == 2);
  for (int64_t i = 0; i < kRows * kTokens; ++i) {
    const float loss = sliced[0].data<float>()[i];
    if (classes[static_cast<size_t>(i)] >= kClasses) {
      CHECK(std::isinf(loss));
      continue;
    }
    CHECK(loss >= 0);
    CHECK(loss == Approx(whole[0].data<float>()[i]).epsilon(1e-5).margin(1e-5));
    for (int64_t j = i * kWide; j < (i + 1) * kWide; ++j)
      CHECK(sliced[1].data<float>()[j] == Approx(whole[1].data<float>()[j]).epsilon(1e-4).margin(1e-5));
  }
}

namespace {

// The mean loss over a frozen weight, and the gradient of x alone.
Program scored_by_fixed(DType type, int64_t rows, int64_t classes, int64_t width) {
  Tracer tracer("fixed");
  const HTensor x = tracer.input("x", {DType::F32, {rows, width}}),
                labels = tracer.input("labels", {DType::I32, {rows}}),
                weight = tracer.parameter("weight", {type, {classes, width}});
  const HTensor loss = reduce_mean(apply("softmax_cross_entropy", {}, {linear(x, weight), labels}).at(0), {0});
  tracer.output("loss", loss);
  tracer.output("dx", gradient(tracer, loss, {x}).at(0));
  return dce(cse(simplify(tracer.take())));
}

}  // namespace

TEST_CASE("chunk_scores: a step over a frozen weight multiplies its slices twice") {
  constexpr int64_t rows = 64, classes = 1 << 15, width = 16;
  const auto type = GENERATE(DType::F32, DType::BF16);
  const Program program = scored_by_fixed(type, rows, classes, width), chunked = chunk_scores(program, 0);
  REQUIRE(calls_named(chunked, "linear_cross_entropy_step") == 1);
  const auto step = std::find_if(chunked.nodes.begin(), chunked.nodes.end(),
                                 [](const Node& n) { return n.callee == "linear_cross_entropy_step"; });
  const auto body = body_program(*called_by(*step), step->attributes, input_types(chunked, *step));
  CHECK(std::count_if(body->nodes.begin(), body->nodes.end(),
                      [](const Node& n) { return n.op == Op::dot || n.callee == "linear"; }) == 32);
  std::vector<int32_t> classes_of_rows;
  for (int64_t i = 0; i < rows; ++i) classes_of_rows.push_back(static_cast<int32_t>(i * 517 % classes));
  check_close(program, chunked,
              {{"x", noise({rows, width}, 1, 1.0f)},
               {"weight", cast(noise({classes, width}, 2, 1.0f), type)},
               {"labels", HTensor::from({rows}, classes_of_rows)}});
  const auto executor = make_sequential_executor();
  MapBinding binding({{"weight", cast(noise({classes, width}, 1, 1.0f), type)}});
  constexpr int64_t many = 256;
  const Program larger = scored_by_fixed(type, many, classes, width);
  CHECK(compile(larger, &binding, *executor, on("cpu"))->memory().arena_bytes <= many * classes * 4 / 8 + (1u << 20));
}

TEST_CASE("linear_cross_entropy: in slices a label of no class has an infinite loss, and a sure one none below 0") {
  const HTensor x = HTensor::from({3, 1}, std::vector<float>{1, 1, 1}),
                weight = HTensor::from({4, 1}, std::vector<float>{0, 40, 1, 2}),
                labels = HTensor::from({3}, std::vector<int32_t>{1, 7, -3});
  const HTensor loss =
      apply("linear_cross_entropy", AttributeMap().set("slice", int64_t{2}), {x, weight, labels}).at(0);
  CHECK(loss.data<float>()[0] >= 0);
  CHECK(loss.data<float>()[0] < 1e-6f);
  CHECK(std::isinf(loss.data<float>()[1]));
  CHECK(std::isinf(loss.data<float>()[2]));
}
