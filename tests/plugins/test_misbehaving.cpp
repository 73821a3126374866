// Plugins that fail, and the resulting errors.
#include <catch2/catch.hpp>

#include <dlfcn.h>

#include "tests/plugins/traced.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::string misbehaving(const std::string& name) { return HARMONICS_TEST_PLUGINS "/lib" + name + ".so"; }

const std::string kUnused = "\nnothing of it is used: correct harmonics_register, or leave the plugin out";

std::string loading(const std::string& path) {
  Registry registry;
  const std::string said = error_of([&] { load_plugin(path, registry); });
  for (uint32_t kind : {HX_ACTIVATION, HX_LOSS, HX_LAYER}) CHECK(registry.names(kind).empty());
  return said;
}

Registry& functions() {
  static Registry* registry = [] {
    auto* r = new Registry;
    load_plugin(misbehaving("functions"), *r);
    return r;
  }();
  return *registry;
}
const HTensor kX = floats({2, 3}, {1, -2, 3, -4, 5, -6});

Ran run_activation(const char* name, bool differentiate = false) {
  const ItemPtr item = functions().need(HX_ACTIVATION, name);
  return run(
      kX, [&](const HTensor& x) { return call_activation(item, {}, x); }, differentiate);
}
std::string activation_error(const char* name, bool differentiate = false) {
  return error_of([&] { run_activation(name, differentiate); });
}
HTensor loss_of(const char* name, const HTensor& p, const HTensor& t) {
  return call_loss(functions().need(HX_LOSS, name), {}, "", p, p, t);
}
HTensor layer_of(const char* name, TestScope& scope, const HTensor& x) {
  return call_layer(functions().need(HX_LAYER, name), {}, {}, scope, x);
}

}  // namespace

TEST_CASE("failing plugins: a library that cannot be loaded registers nothing and is refused with the reason") {
  CHECK(loading("/nowhere/libx.so") == "plugin '/nowhere/libx.so' does not exist\nthere is no folder '/nowhere'");
  CHECK(loading("/") == "plugin '/' is a folder\ngive the library that was built in it, such as /build/libNAME.so");
  CHECK(loading("/dev/null") == "plugin '/dev/null' is not a file");
  CHECK(loading(misbehaving("throws_registering")) == "plugin '" + misbehaving("throws_registering") +
                                                          "' failed while registering: the licence has run out" +
                                                          kUnused);
  CHECK(loading(misbehaving("throws_int")) ==
        "plugin '" + misbehaving("throws_int") +
            "' failed while registering: it threw something that is not a std::exception" + kUnused);
  for (const char* name : {"bad_name", "bad_name_in_c"})
    CHECK(loading(misbehaving(name)) ==
          "plugin '" + misbehaving(name) +
              "' failed while registering: cannot register activation 'not fine': a name starts with a letter or '_', "
              "followed by letters, digits and '_ . + -'" +
              kUnused);
  CHECK(loading(misbehaving("missing_symbol")) ==
        "plugin '" + misbehaving("missing_symbol") +
            "' cannot be loaded: undefined symbol: a_function_nobody_has\n"
            "link it with the library that has the symbol, or define it; the program exports no symbols to plugins");
  CHECK(loading(misbehaving("other_contract")) ==
        "plugin '" + misbehaving("other_contract") +
            "' is built for contract 7.3, this program has 1.5\n"
            "build it again with this program's headers, or get the release made for it");
  CHECK(loading(misbehaving("no_descriptor")) == "'" + misbehaving("no_descriptor") +
                                                     "' is not a Harmonics plugin: it has no descriptor\ninclude "
                                                     "<harmonics/plugin.hpp> in one of its sources");
  CHECK(loading(misbehaving("no_entry")) ==
        "plugin '" + misbehaving("no_entry") +
            "' has no function harmonics_register\n"
            "define: extern \"C\" void harmonics_register(harmonics::FunctionRegistry& registry) { ... }");
  CHECK(loading(HARMONICS_SOURCE_DIR "/CMakeLists.txt") ==
        "'" HARMONICS_SOURCE_DIR
        "/CMakeLists.txt' is not a Harmonics plugin: it is not an ELF file\ngive the shared library that was built, "
        "such as libmine.so");
}

