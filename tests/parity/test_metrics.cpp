// Compares the library's metrics with scikit-learn's values (make_metrics.py) and closed forms.
#include <catch2/catch.hpp>

#include <cmath>
#include <fstream>
#include <sstream>

#include <boost/json.hpp>

#include "engine/flow/layer_metrics.hpp"
#include "engine/plugin/registry.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
namespace json = boost::json;

namespace {

struct Case {
  std::string name, activation;
  uint64_t outputs, classes;
  std::vector<float> predictions, targets;
  std::vector<int32_t> labels;

  uint64_t rows() const { return labels.empty() ? targets.size() / outputs : labels.size(); }
  // Returns rows from `first` on, at most `count`.
  hx_metric_batch batch(uint64_t first, uint64_t count) const {
    hx_metric_batch b{};
    b.struct_size = sizeof b;
    b.rows = std::min(count, rows() - first);
    b.outputs = outputs;
    b.classes = classes;
    b.predictions = predictions.data() + first * outputs;
    b.labels = labels.empty() ? nullptr : labels.data() + first;
    b.targets = targets.empty() ? nullptr : targets.data() + first * outputs;
    b.activation = activation.c_str();
    return b;
  }
};

template <typename T>
std::vector<T> numbers_of(const json::object& o, const char* key) {
  std::vector<T> v;
  if (const json::value* all = o.if_contains(key))
    for (const json::value& one : all->as_array()) v.push_back(static_cast<T>(one.to_number<double>()));
  return v;
}

MeasuredMetric metric(const std::string& text) { return MeasuredMetric(parse_metric(Registry::global(), text)); }

// Uses batches of 7, to test accumulation.
std::map<std::string, double> measured(const std::string& text, const Case& c) {
  MeasuredMetric m = metric(text);
  for (int pass = 0; pass < 2; ++pass) {  // the second pass starts with an empty state
    m.reset();
    for (uint64_t at = 0; at < c.rows(); at += 7) m.add(c.batch(at, 7));
  }
  std::map<std::string, double> values;
  for (const Figure& f : m.figures()) values[f.name] = f.value;
  return values;
}

double one(const std::string& text, const Case& c) { return measured(text, c).begin()->second; }

}  // namespace

