// Printed flows parse to equal flows.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <random>

#include "dsl/hmx/print.hpp"
#include "dsl/load.hpp"
#include "tests/dsl/golden.hpp"
#include "tests/dsl/peg.hpp"
#include "tests/dsl/same_flow.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

Flow parse(const std::string& text) { return parse_flow(std::make_shared<const SourceText>("text", text)); }

// Returns one flow x -(f(values...))-> y.
Flow flow_of(ArgumentList values) {
  Call call{{"f", {}}, {}, true};
  for (ArgumentValue& value : values) call.arguments.push_back({std::nullopt, std::move(value)});
  Arrow arrow;
  arrow.tag = {call};
  arrow.target.text = "y";
  Harmonic harmonic;
  harmonic.name.text = "h";
  harmonic.flows = {{Name{"x", {}}, {arrow}, {}}};
  return {nullptr, {harmonic}};
}

void check_round_trip(const Flow& flow) {
  const std::string text = to_text(flow);
  INFO(text);
  CHECK(same_flow(flow, parse(text)));
}

}  // namespace

TEST_CASE("print: random flows round-trip") {
  const std::string grammar_text = golden::read(std::string(HARMONICS_SOURCE_DIR) + "/dsl/hmx/grammar.peg");
  const peg::Grammar grammar(grammar_text);
  peg::Writer writer(grammar, 3);
  int parsed = 0;
  for (int i = 0; i < 3000; ++i) {
    std::optional<Flow> flow;
    try {
      flow = parse(writer.sentence());
    } catch (const SourceErrors&) {
      continue;
    }
    ++parsed;
    check_round_trip(*flow);
  }
  CHECK(parsed > 100);
}

TEST_CASE("print: numbers round-trip") {
  std::mt19937_64 random(4);
  for (int i = 0; i < 3000; ++i) {
    const uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isnormal(value)) continue;
    const double whole = static_cast<double>(static_cast<int64_t>(random() >> (random() % 63)) % 9007199254740992);
    check_round_trip(flow_of({{Number{value, false}, {}}, {Number{whole, true}, {}}, {Number{whole, false}, {}}}));
  }
}

TEST_CASE("print: strings round-trip") {
  std::mt19937 random(5);
  const std::vector<std::string> pieces = {"\"", "\\", "\n", "\t",  "\r",       "//",          "#",
                                           "a",  " ",  "{",  ")->", "\xC3\xA9", "\xE6\xBC\xA2"};
  for (int i = 0; i < 1000; ++i) {
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) text += pieces[random() % pieces.size()];
    check_round_trip(flow_of({{text, {}}, {ArgumentList{{text, {}}, {true, {}}, {Word{"w"}, {}}}, {}}}));
  }
}

TEST_CASE("print: durations and thresholds round-trip") {
  std::mt19937_64 random(6);
  Harmonic harmonic;
  harmonic.name.text = "h";
  Cycle cycle;
  const auto add = [&](double seconds) {
    CycleCondition condition{};
    condition.kind = CycleCondition::Kind::For;
    condition.seconds = seconds;
    cycle.conditions.push_back(condition);
  };
  for (const double seconds : {0.0, 0.25, 1.0, 90.0, 3600.0, 5400.0, 86400.0, 0.1, 0.001, 1e-9, 1e15, 123456.789})
    add(seconds);
  for (int i = 0; i < 1000; ++i) add(std::ldexp(static_cast<double>(random() >> 11), -static_cast<int>(random() % 70)));
  for (int i = 0; i < 1000; ++i) {
    CycleCondition condition{};
    condition.kind = CycleCondition::Kind::Until;
    condition.until = {
        "loss", "<=", std::ldexp(static_cast<double>(random() >> 11), -static_cast<int>(random() % 200)), {}};
    cycle.conditions.push_back(condition);
  }
  harmonic.cycles = {cycle};
  check_round_trip({nullptr, {harmonic}});
}
