// Calls of functionals in conformance tests: shapes and distributions of the inputs.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <harmonics/ops.hpp>

#include "engine/program/functional.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine::conformance {

// Shape and distribution of an input.
struct Operand {
  enum Kind {
    number,    // of the tested floating-point type, away from 0, where gradients may jump
    positive,  // like number, above 0
    fraction,  // like number, between 0 and 1
    random,    // f32 in [0, 1), not differentiated
    rate,      // f32 scalar, not differentiated
    index,     // `dtype` in [0, limit)
    step,      // the i64 scalar 3
  };
  Kind kind = number;
  Shape shape;
  DType dtype = DType::I64;
  int64_t limit = 0;
  bool statistic = false;  // mean, rstd, lse and similar: f32 if the tested type is 16-bit
};

struct FunctionalCase {
  std::string functional;
  AttributeMap attributes;
  std::vector<Operand> inputs;

  std::string str() const {
    std::string s = functional + attributes.str();
    for (const Operand& o : inputs) s += " " + o.shape.str();
    return s;
  }
};

inline HTensor make_operand(const Operand& operand, DType dtype, std::mt19937_64& generator) {
  const int64_t n = operand.shape.count();
  if (operand.kind == Operand::step) return HTensor::from<int64_t>({}, {3});
  if (operand.kind == Operand::index) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<int64_t>(generator() % operand.limit));
    return cast(HTensor::from(operand.shape, values), operand.dtype);
  }
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) {
    const double u = static_cast<double>(generator() >> 40) / (1 << 24),
                 v = static_cast<double>(generator() >> 40) / (1 << 24);
    const double size = 0.05 + 1.9 * u;
    switch (operand.kind) {
      case Operand::positive:
        values.push_back(size);
        break;
      case Operand::fraction:
        values.push_back(size / 2);
        break;
      case Operand::random:
        values.push_back(u);
        break;
      case Operand::rate:
        values.push_back(0.0625);
        break;
      default:
        values.push_back(v < 0.5 ? -size : size);
    }
  }
  const bool half = dtype == DType::F16 || dtype == DType::BF16;
  const bool single = operand.kind == Operand::random || operand.kind == Operand::rate || (operand.statistic && half);
  return cast(HTensor::from(operand.shape, values), single ? DType::F32 : dtype);
}

// Replaces random inputs that must be consistent with others: results of the forward call in a gradient, from which or
// from the inputs kernels may compute, offsets, and permutations.
using Completion = void (*)(const AttributeMap&, std::vector<HTensor>& in);
// Sorts the offsets of groups, which must not decrease.
inline void sort_offsets(HTensor& offsets) { offsets = sort(offsets, 0).first; }
inline const std::map<std::string, Completion>& completions() {
  static const std::map<std::string, Completion> all{
      {"grouped_linear", [](const AttributeMap&, std::vector<HTensor>& in) { sort_offsets(in[1]); }},
      {"grouped_outer", [](const AttributeMap&, std::vector<HTensor>& in) { sort_offsets(in[2]); }},
      {"combine", [](const AttributeMap&, std::vector<HTensor>& in) { in[1] = cast(argsort(in[1], 0), DType::I32); }},
      {"linear_cross_entropy_grad",
       [](const AttributeMap& attributes, std::vector<HTensor>& in) {
         AttributeMap forward;
         for (const auto& [name, value] : attributes.entries())
           if (name != "operands") forward.set(name, value);
         std::vector<HTensor> given(in.begin(), in.begin() + 3);
         if (attributes.has("operands")) given.push_back(in.back());
         in[3] = apply("linear_cross_entropy", forward, given).at(1);
       }},
      {"softmax_cross_entropy_grad",
       [](const AttributeMap&, std::vector<HTensor>& in) {
         in[2] = apply("softmax_cross_entropy", {}, {in[0], in[1]}).at(1);
       }},
      {"attention_grad", [](const AttributeMap& attributes, std::vector<HTensor>& in) {
         std::vector<HTensor> given(in.begin(), in.begin() + 3);
         given.insert(given.end(), in.begin() + 6, in.end());
         const std::vector<HTensor> forward = apply("attention", attributes, given);
         in[3] = forward.at(0);
         in[4] = forward.at(1);
       }}};
  return all;
}

inline std::vector<HTensor> make_operands(const FunctionalCase& c, DType dtype, std::mt19937_64& generator) {
  std::vector<HTensor> in;
  for (const Operand& operand : c.inputs) in.push_back(make_operand(operand, dtype, generator));
  if (const auto complete = completions().find(c.functional); complete != completions().end())
    complete->second(c.attributes, in);
  return in;
}

// Generates small sizes, reproducible by seed.
class Sizes {
 public:
  explicit Sizes(uint64_t seed) : generator_(seed) {}
  int64_t odd() { return 1 + 2 * static_cast<int64_t>(generator_() % 3); }  // 1, 3, 5
  int64_t some() { return 2 + static_cast<int64_t>(generator_() % 4); }     // 2 .. 5
  bool coin() { return generator_() % 2 == 0; }

 private:
  std::mt19937_64 generator_;
};

inline Operand numbers(const Shape& shape) { return {Operand::number, shape}; }
inline Operand statistics(const Shape& shape) { return {Operand::number, shape, DType::F32, 0, true}; }
inline Operand spreads(const Shape& shape) { return {Operand::positive, shape, DType::F32, 0, true}; }
inline Operand fractions(const Shape& shape) { return {Operand::fraction, shape, DType::F32, 0, true}; }
inline Operand positives(const Shape& shape) { return {Operand::positive, shape}; }
inline Operand randoms(const Shape& shape) { return {Operand::random, shape}; }
inline Operand rate() { return {Operand::rate, {}}; }
inline Operand indices(const Shape& shape, int64_t limit, DType dtype) { return {Operand::index, shape, dtype, limit}; }

inline Shape joined(const Shape& a, const Shape& b) {
  Shape s = a;
  for (int64_t d : b) s.push_back(d);
  return s;
}

using Cases = std::vector<FunctionalCase>;

}  // namespace harmonics::engine::conformance
