// Functionals: named operations defined by a body of primitives, with an optional gradient. A device may have a kernel
// for a functional, identified by name; otherwise the body is inlined.
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
#include "engine/program/signature.hpp"

namespace harmonics::engine {

using Values = std::vector<HTensor>;

// Kind of optimizer step. `one`: (w, g, moments ..., lr, step?) -> w, moments ... `several`: the tensors of
// `parameters` (an attribute) parameters in sequence. `factored`: g is given by two factors; an additional last result
// if the attribute `input_gradient` is set. Tensors of w's shape may all be stored transposed. Kernels may write
// results in place.
enum class UpdateKind : uint8_t { none, one, several, factored };

// Role of a call in a block of a network, for passes and reports about recomputation.
enum class BlockPart : uint8_t {
  none,
  norm,
  attention,
  activation,
  map,      // linear map of the last axis of input 0
  product,  // tensor product with further operations
  convolution
};

// Properties of calls that passes and plans rely on.
struct Traits {
  UpdateKind update = UpdateKind::none;
  // Copies its second input into its first. Kernels that write in place only move the second input.
  bool block_write = false;
  // Results do not depend on the order of the elements of an input.
  bool order_free = false;
  // With default attributes: elementwise, with inputs and result of the same type.
  bool elementwise = false;
  std::optional<size_t> transposable = {};  // the input that the attribute `transposed` refers to
  std::optional<size_t> scaled = {};        // the input that may be integers, multiplied by the attribute `scale`
  uint16_t free_types = 0;            // minor version of contract 1 that allows mixed float inputs; 0: not allowed
  std::optional<size_t> stored = {};  // the input that may have a stored type (q8_0 ...)
  const char* factored = "";        // updates: the factored form of a step without moments and with default attributes
  const char* joins[2] = {"", ""};  // a call, and the reader of its first result, that this functional replaces
  // Scatters input 1 within each plane of channels to the indices in result 1 of this functional, which give the
  // positions of its result 0 in its input.
  const char* places_of = "";
  BlockPart part = BlockPart::none;
  // Is, with default attributes, the derivative of this elementwise functional at input 0 times input 1. Only where
  // both functionals together are cheaper than each alone.
  const char* gradient_of = "";

  std::vector<std::string> names() const;  // names of those that are set, such as "order-free"
};

class Functional {
 public:
  using Body = std::function<Values(const AttributeMap&, std::span<const HTensor> inputs)>;
  // Like OpRow::gradient. Values that the gradient needs saved are outputs of the body.
  using Gradient = std::function<Values(const AttributeMap&, std::span<const HTensor> inputs,
                                        std::span<const HTensor> outputs, std::span<const HTensor> output_gradients)>;

  std::string name;
  std::string description;  // one line
  std::string formula;      // its signature as text; see signature.hpp
  Body body;
  Gradient gradient;  // null: derived from the body
  Traits traits = {};
  Signature signature = {};  // set by the table
  uint64_t id = 0;           // set by the table; unique, unlike names, which may be reused
};
using FunctionalPtr = std::shared_ptr<const Functional>;

// All functionals by name. Those of the library are registered on first use. Those of plugins come from the global
// registry, where the newest of a name wins.
class FunctionalTable {
 public:
  static FunctionalTable& global();
  void add(Functional functional);            // replaces one of the same name
  FunctionalPtr find(std::string_view name);  // null: unknown name
  bool has_own(std::string_view name) const;  // whether it is one of the library's
  std::vector<FunctionalPtr> all() const;     // the library's functionals, sorted by name
  std::vector<std::string> names() const;     // all names, including those of plugins not opened yet

 private:
  FunctionalPtr own(std::string_view name) const;
  FunctionalPtr of_plugin(std::string_view name);

  mutable std::mutex mutex_;
  std::map<std::string, FunctionalPtr, std::less<>> table_;
  std::map<std::string, std::pair<std::weak_ptr<const Item>, FunctionalPtr>, std::less<>> plugins_;
};

// Sources of functionals. They are defined in folders that depend on this one, so engine/library sets this before
// main() begins.
struct FunctionalSources {
  void (*add_library)(FunctionalTable& table);   // adds the library's; called once by FunctionalTable::global()
  Functional (*of_plugin)(const ItemPtr& item);  // returns a plugin's, without name and description
};
void set_functional_sources(const FunctionalSources& sources);

// Returns the functional that the node calls; null for primitives.
FunctionalPtr called_by(const Node& node);
BlockPart part_of(const Node& node);  // none for primitives
// Returns the library's functional that replaces a call of `first` and a call of `second` that reads it, or null.
FunctionalPtr joined_call(std::string_view first, std::string_view second);
// Throws unless inputs and attributes fit the functional's signature.
void check_call(const Functional& functional, const AttributeMap& attributes, size_t inputs);
// Returns only the attributes that the functional has, and reports each other one once (set_call_notes). For libraries
// built for contract 1.4 or earlier, whose calls are not checked.
AttributeMap known_attributes(std::string_view op, const AttributeMap& attributes);
// Sets the receiver of a line for each attribute that known_attributes() removes. Null, the default: no lines.
void set_call_notes(void (*note)(const std::string& line));

// Returns the body as a separate Program, with inputs and outputs named "0", "1" ... Cached by name, attributes and
// types.
std::shared_ptr<const Program> body_program(const Functional& functional, const AttributeMap& attributes,
                                            const std::vector<TensorType>& inputs);

}  // namespace harmonics::engine
