// Step inputs: one table of names and types, and their values.
#include <catch2/catch.hpp>

#include "engine/program/print.hpp"
#include "engine/program/step_input.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

TEST_CASE("step input: every name in a program gives the input that traced it") {
  Tracer tracer("step");
  for (const StepInput input :
       {StepInput::rate, StepInput::step, StepInput::counter, StepInput::keep, StepInput::scale}) {
    const std::string name(step_input_row(input).name);
    tracer.output(name, step_input(tracer, input));
  }
  tracer.output("second", step_input(tracer, StepInput::scale, 2));
  const Program program = parse_program(print(tracer.take()), "again");
  std::vector<std::pair<StepInput, size_t>> found;
  for (const Node* leaf : program.leaves(Op::input)) {
    const auto of = step_input_of(leaf->callee);
    REQUIRE(of);
    CHECK(program.type(leaf->outputs.at(0)) == step_input_row(of->input).type);
    found.emplace_back(of->input, of->part);
  }
  CHECK(found == std::vector<std::pair<StepInput, size_t>>{{StepInput::rate, 0},
                                                           {StepInput::step, 0},
                                                           {StepInput::counter, 0},
                                                           {StepInput::keep, 0},
                                                           {StepInput::scale, 0},
                                                           {StepInput::scale, 2}});
}

TEST_CASE("step input: names of streams are none, and unknown names are refused with the nearest") {
  CHECK_FALSE(step_input_of("pixels"));
  CHECK_FALSE(step_input_of(""));
  CHECK_FALSE(step_input_of("scale:1"));
  CHECK(message_of([] { step_input_of("@steps"); }) == "there is no step input '@steps'\ndid you mean '@step'?");
  for (const char* name : {"@", "@lr:1", "@scale:", "@scale:0", "@scale:x", "@scale:1x", "@scale:99999999999999999999"})
    CHECK_THROWS_AS(step_input_of(name), Error);
}

TEST_CASE("step input: values lie where the program was told, however many parts come later") {
  StepValues values;
  const auto* rate = static_cast<const float*>(values.address({StepInput::rate}));
  const auto* step = static_cast<const int64_t*>(values.address({StepInput::step}));
  const auto* counter = static_cast<const int64_t*>(values.address({StepInput::counter}));
  const auto* keep = static_cast<const bool*>(values.address({StepInput::keep}));
  const auto* whole = static_cast<const float*>(values.address({StepInput::scale}));
  const auto* part = static_cast<const float*>(values.address({StepInput::scale, 300}));
  CHECK(*whole == 1);
  values.set(0.5f, 7, 11);
  values.set_keep(true);
  values.set_scale(2, 0);
  values.set_scale(3, 300);
  CHECK(*rate == 0.5f);
  CHECK(*step == 7);
  CHECK(counter[0] == 11);
  CHECK(counter[1] == 7);
  CHECK(*keep);
  CHECK(*whole == 2);
  CHECK(*part == 3);
  CHECK(values.address({StepInput::scale}) == whole);
}
