#include <catch2/catch.hpp>

#include <thread>
#include <tuple>

#include <harmonics/exporter_abi.h>
#include <harmonics/importer_abi.h>
#include <harmonics/training_abi.h>

#include "engine/plugin/pending_items.hpp"
#include "engine/plugin/registry.hpp"
#include "tests/override_scope.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::shared_ptr<Item> made(uint32_t kind, const char* name, const char* path = "") {
  auto item = std::make_shared<Item>();
  item->kind = kind;
  item->name = name;
  item->path = path;
  return item;
}

std::string refusal(Registry& registry, uint32_t kind, const char* name) {
  try {
    registry.need(kind, name);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Name);
    std::string all = e.what();
    for (const std::string& n : e.notes()) all += "\n" + n;
    return all;
  }
  return "found";
}

int destroyed = 0;
const hx_activation_vt kTable{sizeof(hx_activation_vt),
                              [](void*, const hx_attributes*, hx_value*, hx_value**) { return HX_ERROR; }, nullptr,
                              [](void*) { ++destroyed; }, nullptr};

hx_item c_item(const char* name) {
  hx_item i{};
  i.struct_size = sizeof i;
  i.kind = HX_ACTIVATION;
  i.name = name;
  i.vtable = &kTable;
  return i;
}
std::string pending_refusal(const hx_item& item) {
  hx_registry pending;
  try {
    add_pending(pending, item);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Plugin);
    CHECK(pending.pending.empty());
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("registry: a later item of a name replaces the earlier, which lives until its last user") {
  Registry registry;
  registry.add(made(HX_ACTIVATION, "relu"));
  const ItemPtr first = registry.need(HX_ACTIVATION, "relu");
  registry.add(made(HX_ACTIVATION, "relu"));
  CHECK(registry.need(HX_ACTIVATION, "relu") != first);
  CHECK(first->name == "relu");
  CHECK(registry.find(HX_LOSS, "relu") == nullptr);
}

TEST_CASE("registry: falls back to its outer one") {
  Registry outer;
  Registry inner(&outer);
  outer.add(made(HX_LOSS, "mse"));
  outer.add(made(HX_LOSS, "mae"));
  inner.add(made(HX_LOSS, "mse"));
  CHECK(inner.need(HX_LOSS, "mse") != outer.need(HX_LOSS, "mse"));
  CHECK(inner.need(HX_LOSS, "mae") == outer.need(HX_LOSS, "mae"));
  CHECK(inner.names(HX_LOSS) == std::vector<std::string>{"mae", "mse"});
}

TEST_CASE("registry: an unknown name is refused with the nearest known one and a remedy") {
  Registry registry;
  registry.add(made(HX_ACTIVATION, "sigmoid"));
  registry.add(made(HX_LOSS, "cross_entropy"));
  CHECK(refusal(registry, HX_ACTIVATION, "sigmiod") ==
        "unknown activation 'sigmiod'\ndid you mean 'sigmoid'?\n"
        "load a plugin that provides it with --plugin PATH; 'harmonics list functions' lists the known ones");
  CHECK(refusal(registry, HX_ACTIVATION, "cross_entropy") ==
        "unknown activation 'cross_entropy'\nnote: 'cross_entropy' is known as loss\nnote: known ones: sigmoid\n"
        "load a plugin that provides it with --plugin PATH; 'harmonics list functions' lists the known ones");
  CHECK(refusal(registry, HX_PRODUCER, "postgres") ==
        "unknown producer 'postgres'\n"
        "load a plugin that provides it with --plugin PATH; 'harmonics list producers' lists the known ones");
}

TEST_CASE("registry: items of an announced library do not replace later ones or other announcements") {
  Registry registry;
  registry.announce("/a.so", {{HX_ACTIVATION, "relu"}, {HX_ACTIVATION, "tanh"}});
  registry.announce("/b.so", {{HX_ACTIVATION, "relu"}, {HX_ACTIVATION, "gelu"}});
  CHECK(registry.names(HX_ACTIVATION) == std::vector<std::string>{"gelu", "relu", "tanh"});
  registry.add(made(HX_ACTIVATION, "gelu", "/mine.so"));
  registry.add_announced(made(HX_ACTIVATION, "relu", "/b.so"));  // already announced by /a.so
  registry.add_announced(made(HX_ACTIVATION, "gelu", "/b.so"));
  registry.add_announced(made(HX_ACTIVATION, "tanh", "/a.so"));
  CHECK(registry.need(HX_ACTIVATION, "gelu")->path == "/mine.so");
  CHECK(registry.need(HX_ACTIVATION, "tanh")->path == "/a.so");
  CHECK_THROWS_WITH(registry.need(HX_ACTIVATION, "relu"), "plugin '/a.so' does not exist");
}

TEST_CASE("registry: kinds have names, singular and plural") {
  CHECK(kind_named("activation") == HX_ACTIVATION);
  CHECK(kind_named("losses") == HX_LOSS);
  CHECK(kind_named("devices") == HX_DEVICE);
  CHECK(kind_named("thing") == 0);
  CHECK(kind_name(HX_CONSUMER) == "consumer");
}

TEST_CASE("registry: a registered struct is copied by its size, and destroyed once") {
  destroyed = 0;
  {
    hx_registry pending;
    pending.plugin = "p";
    std::string name = "mine";
    hx_argument_spec spec{sizeof(hx_argument_spec), HX_ARG_FLOAT, "slope", "0.5", "steepness", "0..1"};
    hx_item item = c_item(name.c_str());
    item.n_arguments = 1;
    item.arguments = &spec;
    add_pending(pending, item);
    name = "gone";
    spec = {};
    Registry registry;
    commit_pending(pending, registry);
    const ItemPtr copy = registry.need(HX_ACTIVATION, "mine");
    CHECK(copy->identity() == "p/mine");
    REQUIRE(copy->arguments.size() == 1);
    CHECK(copy->arguments[0].name == "slope");
    CHECK(copy->arguments[0].default_text == "0.5");
    CHECK_FALSE(copy->arguments[0].required);
    CHECK(copy->arguments[0].range == "0..1");
  }
  CHECK(destroyed == 1);
}

TEST_CASE("registry: longer argument rows of a later contract are read") {
  struct Longer {
    hx_argument_spec spec;
    const char* more[3];
  };
  const Longer rows[2] = {{{sizeof(Longer), HX_ARG_INT, "a", nullptr, "", nullptr}, {}},
                          {{sizeof(Longer), HX_ARG_INT, "b", "1", "", nullptr}, {}}};
  hx_item item = c_item("later");
  item.n_arguments = 2;
  item.arguments = &rows[0].spec;
  hx_registry pending;
  add_pending(pending, item);
  REQUIRE(pending.pending.at(0)->arguments.size() == 2);
  CHECK(pending.pending[0]->arguments[0].required);
  CHECK(pending.pending[0]->arguments[1].name == "b");
}

TEST_CASE("registry: malformed registrations are refused") {
  destroyed = 0;
  hx_item item = c_item("has space");
  CHECK(pending_refusal(item) ==
        "cannot register activation 'has space': a name starts with a letter or '_', followed by letters, digits and "
        "'_ . + -'");
  CHECK(destroyed == 1);  // ownership was taken
  item = c_item("x");
  item.kind = 77;
  CHECK(pending_refusal(item) == "cannot register 'x': unknown kind 77");
  item = c_item("x");
  item.vtable = nullptr;
  CHECK(pending_refusal(item) == "cannot register activation 'x': it has no table of functions");
  item = c_item("x");
  item.n_arguments = 1;
  CHECK(pending_refusal(item) == "cannot register activation 'x': its table of arguments is missing");
  const hx_argument_spec unknown{sizeof(hx_argument_spec), 99, "a", "", "", nullptr};
  item.arguments = &unknown;
  CHECK(pending_refusal(item) == "cannot register activation 'x': argument 'a' has the unknown type 99");
  const hx_argument_spec bad_default{sizeof(hx_argument_spec), HX_ARG_INT, "a", "many", "", nullptr};
  item.arguments = &bad_default;
  CHECK(pending_refusal(item) ==
        "cannot register activation 'x': the default 'many' of argument 'a' is not a whole number");
  const hx_argument_spec small{4, HX_ARG_INT, "a", "", "", nullptr};
  item.arguments = &small;
  CHECK(pending_refusal(item) == "cannot register activation 'x': its table of arguments holds a size of 4 bytes");
}

TEST_CASE("registry: unused kinds, reserved names and tables with missing functions are refused") {
  hx_item item = c_item("onnx");
  item.kind = HX_IMPORTER;
  CHECK(pending_refusal(item) ==
        "cannot register importer 'onnx': importers are registered by the extension 'hx.importer/0'");
  item.kind = HX_TOKENIZER;
  CHECK(pending_refusal(item) ==
        "cannot register tokenizer 'onnx': tokenizers are registered by the extension 'hx.tokenizer/0'");
  item.kind = HX_EXPORTER;
  CHECK(pending_refusal(item) ==
        "cannot register exporter 'onnx': exporters are registered by the extension 'hx.exporter/0'");
  const hx_activation_vt empty{sizeof(hx_activation_vt), nullptr, nullptr, nullptr, nullptr};
  item = c_item("x");
  item.vtable = &empty;
  CHECK(pending_refusal(item) == "cannot register activation 'x': its table lacks the function 'apply'");
  for (const auto& [kind, name, said] : {std::tuple(HX_FUNCTIONAL, "attention", "functional 'attention'"),
                                         {HX_FUNCTIONAL, "add", "functional 'add'"},
                                         {HX_OPTIMIZER, "adamw", "optimizer 'adamw'"},
                                         {HX_SCHEDULE, "cosine", "schedule 'cosine'"},
                                         {HX_AUGMENTATION, "shift", "augmentation 'shift'"}}) {
    item = c_item(name);
    item.kind = kind;
    CHECK(pending_refusal(item) ==
          "cannot register " + std::string(said) + ": the library itself has one of this name; choose another");
  }
}

TEST_CASE("registry: an extension takes its own kind only, with complete tables") {
  const auto said = [](const hx_item& item, const char* extension) -> std::string {
    hx_registry pending;
    try {
      add_pending(pending, item, extension);
    } catch (const Error& e) {
      return e.what();
    }
    return pending.pending.size() == 1 ? "accepted" : "lost";
  };
  hx_importer_vt importer{};
  importer.struct_size = sizeof importer;
  hx_item item = c_item("onnx");
  item.kind = HX_IMPORTER;
  item.vtable = &importer;
  CHECK(said(item, HX_IMPORTER_EXTENSION) == "cannot register importer 'onnx': its table lacks the function 'probe'");
  importer.probe = [](void*, const hx_file_start*, uint32_t*) { return HX_DECLINED; };
  importer.open = [](void*, const hx_import_source*, const hx_attributes*, const hx_imported_model**) {
    return HX_ERROR;
  };
  CHECK(said(item, HX_IMPORTER_EXTENSION) == "cannot register importer 'onnx': its table lacks the function 'close'");
  importer.close = [](void*, const hx_imported_model*) {};
  CHECK(said(item, HX_IMPORTER_EXTENSION) == "accepted");
  CHECK(said(item, HX_TOKENIZER_EXTENSION) ==
        "cannot register importer 'onnx': importers are registered by the extension 'hx.importer/0'");
  CHECK(said(c_item("x"), HX_IMPORTER_EXTENSION) ==
        "cannot register activation 'x': activations are registered by hx_api.register_item");
  hx_exporter_vt exporter{};
  exporter.struct_size = sizeof exporter;
  item.kind = HX_EXPORTER;
  item.vtable = &exporter;
  exporter.probe = [](void*, const char*, uint32_t*) { return HX_DECLINED; };
  CHECK(said(item, HX_EXPORTER_EXTENSION) == "cannot register exporter 'onnx': its table lacks the function 'write'");
  exporter.write = [](void*, const hx_exported_model*, const hx_attributes*, const hx_export_sink*) {
    return HX_ERROR;
  };
  CHECK(said(item, HX_EXPORTER_EXTENSION) == "accepted");
  hx_tokenizer_vt tokenizer{};
  tokenizer.struct_size = sizeof tokenizer;
  item.kind = HX_TOKENIZER;
  item.vtable = &tokenizer;
  CHECK(said(item, HX_TOKENIZER_EXTENSION) == "cannot register tokenizer 'onnx': its table lacks the function 'probe'");
}

TEST_CASE("registry: implementations and optimizers must have the form of their kind") {
  hx_item item = c_item("mine");
  item.kind = HX_IMPLEMENTATION;
  CHECK(pending_refusal(item) ==
        "cannot register implementation 'mine': an implementation is called FUNCTIONAL.NAME, such as attention.mine");
  item.name = "attention.mine";
  CHECK(pending_refusal(item) == "accepted");
  item = c_item("mine");
  item.kind = HX_OPTIMIZER;
  CHECK(pending_refusal(item) == "cannot register optimizer 'mine': its table lacks the function 'step'");
  const hx_optimizer_vt table{
      sizeof table, nullptr,
      [](void*, const hx_attributes*, const hx_parameter*, const hx_update*, hx_value**) { return HX_ERROR; }, nullptr};
  item.vtable = &table;
  CHECK(pending_refusal(item) ==
        "cannot register optimizer 'mine': the first argument of an optimizer is 'lr', a number with a default");
  const hx_argument_spec text{sizeof(hx_argument_spec), HX_ARG_STRING, "mode", "fast", "", nullptr};
  item.n_arguments = 1;
  item.arguments = &text;
  CHECK(pending_refusal(item) ==
        "cannot register optimizer 'mine': argument 'mode' is not a number or flag with a default");
}

TEST_CASE("registry: ranges of arguments are valid, and defaults lie in them") {
  hx_item item = c_item("x");
  item.n_arguments = 1;
  const auto with = [&](uint32_t type, const char* otherwise, const char* range) {
    const hx_argument_spec spec{sizeof(hx_argument_spec), type, "a", otherwise, "", range};
    item.arguments = &spec;
    return pending_refusal(item);
  };
  for (const char* range : {"0..1", "0..", "..1", "0<..<1", "0.5<..", "-1..1"})
    CHECK(with(HX_ARG_FLOAT, "", range) == "accepted");
  CHECK(with(HX_ARG_STRING, "none", "none|tanh") == "accepted");
  for (const char* range : {"0", "..", "<..1", "1..0", "a..b", "0..1..2"})
    CHECK(with(HX_ARG_INT, "", range) == "cannot register activation 'x': the range '" + std::string(range) +
                                             "' of argument 'a' does not fit a whole number");
  CHECK(with(HX_ARG_BOOL, "", "0..1") ==
        "cannot register activation 'x': the range '0..1' of argument 'a' does not fit true or false");
  CHECK(with(HX_ARG_FLOAT, "2", "0..1") ==
        "cannot register activation 'x': the default '2' of argument 'a' is outside its range '0..1'");
  CHECK(with(HX_ARG_STRING, "relu", "none|tanh") ==
        "cannot register activation 'x': the default 'relu' of argument 'a' is outside its range 'none|tanh'");
}

TEST_CASE("registry: implementations come newest first, a graph's before others, overrides are scoped") {
  Registry outer;
  Registry inner(&outer);
  outer.add(made(HX_IMPLEMENTATION, "attention.old"));
  outer.add(made(HX_IMPLEMENTATION, "attention.new"));
  outer.add(made(HX_IMPLEMENTATION, "attention_grad.other"));
  inner.add(made(HX_IMPLEMENTATION, "attention.own"));
  const auto names = [](Registry& r) {
    std::vector<std::string> all;
    for (const ItemPtr& item : r.implementations("attention")) all.push_back(item->name);
    return all;
  };
  CHECK(names(outer) == std::vector<std::string>{"attention.new", "attention.old"});
  CHECK(names(inner) == std::vector<std::string>{"attention.own", "attention.new", "attention.old"});
  using Overrides = std::map<std::string, std::string>;
  const OverrideScope everywhere(outer, "attention", "old");
  {
    const OverrideScope here(inner, "attention", "own");
    CHECK(inner.overrides() == Overrides{{"attention", "own"}});
    CHECK(outer.overrides() == Overrides{{"attention", "old"}});
  }
  CHECK(inner.overrides() == Overrides{{"attention", "old"}});
}

TEST_CASE("registry: names are looked up and replaced from several threads") {
  Registry registry;
  registry.add(made(HX_ACTIVATION, "relu"));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        registry.add(made(HX_ACTIVATION, "relu"));
        if (registry.need(HX_ACTIVATION, "relu")->name != "relu") std::abort();
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(registry.names(HX_ACTIVATION).size() == 1);
}
