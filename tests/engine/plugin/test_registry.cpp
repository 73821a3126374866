#include <catch2/catch.hpp>

#include <thread>

#include "engine/plugin/pending_items.hpp"
#include "engine/plugin/registry.hpp"

using namespace harmonics;

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
const hx_activation_vt kTable{sizeof(hx_activation_vt), nullptr, nullptr, [](void*) { ++destroyed; }};

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

TEST_CASE("a later item of a name replaces the earlier, which lives on with its user") {
  Registry registry;
  registry.add(made(HX_ACTIVATION, "relu"));
  const ItemPtr first = registry.need(HX_ACTIVATION, "relu");
  registry.add(made(HX_ACTIVATION, "relu"));
  CHECK(registry.need(HX_ACTIVATION, "relu") != first);
  CHECK(first->name == "relu");
  CHECK(registry.find(HX_LOSS, "relu") == nullptr);
}

TEST_CASE("a registry falls back to its outer one") {
  Registry outer;
  Registry inner(&outer);
  outer.add(made(HX_LOSS, "mse"));
  outer.add(made(HX_LOSS, "mae"));
  inner.add(made(HX_LOSS, "mse"));
  CHECK(inner.need(HX_LOSS, "mse") != outer.need(HX_LOSS, "mse"));
  CHECK(inner.need(HX_LOSS, "mae") == outer.need(HX_LOSS, "mae"));
  CHECK(inner.names(HX_LOSS) == std::vector<std::string>{"mae", "mse"});
}

TEST_CASE("an unknown name is refused with the nearest known one and a remedy") {
  Registry registry;
  registry.add(made(HX_ACTIVATION, "sigmoid"));
  registry.add(made(HX_LOSS, "cross_entropy"));
  CHECK(refusal(registry, HX_ACTIVATION, "sigmiod") ==
        "unknown activation 'sigmiod'\ndid you mean 'sigmoid'?\n"
        "a plugin that has it is loaded with --plugin PATH; 'harmonics list functions' shows what is there");
  CHECK(refusal(registry, HX_ACTIVATION, "cross_entropy") ==
        "unknown activation 'cross_entropy'\nnote: 'cross_entropy' is known as loss\nnote: known are sigmoid\n"
        "a plugin that has it is loaded with --plugin PATH; 'harmonics list functions' shows what is there");
  CHECK(refusal(registry, HX_PRODUCER, "postgres") ==
        "unknown producer 'postgres'\n"
        "a plugin that has it is loaded with --plugin PATH; 'harmonics list producers' shows what is there");
}

TEST_CASE("items of an announced library yield to what came since and to other announcements") {
  Registry registry;
  registry.announce("/a.so", {{HX_ACTIVATION, "relu"}, {HX_ACTIVATION, "tanh"}});
  registry.announce("/b.so", {{HX_ACTIVATION, "relu"}, {HX_ACTIVATION, "gelu"}});
  CHECK(registry.names(HX_ACTIVATION) == std::vector<std::string>{"gelu", "relu", "tanh"});
  registry.add(made(HX_ACTIVATION, "gelu", "/mine.so"));
  registry.add_announced(made(HX_ACTIVATION, "relu", "/b.so"));  // announced by /a.so first
  registry.add_announced(made(HX_ACTIVATION, "gelu", "/b.so"));
  registry.add_announced(made(HX_ACTIVATION, "tanh", "/a.so"));
  CHECK(registry.need(HX_ACTIVATION, "gelu")->path == "/mine.so");
  CHECK(registry.need(HX_ACTIVATION, "tanh")->path == "/a.so");
  CHECK_THROWS_WITH(registry.need(HX_ACTIVATION, "relu"), "plugin '/a.so' does not exist");
}

TEST_CASE("kinds have names, singular and plural") {
  CHECK(kind_named("activation") == HX_ACTIVATION);
  CHECK(kind_named("losses") == HX_LOSS);
  CHECK(kind_named("devices") == HX_DEVICE);
  CHECK(kind_named("thing") == 0);
  CHECK(kind_name(HX_CONSUMER) == "consumer");
}

TEST_CASE("a registered struct is copied, by its own size, and destroyed once") {
  destroyed = 0;
  {
    hx_registry pending;
    pending.plugin = "p";
    std::string name = "mine";
    hx_argument_spec spec{sizeof(hx_argument_spec), HX_ARG_FLOAT, "slope", "0.5", "steepness"};
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
  }
  CHECK(destroyed == 1);
}

TEST_CASE("argument rows of a later contract are longer and still read") {
  struct Longer {
    hx_argument_spec spec;
    const char* more[3];
  };
  const Longer rows[2] = {{{sizeof(Longer), HX_ARG_INT, "a", nullptr, ""}, {}}, {{sizeof(Longer), HX_ARG_INT, "b", "1", ""}, {}}};
  hx_item item = c_item("later");
  item.n_arguments = 2;
  item.arguments = &rows[0].spec;
  hx_registry pending;
  add_pending(pending, item);
  REQUIRE(pending.pending.at(0)->arguments.size() == 2);
  CHECK(pending.pending[0]->arguments[0].required);
  CHECK(pending.pending[0]->arguments[1].name == "b");
}

TEST_CASE("malformed registrations are refused") {
  destroyed = 0;
  hx_item item = c_item("has space");
  CHECK(pending_refusal(item) == "cannot register activation 'has space': a name starts with a letter or '_' and goes on with "
                                 "letters, digits and '_ . + -'");
  CHECK(destroyed == 1);  // owned even then
  item = c_item("x");
  item.kind = 77;
  CHECK(pending_refusal(item) == "cannot register 'x': unknown kind 77");
  item = c_item("x");
  item.vtable = nullptr;
  CHECK(pending_refusal(item) == "cannot register activation 'x': it has no table of functions");
  item = c_item("x");
  item.n_arguments = 1;
  CHECK(pending_refusal(item) == "cannot register activation 'x': its table of arguments is missing");
  const hx_argument_spec unknown{sizeof(hx_argument_spec), 99, "a", "", ""};
  item.arguments = &unknown;
  CHECK(pending_refusal(item) == "cannot register activation 'x': argument 'a' has the unknown type 99");
  const hx_argument_spec bad_default{sizeof(hx_argument_spec), HX_ARG_INT, "a", "many", ""};
  item.arguments = &bad_default;
  CHECK(pending_refusal(item) == "cannot register activation 'x': the default 'many' of argument 'a' is not a whole number");
  const hx_argument_spec small{4, HX_ARG_INT, "a", "", ""};
  item.arguments = &small;
  CHECK(pending_refusal(item) == "cannot register activation 'x': its table of arguments holds a size of 4 bytes");
}

TEST_CASE("names are looked up and replaced from several threads") {
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
