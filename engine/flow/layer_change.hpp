// LayerChange: new arguments of functions on the arrows into a layer, requested while the flow runs.
#pragma once

#include <string>
#include <vector>

namespace harmonics::engine {

// An argument and its value as text, by the type that the function declares: "0.3", "[3, 3]", "tanh". "" removes it.
struct ArgumentText {
  std::string argument, value;
};

struct LayerChange {
  struct Argument {
    std::string name;           // "rate", or "dropout.rate" if several functions have a 'rate'
    std::string before, after;  // values as text; "" for the default
    std::string standard = {};  // the default; "" if there is none
  };
  std::string layer;
  std::vector<Argument> arguments;

  // Returns "'hidden' has rate = 0.3 (was 0.1)".
  std::string text() const;
};

// The changes of a flow by request, in order.
struct LayerChanges {
  std::string of;  // identity of the text before the first change
  std::vector<LayerChange> all;
};

// Makes the changes of a run. Throws if a change is not possible; then nothing has changed.
class LayerChanger {
 public:
  virtual ~LayerChanger() = default;
  // Returns when the change has been made, between two steps. Callable from any thread.
  virtual LayerChange change_layer(const std::string& layer, const std::vector<ArgumentText>& arguments) = 0;
  // Takes back the last change that was not taken back. Returns what it changed.
  virtual LayerChange undo_layer() = 0;
};

// Returns the value, or the default in its place.
inline const std::string& value_or_standard(const std::string& value, const LayerChange::Argument& of) {
  return value.empty() ? of.standard : value;
}

}  // namespace harmonics::engine
