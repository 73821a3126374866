#include <bit>
#include <cstring>
#include <unordered_map>

#include "engine/passes/pass.hpp"
#include "engine/program/print.hpp"

namespace harmonics::engine {

namespace {

size_t mix(size_t seed, size_t value) { return (seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2))); }

template <typename T>
bool same_bits(const T& a, const T& b) {
  return a == b;
}
// Compares bit patterns: 0 and -0 differ, and a NaN equals itself.
bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }
bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

bool same_attributes(const AttributeMap& a, const AttributeMap& b) {
  const auto &x = a.entries(), &y = b.entries();
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i].first != y[i].first || x[i].second.index() != y[i].second.index()) return false;
    const bool same = std::visit(
        [&](const auto& value) { return same_bits(value, std::get<std::decay_t<decltype(value)>>(y[i].second)); },
        x[i].second);
    if (!same) return false;
  }
  return true;
}

bool same_literal(const HTensor& a, const HTensor& b) {
  if (a.empty() || b.empty()) return a.empty() == b.empty();
  const TensorType type = type_of(a);
  if (type != type_of(b)) return false;
  return type.bytes() == 0 || a.raw() == b.raw() || std::memcmp(a.bytes(), b.bytes(), type.bytes()) == 0;
}

size_t hash_of(const Node& node) {
  size_t h = static_cast<size_t>(node.op);
  for (ValueId v : node.inputs) h = mix(h, v);
  h = mix(h, std::hash<std::string>()(node.callee));
  h = mix(h, std::hash<std::string>()(node.attributes.str()));
  if (node.literal)
    h = mix(h, std::hash<std::string_view>()(
                   {static_cast<const char*>(node.literal.bytes()), type_of(node.literal).bytes()}));
  return mix(h, std::hash<const void*>()(node.host.get()));
}

bool same_body(const Node& a, const Node& b) {
  return a.body == b.body || (a.body && b.body && print(*a.body) == print(*b.body));
}

class Joiner {
 public:
  explicit Joiner(const Program& program) : program_(program), rewriter_(program) {}

  Program run() {
    for (const Node& node : program_.nodes) visit(node);
    return rewriter_.finish();
  }

 private:
  void visit(const Node& node) {
    Node now = rewriter_.prepared(node);
    const size_t hash = hash_of(now);
    const auto [first, last] = seen_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      const Node& earlier = rewriter_.to().nodes[it->second];
      if (!equal(earlier, now, node)) continue;
      for (size_t i = 0; i < node.outputs.size(); ++i) rewriter_.map(node.outputs[i], earlier.outputs[i]);
      return;
    }
    seen_.emplace(hash, static_cast<uint32_t>(rewriter_.to().nodes.size()));
    rewriter_.put(std::move(now), node);
  }

  bool equal(const Node& earlier, const Node& now, const Node& original) const {
    const Program& to = rewriter_.to();
    if (earlier.op != now.op || earlier.inputs != now.inputs || earlier.callee != now.callee ||
        earlier.host != now.host)
      return false;
    if (is_in(Phase::recomputed, to, earlier) != is_in(Phase::recomputed, to, now)) return false;
    if (to.scope_of(earlier).rounding != to.scope_of(now).rounding) return false;
    if (earlier.outputs.size() != original.outputs.size()) return false;
    for (size_t i = 0; i < original.outputs.size(); ++i)
      if (to.type(earlier.outputs[i]) != program_.type(original.outputs[i])) return false;
    return same_attributes(earlier.attributes, now.attributes) && same_literal(earlier.literal, now.literal) &&
           same_body(earlier, now);
  }

  const Program& program_;
  Rewriter rewriter_;
  std::unordered_multimap<size_t, uint32_t> seen_;
};

}  // namespace

Program cse(const Program& program) { return Joiner(program).run(); }

}  // namespace harmonics::engine
