// NodeScope: the position of a node in the model, its phase in a step, its origin, and the rounding of its operands.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace harmonics::engine {

// Phases of a step, in order; those before `gradient` belong to the forward pass.
enum class Phase : uint8_t { forward, prefill, decode, loss, observe, gradient, recomputed, optimizer };
std::string_view phase_name(Phase phase);
std::optional<Phase> phase_named(std::string_view name);

// Type that operands of f32 products may be rounded to. Sums and results stay f32, except that fp16 has short partial
// sums in fp16.
enum class Rounding : uint8_t { none, fp16, bf16, fp8 };
std::string_view rounding_name(Rounding rounding);
std::optional<Rounding> rounding_named(std::string_view name);

struct NodeScope {
  std::string path = {};  // "hidden.output"; in the optimizer phase the parameter
  Phase phase = Phase::forward;
  std::string origin = {};             // position in a flow, "net.hmx:9:3", or name of an imported node; empty: unknown
  Rounding rounding = Rounding::none;  // set by the pass set_precision

  auto operator<=>(const NodeScope&) const = default;
  bool is_forward() const { return phase < Phase::gradient; }
  // Returns "PHASE/PATH", without "forward/" unless the path itself begins with the name of a phase.
  std::string text() const;
};

// Parses NodeScope::text(). The scope has no origin and no rounding.
NodeScope scope_of_text(std::string_view text);

}  // namespace harmonics::engine