TEST_CASE("failing plugins: an activation that throws gives an error with its name, not a crash") {
  const std::string of = "' of plugin 'functions'";
  CHECK(activation_error("throws") == "activation 'throws" + of + ": the moon is full");
  CHECK(activation_error("throws_int") ==
        "activation 'throws_int" + of + ": threw something that is not a std::exception");
  CHECK(activation_error("throws_error") == "activation 'throws_error" + of + ": too wide\nnarrow it");
  CHECK(activation_error("empty") == "activation 'empty" + of + ": the activation returned an empty tensor");
  CHECK(activation_error("unknown_operation") ==
        "activation 'unknown_operation" + of + ": there is no operation 'rleu'\ndid you mean 'relu'?");
  try {
    run_activation("throws_error");
    FAIL("nothing was thrown");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Shape);
  }
}

TEST_CASE("failing plugins: an activation must keep shape and element type") {
  CHECK(activation_error("wrong_shape") ==
        "activation 'wrong_shape' of plugin 'functions' returned f32[2] for f32[2, 3]; an activation keeps shape and "
        "element "
        "type\nregister it as a layer if it is meant to change them");
  CHECK(activation_error("wrong_type")
            .rfind("activation 'wrong_type' of plugin 'functions' returned f64[2, 3] for f32[2, 3];", 0) == 0);
}

TEST_CASE("plugin bodies: a body of operations is traced and differentiated") {
  const Ran ran = run_activation("square", true);
  CHECK(ran.count(Op::host_call) == 0);
  CHECK(numbers(ran.y) == Floats{1, 4, 9, 16, 25, 36});
  CHECK(numbers(ran.dx) == Floats{2, -4, 6, -8, 10, -12});
}

TEST_CASE("plugin bodies: one that reads numbers infers, and training refuses it with a remedy") {
  const Ran ran = run_activation("reads");
  CHECK(ran.count(Op::host_call) == 1);
  CHECK(numbers(ran.y) == Floats{1, 4, 9, 16, 25, 36});
  CHECK(activation_error("reads", true) ==
        "activation 'reads' of plugin 'functions' reads numbers and supplies no gradient: it can infer but not train; "
        "write it "
        "with harmonics operations or override gradient()");
}

TEST_CASE("plugin bodies: one that reads numbers trains with its own gradient, traced or not") {
  for (const char* name : {"reads_with_gradient", "reads_with_traced_gradient"}) {
    const Ran ran = run_activation(name, true);
    INFO(name);
    CHECK(numbers(ran.y) == Floats{1, 4, 9, 16, 25, 36});
    CHECK(numbers(ran.dx) == Floats{2, -4, 6, -8, 10, -12});
  }
  CHECK(activation_error("wrong_gradient", true).find("is f32[3], its input is f32[2, 3]") != std::string::npos);
}

TEST_CASE("plugin bodies: its own gradient precedes a derivable one") {
  const Ran ran = run_activation("straight_through", true);
  CHECK(numbers(ran.dx) == Floats{1, 1, 1, 1, 1, 1});  // round has no gradient of its own
}

TEST_CASE("plugin bodies: an opaque body with a changed answer is refused") {
  const ItemPtr item = functions().need(HX_ACTIVATION, "changes_its_mind");
  CHECK(error_of([&] {
          run(floats({2, 3}, {9, 0, 0, 0, 0, 0}), [&](const HTensor& x) { return call_activation(item, {}, x); });
        }).rfind("activation 'changes_its_mind' of plugin 'functions' returned f32[1] for f32[2, 3];", 0) == 0);
}

TEST_CASE("plugin bodies: a traced value kept after the trace is refused") {
  CHECK(activation_error("keeps_a_value") == "no error");
  const ItemPtr item = functions().need(HX_ACTIVATION, "keeps_a_value");
  const std::string said = error_of([&] {
    run(floats({4}, {1, 2, 3, 4}), [&](const HTensor& x) { return call_activation(item, {}, x); });
  });
  CHECK(said.rfind("activation 'keeps_a_value' of plugin 'functions': ", 0) == 0);
}

