// The reader of model specs.
#include <catch2/catch.hpp>

#include "dsl/spec/reader.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

// Returns a small spec with one part replaced.
std::string small_spec(const std::string& from = "", const std::string& to = "") {
  std::string text = R"({
  "name": "small",
  "architectures": ["small"],
  "architecture": {
    "metadata_keys": {
      "keys": {"n": ["small.n", "n"]},
      "defaults": {"eps": 1e-5, "n": 2},
      "expected": {"small.x": false},
      "ignored": ["small.y"]
    },
    "prepare": {
      "globals": {"m": "n * 2"},
      "derived_globals": {"rows": "seq_len * n"},
      "dynamics": ["seq_len"],
      "checks": [{"zero": "n % 2", "else": "{n} is odd"}],
      "tensors": [
        {"name": "cache.{i}", "role": "cache", "repeat": {"count": "n", "var": "i"},
         "dims": [1, "n", 4], "grow_with_kv": 1}
      ],
      "rope": {"positions": {"base": 10000.0}}
    },
    "tensor_names": {"w": "w.{i}.weight", "k": ["k", "w.0.weight"]},
    "weight_bindings": [
      {"tensor": "w", "repeat": {"count": "n", "var": "i"}, "dims": ["n", 4], "fallback_zero_len": "n"},
      {"tensor": "k", "layout": "canonical", "expected_k": 4, "expected_n": "n"}
    ],
    "forward": [
      {"op": "Embedding", "ids": "tokens", "weight": "k", "out": "x"},
      {"op": "Repeat", "count": "n", "var": "i", "steps": [{"op": "Silu", "in": "x", "out": "x"}]}
    ],
    "outputs": {"scores": "x"}
  }
})";
  if (from.empty()) return text;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string refusal_of(const std::string& from, const std::string& to) {
  return message_of([&] { specs::parse_spec("s.json", small_spec(from, to)); });
}

}  // namespace

TEST_CASE("specs: all parts are read") {
  const specs::Spec s = specs::parse_spec("s.json", small_spec());
  CHECK(s.name == "small");
  CHECK(s.keys.at("n") == std::vector<std::string>{"small.n", "n"});
  CHECK(std::get<double>(s.defaults.at("eps")) == 1e-5);
  CHECK(std::get<bool>(s.expected.at("small.x")) == false);
  CHECK(std::get<std::string>(s.globals.at("m")) == "n * 2");
  CHECK(s.derived_globals.at("rows").text() == "seq_len * n");
  CHECK(s.checks.at(0).message == "{n} is odd");
  CHECK(s.tensors.at(0).grow_with_kv == 1);
  CHECK(s.tensors.at(0).repeat->variable == "i");
  CHECK(s.tensor_names.at("k").size() == 2);
  CHECK(s.weight_bindings.at(0).fallback_zero_len->text() == "n");
  CHECK(s.weight_bindings.at(1).layout == specs::Layout::canonical);
  CHECK(s.weight_bindings.at(1).dims.at(0).text() == "4");
  CHECK(s.forward.at(1).steps.at(0).op == "Silu");
  CHECK(s.forward.at(1).steps.at(0).place == "'s.json': architecture.forward[1].steps[0]");
  CHECK(s.outputs.at("scores") == "x");
}

