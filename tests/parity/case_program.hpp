// Programs of the committed PyTorch cases.
#pragma once

#include "engine/program/gradient.hpp"
#include "engine/program/tracer.hpp"
#include "golden.hpp"

namespace harmonics::engine::parity {

inline std::vector<HTensor> numbered(const std::map<std::string, HTensor>& tensors, const std::string& prefix) {
  std::vector<HTensor> found;
  for (size_t i = 0; tensors.count(prefix + std::to_string(i)); ++i)
    found.push_back(tensors.at(prefix + std::to_string(i)));
  return found;
}

// Returns a case's program with outputs out0 ... and, if gradients are stored, din0 ...; inputs in0 ... and dout0 ...
inline Program case_program(const GoldenCase& c, const std::map<std::string, HTensor>& stored, DType dtype) {
  Tracer tracer(c.name);
  const auto input = [&](const std::string& name) {
    return tracer.input(name, type_of(in_type(stored.at(name), dtype)));
  };
  Values in, wrt;
  std::vector<std::string> wanted;
  for (size_t i = 0; i < numbered(stored, "in").size(); ++i) {
    in.push_back(input("in" + std::to_string(i)));
    if (!stored.count("din" + std::to_string(i))) continue;
    wrt.push_back(in.back());
    wanted.push_back("din" + std::to_string(i));
  }
  const Values results = apply(c.functional, c.attributes, in);
  HTensor sum;
  for (size_t i = 0; i < results.size(); ++i) {
    tracer.output("out" + std::to_string(i), results[i]);
    if (!stored.count("dout" + std::to_string(i))) continue;
    const HTensor weighted = results[i] * input("dout" + std::to_string(i));
    const HTensor part = reduce_sum(weighted, axes_from(weighted, 0));
    sum = sum ? sum + part : part;
  }
  if (wrt.empty()) return tracer.take();
  const Values gradients = gradient(tracer, sum, wrt);
  for (size_t i = 0; i < gradients.size(); ++i) tracer.output(wanted[i], gradients[i]);
  return tracer.take();
}

inline std::map<std::string, HTensor> case_inputs(const std::map<std::string, HTensor>& stored, DType dtype) {
  std::map<std::string, HTensor> inputs;
  for (const auto& [name, value] : stored)
    if (name.rfind("in", 0) == 0 || name.rfind("dout", 0) == 0) inputs[name] = in_type(value, dtype);
  return inputs;
}

// Returns the f32 cases with values so large or so close to a limit that a formula may lose precision or divide by
// zero.
inline std::vector<GoldenCase> saturated_cases(const TensorFile& file) {
  std::vector<GoldenCase> cases;
  for (const GoldenCase& c : golden_cases(file))
    for (const char* mark :
         {"/bounds", "/equal", "/offset", "/far", "/one_key", "/one_position", "/first_row", "/large"})
      if (c.name.find(mark) != std::string::npos) {
        cases.push_back(c);
        break;
      }
  return cases;
}

}  // namespace harmonics::engine::parity
