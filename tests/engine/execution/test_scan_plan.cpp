// Compares scans, compiled as plans within a plan, with the interpreter.
#include <catch2/catch.hpp>

#include "engine/program/scan.hpp"
#include "tests/engine/execution/training_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

struct Recurrence {
  Program program;
  std::map<std::string, HTensor> numbers;
};

// A recurrent net over `length` steps, its loss, the gradients of its weights and inputs, and an updated state.
Recurrence recurrence(int64_t length, bool reversed = false) {
  constexpr int64_t batch = 5, width = 7;
  Recurrence r;
  Tracer tracer("recurrence");
  const HTensor w = tracer.parameter("w", {DType::F32, {width, width}}),
                h = tracer.state("h", {DType::F32, {batch, width}}),
                x = tracer.input("x", {DType::F32, {length, batch, width}});
  const auto body = [](const Values& in) {
    const HTensor next = tanh(linear(in[0], in[1]) + in[2]);
    return Values{next, call1("gelu", {next})};
  };
  const Values out = scan(body, {h}, {w}, {x}, reversed);
  const HTensor loss = reduce_sum(out[1] * out[1], {0, 1, 2}) + reduce_sum(out[0], {0, 1});
  const Values gradients = gradient(tracer, loss, {w, x});
  tracer.output("loss", loss);
  tracer.output("ys", out[1]);
  tracer.output("dw", gradients[0]);
  tracer.output("dx", gradients[1]);
  tracer.update("h", out[0]);
  tracer.update("w", w - 0.01 * gradients[0]);
  r.program = tracer.take();
  r.numbers = {{"w", noise({width, width}, 1, 0.4f)},
               {"h", noise({batch, width}, 2, 0.5f)},
               {"x", noise({length, batch, width}, 3, 1.0f)}};
  return r;
}

void check_close(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(type_of(a[i]) == type_of(b[i]));
    for (int64_t k = 0; k < a[i].size(); ++k)
      REQUIRE(a[i].data<float>()[k] == Approx(b[i].data<float>()[k]).epsilon(2e-4).margin(2e-4));
  }
}

}  // namespace

TEST_CASE("a scan and its gradient run as plans of one step, like the interpreter") {
  const auto executor = make_sequential_executor();
  for (const bool reversed : {false, true}) {
    const Recurrence r = recurrence(6, reversed);
    const Values expected = interpret(r.program, r.numbers);
    for (const char* device : {"cpu", "reference"})
      check_close(run_compiled(r.program, r.numbers, *executor, on(device)), expected);
  }
}

TEST_CASE("a scan has equal bits for any number of threads") {
  const Recurrence r = recurrence(6);
  const auto executor = make_sequential_executor();
  const Values expected = run_compiled(r.program, r.numbers, *executor, on("cpu"));
  for (const auto& team : parallel_executors())
    CHECK(same_bits(run_compiled(r.program, r.numbers, *team, on("cpu")), expected));
}

TEST_CASE("the steps of a plan do not grow with the length of its scans") {
  const auto executor = make_sequential_executor();
  const auto steps = [&](int64_t length) {
    const Recurrence r = recurrence(length);
    MapBinding binding(r.numbers);
    return compile(r.program, &binding, *executor, on("cpu"))->steps().size();
  };
  CHECK(steps(4) == steps(400));
}

TEST_CASE("a scan runs again, and with no steps") {
  const auto executor = make_sequential_executor();
  const Recurrence r = recurrence(3);
  MapBinding binding(r.numbers);
  const auto plan = compile(r.program, &binding, *executor, on("cpu"));
  std::map<std::string, HTensor> now = r.numbers;
  for (int i = 0; i < 3; ++i) {
    const Values expected = interpret(r.program, now);
    plan->run(input_pointers(*plan, r.numbers).data());
    check_close({plan->output("loss"), plan->output("ys"), plan->output("dw"), plan->output("dx")},
                {expected[0], expected[1], expected[2], expected[3]});
    now["h"] = expected[4];
    now["w"] = expected[5];
  }
  const Recurrence none = recurrence(0);
  check_close(run_compiled(none.program, none.numbers, *executor, on("cpu")), interpret(none.program, none.numbers));
}
