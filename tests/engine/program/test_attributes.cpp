#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "engine/tensor/attributes.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {
AttributeMap sample() {
  AttributeMap a;
  a.set("whole", int64_t{-3}).set("real", 0.1).set("yes", true).set("text", std::string("a \"b\"\n"));
  a.set("list", std::vector<int64_t>{1, 2}).set("reals", std::vector<double>{1, 2.5}).set("dtype", int64_t{11});
  return a;
}
}  // namespace

TEST_CASE("attributes print sorted and exactly") {
  CHECK(sample().str() ==
        R"({dtype = f32, list = [1, 2], real = 0.1, reals = [1.0, 2.5], text = "a \"b\"\n", whole = -3, yes = true})");
  CHECK(AttributeMap().str().empty());
  AttributeMap a;
  a.set("a", 1e300)
      .set("b", std::numeric_limits<double>::infinity())
      .set("c", std::nan(""))
      .set("d", std::vector<double>());
  CHECK(a.str() == "{a = 1e+300, b = inf, c = nan, d = floats[]}");
}

TEST_CASE("attributes pass through their C view unchanged") {
  const AttributeMap a = sample();
  const AttributeView view(a);
  CHECK(view.get()->count == 7);
  CHECK(AttributeMap(view.get()) == a);
  CHECK(AttributeMap(nullptr) == AttributeMap());
}

TEST_CASE("a view can carry a tensor, which the map leaves out") {
  const AttributeMap a = sample();
  AttributeView view(a);
  const HTensor t(DType::F32, {2});
  view.add_value("source", t.raw());
  CHECK(view.get()->count == 8);
  CHECK(view.get()->items[7].as.value == t.raw());
  CHECK(AttributeMap(view.get()) == a);
}

TEST_CASE("order of setting does not matter") {
  AttributeMap a, b;
  a.set("x", int64_t{1}).set("y", int64_t{2});
  b.set("y", int64_t{7}).set("x", int64_t{1}).set("y", int64_t{2});
  CHECK(a == b);
  CHECK(a.entries().size() == 2);
}

TEST_CASE("whole numbers and reals read as each other where they are the same") {
  AttributeMap a;
  a.set("i", int64_t{4}).set("d", 4.0).set("half", 0.5).set("b", true);
  CHECK(a.integer("d") == 4);
  CHECK(a.number("i") == 4.0);
  CHECK(a.flag("i"));
  CHECK(a.flag("absent", true));
  CHECK(a.integer("absent", 9) == 9);
  CHECK_THROWS_WITH(a.integer("half"),
                    "attribute 'half' must be a whole number; given are {b = true, d = 4.0, half = 0.5, i = 4}");
  CHECK_THROWS_WITH(AttributeMap().integers("axes"), "attribute 'axes' is missing; given are none");
}
