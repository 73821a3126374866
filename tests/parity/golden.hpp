// Committed PyTorch values (make_golden.py), and comparison with them.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include <harmonics/ops.hpp>

#include "engine/model/safetensors.hpp"
#include "engine/program/functional.hpp"

namespace harmonics::engine::parity {

inline TensorFile golden(const std::string& name) {
  return read_safetensors(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/" + name);
}

// Returns the tensors below a path, by the rest of their names.
inline std::map<std::string, HTensor> below(const TensorFile& file, const std::string& path) {
  std::map<std::string, HTensor> found;
  for (const auto& [name, tensor] : file.tensors)
    if (name.rfind(path + "/", 0) == 0) found.emplace(name.substr(path.size() + 1), tensor);
  return found;
}

// Converts stored F64 to the tested type.
inline HTensor in_type(const HTensor& stored, DType tested) {
  return stored.dtype() == DType::F64 ? cast(stored, tested) : stored;
}

inline AttributeValue attribute_value(const boost::json::value& v) {
  if (v.is_bool()) return v.as_bool();
  if (v.is_int64()) return v.as_int64();
  if (v.is_double()) return v.as_double();
  if (v.is_string()) return std::string(v.as_string());
  return boost::json::value_to<std::vector<int64_t>>(v);
}

struct GoldenCase {
  std::string name, functional;
  AttributeMap attributes;
};
inline GoldenCase golden_case(const TensorFile& file, const std::string& name) {
  const boost::json::object row = boost::json::parse(file.metadata.at(name)).as_object();
  GoldenCase c{name, std::string(row.at("functional").as_string()), {}};
  for (const auto& [key, value] : row.at("attributes").as_object())
    c.attributes.set(std::string(key), attribute_value(value));
  return c;
}
inline std::vector<GoldenCase> golden_cases(const TensorFile& file) {
  std::vector<GoldenCase> cases;
  for (const auto& [name, text] : file.metadata) cases.push_back(golden_case(file, name));
  return cases;
}

// Like torch.testing.assert_close: |found - expected| <= absolute + relative |expected| for every element.
struct Tolerance {
  double absolute, relative;
};
// Describes the largest difference; "" if there is none.
inline std::string difference(const HTensor& found, const HTensor& expected, const Tolerance& tolerance) {
  if (found.shape() != expected.shape()) return "shape " + found.shape().str() + ", expected " + expected.shape().str();
  const HTensor f = cast(found, DType::F64), e = cast(expected, DType::F64);
  double worst = 1;
  std::string text;
  for (int64_t i = 0; i < f.size(); ++i) {
    const double a = f.data<double>()[i], b = e.data<double>()[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double units = std::abs(a - b) / (tolerance.absolute + tolerance.relative * std::abs(b));
    if (units <= worst) continue;  // false for NaN, which is reported immediately
    text = "element " + std::to_string(i) + " is " + std::to_string(a) + ", expected " + std::to_string(b) + ": " +
           std::to_string(units) + " tolerances away";
    if (std::isnan(units)) return text;
    worst = units;
  }
  return text;
}

}  // namespace harmonics::engine::parity
