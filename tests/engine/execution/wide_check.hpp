// Compares exact programs on a device with the interpreter, bit by bit.
#pragma once

#include <cmath>

#include <catch2/catch.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/print.hpp"
#include "tests/engine/execution/compiled.hpp"
#include "tests/engine/execution/wide_program.hpp"

namespace harmonics::engine::testing {

// Returns the first element that differs, as text, or "". Zeros of both signs are equal: a minimum may take either.
inline std::string first_difference(const HTensor& found, const HTensor& expected) {
  if (type_of(found) != type_of(expected)) return type_of(found).str() + " instead of " + type_of(expected).str();
  if (same_bits(found, expected)) return "";
  const HTensor x = cast(found, DType::F64), y = cast(expected, DType::F64);
  for (int64_t i = 0; i < x.size(); ++i) {
    const double a = x.data<double>()[i], b = y.data<double>()[i];
    if ((std::isnan(a) && std::isnan(b)) || a == b) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(a) + " instead of " + std::to_string(b);
  }
  return "";
}

// Returns the program of the first value that the device computes otherwise.
inline std::string least_wrong_program(const WideProgram& random, Executor& executor, const CompileOptions& options) {
  for (ValueId v = 0; v < random.program().values.size(); ++v) {
    Program part = random.program();
    part.outputs = {{"y", v}};
    part.updates.clear();
    part = dce(part);
    const std::string difference = first_difference(run_compiled(part, random.numbers(), executor, options)[0],
                                                    interpret(part, random.numbers())[0]);
    if (!difference.empty()) return print(part) + difference;
  }
  return "each value alone is right\n" + print(random.program());
}

struct WidePrograms {
  uint32_t seeds;
  int size;  // steps of each program
};

inline void check_wide_programs(const WidePrograms& programs, Executor& executor, CompileOptions options) {
  for (uint32_t seed = 0; seed < programs.seeds; ++seed) {
    INFO("seed " << seed << ", size " << programs.size);
    const WideProgram random(seed, programs.size);
    const Values expected = interpret(random.program(), random.numbers());
    std::string pass;
    options.observe = [&](const std::string& name, const Program& program) {
      if (!pass.empty()) return;
      const Values found = interpret(program, random.numbers());
      for (size_t i = 0; i < found.size(); ++i)
        if (!first_difference(found[i], expected[i]).empty()) pass = name;
    };
    const Values found = run_compiled(random.program(), random.numbers(), executor, options);
    CHECK(pass == "");
    std::string difference;
    for (size_t i = 0; i < found.size() && difference.empty(); ++i)
      difference = first_difference(found[i], expected[i]);
    options.observe = nullptr;
    CHECK(difference == "");
    if (!difference.empty()) WARN(least_wrong_program(random, executor, options));
  }
}

}  // namespace harmonics::engine::testing
