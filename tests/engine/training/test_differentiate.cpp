// Differentiation and updates as program rewrites, on the entries of an imported model.
#include <catch2/catch.hpp>

#include <cmath>

#include <harmonics/ops.hpp>

#include "engine/language/decoder.hpp"
#include "engine/passes/observe.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/print.hpp"
#include "engine/program/step_input.hpp"
#include "engine/training/update.hpp"
#include "tests/engine/language/small_llama.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

SmallLlama tiny(bool own_head) {
  SmallLlama s;
  s.width = 8, s.layers = 2, s.heads = 2, s.shared = 1, s.hidden = 12, s.vocabulary = 11;
  s.own_head = own_head;
  return s;
}

// Returns a model with trainable weights.
Model changeable_llama(const SmallLlama& s) {
  Model model = small_llama(s);
  for (const auto& [name, shape] : tensors_of(s)) model.parameters->find(name)->fixed = false;
  return model;
}

constexpr int64_t kBatch = 2, kTokens = 5;

// Runs a program of a model's weights on token sequences.
class Runs {
 public:
  Runs(Model& model, const Program& program, const std::string& device)
      : tokens_(some_tokens(kBatch * kTokens, model.vocabulary)),
        targets_(some_tokens(kBatch * kTokens, model.vocabulary, 4)),
        executor_(make_sequential_executor()) {
    CompileOptions options;
    options.device = device;
    plan_ = compile(program, model.parameters.get(), *executor_, options);
    for (const std::string& name : plan_->input_names())
      if (const auto own = step_input_of(name))
        inputs_.push_back(values_.address(*own));
      else
        inputs_.push_back(name == "tokens" ? tokens_.data() : targets_.data());
  }
  double step(float rate = 0, int64_t number = 1) {
    values_.set(rate, number, 0);
    plan_->run(inputs_.data());
    return static_cast<double>(*plan_->output("loss").data<float>());
  }
  std::vector<float> output(const std::string& name) const {
    const HTensor& y = plan_->output(name);
    return {y.data<float>(), y.data<float>() + y.size()};
  }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const std::vector<int32_t>& targets() const { return targets_; }

 private:
  std::vector<int32_t> tokens_, targets_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Executable> plan_;
  StepValues values_;
  std::vector<const void*> inputs_;
};

Program loss_of(const Model& model) { return model.trace(model.entry("loss"), {kBatch, kTokens, 1, true}); }
Program only_loss(const Program& program) {
  return observe(program, [](const std::string& name) { return name == "loss"; });
}

std::vector<float> weight(const Model& model, const std::string& name) {
  const HTensor t = model.parameters->tensor(name);
  return {t.data<float>(), t.data<float>() + t.size()};
}

}  // namespace

TEST_CASE("differentiate: gradients of an imported model's loss are its finite differences") {
  for (const char* device : {"cpu", "reference"})
    for (const bool own_head : {true, false}) {
      Model model = changeable_llama(tiny(own_head));
      const Program entry = loss_of(model);
      const std::vector<std::string> names = differentiable_parameters(entry);
      CHECK(names.size() == tensors_of(tiny(own_head)).size());
      Runs gradients(model, differentiate(entry, "loss", names), device), loss(model, only_loss(entry), device);
      CHECK(gradients.step() == Approx(loss.step()).epsilon(1e-6));
      std::map<std::string, std::vector<float>> exact;
      for (const std::string& name : names) exact[name] = gradients.output(gradient_output(name));
      uint32_t seed = 1;
      for (const std::string& name : names) {
        INFO(device << " " << name);
        const std::vector<float>& g = exact.at(name);
        double norm = 0;
        for (float v : g) norm += static_cast<double>(v) * static_cast<double>(v);
        norm = std::sqrt(norm);
        REQUIRE(norm > 1e-4);
        // Along the gradient, and along a random direction.
        const HTensor random = small_random(Shape{static_cast<int64_t>(g.size())}, seed++, 1);
        for (const bool along : {true, false}) {
          constexpr double kStep = 5e-3;
          const std::vector<float> before = weight(model, name);
          std::vector<double> direction;
          double length = 0, slope = 0;
          for (size_t i = 0; i < g.size(); ++i) {
            direction.push_back(static_cast<double>(along ? g[i] : random.data<float>()[i]));
            length += direction[i] * direction[i];
          }
          for (size_t i = 0; i < g.size(); ++i) {
            direction[i] /= std::sqrt(length);
            slope += direction[i] * static_cast<double>(g[i]);
          }
          const auto at = [&](double distance) {
            auto* w = static_cast<float*>(model.parameters->find(name)->change());
            for (size_t i = 0; i < g.size(); ++i)
              w[i] = static_cast<float>(static_cast<double>(before[i]) + distance * direction[i]);
            return loss.step();
          };
          const double difference = (at(kStep) - at(-kStep)) / (2 * kStep);
          model.parameters->assign(name, HTensor::from(Shape{model.parameters->find(name)->type.shape}, before));
          CHECK(difference == Approx(slope).epsilon(5e-3).margin(2e-3 * norm + 2e-4));
        }
      }
    }
}

