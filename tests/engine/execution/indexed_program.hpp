// A program of sorts, positions in several axes, windows, bits and angles, for devices with their own memory.
#pragma once

#include <catch2/catch.hpp>

#include <cmath>

#include "tests/engine/execution/training_program.hpp"

namespace harmonics::engine::testing {

struct IndexedProgram {
  Program program;
  std::map<std::string, HTensor> numbers;
};

inline IndexedProgram indexed_program() {
  IndexedProgram p;
  HTensor rough = noise({5, 70}, 1, 1.0f);
  float* values = rough.mutable_data<float>();
  for (int64_t i = 0; i < rough.size(); ++i) values[i] = std::floor(values[i] * 20) / 20;  // with ties
  values[3] = values[90] = NAN;
  values[7] = -INFINITY;
  std::vector<int32_t> pairs, whole;
  for (int32_t i = 0; i < 60; ++i) {
    pairs.push_back(i * 7 % 6 - (i == 3));  // a few out of range
    pairs.push_back(i * 5 % 71);
    whole.push_back(i * 123457 - 3000000);
  }
  p.numbers = {{"x", rough},
               {"clean", noise({5, 70}, 2, 0.9f)},
               {"cells", noise({60}, 3, 1.0f)},
               {"pairs", HTensor::from<int32_t>({60, 2}, pairs)},
               {"bits", HTensor::from<int32_t>({60}, whole)}};
  Tracer tracer("indexed");
  const auto in = [&](const char* name) { return tracer.input(name, type_of(p.numbers.at(name))); };
  const HTensor x = in("x"), clean = in("clean"), cells = in("cells"), positions = in("pairs"), bits = in("bits");
  size_t outputs = 0;
  const auto keep = [&](const HTensor& y) { tracer.output("y" + std::to_string(outputs++), y); };
  for (const int64_t axis : {0, 1})
    for (const bool falling : {false, true}) {
      const auto [sorted, order] = sort(x, axis, falling);
      keep(sorted), keep(order);
    }
  keep(gather_nd(x, positions)), keep(gather_nd(transpose(clean, {1, 0}), reshape(iota(DType::I64, {9}, 0), {9, 1})));
  for (const char* reduction : {"set", "add", "max", "min"}) keep(scatter_nd(clean, positions, cells, reduction));
  for (const char* reduction : {"sum", "max", "min"})
    keep(reduce_window(clean, reduction, {{2, 5}, {1, 3}, {1, 2}, {0, 4}, {2, 1}}));
  keep(reduce_window(x, "max", {{1, 3}, {}, {0, 1}, {0, 1}}));
  keep(is_nan(x)), keep(is_inf(x));
  for (const auto angle : {tan, asin, acos, atan, sinh, cosh, asinh, atanh}) keep(angle(clean));
  keep(acosh(clean + 2.0)), keep(atan2(clean, x));
  const HTensor by = remainder(bits, 40.0);
  keep(bit_and(bits, by)), keep(bit_or(bits, by)), keep(bit_xor(bits, by));
  keep(shift_left(bits, by)), keep(shift_right_logical(bits, by)), keep(shift_right_arithmetic(bits, by));
  p.program = tracer.take();
  return p;
}

inline void check_indexed_program(Executor& executor, const CompileOptions& options) {
  const IndexedProgram p = indexed_program();
  const Values expected = interpret(p.program, p.numbers);
  MapBinding none;
  const auto plan = compile(p.program, &none, executor, options);
  for (const PlanStep& s : plan->steps()) {
    INFO(s.what);
    CHECK(s.kernel != "reference");
  }
  plan->run(input_pointers(*plan, p.numbers).data());
  for (size_t o = 0; o < expected.size(); ++o) {
    INFO("result " << o);
    const HTensor found = plan->output(p.program.outputs[o].name);
    REQUIRE(type_of(found) == type_of(expected[o]));
    if (found.dtype() != DType::F32) {
      CHECK(same_bits(found, expected[o]));
      continue;
    }
    for (int64_t i = 0; i < found.size(); ++i) {
      const double a = found.data<float>()[i], e = expected[o].data<float>()[i];
      if (a == e || (std::isnan(a) && std::isnan(e))) continue;
      REQUIRE(std::abs(a - e) <= 2e-6 * std::max(1.0, std::abs(e)));
    }
  }
}

}  // namespace harmonics::engine::testing
