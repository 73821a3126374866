// Steps of a decoder over caches in several element types, for devices with their own memory.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/engine/execution/training_program.hpp"

namespace harmonics::engine::testing {

// Appends three rows to each cache and attends with grouped heads, lengths that differ by batch item, a window and a
// cap. The caches are the states "keys" and "values".
inline Program cached_decoding(DType dtype) {
  constexpr int64_t batch = 2, rows = 3, heads = 4, shared = 2, width = 32, capacity = 24;
  Tracer tracer("decoding");
  const TensorType cache{dtype, {batch, capacity, shared, width}}, row{DType::F32, {batch, rows, shared, width}};
  const HTensor start = tracer.input("start", {DType::I32, {batch}}),
                lengths = tracer.input("lengths", {DType::I32, {batch}}),
                q = tracer.input("q", {DType::F32, {batch, rows, heads, width}});
  const HTensor keys = call1("cache_append", {tracer.state("keys", cache), tracer.input("k", row), start}),
                values = call1("cache_append", {tracer.state("values", cache), tracer.input("v", row), start});
  Attributes a;
  a.set("operands", "lengths").set("positions_first", true).set("causal", true).set("window", 9).set("softcap", 3.0);
  const auto out = call("attention", {q, keys, values, lengths}, a);
  tracer.output("y", out[0]);
  tracer.output("lse", out[1]);
  tracer.update("keys", keys);
  tracer.update("values", values);
  return tracer.take();
}

// The same over pools of pages, for three batch items. Reads the pools too.
inline Program paged_decoding(DType dtype) {
  constexpr int64_t batch = 3, rows = 3, heads = 4, shared = 2, width = 32, entries = 4, page = 5, pool = 9;
  Tracer tracer("paged decoding");
  const TensorType cache{dtype, {pool, page, shared, width}}, row{DType::F32, {batch, rows, shared, width}};
  const HTensor start = tracer.input("start", {DType::I32, {batch}}),
                lengths = tracer.input("lengths", {DType::I32, {batch}}),
                pages = tracer.input("pages", {DType::I32, {batch, entries}}),
                q = tracer.input("q", {DType::F32, {batch, rows, heads, width}});
  Attributes a;
  a.set("operands", "pages");
  const HTensor keys = call1("cache_append", {tracer.state("keys", cache), tracer.input("k", row), start, pages}, a),
                values =
                    call1("cache_append", {tracer.state("values", cache), tracer.input("v", row), start, pages}, a);
  a.set("operands", "lengths,pages").set("positions_first", true).set("causal", true).set("window", 9);
  const auto out = call("attention", {q, keys, values, lengths, pages}, a);
  tracer.output("y", out[0]);
  tracer.output("lse", out[1]);
  tracer.output("pool", cast(keys, DType::F32));
  tracer.update("keys", keys);
  tracer.update("values", values);
  return tracer.take();
}

// Compares several steps with the interpreter: items that share pages, rows with one place and rows without a page.
inline void check_paged_decoding(Executor& executor, const CompileOptions& options) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::Q8_0}) {
    INFO("pools of type " << static_cast<uint32_t>(dtype));
    const Program program = paged_decoding(dtype);
    std::map<std::string, HTensor> numbers;
    for (const char* name : {"keys", "values"}) numbers[name] = cast(noise({9, 5, 2, 32}, 9, 1.0f), dtype);
    MapBinding binding(numbers);
    const auto plan = compile(program, &binding, executor, options);
    size_t own = 0;
    for (const PlanStep& s : plan->steps()) own += s.kernel == "paged cache append" || s.kernel == "attention";
    CHECK(own == 3);
    constexpr int32_t kNone = std::numeric_limits<int32_t>::min(), kBeyond = std::numeric_limits<int32_t>::max();
    numbers["pages"] = HTensor::from<int32_t>({3, 4}, {7, 2, 5, kNone, 7, 2, 5, 0, 4, 1, kBeyond, -1});
    for (const int32_t at : {0, 3, 6, 9}) {
      numbers["q"] = noise({3, 3, 4, 32}, 20 + static_cast<uint32_t>(at), 1.0f);
      numbers["k"] = noise({3, 3, 2, 32}, 40 + static_cast<uint32_t>(at), 1.0f);
      numbers["v"] = noise({3, 3, 2, 32}, 60 + static_cast<uint32_t>(at), 1.0f);
      numbers["start"] = HTensor::from<int32_t>({3}, {at, at, at + 2});
      numbers["lengths"] = HTensor::from<int32_t>({3}, {at + 3, at + 2, std::min(at + 5, 10)});
      const Values expected = interpret(program, numbers);
      plan->run(input_pointers(*plan, numbers).data());
      for (size_t o = 0; o < 3; ++o) {
        const HTensor found = copy_of(plan->output(program.outputs[o].name));
        for (int64_t i = 0; i < found.size(); ++i)
          REQUIRE(double{found.data<float>()[i]} == Approx(double{expected[o].data<float>()[i]}).margin(2e-3));
      }
      numbers["keys"] = expected[3];
      numbers["values"] = expected[4];
    }
  }
}

// Compares several steps with the interpreter, on kernels of the device itself.
inline void check_cached_decoding(Executor& executor, const CompileOptions& options) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::Q8_0}) {
    INFO("caches of type " << static_cast<uint32_t>(dtype));
    const Program program = cached_decoding(dtype);
    std::map<std::string, HTensor> numbers;
    for (const char* name : {"keys", "values"}) numbers[name] = cast(noise({2, 24, 2, 32}, 9, 1.0f), dtype);
    MapBinding binding(numbers);
    const auto plan = compile(program, &binding, executor, options);
    size_t own = 0;
    for (const PlanStep& s : plan->steps()) own += s.kernel == "cache append" || s.kernel == "attention";
    CHECK(own == 3);
    for (const int32_t at : {0, 3, 6}) {
      numbers["q"] = noise({2, 3, 4, 32}, 20 + static_cast<uint32_t>(at), 1.0f);
      numbers["k"] = noise({2, 3, 2, 32}, 40 + static_cast<uint32_t>(at), 1.0f);
      numbers["v"] = noise({2, 3, 2, 32}, 60 + static_cast<uint32_t>(at), 1.0f);
      numbers["start"] = HTensor::from<int32_t>({2}, {at, at + 5});
      numbers["lengths"] = HTensor::from<int32_t>({2}, {at + 3, at + 8});
      const Values expected = interpret(program, numbers);
      plan->run(input_pointers(*plan, numbers).data());
      for (size_t o = 0; o < 2; ++o) {
        const HTensor found = copy_of(plan->output(program.outputs[o].name));
        for (int64_t i = 0; i < found.size(); ++i)
          REQUIRE(double{found.data<float>()[i]} == Approx(double{expected[o].data<float>()[i]}).margin(2e-3));
      }
      numbers["keys"] = expected[2];
      numbers["values"] = expected[3];
    }
  }
}

}  // namespace harmonics::engine::testing
