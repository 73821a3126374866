#include "engine/passes/recomputation.hpp"

#include <algorithm>
#include <cmath>

#include "engine/base/byte_count.hpp"
#include "engine/base/spelling.hpp"
#include "engine/passes/pass.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

struct Preset {
  const char* name;
  uint32_t parts;
};
constexpr Preset kPresets[] = {
    {"rmsnorm", parts::norm},
    {"qkv", parts::qkv},
    {"attention", parts::attention | parts::qkv},
    {"swiglu", parts::activation},
    {"ffn", parts::ffn | parts::activation},
    {"block", parts::any},
    {"lora", parts::norm},  // inputs of the adapters' narrow maps
};

uint64_t read_budget(const std::string& text) {
  if (const auto bytes = parse_byte_count(text)) return *bytes;
  throw Error(ErrorKind::Usage, "recompute auto takes a budget in bytes, not '" + text + "'", {},
              {"for example auto=2G"});
}

void read_one(const std::string& word, Recomputation& all) {
  if (word == "auto") {
    all.automatic = true;
    return;
  }
  if (word.rfind("auto=", 0) == 0) {
    all.automatic = true;
    all.budget = read_budget(word.substr(5));
    return;
  }
  for (const Preset& preset : kPresets)
    if (word == preset.name || word == std::string("recompute_") + preset.name) {
      all.parts |= preset.parts;
      return;
    }
  if (word.find('*') != word.npos || word.find('/') != word.npos || word.find('.') != word.npos) {
    all.scopes.push_back(word);
    return;
  }
  std::vector<std::string> known = recomputation_presets();
  known.insert(known.end(), {"none", "auto"});
  Error error(ErrorKind::Usage, "there is nothing named '" + word + "' to recompute");
  if (const std::string meant = did_you_mean(word, known); !meant.empty()) error.note(meant);
  error.note("names are " + comma_separated(known) + ", or a pattern of scopes: '*/mlp'");
  throw error;
}

bool is_activation(const Node& node) {
  const BlockPart part = part_of(node);
  return part == BlockPart::activation || node.op == Op::logistic ||
         (part == BlockPart::map && !node.attributes.text("activation", "").empty());
}
bool is_linear(const Node& node) { return part_of(node) == BlockPart::map; }
bool is_layout(const Node& node) { return op_row(node.op).family == Family::layout || node.op == Op::cast; }

// Finds the parts of transformer blocks in a program.
class BlockParts {
 public:
  explicit BlockParts(const Program& program)
      : program_(program), parts_(program.nodes.size(), 0), spine_(program.values.size(), false) {}

