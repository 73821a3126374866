#include <algorithm>
#include <map>

#include "engine/passes/pass.hpp"
#include "engine/passes/uses.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

// A linear map whose scores are only read by a cross entropy and its gradient.
struct ScoredLoss {
  uint32_t loss = 0;          // the node of the cross entropy
  FunctionalPtr joined = {};  // its replacement
  const Node* linear = nullptr;
  ValueId dloss = 0;
  bool learns = false;                  // the program contains the gradient
  std::optional<ValueId> gradients[3];  // of x, weight and bias
  std::vector<uint32_t> replaced;       // further replaced nodes
  std::vector<uint32_t> earlier;        // nodes after the cross entropy that compute dloss
};

class ScoreFinder {
 public:
  ScoreFinder(const Program& program, const Uses& uses) : program_(program), uses_(uses) {}

  std::optional<ScoredLoss> find(uint32_t index, uint64_t least_bytes) const {
    const Node& loss = program_.nodes[index];
    if (loss.op != Op::call || loss.inputs.size() != 2 || loss.outputs.size() != 2) return {};
    const ValueId scores = loss.inputs[0], lse = loss.outputs[1];
    const Node& linear = program_.producer(scores);
    if (program_.type(scores).bytes() < least_bytes || !is_plain(linear) || uses_.is_result(scores) ||
        uses_.is_result(lse))
      return {};
    ScoredLoss found;
    found.loss = index;
    found.linear = &linear;
    found.joined = joined_call(linear.callee, loss.callee);
    if (!found.joined) return {};
    uint32_t gradient = 0;
    for (const ValueId v : {scores, lse})
      for (const uint32_t reader : uses_.readers(v)) {
        if (reader == index) continue;
        if (found.learns ? reader != gradient : !is_gradient(program_.nodes[reader], loss)) return {};
        gradient = reader;
        found.learns = true;
      }
    if (!found.learns) return found;
    const Node& back = program_.nodes[gradient];
    found.joined = joined_call(linear.callee, back.callee);
    if (!found.joined) return {};
    if (back.inputs[0] != scores || uses_.is_result(back.outputs[0])) return {};
    found.dloss = back.inputs[3];
    for (const uint32_t reader : uses_.readers(back.outputs[0]))
      if (!take_product(found, program_.nodes[reader], reader, back.outputs[0])) return {};
    if (!take_earlier(found, gradient)) return {};
    return found;
  }

 private:
  bool is_plain(const Node& node) const {
    if (node.op != Op::call) return false;
    for (const auto& [name, value] : node.attributes.entries())
      if (name != "batch_invariant") return false;
    const DType x = program_.type(node.inputs[0]).dtype, weight = program_.type(node.inputs[1]).dtype;
    const bool frozen = x == DType::F32 && (weight == DType::F16 || weight == DType::BF16 || is_stored(weight));
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (program_.type(node.inputs[i]).dtype != x && !(i == 1 && frozen)) return false;
    return is_float(x);
  }
  static bool is_gradient(const Node& node, const Node& loss) {
    return node.op == Op::call && node.inputs.size() == 4 && node.inputs[0] == loss.inputs[0] &&
           node.inputs[1] == loss.inputs[1] && node.inputs[2] == loss.outputs[1];
  }

  // Returns whether the node computes the gradient of x by a product that decodes the weight.
  static bool decodes(const Node& node, const Node& linear, ValueId dscores) {
    return node.op == Op::call && node.callee == linear.callee &&
           node.inputs == std::vector<ValueId>{dscores, linear.inputs[1]} &&
           node.attributes == AttributeMap().set("transposed", true);
  }

  // Adds a reader of the scores' gradient. Returns false unless it computes the gradient of x, weight or bias.
  bool take_product(ScoredLoss& found, const Node& node, uint32_t index, ValueId dscores) const {
    const Node& linear = *found.linear;
    std::vector<int64_t> leading(program_.type(dscores).shape.rank() - 1);
    for (size_t i = 0; i < leading.size(); ++i) leading[i] = static_cast<int64_t>(i);
    const std::vector<int64_t> last{static_cast<int64_t>(leading.size())};
    const auto contracts = [&](const std::vector<int64_t>& lhs, const std::vector<int64_t>& rhs) {
      return is_usual_product(program_, node) && node.inputs[0] == dscores &&
             node.attributes.integers("lhs_contract") == lhs && node.attributes.integers("rhs_contract") == rhs;
    };
    size_t of = linear.inputs.size();  // index of the operand whose gradient this is
    if (node.op == Op::dot && node.inputs[1] == linear.inputs[1] && contracts(last, {0}))
      of = 0;
    else if (decodes(node, linear, dscores))
      of = 0;
    else if (node.op == Op::dot && node.inputs[1] == linear.inputs[0] && contracts(leading, leading))
      of = 1;
    else if (node.op == Op::reduce_sum && node.attributes.integers("axes") == leading)
      of = 2;
    if (of >= linear.inputs.size() || found.gradients[of] ||
        program_.type(node.outputs[0]) != program_.type(linear.inputs[of]))
      return false;
    found.gradients[of] = node.outputs[0];
    found.replaced.push_back(index);
    return true;
  }

