// A functional: a named operation defined by a body of primitives, with an optional gradient. Devices may have kernels
// for it by name; otherwise the body is inlined.
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
#include "engine/tensor/attributes.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

using Values = std::vector<HTensor>;

class Functional {
 public:
  using Body = std::function<Values(const AttributeMap&, std::span<const HTensor> inputs)>;
  // Like OpRow::gradient. Values that the gradient needs saved are outputs of the body.
  using Gradient = std::function<Values(const AttributeMap&, std::span<const HTensor> inputs,
                                        std::span<const HTensor> outputs, std::span<const HTensor> output_gradients)>;

  std::string name;
  std::string description;  // one line
  std::string formula;      // "x [..., in], weight [out, in], bias [out]? {activation} -> y [..., out]"
  Body body;
  Gradient gradient;  // null: derived from the body
  // An optimizer step: (w, g, moments ..., lr, step?) -> w, moments ... Tensors of w's shape may be stored transposed,
  // all alike, and kernels may write each result over the tensor it replaces.
  bool is_update = false;
  // Copies its second input into its first: kernels may write in place, and then move no more than that input.
  bool is_block_write = false;
  // The minor version of contract 1 that a library must be built for to be offered the call: attributes and operands of
  // a functional grow, and an older kernel would ignore them. Null: 0.
  uint16_t (*contract_minor)(const AttributeMap&) = nullptr;
  uint64_t id = 0;  // unique, set by the table: names may be reused
};
using FunctionalPtr = std::shared_ptr<const Functional>;

// All functionals by name. The library's own are registered on first use; plugins' come from the global registry, where
// the newest of a name wins.
class FunctionalTable {
 public:
  static FunctionalTable& global();
  void add(Functional functional);            // replaces one of the same name
  FunctionalPtr find(std::string_view name);  // null: none
  bool has_own(std::string_view name) const;  // false for a plugin's
  std::vector<FunctionalPtr> all() const;     // the library's own, sorted by name
  std::vector<std::string> names() const;     // all, including those of libraries not opened yet

 private:
  FunctionalPtr own(std::string_view name) const;
  FunctionalPtr of_plugin(std::string_view name);

  mutable std::mutex mutex_;
  std::map<std::string, FunctionalPtr, std::less<>> table_;
  std::map<std::string, std::pair<std::weak_ptr<const Item>, FunctionalPtr>, std::less<>> plugins_;
};

// Where functionals come from. The rooms that make them lie above this one; engine/library gives this before main()
// begins.
struct FunctionalSources {
  void (*add_library)(FunctionalTable& table);   // the library's own, called once by FunctionalTable::global()
  Functional (*of_plugin)(const ItemPtr& item);  // a plugin's, without name and description
};
void set_functional_sources(const FunctionalSources& sources);

// Functional::contract_minor of the call; 0 for primitives.
uint16_t contract_minor_of(std::string_view op, const AttributeMap& attributes);

// The body as a separate Program; inputs and outputs are named "0", "1" ... Cached by name, attributes and types.
std::shared_ptr<const Program> body_program(const Functional& functional, const AttributeMap& attributes,
                                            const std::vector<TensorType>& inputs);

}  // namespace harmonics::engine
