#include <catch2/catch.hpp>

#include <thread>

#include "engine/plugin/discovery.hpp"
#include "tests/plugins/catalogue.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

struct Overridden {
  Registry registry;
  Overridden() {
    announce(discover_plugins({HARMONICS_BINARY_DIR "/lib/harmonics/plugins"}), registry);
    load_plugin(HARMONICS_TEST_PLUGINS "/libown_sigmoid.so", registry);
  }
};

}  // namespace

TEST_CASE("overrides: a user's activation remains when the catalogue's library is opened for another name") {
  Overridden o;
  CHECK(o.registry.need(HX_ACTIVATION, "sigmoid")->identity() == "org.example.own/sigmoid");
  CHECK(o.registry.need(HX_ACTIVATION, "relu")->identity() == "harmonics.activations/relu");
  CHECK(o.registry.need(HX_ACTIVATION, "sigmoid")->identity() == "org.example.own/sigmoid");
  o.registry.load_everything();
  CHECK(o.registry.need(HX_ACTIVATION, "sigmoid")->identity() == "org.example.own/sigmoid");
}

TEST_CASE("overrides: losses do not treat a user's sigmoid as the built-in one") {
  Overridden o;
  const ItemPtr own = o.registry.need(HX_ACTIVATION, "sigmoid"),
                entropy = o.registry.need(HX_LOSS, "binary_cross_entropy");
  const HTensor z = floats({1, 1}, {1});
  const Ran ran = run(z, [&](const HTensor& x) {
    return call_loss(entropy, {}, own->identity(), x, call_activation(own, {}, x), floats({1, 1}, {1}));
  });
  check_close(ran.y, {-std::log(0.75f)});  // the probability 0.25 * 1 + 0.5
}

TEST_CASE("overrides: a function replaced under its name does not reuse the old one's traces") {
  Registry registry;
  load_plugin(HARMONICS_TEST_PLUGINS "/libplain_a.so", registry);
  const ItemPtr first = registry.need(HX_ACTIVATION, "times_2");
  const HTensor x = floats({1, 2}, {1, 2});
  const auto ask = [&](const ItemPtr& item) {
    return run(x, [&](const HTensor& v) { return call_activation(item, {}, v); }).y;
  };
  check_close(ask(first), {2, 4});
  load_plugin(HARMONICS_TEST_PLUGINS "/libplain_a.so", registry);
  const ItemPtr second = registry.need(HX_ACTIVATION, "times_2");
  CHECK(first != second);
  check_close(ask(second), {2, 4});
  check_close(ask(first), {2, 4});
}

TEST_CASE("overrides: concurrent first uses on several threads agree") {
  Registry registry;
  load_plugin(HARMONICS_TEST_PLUGINS "/libfunctions.so", registry);
  const ItemPtr item = registry.need(HX_ACTIVATION, "square");
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int64_t n = 1; n < 20; ++n) {
        const Ran ran = run(ramp({1, n}), [&](const HTensor& x) { return call_activation(item, {}, x); });
        right += numbers(ran.y)[0] == numbers(ramp({1, n}))[0] * numbers(ramp({1, n}))[0];
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(right == 4 * 19);
}
