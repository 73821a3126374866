// Every pass leaves the results of random programs bitwise equal.
#include <catch2/catch.hpp>

#include "engine/passes/pass.hpp"
#include "engine/passes/precision_recipe.hpp"
#include "engine/program/print.hpp"
#include "tests/engine/passes/random_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using harmonics::engine::testing::RandomProgram;
using harmonics::engine::testing::same_bits;

namespace {

struct NamedPass {
  const char* name;
  std::function<Program(const Program&)> run;
};

Program all_passes(const Program& program) {
  const auto never = [](const Program&, const Node&) { return false; };
  Program p = dce(cse(simplify(program)));
  p = recompute(fuse_calls(p, [](const auto&...) { return true; }), {"hidden*"});
  p = fuse_pooling(dce(cse(simplify(inline_calls(p, never)))), [](const auto&...) { return true; });
  p = accumulate_products(p, [](const auto&...) { return true; });
  return advance_updates(fuse_reductions(fuse_elementwise(p)));
}

const std::vector<NamedPass>& passes() {
  static const std::vector<NamedPass> list{
      {"cse", cse},
      {"dce", dce},
      {"simplify", simplify},
      {"set_precision",
       [](const Program& p) {
         PrecisionRule rule;
         rule.rounding = Rounding::fp16;
         return set_precision(p, {"fp16", {rule}});
       }},
      {"absorb_conversions",
       [](const Program& p) { return absorb_conversions(p, [](const auto&...) { return true; }); }},
      {"convert_operands", [](const Program& p) { return convert_operands(p, [](const auto&...) { return false; }); }},
      {"fuse_calls", [](const Program& p) { return fuse_calls(p, [](const auto&...) { return true; }); }},
      {"recompute", [](const Program& p) { return recompute(p, {"hidden*"}); }},
      {"inline_calls", [](const Program& p) { return inline_calls(p, [](const auto&...) { return false; }); }},
      {"fuse_pooling", [](const Program& p) { return fuse_pooling(p, [](const auto&...) { return true; }); }},
      {"fuse_elementwise", [](const Program& p) { return fuse_elementwise(p); }},
      {"accumulate_products",
       [](const Program& p) { return accumulate_products(p, [](const auto&...) { return true; }); }},
      {"fuse_reductions", [](const Program& p) { return fuse_reductions(p); }},
      {"advance_updates", advance_updates},
      {"all in order", all_passes},
  };
  return list;
}

}  // namespace

TEST_CASE("passes: keep the bits of random programs") {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    const RandomProgram random(seed);
    const Values expected = interpret(random.program(), random.numbers());
    for (const NamedPass& pass : passes()) {
      INFO("seed " << seed << ", pass " << pass.name);
      const Program result = pass.run(random.program());
      REQUIRE_NOTHROW(verify(result));
      REQUIRE(same_bits(interpret(result, random.numbers()), expected));
    }
  }
}

TEST_CASE("passes: reach a fixed point on random programs") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    const Program once = cse(dce(RandomProgram(seed).program()));
    CHECK(cse(once).nodes.size() == once.nodes.size());
    const Program clean = dce(once);
    CHECK(dce(clean).nodes.size() == clean.nodes.size());
  }
}

TEST_CASE("passes: rewritten programs print and read back") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    const RandomProgram random(seed);
    const Program result = all_passes(random.program());
    const Program again = parse_program(print(result), "printed");
    REQUIRE(print(again) == print(result));
    REQUIRE(same_bits(interpret(again, random.numbers()), interpret(random.program(), random.numbers())));
  }
}
