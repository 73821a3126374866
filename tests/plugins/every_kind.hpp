// Expected results of plugins built from golden/kinds_v1.cpp with any compiler: through the API, and in training and
// inference.
#pragma once

#include <array>
#include <cmath>
#include <vector>

#include <harmonics/augmentation_abi.h>
#include <harmonics/metric_abi.h>
#include <harmonics/philox.hpp>

#include "engine/model/safetensors.hpp"
#include "tests/journeys/shell.hpp"
#include "tests/plugins/traced.hpp"

namespace harmonics::engine::testing {

struct Build {
  std::string path, prefix;  // its names begin with "prefix_"
};

inline double steep(double z) { return 1 / (1 + std::exp(-z)); }

// ---- through the API ----

inline void check_functions(const Build& b) {
  INFO(b.path);
  Registry registry;
  load_plugin(b.path, registry);
  const auto item = [&](uint32_t kind, const char* name) { return registry.need(kind, b.prefix + "_" + name); };
  const Floats xs{-2, -0.5f, 0, 0.25f, 1, 3};
  const HTensor x = floats({2, 3}, xs);

  const Ran swish = run(
      x,
      [&](const HTensor& v) {
        return call_activation(item(HX_ACTIVATION, "swish"), AttributeMap().set("slope", 2.0), v);
      },
      true);
  CHECK(swish.count(Op::host_call) == 0);  // traced
  for (size_t i = 0; i < xs.size(); ++i) {
    const double s = steep(2 * xs[i]);
    CHECK(numbers(swish.y)[i] == Approx(xs[i] * s).margin(1e-6));
    CHECK(numbers(swish.dx)[i] == Approx(s + 2 * xs[i] * s * (1 - s)).margin(1e-6));
  }
  const Ran half = run(
      x, [&](const HTensor& v) { return call_activation(item(HX_ACTIVATION, "half"), {}, v); }, true);
  CHECK(half.count(Op::host_call) > 0);  // it reads numbers
  CHECK(numbers(half.y) == Floats{-1, -0.25f, 0, 0.125f, 0.5f, 1.5f});
  CHECK(numbers(half.dx) == Floats{1, 1, 1, 1, 1, 1});  // its own gradient

  const HTensor target = floats({2, 3}, {0, 0, 0, 0, 0, 1});
  const Ran square = run(
      x,
      [&](const HTensor& v) {
        return call_loss(item(HX_LOSS, "square"), AttributeMap().set("weight", 2.0), "", v, v, target);
      },
      true);
  CHECK(numbers(square.y) == Floats{8, 0.5f, 0, 0.125f, 2, 8});
  CHECK(numbers(square.dx) == Floats{-8, -2, 0, 1, 4, 8});

  TestScope scope;
  scope.is_training = true;
  const Ran gain = run(
      x,
      [&](const HTensor& v) {
        return call_layer(item(HX_LAYER, "gain"), AttributeMap().set("start", 0.5), {}, scope, v);
      },
      true);
  CHECK(numbers(gain.y) == Floats{-1, -0.25f, 0, 0.125f, 0.5f, 1.5f});
  CHECK(scope.values.at("gain").shape() == Shape{3});
  CHECK(scope.updates.count("steps") == 1);
}

inline void check_metric(const Build& b) {
  Registry registry;
  load_plugin(b.path, registry);
  const ItemPtr item = registry.need(HX_METRIC, b.prefix + "_worst");
  const auto opened = [&] {
    std::pair<const hx_metric_vt*, void*> made{};
    const hx_attributes none{};
    REQUIRE(item->table<hx_metric_factory_vt>().open(item->self, &none, &made.first, &made.second) == HX_OK);
    return made;
  };
  const auto worst = [](const auto& m) {
    const hx_figure* figures = nullptr;
    uint32_t count = 0;
    REQUIRE(m.first->figures(m.second, &figures, &count) == HX_OK);
    REQUIRE(count == 1);
    return figures[0].value;
  };
  const auto first = opened(), second = opened();
  const float predictions[] = {1, 2, 3, 4}, targets[] = {1, 2.5f, 3, 1};
  hx_metric_batch batch{};
  batch.struct_size = sizeof batch;
  batch.rows = batch.outputs = 2;
  batch.predictions = predictions;
  batch.targets = targets;
  batch.activation = "";
  REQUIRE(first.first->add(first.second, &batch) == HX_OK);
  CHECK(worst(first) == 3);
  const void* bytes = nullptr;
  uint64_t size = 0;
  REQUIRE(first.first->save(first.second, &bytes, &size) == HX_OK);
  REQUIRE(second.first->restore(second.second, bytes, size) == HX_OK);
  CHECK(worst(second) == 3);
  REQUIRE(second.first->reset(second.second) == HX_OK);
  CHECK(worst(second) == 0);
  for (const auto& m : {first, second}) m.first->destroy(m.second);
}

// ---- from the command line ----

// Alternates the two builds over the parts of the graph.
struct Pair {
  Build a, b;
  std::string plugins() const {
    return " --plugin " + a.path + (a.path == b.path ? "" : " --plugin " + b.path) + " --threads 1 ";
  }
  std::string spell(std::string text) const {  // "A_cube", "B_cube"
    for (const auto& [letter, prefix] : {std::pair("A_", a.prefix), {"B_", b.prefix}})
      for (size_t at = 0; (at = text.find(letter, at)) != std::string::npos; at += prefix.size())
        text.replace(at, 1, prefix);
    return text;
  }
};

inline const char* kFlow =
    "harmonic g {\n  producer x {2}; producer y {2};\n  layer o;\n  cycle (batch=8) {\n"
    "    x -(A_gain(0.5), B_swish(slope=2), A_cube, B_blend(x, part=0.75), A_half)-> o;\n"
    "    if B_first(3) { o <-(A_square(weight=2))- y; } else { o <-(B_square)- y; }\n  }\n}\n";

inline const char* kTraining =
    " --producer 'x=A_ramp:a?augment=B_shift(by=0.25)' --producer 'y=B_ramp:a?size=8' --optimizer "
    "'A_momentum(lr=0.2,momentum=0.5)'"
    " --schedule 'B_halving(every=2)' --metric A_worst --test x=B_ramp: --test y=A_ramp: ";

// Computes the same in plain loops: the mean loss of `steps` steps, the resulting gains, and the test result on
// unshifted numbers.
struct Simulated {
  double loss = 0, test_loss = 0, worst = 0;
  std::array<double, 2> gain{0.5, 0.5};
  explicit Simulated(int steps) {
    std::array<double, 2> kept{};
    for (int step = 0; step < steps; ++step) {
      const double weight = step < 3 ? 2 : 1, rate = 0.2 * std::pow(0.5, step / 2);
      std::array<double, 2> slope{};
      for (int i = 0; i < 16; ++i) loss += pass(i, 0.25, weight, &slope) / steps;
      for (size_t k = 0; k < 2; ++k) {
        kept[k] = 0.5 * kept[k] + slope[k];
        gain[k] -= rate * kept[k];
      }
    }
    for (int i = 0; i < 16; ++i) {
      const double distance = std::sqrt(pass(i, 0, 8, nullptr));
      test_loss += 2 * distance * distance / 8;  // of the first branch
      worst = std::max(worst, distance);
    }
  }

