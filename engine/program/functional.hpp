// A functional: a named meaning written in primitives, with an optional gradient of its own. Devices may have kernels for
// it by name; without one the body is inlined.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/program/attributes.hpp"
#include "engine/program/program.hpp"

namespace harmonics {

using Values = std::vector<HTensor>;

class Functional {
 public:
  using Body = std::function<Values(const AttributeMap&, std::span<const HTensor> inputs)>;
  // As OpRow::gradient. Forward and backward come as this pair: what the gradient needs saved is an output of the body.
  using Gradient = std::function<Values(const AttributeMap&, std::span<const HTensor> inputs, std::span<const HTensor> outputs,
                                        std::span<const HTensor> output_gradients)>;

  std::string name;
  std::string description;  // one line
  std::string formula;      // "x [..., in], weight [out, in], bias [out]? {activation} -> y [..., out]"
  Body body;
  Gradient gradient;  // null: derived from the body
  // One step of an optimizer: (w, g, moments ..., lr, step?) -> w, moments ... Its tensors of w's shape may be rearranged
  // alike, and its kernels may write each result over the tensor it replaces.
  bool is_update = false;
  uint64_t id = 0;  // of this very one, set by the table: names may be given anew
};
using FunctionalPtr = std::shared_ptr<const Functional>;

// All functionals by name. The library's own are registered at first use by one explicit list; those of plugins come from the
// global registry, whose newest one of a name counts.
class FunctionalTable {
 public:
  static FunctionalTable& global();
  void add(Functional functional);                // replaces one of the same name
  FunctionalPtr find(std::string_view name);      // null: none
  bool has_own(std::string_view name) const;      // not a plugin's
  std::vector<FunctionalPtr> all() const;         // the library's own, by name
  std::vector<std::string> names() const;         // of all, those no library was opened for included

 private:
  FunctionalPtr own(std::string_view name) const;
  FunctionalPtr of_plugin(std::string_view name);

  mutable std::mutex mutex_;
  std::map<std::string, FunctionalPtr, std::less<>> table_;
  std::map<std::string, std::pair<std::weak_ptr<const Item>, FunctionalPtr>, std::less<>> plugins_;
};

// The functional that a plugin registered, without name and description. Defined in engine/functional/plugin_functional.cpp.
Functional functional_of(const ItemPtr& item);

// Defined in engine/functional/builtin.cpp: the reference functionals, family by family.
void register_reference_functionals(FunctionalTable& table);

// The body as a Program of its own: inputs named "0", "1" ...; outputs likewise. Cached by name, attributes and types.
std::shared_ptr<const Program> body_program(const Functional& functional, const AttributeMap& attributes,
                                            const std::vector<TensorType>& inputs);

}  // namespace harmonics