TEST_CASE("differentiate: the loss of a model is the cross entropy of its decoder's scores") {
  Model model = small_llama(tiny(true));
  const auto executor = make_sequential_executor();
  Runs loss(model, only_loss(loss_of(model)), "cpu");
  Decoder decoder(model, *executor);
  double sum = 0;
  for (int64_t b = 0; b < kBatch; ++b) {
    Session session(decoder);
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto at = static_cast<size_t>(b * kTokens + t);
      const auto scores = session.append({&loss.tokens()[at], 1});
      double total = 0;
      for (float s : scores) total += std::exp(static_cast<double>(s));
      sum += std::log(total) - static_cast<double>(scores[static_cast<size_t>(loss.targets()[at])]);
    }
  }
  CHECK(loss.step() == Approx(sum / (kBatch * kTokens)).epsilon(1e-5));
}

TEST_CASE("update: AdamW takes the steps of its formula on an imported model, which then decodes by the new weights") {
  Model model = changeable_llama(tiny(true));
  const Program entry = only_loss(loss_of(model));
  const std::vector<std::string> names{"output_norm.weight", "blk.0.attn_q.weight", "blk.1.ffn_down.weight"};
  Program program = differentiate(entry, "loss", names);
  Runs gradients(model, program, "cpu");
  gradients.step();
  UpdateSettings settings;
  settings.optimizer = parse_optimizer("adamw(weight_decay=0.1)");
  std::vector<TrainedParameter> trained;
  std::map<std::string, std::vector<float>> before, slopes;
  for (const std::string& name : names) {
    trained.push_back({name});
    before[name] = weight(model, name);
    slopes[name] = gradients.output(gradient_output(name));
  }
  const std::vector<float> untouched = weight(model, "blk.0.attn_k.weight");
  program = update(std::move(program), *model.parameters, settings, trained);
  CHECK(program.outputs.size() == 1);
  Runs training(model, program, "cpu");
  constexpr float kRate = 0.01f;
  const double first = training.step(kRate);
  for (const std::string& name : names) {
    const std::vector<float> after = weight(model, name);
    const double decay = model.parameters->find(name)->type.shape.rank() == 2 ? 0.1 : 0;
    for (size_t i = 0; i < after.size(); ++i) {
      const auto w = static_cast<double>(before[name][i]), g = static_cast<double>(slopes[name][i]);
      const double next = w - kRate * decay * w - kRate * g / (std::abs(g) + 1e-8);
      INFO(name << " " << i);
      if (std::abs(g) > 1e-6) CHECK(static_cast<double>(after[i]) == Approx(next).margin(2e-5));
    }
  }
  double last = first;
  for (int64_t step = 2; step <= 40; ++step) last = training.step(kRate, step);
  CHECK(last < first - 0.3);
  CHECK(weight(model, "blk.0.attn_k.weight") == untouched);

  const auto executor = make_sequential_executor();
  Decoder decoder(model, *executor);
  Session session(decoder);
  const Model former = small_llama(tiny(true));
  Decoder decoder_before(former, *executor);
  Session session_before(decoder_before);
  const auto scores = session.append(std::span(training.tokens()).first(3));
  const auto scores_before = session_before.append(std::span(training.tokens()).first(3));
  CHECK(std::vector<float>(scores.begin(), scores.end()) !=
        std::vector<float>(scores_before.begin(), scores_before.end()));
}