TEST_CASE("specs: an error names its place, the value found and the allowed values") {
  CHECK(refusal_of("\"name\": \"small\"", "\"name\": 3") == "'s.json': name is 3; it must be a string");
  CHECK(refusal_of("\"prepare\"", "\"prepair\"") ==
        "'s.json': architecture has the unknown entry 'prepair'\ndid you mean 'prepare'?");
  CHECK(refusal_of("\"outputs\": {\"scores\": \"x\"}", "\"outputs\": [1]") ==
        "'s.json': architecture.outputs is a list; it must be an object");
  CHECK(refusal_of("\"role\": \"cache\"", "\"role\": \"cash\"") ==
        "'s.json': architecture.prepare.tensors[0] has the role 'cash'\nroles: cache, intermediate");
  CHECK(refusal_of("\"grow_with_kv\": 1", "\"grow_with_kv\": 3") ==
        "'s.json': architecture.prepare.tensors[0].grow_with_kv is 3; it must be an axis from 1 to 2");
  CHECK(refusal_of(", \"grow_with_kv\": 1", "") ==
        "'s.json': architecture.prepare.tensors[0] is a cache without 'grow_with_kv', the axis that grows with the "
        "sequence");
  CHECK(refusal_of(", \"expected_n\": \"n\"", "") ==
        "'s.json': architecture.weight_bindings[1] is canonical and lacks 'expected_k' and 'expected_n'");
  CHECK(refusal_of("\"dims\": [\"n\", 4]", "\"dims\": [\"n +\", 4]")
            .find("'s.json': architecture.weight_bindings[0].dims[0]: column 4 of 'n +': a number") == 0);
  CHECK(refusal_of("\"var\": \"i\"", "\"var\": \"1\"").find("gives a variable the name '1'") != std::string::npos);
  CHECK(refusal_of("{\"op\": \"Silu\", \"in\"", "{\"in\"")
            .find("'s.json': architecture.forward[1].steps[0] has no 'op'") == 0);
  CHECK(refusal_of("\"layout\": \"canonical\"", "\"layout\": \"odd\"") ==
        "'s.json': architecture.weight_bindings[1].layout is 'odd'\nlayouts: row_major, canonical, experts");
}

TEST_CASE("specs: all errors are reported in one run with their lines, and none that follows from another") {
  const std::string text = R"({"name": 3,
 "architecture": {
  "metadata_keys": {"keyes": {}, "defaults": {"1a": 2, "b": []}},
  "tensor_names": {"w": "w"},
  "weight_bindings": [{"tensro": "w", "dims": ["n +", 2]}, {"tensor": "w", "dims": [2, "(3"]}],
  "forward": [{"op": "Silu", "in": {}}, {"steps": [{"op": 5}]}],
  "outpust": {"scores": "x"}}})";
  const std::string all = message_of([&] { specs::parse_spec("s.json", text); });
  size_t errors = 0;
  for (size_t at = all.find("error: "); at != std::string::npos; at = all.find("error: ", at + 1)) ++errors;
  INFO(all);
  CHECK(errors == 11);
  for (const char* one :
       {"s.json:1:10: error: name is 3; it must be a string\n", "has the unknown entry 'keyes'\n",
        "help: did you mean 'keys'?\n", "gives a variable the name '1a'", "has the unknown entry 'tensro'\n",
        "column 4 of 'n +'", "architecture.weight_bindings[1].dims[1]", "architecture.forward[0].in is an object",
        "architecture.forward[1].steps[0].op is 5", "architecture.forward[1] has no 'op'",
        "has the unknown entry 'outpust'\n"})
    CHECK(all.find(one) != std::string::npos);
  CHECK(all.find("has no 'outputs'") == std::string::npos);
  CHECK(all.find("has no 'tensor'") == std::string::npos);
}

TEST_CASE("specs: what is not JSON is refused with line and column") {
  CHECK(message_of([] {
          specs::parse_spec("s.json", "{\n  \"name\": ,");
        }).find("'s.json' is not JSON: line 2, column ") == 0);
  CHECK(message_of([] { specs::parse_spec("s.json", ""); }).find("'s.json' is not JSON") == 0);
  CHECK(message_of([] { specs::parse_spec("s.json", small_spec() + "x"); }).find("'s.json' is not JSON: line ") == 0);
  CHECK(message_of([] { specs::parse_spec("s.json", std::string(100, '[')); }).find("'s.json' is not JSON") == 0);
  CHECK(message_of([] { specs::parse_spec("s.json", "[]"); }) == "'s.json': the spec is a list; it must be an object");
  CHECK(message_of([] {
          specs::parse_spec("s.json", std::string((size_t{1} << 20) + 1, ' '));
        }).find("a model spec has at most 1048576") != std::string::npos);
}
