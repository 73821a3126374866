// The in-tree plugins as seen by a program.
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include <harmonics/metric_abi.h>

#include "engine/plugin/arguments.hpp"
#include "engine/plugin/discovery.hpp"
#include "engine/plugin/loader.hpp"

using namespace harmonics;
using namespace harmonics::engine;
namespace fs = std::filesystem;

namespace {

const std::string kPlugins = HARMONICS_BINARY_DIR "/lib/harmonics/plugins";
const std::vector<uint32_t> kKinds = item_kinds();

}  // namespace

TEST_CASE("catalogue: a manifest lists the items that the library registers") {
  size_t libraries = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kPlugins)) {
    if (entry.path().extension() != ".manifest") continue;
    ++libraries;
    INFO(entry.path().string());
    std::multiset<std::string> promised, registered;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) promised.insert(line);
    Registry registry;
    load_plugin(fs::path(entry.path()).replace_extension(".so").string(), registry);
    for (uint32_t kind : kKinds)
      for (const std::string& name : registry.names(kind)) registered.insert(std::string(kind_name(kind)) + " " + name);
    CHECK(promised == registered);
  }
  CHECK(libraries >= 3);
}

TEST_CASE("catalogue: every registered item has a description") {
  Registry registry;
  announce(discover_plugins({kPlugins}), registry);
  registry.load_everything();
  for (uint32_t kind : kKinds)
    for (const std::string& name : registry.names(kind)) {
      const ItemPtr item = registry.need(kind, name);
      INFO(item->identity());
      CHECK_FALSE(item->description.empty());
      for (const ArgumentSpec& argument : item->arguments) CHECK_FALSE(argument.description.empty());
    }
}

TEST_CASE("catalogue: arguments of layers and metrics have their ranges") {
  struct Row {
    uint32_t kind;
    const char *name, *argument, *value, *remedy;
  };
  for (const Row& row : {Row{HX_LAYER, "dropout", "rate", "1", "give a value at least 0 and below 1"},
                         Row{HX_LAYER, "noise", "deviation", "-1", "give a value at least 0"},
                         Row{HX_LAYER, "affine", "width", "0", "give a value at least 1"},
                         Row{HX_LAYER, "conv", "kernel", "0", "give a value at least 1"},
                         Row{HX_LAYER, "gru", "layers", "0", "give a value at least 1"},
                         Row{HX_LAYER, "lstm", "dropout", "1", "give a value at least 0 and below 1"},
                         Row{HX_LAYER, "norm", "kind", "local", "give one of layer, rms, batch, group, instance"},
                         Row{HX_LAYER, "norm", "epsilon", "0", "give a value above 0"},
                         Row{HX_LAYER, "norm", "momentum", "1.5", "give a value from 0 to 1"},
                         Row{HX_METRIC, "topk", "k", "0", "give a value at least 1"},
                         Row{HX_METRIC, "f1", "average", "mean", "give one of macro, micro, weighted, none"}}) {
    INFO(row.name << " " << row.argument);
    const ItemPtr item = Registry::global().need(row.kind, row.name);
    try {
      bind_texts(*item, {{row.argument, row.value}});
      FAIL("taken");
    } catch (const Error& e) {
      CHECK(e.what() == "'" + std::string(row.argument) + "' of " + std::string(kind_name(row.kind)) + " '" + row.name +
                            "' is '" + row.value + "'");
      REQUIRE(e.notes().size() == 1);
      CHECK(e.notes()[0] == row.remedy);
    }
  }
}

TEST_CASE("catalogue: contains all names of the language") {
  Registry& registry = Registry::global();
  for (const char* name : {"relu",        "leaky_relu", "sigmoid",  "tanh",       "softmax",     "gelu",    "silu",
                           "elu",         "softplus",   "selu",     "celu",       "mish",        "relu6",   "hardtanh",
                           "hardsigmoid", "hardswish",  "softsign", "logsigmoid", "log_softmax", "identity"})
    CHECK(registry.need(HX_ACTIVATION, name)->identity() == "harmonics.activations/" + std::string(name));
  for (const char* name : {"cross_entropy", "binary_cross_entropy", "mse", "mae", "huber", "smooth_l1", "next_token",
                           "nll", "kl_div", "hinge", "dpo", "distillation"})
    CHECK(registry.need(HX_LOSS, name)->plugin == "harmonics.losses");
  for (const char* name :
       {"affine", "conv",   "maxpool", "avgpool", "norm", "dropout", "noise", "flatten", "embed", "attention",
        "skip",   "concat", "mul",     "lstm",    "gru",  "last",    "mean",  "prelu",   "glu",   "select"})
    CHECK(registry.need(HX_LAYER, name)->plugin == "harmonics.layers");
  CHECK(registry.need(HX_LOSS, "cross_entropy")->flags == HX_TAKES_CLASSES);
  CHECK(registry.need(HX_LOSS, "next_token")->flags == (HX_TAKES_CLASSES | HX_SHIFTS_TARGET));
  CHECK(registry.need(HX_LAYER, "dropout")->flags == HX_MODE_ONLY);
  CHECK(registry.need(HX_LAYER, "noise")->flags == HX_MODE_ONLY);
  CHECK(registry.need(HX_LAYER, "skip")->flags == HX_IDENTITY_SKIP);
  CHECK(registry.need(HX_LAYER, "prelu")->flags == HX_AFTER_MAP);
  CHECK(registry.need(HX_PRODUCER, "file")->plugin.empty());
}
