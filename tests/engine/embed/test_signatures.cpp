// Signatures of external functionals: calls of flows' functions, of plugins for earlier contracts, and functionals that
// name their inputs.
#include <catch2/catch.hpp>

#include <vector>

#include "engine/conformance/call_examples.hpp"
#include "engine/plugin/loader.hpp"
#include "engine/plugin/pending_items.hpp"
#include "engine/program/functional.hpp"
#include "tests/engine/embed/lines.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::string error_text(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    std::string text = e.what();
    for (const std::string& note : e.notes()) text += "\n" + note;
    return text;
  }
  return "no error";
}

struct LeakyBy : ActivationFunction {
  explicit LeakyBy(const char* attribute) : attribute_(attribute) {}
  HTensor operator()(const HTensor& x) const override {
    return call1("leaky_relu", {x}, Attributes().set(attribute_, 0.5));
  }
  const char* attribute_;
};

// Rows of a table, and their weighted mean if weights are given.
struct LookedUp : FunctionalBody {
  explicit LookedUp(const char* text) : text_(text) {}
  std::vector<HTensor> operator()(const std::vector<HTensor>& in, const Arguments& a) const override {
    return {gather(in.at(0), in.at(1)) * a.number("times")};
  }
  const char* signature() const override { return text_; }
  const char* text_;
};

void add_lookup(const char* name, const char* text, uint32_t flags = 0) {
  hx_registry pending;
  hx_registration registration = {sizeof registration, harmonics_api(), &pending};
  reinterpret_cast<FunctionRegistry&>(registration)
      .register_functional(name, std::make_shared<LookedUp>(text), "rows of a table",
                           {Argument::number("times", "1", "a factor").in("0<..")}, flags);
  commit_pending(pending, Registry::global());
}

std::vector<std::string>& noted() {
  static std::vector<std::string> all;
  return all;
}

// Calls through the function table that a library of the contract receives.
HTensor called_by(uint16_t minor, const char* op, const Attributes& attributes, const HTensor& x) {
  const hx_api* api = api_for(minor);
  std::vector<hx_attribute> items;
  const hx_attributes view = attributes.view(items);
  hx_value* in = x.raw();
  hx_value* out = nullptr;
  uint32_t n = 0;
  harmonics::detail::check(api->apply(op, &view, &in, 1, &out, 1, &n));
  return HTensor::adopt(out);
}

const HTensor kTwoNumbers = HTensor::from<float>({1, 2}, {2, -2});

}  // namespace

TEST_CASE("signatures: a misspelt attribute in a flow's function is an error at the arrow") {
  const auto graph = [](const char* attribute) {
    HarmonicGraph g = parse_hmx_text("harmonic h {\n  producer x {2}; layer o {2};\n  cycle { x -(leans)-> o; }\n}");
    g.registerActivation("leans", std::make_shared<LeakyBy>(attribute));
    return error_text([&] { g.infer(line_row(3, 5)); });
  };
  CHECK(graph("slope") == "no error");
  const std::string text = graph("slop");
  CHECK(text.find("leaky_relu has no attribute 'slop'") != std::string::npos);
  CHECK(text.find("did you mean 'slope'?") != std::string::npos);
}

TEST_CASE("signatures: plugins of contract 1.4 and earlier get a note, once, later ones an error") {
  const Attributes misspelt = Attributes().set("slop", 0.5);
  set_call_notes([](const std::string& line) { noted().push_back(line); });
  for (const uint16_t minor : std::vector<uint16_t>{0, 4, 4})
    CHECK(called_by(minor, "leaky_relu", misspelt, kTwoNumbers).data<float>()[1] == Approx(-0.02));
  CHECK(called_by(4, "leaky_relu", Attributes().set("slope", 0.5), kTwoNumbers).data<float>()[1] == -1);
  set_call_notes(nullptr);
  CHECK(noted() == std::vector<std::string>{"leaky_relu has no attribute 'slop'; did you mean 'slope'? (ignored: its "
                                            "plugin is built for contract 1.4 or earlier)"});
  CHECK(error_text([&] { called_by(5, "leaky_relu", misspelt, kTwoNumbers); }) ==
        "leaky_relu has no attribute 'slop'\ndid you mean 'slope'?");
  CHECK(error_text([&] { called_by(4, "leaky_relu", Attributes().set("slope", "steep"), kTwoNumbers); }) ==
        "leaky_relu: slope is \"steep\"; it must be a number");
  CHECK(api_for(4)->apply != api_for(5)->apply);
  CHECK(api_for(5) == harmonics_api());
}

