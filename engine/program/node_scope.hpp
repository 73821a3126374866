// NodeScope: where a node stands in a model, in which phase of a step, and where it comes from.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace harmonics::engine {

// Parts of a step, in order: those before `gradient` belong to the forward pass.
enum class Phase : uint8_t { forward, prefill, decode, loss, observe, gradient, recomputed, optimizer };
std::string_view phase_name(Phase phase);
std::optional<Phase> phase_named(std::string_view name);

struct NodeScope {
  std::string path = {};  // "hidden.output"; of an optimizer's step, the parameter
  Phase phase = Phase::forward;
  std::string origin = {};  // place in a flow, "net.hmx:9:3", or name of an imported node; empty: unknown

  auto operator<=>(const NodeScope&) const = default;
  bool is_forward() const { return phase < Phase::gradient; }
  // "PHASE/PATH"; "forward/" is left out unless the path itself begins with the name of a phase.
  std::string text() const;
};

// The scope of such a text, without origin.
NodeScope scope_of_text(std::string_view text);

}  // namespace harmonics::engine
