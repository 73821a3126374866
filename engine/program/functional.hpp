// A functional: a named meaning written in primitives, with an optional gradient of its own. Devices may have kernels for
// it by name; without one the body is inlined.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/program/attributes.hpp"
#include "engine/program/program.hpp"

namespace harmonics {

using Values = std::vector<HTensor>;

class Functional {
 public:
  using Body = Values (*)(const AttributeMap&, std::span<const HTensor> inputs);
  // As OpRow::gradient. Forward and backward come as this pair: what the gradient needs saved is an output of the body.
  using Gradient = Values (*)(const AttributeMap&, std::span<const HTensor> inputs, std::span<const HTensor> outputs,
                              std::span<const HTensor> output_gradients);

  std::string name;
  std::string description;  // one line
  std::string formula;      // "x [..., in], weight [out, in], bias [out]? {activation} -> y [..., out]"
  Body body = nullptr;
  Gradient gradient = nullptr;  // null: derived from the body
  // One step of an optimizer: (w, g, moments ..., lr, step?) -> w, moments ... Its tensors of w's shape may be rearranged
  // alike, and its kernels may write each result over the tensor it replaces.
  bool is_update = false;
};

// All functionals by name; the built-in ones are registered at first use by one explicit list.
class FunctionalTable {
 public:
  static FunctionalTable& global();
  void add(Functional functional);                        // replaces one of the same name
  const Functional* find(std::string_view name) const;    // null: none
  std::vector<const Functional*> all() const;             // by name

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Functional>, std::less<>> table_;
  std::vector<std::unique_ptr<Functional>> replaced_;  // pointers handed out stay valid
};

// Defined in engine/functional/builtin.cpp: the reference functionals, family by family.
void register_reference_functionals(FunctionalTable& table);

// The body as a Program of its own: inputs named "0", "1" ...; outputs likewise. Cached by name, attributes and types.
std::shared_ptr<const Program> body_program(const Functional& functional, const AttributeMap& attributes,
                                            const std::vector<TensorType>& inputs);

}  // namespace harmonics
