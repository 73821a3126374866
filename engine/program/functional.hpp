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
#include "engine/program/signature.hpp"

namespace harmonics::engine {

using Values = std::vector<HTensor>;

// What steps of an optimizer are: of one parameter, (w, g, moments ..., lr, step?) -> w, moments ...; of several
// (attribute `parameters`), the tensors of each side by side; of one from two factors of g, with a last result if the
// attribute `input_gradient` is set. Tensors of w's shape may be stored transposed, all alike, and kernels may write
// each result over the tensor it replaces.
enum class UpdateKind : uint8_t { none, one, several, factored };

// What a call is in a block of a network, for passes and reports that keep or recompute its parts.
enum class BlockPart : uint8_t {
  none,
  norm,
  attention,
  activation,
  map,      // linear, of the last axis of input 0
  product,  // of tensors, with more around it
  convolution
};

// What passes and plans may assume of calls.
struct Traits {
  UpdateKind update = UpdateKind::none;
  // Copies its second input into its first: kernels may write in place, and then move no more than that input.
  bool block_write = false;
  // Results depend neither on the order nor on the arrangement of the elements of an input.
  bool order_free = false;
  // With default attributes: inputs and the result have one type, and an element depends on those at its place.
  bool elementwise = false;
  std::optional<size_t> transposable = {};  // the matrix that the attribute `transposed` says is stored transposed
  std::optional<size_t> scaled = {};  // the input that holds whole numbers where the attribute `scale` multiplies them
  uint16_t free_types = 0;            // the minor of contract 1 that allows float inputs of several types; 0: none does
  std::optional<size_t> stored = {};  // the input that may be of a stored type (q8_0 ...)
  const char* factored = "";  // of an update: the step without moments from the factors of g, with default attributes
  const char* joins[2] = {"", ""};  // the call and the reader of its first result that one call of this replaces
  // Adds input 1 at places within each plane of channels. Of this functional: result 1, of result 0 in its input.
  const char* places_of = "";
  BlockPart part = BlockPart::none;

  std::vector<std::string> names() const;  // of those that are set: "order-free"
};

class Functional {
 public:
  using Body = std::function<Values(const AttributeMap&, std::span<const HTensor> inputs)>;
  // Like OpRow::gradient. Values that the gradient needs saved are outputs of the body.
  using Gradient = std::function<Values(const AttributeMap&, std::span<const HTensor> inputs,
                                        std::span<const HTensor> outputs, std::span<const HTensor> output_gradients)>;

  std::string name;
  std::string description;  // one line
  std::string formula;      // its signature; see signature.hpp
  Body body;
  Gradient gradient;  // null: derived from the body
  Traits traits = {};
  Signature signature = {};  // set by the table
  uint64_t id = 0;           // unique, set by the table: names may be reused
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

// The functional that the node calls; null for primitives.
FunctionalPtr called_by(const Node& node);
BlockPart part_of(const Node& node);  // none for primitives
// The functional of the library that replaces a call of `first` and the call of `second` that reads it; null: none.
FunctionalPtr joined_call(std::string_view first, std::string_view second);
// Throws unless inputs and attributes fit the functional's signature.
void check_call(const Functional& functional, const AttributeMap& attributes, size_t inputs);
// The attributes that the functional has. Others are named to `note`, once each: calls of libraries built for contract
// 1.4 or earlier were not checked.
AttributeMap known_attributes(std::string_view op, const AttributeMap& attributes);
// Receives a line for each attribute that known_attributes() leaves out. Null, as at first: no lines are made.
void set_call_notes(void (*note)(const std::string& line));

// The body as a separate Program; inputs and outputs are named "0", "1" ... Cached by name, attributes and types.
std::shared_ptr<const Program> body_program(const Functional& functional, const AttributeMap& attributes,
                                            const std::vector<TensorType>& inputs);

}  // namespace harmonics::engine