 private:
  double pass(int i, double shift, double weight, std::array<double, 2>* slope) const {
    const size_t k = static_cast<size_t>(i % 2);
    const double y = i / 8.0 - 1, x = y + shift, p = gain[k] * x, s = steep(2 * p), a = p * s,
                 o = 0.5 * (0.75 * a * a * a + 0.25 * x);
    const double by_blend = 2 * weight * (o - y) / 8;  // `half` defines its gradient as 1
    if (slope) (*slope)[k] += by_blend * 0.75 * 3 * a * a * (s + 2 * p * s * (1 - s)) * x;
    return weight * (o - y) * (o - y) / 8;
  }
};

inline void check_training(const Pair& pair, const std::string& more = "") {
  INFO(pair.a.path << " " << pair.b.path << " " << more);
  const journeys::Folder folder;
  const std::string flow = folder.write("g.hmx", pair.spell(kFlow)), weights = folder / "w.safetensors";
  const journeys::Result r = journeys::harmonics("run " + flow + pair.plugins() + pair.spell(kTraining + more) +
                                                 " --steps 6 --quiet --json --save " + weights);
  REQUIRE(r.code == 0);
  const Simulated expected(6);
  CHECK(journeys::number(r.out, "loss") == Approx(expected.loss).epsilon(1e-5));
  CHECK(journeys::number(r.out, "test_loss") == Approx(expected.test_loss).epsilon(1e-5));
  const std::string test = r.out.substr(r.out.find("\"test\":{"));
  CHECK(std::stod(test.substr(test.find(pair.a.prefix + "_worst\":") + pair.a.prefix.size() + 8)) ==
        Approx(expected.worst).epsilon(1e-5));
  CHECK(journeys::number(r.out, "learning_rate") == Approx(0.05));
  const TensorFile saved = read_safetensors(weights);
  const std::string of = "x.o." + pair.a.prefix + "_gain.";
  for (size_t k = 0; k < 2; ++k)
    CHECK(numbers(saved.tensors.at(of + "gain"))[k] == Approx(expected.gain[k]).epsilon(1e-5));
  CHECK(numbers(saved.tensors.at(of + "steps")) == Floats{6});
}

// Uses samples in order, without shuffling.
inline void check_inference(const Pair& pair) {
  INFO(pair.a.path << " " << pair.b.path);
  const journeys::Folder folder;
  const std::string flow = folder.write(
      "f.hmx",
      pair.spell(
          "harmonic f { producer x; consumer s; layer o; cycle { x -(A_gain(1), B_swish(slope=2))-> o -> s; } }"));
  const auto summed = [&](const std::string& augment) {
    const std::string to = folder / "sum.txt";
    REQUIRE(journeys::harmonics("run " + flow + pair.plugins() + "--quiet" +
                                pair.spell(" --producer 'A_ramp:?size=5" + augment + "' --consumer B_sum:" + to))
                .code == 0);
    const std::string text = journeys::read(to);
    CHECK(text.rfind("5 ", 0) == 0);
    return std::stod(text.substr(2));
  };
  double sum = 0, most = 0;
  for (int i = 0; i < 10; ++i) {
    sum += (i / 8.0 - 1) * steep(i / 4.0 - 2);
    most += 0.55;  // half of the largest derivative, 1.1
  }
  CHECK(summed("") == Approx(sum).margin(1e-5));
  const double random = summed("&augment=B_shift(most=0.5)");
  CHECK(random != Approx(sum).margin(1e-4));
  CHECK(std::abs(random - sum) < most);
  CHECK(summed("&augment=B_shift(most=0.5)") == random);
}

inline void check_implementations(const Build& b) {
  const Pair pair{b, b};
  const journeys::Folder folder;
  const std::string flow = folder.write("g.hmx", pair.spell(kFlow));
  const auto explained = [&](const std::string& more) {
    return journeys::harmonics("explain " + flow + " --plugin " + b.path +
                               pair.spell(" --producer x=A_ramp: --producer y=A_ramp: --show kernels --select" + more))
        .out;
  };
  const std::string fast = explained("");
  CHECK(journeys::has(fast, b.prefix + " cube gradient"));
  CHECK(journeys::has(fast, "fast of org.example." + b.prefix + " (plugin)"));
  CHECK(journeys::has(explained(" --override A_cube=plain"), "plain of org.example." + b.prefix + " (override)"));
  for (const char* name : {"plain", "portable"}) check_training(pair, " --override A_cube=" + std::string(name));
  check_training(pair, " --device A_none");
}

}  // namespace harmonics::engine::testing