  std::vector<uint32_t> run() {
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& node = program_.nodes[i];
      if (!is_forward(program_, node)) continue;
      if (part_of(node) == BlockPart::norm) parts_[i] |= parts::norm;
      if (part_of(node) == BlockPart::attention) attention(i);
      if (is_activation(node)) activation(i);
      if (node.op == Op::mul) gated(i);
      if (node.op == Op::add) residual(i);
    }
    return std::move(parts_);
  }

 private:
  uint32_t maker(ValueId v) const { return program_.values[v].node; }
  const Node& node_of(ValueId v) const { return program_.nodes[maker(v)]; }
  bool is_source(ValueId v) const { return is_leaf(node_of(v).op) || is_constant(node_of(v).op); }

  // Marks the nodes that v depends on, back to linear maps, which are included if `linear_has_it`.
  void lead(ValueId v, uint32_t part, bool linear_has_it) {
    const uint32_t i = maker(v);
    if (is_source(v) || spine_[v] || (parts_[i] & part)) return;
    const Node& node = program_.nodes[i];
    if (is_linear(node)) {
      if (linear_has_it) parts_[i] |= part;
      return;
    }
    parts_[i] |= part;
    for (ValueId input : node.inputs) lead(input, part, linear_has_it);
  }
  void attention(uint32_t i) {
    parts_[i] |= parts::attention;
    const Node& node = program_.nodes[i];
    for (size_t k = 0; k < 3 && k < node.inputs.size(); ++k) lead(node.inputs[k], parts::qkv, true);
  }
  // Marks the linear map that computes v, and the layout operations and additions of a bias in between.
  void mark_linear(ValueId v) {
    while (!is_source(v) && !spine_[v]) {
      const uint32_t i = maker(v);
      const Node& node = program_.nodes[i];
      if (is_linear(node)) parts_[i] |= parts::ffn;
      if (!is_layout(node) && node.op != Op::add) return;
      parts_[i] |= parts::ffn;
      v = node.inputs[0];
    }
  }
  void activation(uint32_t i) {
    parts_[i] |= parts::activation;
    if (is_linear(program_.nodes[i]))
      parts_[i] |= parts::ffn;
    else
      mark_linear(program_.nodes[i].inputs[0]);
  }
  // Marks a gated product: an activation multiplied by the other half.
  void gated(uint32_t i) {
    const Node& node = program_.nodes[i];
    for (size_t k = 0; k < 2; ++k) {
      if (!(parts_[maker(behind_views(program_, node.inputs[k]))] & parts::activation)) continue;
      parts_[i] |= parts::activation;
      mark_linear(node.inputs[1 - k]);
      return;
    }
  }

  // Returns whether v depends on `of`.
  bool depends(ValueId v, ValueId of) const {
    std::vector<ValueId> open{v};
    std::vector<bool> seen(program_.nodes.size() - maker(of), false);
    while (!open.empty()) {
      const ValueId at = open.back();
      open.pop_back();
      if (at == of) return true;
      const uint32_t i = maker(at);
      if (i <= maker(of) || seen[i - maker(of)]) continue;
      seen[i - maker(of)] = true;
      for (ValueId input : program_.nodes[i].inputs) open.push_back(input);
    }
    return false;
  }
  // Marks the branch of a residual connection: a sum of a value and a value computed from it.
  void residual(uint32_t i) {
    const Node& node = program_.nodes[i];
    const ValueId a = node.inputs[0], b = node.inputs[1];
    if (a == b || program_.type(a).shape.rank() < 2 || is_source(a) || is_source(b)) return;
    ValueId branch = 0;
    if (spine_[a] || depends(b, a))
      branch = b, spine_[a] = true;
    else if (spine_[b] || depends(a, b))
      branch = a, spine_[b] = true;
    else
      return;
    spine_[node.outputs[0]] = true;
    if (spine_[branch]) return;
    lead_all(branch);
  }
  void lead_all(ValueId v) {
    const uint32_t i = maker(v);
    if (is_source(v) || spine_[v] || (parts_[i] & parts::branch)) return;
    parts_[i] |= parts::branch;
    for (ValueId input : program_.nodes[i].inputs) lead_all(input);
  }

  const Program& program_;
  std::vector<uint32_t> parts_;
  std::vector<bool> spine_;  // by value: part of the residual stream
};

// Returns a rough cost in nanoseconds, assuming 100 multiplications and 10 bytes per nanosecond.
double cost_of(const Program& program, const Node& node) {
  double bytes = 0, products = 0;
  for (ValueId v : node.inputs) bytes += static_cast<double>(program.type(v).bytes());
  for (ValueId v : node.outputs) bytes += static_cast<double>(program.type(v).bytes());
  const auto size = [&](ValueId v) { return static_cast<double>(program.type(v).shape.count()); };
  if (is_linear(node))
    products = size(node.outputs[0]) * static_cast<double>(program.type(node.inputs[0]).shape.back());
  else if (part_of(node) == BlockPart::attention)
    products =
        size(node.outputs[0]) * size(node.inputs[1]) / static_cast<double>(program.type(node.inputs[1]).shape[0]);
  else if (node.op == Op::dot || part_of(node) == BlockPart::convolution)
    products = std::sqrt(size(node.inputs[0]) * size(node.inputs[1]) * size(node.outputs[0]));
  return products / 100 + bytes / 10;
}

}  // namespace

const std::vector<std::string>& recomputation_presets() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Preset& preset : kPresets) all.emplace_back(preset.name);
    return all;
  }();
  return names;
}

Recomputation parse_recomputation(const std::string& text) {
  Recomputation all;
  if (text == "none") return all;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    read_one(text.substr(at, comma - at), all);
    at = comma + 1;
  }
  if (all.automatic && (all.parts != 0 || !all.scopes.empty()))
    throw Error(ErrorKind::Usage, "recompute is auto or a list of names, not both: '" + text + "'");
  return all;
}

std::vector<uint32_t> parts_of_blocks(const Program& program) { return BlockParts(program).run(); }

std::vector<bool> cheapest_nodes(const Program& program, const std::vector<uint32_t>& of_node, uint32_t sixteenths) {
  std::vector<std::pair<double, uint32_t>> all;  // cost per byte, node
  for (uint32_t i = 0; i < program.nodes.size(); ++i)
    if (of_node[i])
      all.emplace_back(cost_of(program, program.nodes[i]) /
                           (static_cast<double>(program.type(program.nodes[i].outputs[0]).bytes()) + 1),
                       i);
  std::sort(all.begin(), all.end());
  std::vector<bool> chosen(program.nodes.size(), false);
  for (size_t i = 0; i < all.size() * std::min(sixteenths, 16u) / 16; ++i) chosen[all[i].second] = true;
  return chosen;
}

}  // namespace harmonics::engine