TEST_CASE("metrics give scikit-learn's values") {
  std::ifstream in(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/metrics.json");
  std::stringstream text;
  text << in.rdbuf();
  size_t compared = 0;
  const json::value all = json::parse(text.str());
  for (const json::value& v : all.as_array()) {
    const json::object& o = v.as_object();
    const bool labelled = o.contains("labels");
    const Case c{std::string(o.at("name").as_string()), labelled ? std::string(o.at("activation").as_string()) : "",
                 o.at("outputs").to_number<uint64_t>(), labelled ? o.at("classes").to_number<uint64_t>() : 0,
                 numbers_of<float>(o, "predictions"),   numbers_of<float>(o, "targets"),
                 numbers_of<int32_t>(o, "labels")};
    INFO(c.name);
    std::map<std::string, double> found;
    std::vector<std::string> ask{"mae", "rmse", "r2"};
    if (labelled) {
      ask = {"accuracy", "auc", "perplexity"};
      for (const std::string name : {"precision", "recall", "f1"})
        for (const std::string average : {"macro", "micro", "weighted", "none"})
          ask.push_back(name + "(average=" + average + ")");
      if (c.outputs > 3) ask.insert(ask.end(), {"topk(2)", "topk(k=3)"});
    }
    for (const std::string& text : ask) found.merge(measured(text, c));
    for (const auto& [name, expected] : o.at("figures").as_object()) {
      INFO(std::string(name));
      if (!found.count(std::string(name))) {
        CHECK((c.outputs < 4 && name.starts_with("top")));
        continue;
      }
      CHECK(found.at(std::string(name)) == Approx(expected.to_number<double>()).epsilon(2e-6).margin(1e-9));
      ++compared;
    }
    if (!labelled) continue;
    MeasuredMetric confusion = metric("confusion");
    confusion.add(c.batch(0, c.rows()));
    CHECK(confusion.table().side == c.classes);
    CHECK(confusion.table().cells == numbers_of<double>(o, "table"));
  }
  CHECK(compared > 120);
}

TEST_CASE("metrics: closed forms") {
  // Uniform probabilities: perplexity is the number of classes, auc a half, r2 of the mean 0.
  Case even{"", "harmonics.activations/softmax", 4, 4, std::vector<float>(8 * 4, 0.25f), {}, {0, 1, 2, 3, 3, 2, 1, 0}};
  CHECK(one("perplexity", even) == Approx(4));
  CHECK(one("auc", even) == Approx(0.5));
  CHECK(one("accuracy", even) == Approx(0.25));
  even.activation = "harmonics.activations/log_softmax";
  for (float& p : even.predictions) p = std::log(0.25f);
  CHECK(one("perplexity", even) == Approx(4));
  even.activation = "harmonics.activations/sigmoid";  // each output's share of the sum
  for (float& p : even.predictions) p = 0.9f;
  CHECK(one("perplexity", even) == Approx(4));
  const Case mean{"", "", 1, 0, {2, 2, 2}, {1, 2, 3}, {}};
  CHECK(one("r2", mean) == Approx(0).margin(1e-12));
  CHECK(one("mae", mean) == Approx(2.0 / 3));
  CHECK(one("rmse", mean) == Approx(std::sqrt(2.0 / 3)));
}

TEST_CASE("metrics: undefined values are NaN, names exist before the first batch") {
  Case none{"", "", 3, 3, {}, {}, {}};
  none.labels = {0};
  none.predictions = {1, 0, 0};
  for (const char* name : {"accuracy", "topk(2)", "precision", "recall", "f1", "auc", "perplexity"}) {
    MeasuredMetric m = metric(name);
    m.add(none.batch(0, 0));
    INFO(name);
    REQUIRE(m.figures().size() == 1);
    CHECK(std::isnan(m.figures()[0].value));
  }
  MeasuredMetric each = metric("f1(average=none)");
  each.add(none.batch(0, 0));
  REQUIRE(each.figures().size() == 3);
  CHECK(each.figures()[2].name == "f1.2");
  MeasuredMetric auc = metric("auc");  // one class only
  auc.add(none.batch(0, 1));
  CHECK(std::isnan(auc.figures()[0].value));
}

TEST_CASE("metrics: NaN has no rank") {
  const float nan = std::nanf("");
  const Case single{"", "harmonics.activations/sigmoid", 1, 2, {0.2f, nan, 0.7f, nan}, {}, {0, 1, 1, 0}};
  CHECK(std::isnan(one("auc", single)));
  const Case several{"", "harmonics.activations/softmax", 3, 3, {0.2f, 0.5f, 0.3f, nan, nan, nan}, {}, {1, 2}};
  CHECK(std::isnan(one("auc", several)));
  CHECK(one("topk(2)", several) == Approx(0.5));
}

TEST_CASE("metrics: state survives a checkpoint") {
  Case classes{"", "harmonics.activations/softmax", 3, 3, {}, {}, {}}, values{"", "", 2, 0, {}, {}, {}};
  for (int i = 0; i < 40; ++i) {
    const float a = static_cast<float>(i * 7 % 11) / 40, b = static_cast<float>(i * 5 % 13) / 40;
    classes.predictions.insert(classes.predictions.end(), {a, b, 1 - a - b});
    classes.labels.push_back(i * 3 % 5 % 3);
    values.predictions.insert(values.predictions.end(), {a, b});
    values.targets.insert(values.targets.end(), {b, a * a});
  }
  const auto same = [](const std::string& text, const Case& c) {
    INFO(text);
    MeasuredMetric whole = metric(text), before = metric(text), after = metric(text);
    for (MeasuredMetric* m : {&whole, &before, &after}) m->add(c.batch(0, 0));
    before.add(c.batch(0, 23));
    const MetricState state = before.state();
    REQUIRE(state.kept);
    after.restore(state);
    whole.add(c.batch(0, 23));
    for (MeasuredMetric* m : {&whole, &after}) m->add(c.batch(23, 17));
    const std::vector<Figure> a = whole.figures(), b = after.figures();
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) CHECK((a[i].name == b[i].name && a[i].value == b[i].value));
    CHECK(whole.table().cells == after.table().cells);
    for (const int change : {-1, 1}) {  // truncated, extended
      MetricState wrong = state;
      wrong.bytes.resize(wrong.bytes.size() + static_cast<size_t>(change));
      CHECK(message_of([&] { metric(text).restore(wrong); }).find("does not fit it") != std::string::npos);
    }
  };
  for (const char* text : {"accuracy", "topk(2)", "precision", "recall(average=micro)", "f1(average=none)", "auc",
                           "perplexity", "confusion"})
    same(text, classes);
  for (const char* text : {"mae", "rmse", "r2"}) same(text, values);
  MeasuredMetric counts = metric("confusion"), fewer = metric("confusion");
  counts.add(classes.batch(0, 0));
  Case two = classes;
  two.outputs = two.classes = 2;
  fewer.add(two.batch(0, 0));
  CHECK(message_of([&] { fewer.restore(counts.state()); }) ==
        "metric 'confusion': it counted 3 classes but there are 2 now");
}

TEST_CASE("metrics: named like functions, errors suggest the right name") {
  const auto refused = [](const std::string& text) { return message_of([&] { metric(text); }); };
  CHECK(refused("acuracy") ==
        "unknown metric 'acuracy'\ndid you mean 'accuracy'?\nload a plugin that provides it with --plugin PATH; "
        "'harmonics list metrics' lists the known ones");
  CHECK(refused("topk(0)") == "'k' of metric 'topk' is '0'\ngive a value at least 1");
  CHECK(refused("topk(5, 6)") == "'topk(5, 6)' has more arguments than metric 'topk' takes\nit is written topk(k = 5)");
  CHECK(refused("topk(n=5)").find("option 'n'") != std::string::npos);
  CHECK(refused("topk(five)").find("five") != std::string::npos);
  CHECK(refused("topk(5").find("metric 'topk(5' lacks its closing parenthesis") == 0);
  CHECK(refused("f1(average=mean)") == "'average' of metric 'f1' is 'mean'\ngive one of macro, micro, weighted, none");
  Registry& r = Registry::global();
  const std::pair<const char*, const char*> asked[] = {{"accuracy", "accuracy"},
                                                       {"top5", "topk(5)"},
                                                       {"f1", "f1"},
                                                       {"f1.3", "f1(average=none)"},
                                                       {"recall_micro", "recall(average=micro)"},
                                                       {"r2", "r2"}};
  for (const auto& [figure, text] : asked) CHECK(metric_giving(r, figure) == text);
  for (const char* name : {"acc", "topx", "loss", "f12", "confusions"}) CHECK(metric_giving(r, name) == "");
}