TEST_CASE("signatures: a functional of a plugin names its inputs and says what passes may assume") {
  add_lookup("lookup", "table [rows, width], ids [...] < rows, weights [...]? -> y [..., width]; rows by number",
             HX_ORDER_FREE | HX_BLOCK_WRITE);
  const FunctionalPtr f = FunctionalTable::global().find("lookup");
  REQUIRE(f);
  CHECK(f->signature.inputs.size() == 3);
  CHECK(f->signature.attribute("times")->range == "0<..");
  CHECK((f->traits.order_free && f->traits.block_write && f->traits.update == UpdateKind::none));
  CHECK(is_looked_up(f->signature, 0));
  const HTensor table = HTensor::from<float>({2, 1}, {3, 5}), ids = HTensor::from<int64_t>({1}, {1});
  CHECK(index_limit(f->signature, 1, {}, std::vector{type_of(table), type_of(ids)}) == 2);
  CHECK(call1("lookup", {table, ids}, Attributes().set("times", 2)).data<float>()[0] == 10);
  CHECK(call1("lookup", {table, ids}).data<float>()[0] == 5);
  CHECK(error_text([&] { call1("lookup", {table}); }) ==
        "lookup: takes 2 to 3 inputs, got 1\nnote: it is table [rows, width], ids [...] < rows, weights [...]? {times "
        "= 1} -> y [..., width]");
  CHECK(error_text([&] {
          call1("lookup", {table, ids}, Attributes().set("time", 2));
        }) == "lookup has no attribute 'time'\ndid you mean 'times'?");
  CHECK(error_text([&] {
          call1("lookup", {table, ids}, Attributes().set("times", "two"));
        }) == "lookup: times is \"two\"; it must be a number");
  CHECK(error_text([&] {
          call1("lookup", {table, ids}, Attributes().set("times", -1));
        }) == "lookup: times is -1; give a value above 0");
}

TEST_CASE("signatures: invalid ones of plugins are refused when the functional is used") {
  add_lookup("broken_text", "table [rows -> y");
  CHECK(error_text([] { FunctionalTable::global().find("broken_text"); }) ==
        "functional 'broken_text': the signature does not close a bracket or quote: table [rows -> y");
  add_lookup("own_attributes", "x {a = 1} -> y");
  CHECK(error_text([] { FunctionalTable::global().find("own_attributes"); }) ==
        "functional 'own_attributes': the signature has attributes\ndeclare them as arguments of register_functional");
  add_lookup("unnamed", "");
  CHECK_FALSE(FunctionalTable::global().find("unnamed")->signature.known);
}

TEST_CASE("signatures: inputs to try a plugin's functional follow from its signature") {
  add_lookup("tried", "table [rows, width], ids i32 [...] < rows, weights [...]? -> y [..., width]");
  const ItemPtr item = Registry::global().need(HX_FUNCTIONAL, "tried");
  const std::vector<CallExample> calls = calls_of_item(*item, DType::F64, 1);
  REQUIRE(calls.size() == 6);
  CHECK(calls[0].str() == "tried{times = 1.0}(f64[5, 3], i32[3])");
  CHECK(calls[1].str() == "tried{times = 1.0}(f64[5, 3], i32[3], f64[3])");
  CHECK(calls[4].str() == "tried{times = 1.0}(f64[5, 3], i32[])");
  for (const CallExample& call : calls)
    for (int64_t i = 0; i < call.inputs[1].size(); ++i) CHECK(call.inputs[1].data<int32_t>()[i] < 5);
  add_lookup("untold", "table, ids -> y");
  CHECK_THROWS_AS(calls_of_item(*Registry::global().need(HX_FUNCTIONAL, "untold"), DType::F64, 1), Error);
}
