// Layer cards: compares weights, gradients and activations with hand computations.
#include "tests/engine/serving/served.hpp"

#include <atomic>
#include <cmath>
#include <fstream>
#include <sstream>

#include <boost/json.hpp>

#include "engine/serving/layer_cards.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace json = boost::json;

namespace {

double norm(const std::vector<float>& v) {
  double sum = 0;
  for (float x : v) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

std::vector<std::string> violations(const char* schema, const json::value& value) {
  std::ifstream in(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/http/" + schema + ".json");
  std::stringstream text;
  text << in.rdbuf();
  return journeys::SchemaCheck::run(json::parse(text.str()), value);
}

}  // namespace

TEST_CASE("layer cards: describe weights, gradient and activation") {
  auto g = affine_graph();
  declare(*g);
  RunSettings s = settings(4);
  const auto snapshots = std::make_shared<Snapshots>(g->store(), WeightsVersion{0, 7});
  LayerCards cards(*g, 0, s, snapshots->newest()->weights());
  BatchSample sample;
  sample.count = 4;
  const std::vector<float> x = numbers(16), y = numbers(8, 7);
  sample.streams = {bytes_of(x), bytes_of(y)};
  const std::string before = learned_bytes(*g);
  const json::object o = cards.cards(*snapshots->newest(), &sample);
  CHECK(learned_bytes(*g) == before);
  CHECK(violations("layers", o).empty());
  CHECK(o.at("step") == 7);
  CHECK(o.at("samples") == 4);
  const json::object& layer = o.at("layers").at(0).as_object();
  CHECK(layer.at("name") == "o");
  CHECK(layer.at("parameters") == 10);
  const Affine affine = affine_of(*g);
  CHECK(layer.at("weight_norm").as_double() == Approx(std::hypot(norm(affine.weight), norm(affine.bias))));
  std::vector<float> outputs, slope_w(8, 0), slope_b(2, 0);
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<float> out = affine(x.data() + 4 * i);
    for (size_t k = 0; k < 2; ++k) {
      outputs.push_back(out[k]);
      const float d = 2 * (out[k] - y[2 * i + k]) / 4;  // mean over samples
      slope_b[k] += d;
      for (size_t j = 0; j < 4; ++j) slope_w[4 * k + j] += d * x[4 * i + j];
    }
  }
  CHECK(layer.at("gradient_norm").as_double() == Approx(std::hypot(norm(slope_w), norm(slope_b))).epsilon(1e-4));
  const json::object& activation = layer.at("activation").as_object();
  CHECK(activation.at("min").as_double() == Approx(*std::min_element(outputs.begin(), outputs.end())).epsilon(1e-4));
  CHECK(activation.at("max").as_double() == Approx(*std::max_element(outputs.begin(), outputs.end())).epsilon(1e-4));
  int64_t counted = 0;
  for (const json::value& n : activation.at("counts").as_array()) counted += n.as_int64();
  CHECK(counted == 8);
  CHECK(activation.at("counts").as_array().size() == LayerCards::kParts);

  const json::object tapped = cards.tap(*snapshots->newest(), sample, "o", 2);
  REQUIRE(tapped.at("samples").as_array().size() == 2);
  CHECK(violations("passing_samples", tapped).empty());
  CHECK(tapped.at("samples").at(1).at(0).as_double() == Approx(outputs[2]).epsilon(1e-4));
  CHECK(cards.tap(*snapshots->newest(), sample, "x", 9).at("samples").as_array().size() == 4);
  CHECK_THAT(message_of([&] { cards.tap(*snapshots->newest(), sample, "oo", 1); }),
             Catch::Contains("did you mean 'o'?"));
  const json::object none = cards.cards(*snapshots->newest(), nullptr);
  CHECK(violations("layers", none).empty());
  CHECK(none.at("layers").at(0).at("activation").is_null());
  CHECK(none.at("layers").at(0).at("gradient_norm").is_null());
}

TEST_CASE("layer cards: computing them does not change the training") {
  const auto learned = [](bool looked) {
    auto g =
        graph_of(R"(harmonic g { producer x {8}; producer y {3}; layer h {6}; layer o; )"
                 R"(cycle { x -(affine, norm("batch"), dropout(0.2), relu)-> h -> o; o <-(cross_entropy)- y; } })");
    bind_rows(*g, "x", {8}, numbers(8 * 64));
    std::vector<int64_t> y;
    for (int64_t i = 0; i < 64; ++i) y.push_back(i % 3);
    bind_rows<int64_t>(*g, "y", {}, y);
    RunSettings s = settings(16);
    s.epochs = 40;
    CycleRuntime runtime(*g, 0, s);
    RunControl control("g");
    std::optional<LayerCards> cards;
    std::shared_ptr<Snapshots> snapshots;
    std::thread looks;
    std::atomic<int> seen{0};
    std::atomic<bool> over{false};
    runtime.set_control(&control);
    runtime.keep_snapshots([&](const std::shared_ptr<Snapshots>& kept) {
      snapshots = kept;
      if (!looked) return;
      cards.emplace(*g, 0, s, kept->newest()->weights());
      looks = std::thread([&] {
        for (int i = 0; i < 30 && !over;) {
          const auto sample = control.sample(RunControl::Clock::now() + 500ms);
          if (!sample) {  // before the first step it returns immediately
            std::this_thread::sleep_for(1ms);
            continue;
          }
          ++i;
          seen += cards->cards(*snapshots->fresh(Snapshots::Clock::now() + 500ms), sample.get())
                      .at("samples")
                      .to_number<int>() == 16;
        }
      });
    });
    // Slow until enough has been seen, independent of the machine's load.
    runtime.on_step(1, [&](const StepReport&) { std::this_thread::sleep_for(looked && seen <= 3 ? 20ms : 500us); });
    runtime.run();
    over = true;
    if (looks.joinable()) looks.join();
    if (looked) CHECK(seen > 3);
    return learned_bytes(*g);
  };
  CHECK(learned(true) == learned(false));
}
