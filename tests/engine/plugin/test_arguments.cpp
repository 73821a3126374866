#include <catch2/catch.hpp>

#include "engine/plugin/arguments.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

std::shared_ptr<Item> item() {
  auto i = std::make_shared<Item>();
  i->kind = HX_LAYER;
  i->name = "conv";
  i->arguments = {{HX_ARG_INT, "channels", "", "number of output channels", true},
                  {HX_ARG_INTS, "kernel", "3", "", false},
                  {HX_ARG_STRING, "padding", "same", "", false},
                  {HX_ARG_FLOAT, "gain", "0.5", "", false},
                  {HX_ARG_BOOL, "bias", "true", "", false},
                  {HX_ARG_LAYER, "memory", "", "", false},
                  {HX_ARG_INT, "width", "", "", false}};
  return i;
}

WrittenValue number(double v, bool integral = true) { return {WrittenNumber{v, integral}, {1, 7, 2}}; }
WrittenValue text(const char* s) { return {std::string(s), {1, 7, 2}}; }
WrittenValue word(const char* s) { return {WrittenWord{s}, {1, 7, 2}}; }
WrittenArgument with(const char* name, WrittenValue v) { return {name, {1, 3, 4}, std::move(v)}; }

struct Refused {
  std::string text;
  ErrorKind kind;
  Span span;
};
Refused refused_arguments(const std::vector<WrittenArgument>& arguments) {
  try {
    bind_arguments(*item(), arguments, {1, 1, 1});
  } catch (const Error& e) {
    std::string all = e.what();
    for (const std::string& n : e.notes()) all += "\n" + n;
    return {all, e.kind(), e.span()};
  }
  return {"accepted", ErrorKind::Internal, {}};
}
std::string option_refusal(const std::vector<std::pair<std::string, std::string>>& options) {
  try {
    bind_texts(*item(), options);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Usage);
    std::string all = e.what();
    for (const std::string& n : e.notes()) all += "\n" + n;
    return all;
  }
  return "accepted";
}

const std::string kUse =
    "note: it is used as conv(channels, kernel = 3, padding = same, gain = 0.5, bias = true, memory?, width?)";

}  // namespace

TEST_CASE("arguments: bind by position and by name, with defaults") {
  const BoundArguments bound =
      bind_arguments(*item(), {with("", number(32)), with("", WrittenValue{WrittenList{number(3), number(5)}, {}}),
                               with("bias", {false, {}}), with("memory", word("hidden"))});
  CHECK(bound.values.integer("channels") == 32);
  CHECK(bound.values.integers("kernel") == std::vector<int64_t>{3, 5});
  CHECK(bound.values.text("padding") == "same");
  CHECK(bound.values.number("gain") == 0.5);
  CHECK_FALSE(bound.values.flag("bias"));
  CHECK_FALSE(bound.values.has("width"));
  REQUIRE(bound.layers.size() == 1);
  CHECK(bound.layers[0].argument == "memory");
  CHECK(bound.layers[0].layer == "hidden");
}

TEST_CASE("arguments: one number is a list of one, words and numbers are accepted as texts") {
  const auto bind = [](std::vector<WrittenArgument> a) {
    a.insert(a.begin(), with("", number(1)));
    return bind_arguments(*item(), a).values;
  };
  CHECK(bind({with("kernel", number(7))}).integers("kernel") == std::vector<int64_t>{7});
  CHECK(bind({with("padding", word("valid"))}).text("padding") == "valid");
  CHECK(bind({with("padding", number(2))}).text("padding") == "2");
  CHECK(bind({with("gain", number(2))}).number("gain") == 2);
  CHECK(bind({with("width", number(1e3, false))}).integer("width") == 1000);
}

