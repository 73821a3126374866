// Models without a flow: inference on streams, predictions over snapshots, training steps.
#include <catch2/catch.hpp>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include <harmonics/ops.hpp>

#include "engine/bound/model_rows.hpp"
#include "engine/flow/compiled_step.hpp"
#include "tests/engine/language/small_llama.hpp"
#include "tests/engine/model/fake_importer.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// y = x W and its mean square; `weights` is [2, 3].
Model linear_model(std::vector<float> weights, Role role = Role::weight) {
  Model model;
  model.name = "line";
  model.parameters->adopt("w", HTensor::from(Shape{2, 3}, std::move(weights)), nullptr, role, {});
  const auto y = [](Tracer& tracer, const EntrySizes& sizes) {
    return call1("linear", {tracer.input("x", {DType::F32, Shape{sizes.batch, 3}}),
                            tracer.parameter("w", {DType::F32, Shape{2, 3}})});
  };
  model.entries.push_back({"forward", [y](Tracer& tracer, const EntrySizes& sizes) {
                             const HTensor result = y(tracer, sizes);
                             tracer.output("out:y", result);
                             tracer.output("value:y", result);
                           }});
  model.entries.push_back({"loss", [y](Tracer& tracer, const EntrySizes& sizes) {
                             const HTensor result = y(tracer, sizes);
                             tracer.output("loss", reduce_mean(result * result, {0, 1}));
                           }});
  return model;
}

}  // namespace

TEST_CASE("model without a flow: a training step is differentiated and updated like a flow's") {
  const Model model = linear_model({1, 0, 0, 0, 1, 0});
  StepOptions options;
  options.optimizer = parse_optimizer("sgd(lr=0.5)");
  Lowered lowered = lower(model, options);
  REQUIRE(lowered.trained.size() == 1);
  CHECK(lowered.trained[0].name == "w");
  REQUIRE(lowered.parts.size() == 1);
  CHECK(lowered.parts[0].output == "loss");
  const auto executor = make_sequential_executor();
  CompiledStep step(std::move(lowered), *model.parameters, *executor, {});
  const float x[3] = {2, 1, 0};
  const void* streams[1] = {x};
  step.set(streams, 0.5f, 1, 0);
  REQUIRE(step.run_if_finite());
  CHECK(step.scalar("loss") == Approx(2.5));
  // The gradient of mean(y^2) here is y times x: [[4, 2, 0], [2, 1, 0]].
  const HTensor w = model.parameters->tensor("w");
  const std::vector<float> expected{-1, -1, 0, -1, 0.5f, 0};
  for (size_t i = 0; i < 6; ++i) CHECK(w.data<float>()[i] == Approx(expected[i]));
}

TEST_CASE("model without a flow: frozen weights leave the loss alone, and inference ignores what is observed") {
  const Model model = linear_model({1, 0, 0, 0, 1, 0}, Role::frozen);
  StepOptions options;
  options.optimizer = parse_optimizer("sgd");
  const Lowered frozen = lower(model, options);
  CHECK(frozen.trained.empty());
  CHECK(frozen.program.updates.empty());
  CHECK(frozen.program.output("loss"));
  options.mode = Mode::infer;
  CHECK(lower(model, options).program.outputs.size() == 1);
  options.observe = true;
  CHECK(lower(model, options).program.output("value:y"));
}

TEST_CASE("model without a flow: an imported loss is differentiated by all of its weights") {
  const Model model = small_llama();
  for (const auto& [name, t] : model.parameters->all()) {
    StoredTensor& stored = *model.parameters->find(name);
    stored.fixed = false;
    stored.role = Role::weight;
  }
  StepOptions options;
  options.optimizer = parse_optimizer("adamw");
  options.batch = 2;
  options.tokens = 5;
  const Lowered lowered = lower(model, options);
  size_t weights = 0;
  for (const auto& [name, t] : model.parameters->all()) weights += t.role == Role::weight ? 1 : 0;
  CHECK(lowered.trained.size() == weights);
  CHECK(weights > 20);
  CHECK(lowered.index_limits == std::vector<int64_t>{50, 50});
  CHECK(lowered.inputs == std::vector<int>{0, 1});
}

