// Compares the losses dpo and distillation with PyTorch (make_preferences.py), and their gradients with finite
// differences.
#include <catch2/catch.hpp>

#include <algorithm>

#include "engine/contract/plugin_functions.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/tracer.hpp"
#include "tests/parity/golden.hpp"

namespace harmonics::engine::parity {

namespace {

struct ComparedLoss {
  std::string name;  // the loss's name
  std::vector<std::pair<std::string, std::string>> arguments;
  std::map<std::string, HTensor> values;
};

std::vector<ComparedLoss> compared_losses() {
  const TensorFile file = golden("preferences.safetensors");
  std::vector<ComparedLoss> all;
  for (const auto& [name, text] : file.metadata) {
    ComparedLoss one{name.substr(0, name.find('/')), {}, below(file, name)};
    const boost::json::value arguments = boost::json::parse(text);
    for (const auto& [key, value] : arguments.as_object())
      one.arguments.emplace_back(key, std::string(value.as_string()));
    all.push_back(std::move(one));
  }
  return all;
}

// Returns the arguments except those that name layers, which are values.
AttributeMap arguments_of(const Item& item, const ComparedLoss& c) {
  AttributeMap all;
  for (const ArgumentSpec& spec : item.arguments) {
    if (spec.type == HX_ARG_LAYER) continue;
    const auto given =
        std::find_if(c.arguments.begin(), c.arguments.end(), [&](const auto& one) { return one.first == spec.name; });
    const std::string& text = given == c.arguments.end() ? spec.default_text : given->second;
    if (!text.empty()) all.set(spec.name, *parse_argument(spec.type, text));
  }
  return all;
}

struct LossAndGradient {
  double loss;
  HTensor gradient;
  std::map<std::string, double> figures;  // figures that the loss reports: means
};

// Returns the mean over samples and positions, as in a training step, with its gradient.
LossAndGradient loss_and_gradient(const ComparedLoss& c, DType dtype, const HTensor& scores) {
  const ItemPtr item = Registry::global().need(HX_LOSS, c.name);
  Tracer tracer("preferences");
  std::map<std::string, HTensor> given{{"scores", scores}, {"target", c.values.at("target")}};
  const HTensor x = tracer.input("scores", type_of(scores));
  const HTensor target = tracer.input("target", type_of(given.at("target")));
  std::vector<std::pair<std::string, HTensor>> layers;
  const auto layer = [&](const std::string& argument, const std::string& stored) {
    const auto at = c.values.find(stored);
    if (at == c.values.end()) return;
    given[stored] = in_type(at->second, dtype);
    layers.emplace_back(argument, tracer.input(stored, type_of(given.at(stored))));
  };
  layer(c.name == "dpo" ? "reference" : "teacher", "other");
  layer("documents", "documents");
  std::vector<ReportedFigure> reported;
  const HTensor each = call_loss(item, arguments_of(*item, c), "", x, x, target, layers, &reported);
  const HTensor mean = reduce_sum(each, axes_from(each, 0)) / static_cast<double>(each.size());
  tracer.output("loss", mean);
  tracer.output("gradient", gradient(tracer, mean, {x}).at(0));
  for (const ReportedFigure& figure : reported)
    tracer.output(figure.name, cast(reduce_sum(figure.value, axes_from(figure.value, 0)), DType::F64) /
                                   static_cast<double>(figure.value.size()));
  const Values results = interpret(tracer.take(), given);
  LossAndGradient all{cast(results.at(0), DType::F64).data<double>()[0], results.at(1), {}};
  for (size_t i = 0; i < reported.size(); ++i) all.figures[reported[i].name] = results.at(2 + i).data<double>()[0];
  return all;
}

}  // namespace

TEST_CASE("preferences: losses and gradients equal PyTorch's in double and in single precision") {
  const std::vector<ComparedLoss> all = compared_losses();
  CHECK(all.size() == 10);
  for (const ComparedLoss& c : all) {
    INFO(c.name << " " << c.arguments.front().first << "=" << c.arguments.front().second);
    const double expected = c.values.at("loss").data<double>()[0];
    const LossAndGradient exact = loss_and_gradient(c, DType::F64, c.values.at("scores"));
    CHECK(exact.loss == Approx(expected).epsilon(1e-11));
    CHECK(difference(exact.gradient, c.values.at("gradient"), {1e-12, 1e-10}) == "");
    const LossAndGradient single = loss_and_gradient(c, DType::F32, cast(c.values.at("scores"), DType::F32));
    CHECK(single.loss == Approx(expected).epsilon(1e-5));
    CHECK(difference(single.gradient, c.values.at("gradient"), {1e-5, 1e-4}) == "");
  }
}

TEST_CASE("preferences: reported rewards are those that TRL logs") {
  int compared = 0;
  for (const ComparedLoss& c : compared_losses()) {
    INFO(c.name << " " << c.arguments.front().first << "=" << c.arguments.front().second);
    const auto figures = loss_and_gradient(c, DType::F64, c.values.at("scores")).figures;
    if (c.name != "dpo") {
      CHECK(figures.empty());
      continue;
    }
    const double* rewards = c.values.at("rewards").data<double>();
    REQUIRE(figures.size() == 4);
    CHECK(figures.at("rewards/chosen") == Approx(rewards[0]).epsilon(1e-11));
    CHECK(figures.at("rewards/rejected") == Approx(rewards[1]).epsilon(1e-11));
    CHECK(figures.at("rewards/accuracies") == Approx(rewards[2]).epsilon(1e-11));
    CHECK(figures.at("rewards/margins") == Approx(rewards[3]).epsilon(1e-11));
    ++compared;
  }
  CHECK(compared == 5);
}

TEST_CASE("preferences: gradients equal finite differences in double") {
  constexpr double kStep = 1e-5;
  for (const ComparedLoss& c : compared_losses()) {
    INFO(c.name << " " << c.arguments.front().first << "=" << c.arguments.front().second);
    const HTensor& scores = c.values.at("scores");
    const HTensor derivative = loss_and_gradient(c, DType::F64, scores).gradient;
    const auto at = [&](int64_t place, double by) {
      HTensor moved(DType::F64, scores.shape(), scores.bytes());
      moved.mutable_data<double>()[place] += by;
      return loss_and_gradient(c, DType::F64, moved).loss;
    };
    for (int64_t i = 0; i < scores.size(); i += 4) {
      INFO("score " << i);
      CHECK(derivative.data<double>()[i] == Approx((at(i, kStep) - at(i, -kStep)) / (2 * kStep)).margin(1e-7));
    }
  }
}

TEST_CASE("preferences: no gradient reaches the reference and the teacher") {
  for (const ComparedLoss& c : compared_losses()) {
    if (!c.values.count("other")) continue;
    const ItemPtr item = Registry::global().need(HX_LOSS, c.name);
    Tracer tracer("preferences");
    const HTensor x = tracer.input("scores", type_of(c.values.at("scores")));
    const HTensor other = tracer.input("other", type_of(x));
    const HTensor target = tracer.input("target", type_of(c.values.at("target")));
    const HTensor each =
        call_loss(item, arguments_of(*item, c), "", x, x, target, {{c.name == "dpo" ? "reference" : "teacher", other}});
    tracer.output("gradient", gradient(tracer, reduce_sum(each, axes_from(each, 0)), {other}).at(0));
    const Values results = interpret(
        tracer.take(),
        {{"scores", c.values.at("scores")}, {"other", c.values.at("other")}, {"target", c.values.at("target")}});
    for (int64_t i = 0; i < results.at(0).size(); ++i) CHECK(results.at(0).data<double>()[i] == 0);
  }
}

}  // namespace harmonics::engine::parity