TEST_CASE("differentiate: a rewrite in steps is the trace in one") {
  const TensorType vector{DType::F32, {3}};
  const auto forward = [&](Tracer& tracer) {
    const HTensor w = tracer.parameter("w", vector), x = tracer.input("x", vector);
    tracer.output("loss", reduce_sum((w * x + 0.5) * (w * x + 0.5), {0}));
  };
  const auto updated = [&](bool in_steps, double clip) {
    ParameterStore store;
    store.declare("w", vector, Role::weight, {}, 1);
    UpdateSettings settings;
    settings.optimizer = parse_optimizer("adamw");
    settings.clip = clip;
    Tracer tracer("p");
    forward(tracer);
    if (in_steps) return print(update(differentiate(tracer.take(), "loss", {"w"}), store, settings, {{"w"}}));
    std::vector<HTensor> gradients = gradient(tracer, tracer.result("loss"), {tracer.parameter("w")});
    const TraceScope scope({"", Phase::optimizer});
    trace_updates(tracer, store, settings, {{"w"}}, std::move(gradients));
    return print(tracer.take());
  };
  for (const double clip : {0.0, 1.0}) CHECK(updated(true, clip) == updated(false, clip));
}

TEST_CASE("differentiate: objectives of a part are added, and parts are kept apart") {
  const TensorType vector{DType::F32, {2}};
  Tracer tracer("p");
  const HTensor a = tracer.parameter("a", vector), b = tracer.parameter("b", vector);
  tracer.output("first", reduce_sum(a * 2.0 + b * 3.0, {0}));
  tracer.output("second", reduce_sum(a * a, {0}));
  const Program both =
      differentiate(tracer.take(), {{{"first", {"a", "b"}}, {"second", {"a"}}}, {{"second", {"a", "b"}}}});
  const std::map<std::string, HTensor> leaves{{"a", HTensor::from(Shape{2}, std::vector<float>{1, 10})},
                                              {"b", HTensor::from(Shape{2}, std::vector<float>{5, 6})}};
  const Values results = interpret(both, leaves);
  std::map<std::string, std::vector<float>> found;
  for (size_t i = 0; i < both.outputs.size(); ++i)
    found[both.outputs[i].name].assign(results[i].data<float>(), results[i].data<float>() + results[i].size());
  CHECK(found.at(gradient_output("a")) == std::vector<float>{4, 22});
  CHECK(found.at(gradient_output("b")) == std::vector<float>{3, 3});
  CHECK(found.at(gradient_output("a", 1)) == std::vector<float>{2, 20});
  CHECK(found.at(gradient_output("b", 1)) == std::vector<float>{0, 0});
}

TEST_CASE("differentiate: unknown losses and parameters are refused with the nearest") {
  Tracer tracer("p");
  tracer.output("loss", reduce_sum(tracer.parameter("weight", {DType::F32, {2}}), {0}));
  const Program program = tracer.take();
  CHECK(message_of([&] { differentiate(program, "lost", {"weight"}); }) ==
        "program 'p' has no output 'lost'\ndid you mean 'loss'?");
  CHECK(message_of([&] { differentiate(program, "loss", {"weights"}); }) ==
        "program 'p' has no parameter 'weights'\ndid you mean 'weight'?");
}

TEST_CASE("observe: blocks of a model are results where somebody asks for them, and change no scores") {
  Model model = small_llama(tiny(true));
  const Program entry = loss_of(model);
  Runs observed(model, entry, "cpu"), alone(model, only_loss(entry), "cpu");
  CHECK(observed.step() == alone.step());
  for (const char* name : {"value:blk.0", "value:blk.1"}) {
    const std::vector<float> values = observed.output(name);
    CHECK(values.size() == kBatch * kTokens * 8);
    CHECK(std::any_of(values.begin(), values.end(), [](float v) { return v != 0; }));
  }
  CHECK_THROWS_AS(alone.output("value:blk.0"), Error);
}