TEST_CASE("model without a flow: results for every sample of its streams, in order") {
  const Model model = linear_model({1, 2, 3, -1, 0, 1});
  const TemporaryFolder folder;
  std::string csv;
  for (int i = 0; i < 21; ++i) csv += std::to_string(i) + ".5," + std::to_string(2 * i) + ".5,1.5\n";
  const std::string x = folder.write("x.csv", csv), out = x.substr(0, x.rfind('/')) + "/y.npy";
  RowSettings settings;
  settings.batch = 8;  // the last batch is short
  settings.producers.push_back(parse_binding("x=file:" + x + "#0-2"));
  settings.consumers.push_back(parse_binding("file:" + out));
  const auto executor = make_sequential_executor();
  const RowReport report = infer_rows(model, *executor, settings);
  CHECK(report.samples == 21);
  std::ifstream in(out, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  std::vector<float> y(2 * 21);
  REQUIRE(file.size() > y.size() * sizeof(float));
  std::memcpy(y.data(), file.data() + file.size() - y.size() * sizeof(float), y.size() * sizeof(float));
  for (int i = 0; i < 21; ++i) {
    CHECK(y[static_cast<size_t>(2 * i)] == static_cast<float>(5 * i + 6));
    CHECK(y[static_cast<size_t>(2 * i + 1)] == static_cast<float>(1 - i));
  }
}

TEST_CASE("model without a flow: floats that are integers serve an integer input, -0 as 0") {
  Model model;
  model.name = "twice";
  model.entries.push_back({"forward", [](Tracer& tracer, const EntrySizes& sizes) {
                             const HTensor x = tracer.input("x", {DType::I32, Shape{sizes.batch}});
                             tracer.output("out:y", x + x);
                           }});
  const TemporaryFolder folder;
  const auto executor = make_sequential_executor();
  const std::string out = folder.write("y.csv", "");
  const auto rows = [&](const std::string& csv) {
    RowSettings settings;
    settings.producers.push_back(parse_binding("x=file:" + folder.write("x.csv", csv) + "#0"));
    settings.consumers.push_back(parse_binding("file:" + out));
    infer_rows(model, *executor, settings);
    std::ifstream in(out);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  CHECK(rows("3.0\n-0.0\n").find("6\n0\n") != std::string::npos);
  CHECK(message_of([&] { rows("0.5\n"); }) == "the stream of input 'x' holds numbers that i32 does not have");
}

TEST_CASE("model without a flow: wrong bindings of its inputs and results are refused") {
  const Model model = linear_model({1, 2, 3, -1, 0, 1});
  const TemporaryFolder folder;
  const auto executor = make_sequential_executor();
  const auto refused = [&](const std::string& producer, const std::string& consumer) {
    RowSettings settings;
    if (!producer.empty()) settings.producers.push_back(parse_binding(producer));
    if (!consumer.empty()) settings.consumers.push_back(parse_binding(consumer));
    return message_of([&] { infer_rows(model, *executor, settings); });
  };
  const std::string file = "file:" + folder.write("x.csv", "0.5,1.5,0.5\n1.5,2.5,1.5\n");
  CHECK(refused("", "") == "input 'x' of the model has no producer\nbind it: --producer x=file:PATH");
  CHECK(refused("z=" + file, "") == "'line' has no producer named 'z'\nits producers are x");
  CHECK(refused(file + "#0-1", "") == "input 'x' of the model takes samples of f32[3], but its stream has f32[2]");
  CHECK(refused(file + "#0-2", "scores=stdout:").find("the model has no result named 'scores'") != std::string::npos);
}