TEST_CASE("failing plugins: a loss must give at least one number per sample, of a float type") {
  const HTensor t = floats({2, 3}, {0, 0, 0, 0, 0, 0});
  const auto loss_error = [&](const char* name) {
    return error_of([&] { run(kX, [&](const HTensor& x) { return loss_of(name, x, t); }); });
  };
  CHECK(numbers(run(kX, [&](const HTensor& x) { return loss_of("distance", x, t); }).y) == Floats{1, 2, 3, 4, 5, 6});
  CHECK(loss_error("no_batch") ==
        "loss 'no_batch' of plugin 'functions' returned f32[3] for a prediction of f32[2, 3]; a loss returns one "
        "number, or numbers with the batch axis first");
  CHECK(loss_error("whole_numbers").rfind("loss 'whole_numbers' of plugin 'functions' returned i32[2, 3]", 0) == 0);
}

TEST_CASE("plugin bodies: a loss that reads numbers trains with its own gradient") {
  const HTensor t = floats({2, 3}, {1, 1, 1, 1, 1, 1});
  const Ran ran = run(
      kX, [&](const HTensor& x) { return loss_of("by_numbers", x, t); }, true);
  CHECK(numbers(ran.y) == Floats{0, 9, 4, 25, 16, 49});
  CHECK(numbers(ran.dx) == Floats{0, -6, 4, -10, 8, -14});
}

TEST_CASE("failing plugins: failing layers are named, and layers cannot read numbers") {
  TestScope scope;
  const auto layer_error = [&](const char* name) {
    return error_of([&] { run(kX, [&](const HTensor& x) { return layer_of(name, scope, x); }); });
  };
  CHECK(layer_error("reads_numbers") ==
        "layer 'reads_numbers' of plugin 'functions' reads the values of its input, which a layer cannot do\nwrite it "
        "with "
        "the operations of <harmonics/ops.hpp>, or as an activation with its own gradient()");
  CHECK(layer_error("layer_throws") == "layer 'layer_throws' of plugin 'functions': no such luck");
  CHECK(
      layer_error("layer_without_batch") ==
      "layer 'layer_without_batch' of plugin 'functions' returned f32[] for f32[2, 3]; the batch axis must stay first");
  CHECK(run(kX, [&](const HTensor& x) { return layer_of("doubles_width", scope, x); }).y.shape() == Shape{2, 6});
}

TEST_CASE("failing plugins: one in plain C with tables of an older size works, and its invalid answers are refused") {
  Registry registry;
  load_plugin(misbehaving("in_c"), registry);
  const auto call = [&](const char* name) {
    return run(
        kX, [&](const HTensor& x) { return call_activation(registry.need(HX_ACTIVATION, name), {}, x); }, true);
  };
  CHECK(numbers(call("twice").y) == Floats{2, -4, 6, -8, 10, -12});
  CHECK(numbers(call("twice").dx) == Floats{2, 2, 2, 2, 2, 2});
  CHECK(error_of([&] { call("silent"); }) == "activation 'silent' of plugin 'org.example.c' returned an empty tensor");
  CHECK(error_of([&] { call("strange"); }) == "activation 'strange' of plugin 'org.example.c' answered with status 99");
}

TEST_CASE("plugins: two built with default visibility have separate copies of the API's variables") {
  Registry registry;
  load_plugin(misbehaving("plain_a"), registry);
  load_plugin(misbehaving("plain_b"), registry);
  const auto ask = [](const char* name, const char* function) {
    void* handle = dlopen(misbehaving(name).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    REQUIRE(handle != nullptr);
    return reinterpret_cast<const void* (*)()>(dlsym(handle, function))();
  };
  for (const char* function : {"face_slot", "activation_table"})
    CHECK(ask("plain_a", function) != ask("plain_b", function));
  const auto times = [&](const char* name) {
    return numbers(
        run(kX, [&](const HTensor& x) { return call_activation(registry.need(HX_ACTIVATION, name), {}, x); }).y);
  };
  CHECK(times("times_2") == Floats{2, -4, 6, -8, 10, -12});
  CHECK(times("times_3") == Floats{3, -6, 9, -12, 15, -18});
}

TEST_CASE("plugins: one without a name is named after its file") {
  CHECK(functions().need(HX_ACTIVATION, "square")->identity() == "functions/square");
  CHECK(functions().need(HX_ACTIVATION, "square")->path == misbehaving("functions"));
}