  // Collects the nodes after the loss that compute dloss. Returns false if they depend on the loss or on plugin code.
  bool take_earlier(ScoredLoss& found, uint32_t end) const {
    std::vector<bool> seen(end + 1, false);
    std::vector<ValueId> open{found.dloss};
    while (!open.empty()) {
      const uint32_t i = program_.values[open.back()].node;
      open.pop_back();
      if (i < found.loss || seen[i]) continue;
      if (i == found.loss || program_.nodes[i].op == Op::host_call) return false;
      seen[i] = true;
      found.earlier.push_back(i);
      for (ValueId v : program_.nodes[i].inputs) open.push_back(v);
    }
    std::sort(found.earlier.begin(), found.earlier.end());
    return true;
  }

  const Program& program_;
  const Uses& uses_;
};

class ScoreChunker {
 public:
  ScoreChunker(const Program& program, uint64_t least_bytes) : program_(program), uses_(program), rewriter_(program) {
    const ScoreFinder finder(program, uses_);
    for (uint32_t i = 0; i < program.nodes.size(); ++i)
      if (auto found = finder.find(i, least_bytes)) found_.emplace(i, std::move(*found));
  }

  Program run() {
    if (found_.empty()) return program_;
    std::vector<bool> done(program_.nodes.size(), false);
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      if (done[i]) continue;
      const auto at = found_.find(i);
      if (at == found_.end()) {
        rewriter_.copy(program_.nodes[i]);
        continue;
      }
      for (const uint32_t earlier : at->second.earlier) {
        if (!done[earlier]) copy_forward(program_.nodes[earlier]);
        done[earlier] = true;
      }
      replace(at->second);
      for (const uint32_t replaced : at->second.replaced) done[replaced] = true;
    }
    return dce(rewriter_.finish());
  }

 private:
  // Copies a node into the loss phase, because the joined call in that phase reads it.
  void copy_forward(const Node& node) {
    Node moved = rewriter_.prepared(node);
    const NodeScope& of = program_.scope_of(node);
    moved.scope = rewriter_.to().scope_index({of.path, Phase::loss, of.origin, of.rounding});
    rewriter_.put(std::move(moved), node);
  }

  void replace(const ScoredLoss& found) {
    const Node &loss = program_.nodes[found.loss], &linear = *found.linear;
    const NodeScope &of = program_.scope_of(loss), &of_linear = program_.scope_of(linear);
    Node call;
    call.op = Op::call;
    call.callee = found.joined->name;
    call.scope = rewriter_.to().scope_index({of.path, of.phase, of.origin, of_linear.rounding});
    call.inputs = {linear.inputs[0], linear.inputs[1], loss.inputs[1]};
    if (found.learns) call.inputs.push_back(found.dloss);
    if (linear.inputs.size() == 3) call.inputs.push_back(linear.inputs[2]);
    for (ValueId& v : call.inputs) v = rewriter_.mapped(v);
    std::vector<TensorType> types{program_.type(loss.outputs[0])};
    const bool frozen = found.learns && !found.gradients[1] && !found.gradients[2];
    if (frozen) call.attributes.set("frozen", true);
    std::vector<size_t> operands;  // operands whose gradients the call returns: not that of a weight of a stored type
    for (size_t i = 0; found.learns && i < linear.inputs.size(); ++i) {
      const TensorType type = program_.type(linear.inputs[i]);
      if ((frozen && i > 0) || is_stored(type.dtype)) continue;
      types.push_back(type);
      operands.push_back(i);
    }
    if (!found.learns) types.push_back(program_.type(loss.outputs[1]));
    const uint32_t made = rewriter_.to().append(std::move(call), types);
    const std::vector<ValueId> results = rewriter_.to().nodes[made].outputs;
    rewriter_.map(loss.outputs[0], results[0]);
    if (!found.learns) {
      rewriter_.map(loss.outputs[1], results[1]);
      return;
    }
    rewriter_.map(loss.outputs[1], results[0]);  // only read by the removed gradient
    for (size_t i = 0; i < operands.size(); ++i)
      if (found.gradients[operands[i]]) rewriter_.map(*found.gradients[operands[i]], results[i + 1]);
  }

  const Program& program_;
  const Uses uses_;
  Rewriter rewriter_;
  std::map<uint32_t, ScoredLoss> found_;  // by loss node
};

}  // namespace

Program chunk_scores(const Program& program, uint64_t least_bytes) { return ScoreChunker(program, least_bytes).run(); }

}  // namespace harmonics::engine