TEST_CASE("arguments: those that do not fit the schema are refused with position and remedy") {
  const WrittenArgument channels = with("", number(8));
  const Refused missing = refused_arguments({});
  CHECK(missing.text == "layer 'conv' needs its argument 'channels': number of output channels\n" + kUse);
  CHECK(missing.kind == ErrorKind::Name);
  CHECK(missing.span.column == 1);
  const Refused misspelt = refused_arguments({channels, with("kernle", number(3))});
  CHECK(misspelt.text == "layer 'conv' has no argument 'kernle'\ndid you mean 'kernel'?\n" + kUse);
  CHECK(misspelt.span.column == 3);
  CHECK(refused_arguments({channels, with("channels", number(3))}).text ==
        "argument 'channels' of layer 'conv' is given twice");
  CHECK(refused_arguments({with("channels", number(3)), channels}).kind == ErrorKind::Syntax);
  const Refused type = refused_arguments({with("", text("many"))});
  CHECK(type.text == "'channels' of layer 'conv' must be a whole number, not \"many\"");
  CHECK(type.kind == ErrorKind::Type);
  CHECK(type.span.column == 7);
  CHECK(refused_arguments({with("", number(2.5, false))}).text ==
        "'channels' of layer 'conv' must be a whole number, not 2.5");
  CHECK(refused_arguments({with("", number(1e300, false))}).kind == ErrorKind::Type);
  CHECK(refused_arguments({channels, with("bias", number(1))}).text ==
        "'bias' of layer 'conv' must be true or false, not 1");
  CHECK(refused_arguments({channels, with("memory", text("hidden"))}).text ==
        "'memory' of layer 'conv' must be the name of a layer, not \"hidden\"");
  CHECK(refused_arguments({channels, with("kernel", WrittenValue{WrittenList{number(3), word("x")}, {}})}).text ==
        "'kernel' of layer 'conv' must be whole numbers, not [3, 'x']");
  Item relu;
  relu.kind = HX_ACTIVATION;
  relu.name = "relu";
  CHECK_THROWS_WITH(bind_arguments(relu, {channels}), "activation 'relu' takes no arguments");
  relu.arguments = {{HX_ARG_INT, "slope", "", "", false}};
  CHECK_THROWS_WITH(bind_arguments(relu, {channels, channels}), "activation 'relu' takes at most 1");
}

TEST_CASE("arguments: options of an address bind as texts") {
  const AttributeMap values =
      bind_texts(*item(), {{"channels", "8"}, {"kernel", "3,5"}, {"bias", "false"}, {"gain", "1e-3"}});
  CHECK(values.integer("channels") == 8);
  CHECK(values.integers("kernel") == std::vector<int64_t>{3, 5});
  CHECK_FALSE(values.flag("bias"));
  CHECK(values.number("gain") == 1e-3);
  CHECK(option_refusal({{"channels", "8x"}}) == "'channels' of layer 'conv' must be a whole number, not '8x'");
  CHECK(option_refusal({{"channels", ""}}) == "'channels' of layer 'conv' must be a whole number, not ''");
  CHECK(option_refusal({{"chanels", "8"}}) ==
        "layer 'conv' has no option 'chanels'\ndid you mean 'channels'?\n" + kUse);
  CHECK(option_refusal({}) == "layer 'conv' needs its option 'channels': number of output channels\n" + kUse);
}

TEST_CASE("arguments: values parse from their texts") {
  CHECK(std::get<int64_t>(*parse_argument(HX_ARG_INT, "-3")) == -3);
  CHECK(std::get<int64_t>(*parse_argument(HX_ARG_INT, "+3")) == 3);
  CHECK_FALSE(parse_argument(HX_ARG_INT, "+-3"));
  CHECK_FALSE(parse_argument(HX_ARG_INT, "99999999999999999999"));
  CHECK(std::get<std::vector<int64_t>>(*parse_argument(HX_ARG_INTS, "[1, 2]")) == std::vector<int64_t>{1, 2});
  CHECK(std::get<std::vector<int64_t>>(*parse_argument(HX_ARG_INTS, "[]")).empty());
  CHECK_FALSE(parse_argument(HX_ARG_INTS, "1,,2"));
  CHECK_FALSE(parse_argument(HX_ARG_INTS, "1,"));
  CHECK_FALSE(parse_argument(HX_ARG_BOOL, "yes"));
}
