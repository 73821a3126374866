// Every node of a flow has its source position.
#include <catch2/catch.hpp>

#include "dsl/load.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

const std::string kText =
    "harmonic net {\n"
    "  producer x {28, *} 3/4 other;\n"
    "  x -(conv(32, kernel=[3, \"s\"]), a.b)-> y | <- z;\n"
    "  cycle (for 1.5h, until out.loss < 0.5, epochs 3, batch=64) {\n"
    "    if val.loss >= 2 { x -> y; }\n"
    "  }\n"
    "}\n";

std::string at(Span span) {
  size_t offset = 0;
  for (uint32_t line = 1; line < span.line; ++line) offset = kText.find('\n', offset) + 1;
  return kText.substr(offset + span.column - 1, span.length);
}

}  // namespace

TEST_CASE("spans: cover the source text") {
  const Flow flow = parse_flow(std::make_shared<const SourceText>("net.hmx", kText));
  const Harmonic& net = flow.harmonics.at(0);
  CHECK(at(net.span) == "harmonic");
  CHECK(at(net.name.span) == "net");

  const Declaration& x = net.declarations.at(0);
  CHECK(at(x.name.span) == "x");
  CHECK(at(x.shape.at(0).span) == "28");
  CHECK(at(x.shape.at(1).span) == "*");
  CHECK(at(x.ratio->span) == "3/4 other");
  CHECK(at(x.ratio->of.span) == "other");

  const FlowLine& line = net.flows.at(0);
  CHECK(at(line.span) == "x -(conv(32, kernel=[3, \"s\"]), a.b)-> y | <- z;");
  CHECK(at(line.source->span) == "x");
  const Arrow& arrow = line.arrows.at(0);
  CHECK(at(arrow.span) == "-(conv(32, kernel=[3, \"s\"]), a.b)->");
  CHECK(at(arrow.tag.at(0).name.span) == "conv");
  CHECK(at(arrow.tag.at(1).name.span) == "a.b");
  CHECK(at(arrow.tag.at(0).arguments.at(0).value.span) == "32");
  CHECK(at(arrow.tag.at(0).arguments.at(1).name->span) == "kernel");
  const ArgumentValue& list = arrow.tag.at(0).arguments.at(1).value;
  CHECK(at(list.span) == "[3, \"s\"]");
  CHECK(at(std::get<ArgumentList>(list.value).at(1).span) == "\"s\"");
  CHECK(at(arrow.target.span) == "y");
  CHECK(at(line.arrows.at(1).span) == "<-");
  CHECK(line.arrows.at(1).piped);

  const Cycle& cycle = net.cycles.at(0);
  CHECK(at(cycle.span) == "cycle");
  CHECK(at(cycle.conditions.at(0).span) == "for 1.5h");
  CHECK(cycle.conditions.at(0).seconds == 5400);
  CHECK(at(cycle.conditions.at(1).span) == "until out.loss < 0.5");
  CHECK(at(cycle.conditions.at(1).until.span) == "out.loss < 0.5");
  CHECK(at(cycle.conditions.at(2).span) == "epochs 3");
  CHECK(at(cycle.conditions.at(3).span) == "batch=64");
  CHECK(at(cycle.conditions.at(3).setting.span) == "batch");
  CHECK(at(cycle.conditions.at(3).value.span) == "64");

  const Conditional& conditional = *std::get<std::shared_ptr<Conditional>>(cycle.steps.at(0));
  CHECK(at(conditional.span) == "if val.loss >= 2");
  CHECK(at(std::get<Comparison>(conditional.predicate).span) == "val.loss >= 2");
}

TEST_CASE("values: parsed exactly") {
  const std::string text =
      "harmonic a { x -(f(1, 1.0, -2, +3, 1e3, \"q\\\"\\\\\\n\\t\\r\", true, word, []))-> y; cycle (for 250ms) {} }";
  const Flow flow = parse_flow(std::make_shared<const SourceText>("a", text));
  const Call& call = flow.harmonics.at(0).flows.at(0).arrows.at(0).tag.at(0);
  const auto number = [&](size_t i) { return std::get<Number>(call.arguments.at(i).value.value); };
  CHECK((number(0).value == 1 && number(0).integral));
  CHECK((number(1).value == 1 && !number(1).integral));
  CHECK(number(2).value == -2);
  CHECK((number(3).value == 3 && number(3).integral));
  CHECK((number(4).value == 1000 && !number(4).integral));
  CHECK(std::get<std::string>(call.arguments.at(5).value.value) == "q\"\\\n\t\r");
  CHECK(std::get<bool>(call.arguments.at(6).value.value));
  CHECK(std::get<Word>(call.arguments.at(7).value.value).text == "word");
  CHECK(std::get<ArgumentList>(call.arguments.at(8).value.value).empty());
  CHECK(flow.harmonics.at(0).cycles.at(0).conditions.at(0).seconds == 0.25);
}
