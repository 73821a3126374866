// Graph: one harmonic of a flow with resolved names and every call bound to a registered function.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/source_text.hpp"
#include "engine/flow/flow.hpp"
#include "engine/flow/layer_change.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/tensor/attributes.hpp"

namespace harmonics::engine {

class CalledModel;  // model_call.hpp

// One call in a tag: the function, its checked arguments, and the arguments that the engine handles.
struct BoundCall {
  ItemPtr item;
  Span span;
  AttributeMap arguments;                           // arguments of the function, including defaults
  std::vector<std::pair<std::string, int>> layers;  // arguments that name further sources, with node indices
  // arguments handled by the engine
  std::string parameter_name;  // name="x": parameters are shared under this name
  bool freeze = false;
  int tied = -1;                            // node whose incoming weight this call uses; -1 for none
  std::string weights;                      // file of initial parameters, as written
  double loss_weight = 1;                   // losses: weight=
  std::string only;                         // losses: only="disc*"
  std::optional<bool> bias;                 // activations of an implied affine map: bias=false
  std::shared_ptr<CalledModel> model = {};  // for the function "model"; otherwise null
};

struct GraphEdge {
  int source = -1, target = -1;
  std::vector<BoundCall> calls;
  bool implied_affine = false;  // begins with the learned map
  bool is_stream = false;       // the target is the stream of a producer, without weights
  std::string path;             // "source.target"
  Span span;
  int cycle = -1;             // -1: every cycle
  std::vector<int> branches;  // branch literals that must hold: 2*i for "then" of conditional i, 2*i+1 for its "else"
};

struct GraphTap {
  int layer = -1, target = -1;  // the loss of `layer` against `target`
  std::vector<BoundCall> losses;
  Span span;
  int cycle = -1;
  std::vector<int> branches;
};

struct GraphNode {
  DeclarationKind kind;
  std::string name;
  Span span;
  std::vector<int64_t> shape;  // as declared, -1 for '*'; empty with has_shape=false
  bool has_shape = false;
  std::optional<Ratio> ratio;
  int ratio_of = -1;
};

struct GraphConditional {
  Comparison metric;
  std::optional<BoundCall> predicate = std::nullopt;  // replaces the comparison
  int cycle = -1;
};

struct CycleSettings {
  std::optional<double> seconds;
  std::optional<int64_t> epochs, steps;
  std::vector<Comparison> until;
  std::optional<int64_t> batch, seed;
  std::optional<double> lr, clip, clip_value;
  std::optional<int64_t> accumulate;
  std::optional<std::string> optimizer, schedule, unpaired;
  Span span;
};

struct Graph {
  std::shared_ptr<const SourceText> source;
  std::string name;
  std::vector<GraphNode> nodes;
  std::vector<GraphEdge> edges;
  std::vector<GraphTap> taps;
  std::vector<GraphConditional> conditionals;
  std::vector<CycleSettings> cycles;         // at least one
  std::vector<std::string> weights_folders;  // folders of files named by calls, besides the folder of the flow
  LayerChanges changes;                      // those of the flow by request

  // Return the path of the file in weights="...", or of the file or folder of a model. Throw ErrorKind::Denied if the
  // flow may not name it.
  std::string weights_file(const BoundCall& call) const;
  std::string model_file(const BoundCall& call) const;
  // Returns the path of another file named by a call; `spoken` is its description for messages.
  std::string named_file(const BoundCall& call, const std::string& written, const std::string& spoken) const;

  // Returns the location of a span in the flow, "net.hmx:9:3", or "" if there is none.
  std::string origin(Span span) const {
    if (!source || !span.line) return "";
    const std::string place = source->place(span);
    return place.substr(place.find_last_of('/') + 1);  // without folders
  }

  int find(std::string_view name) const;  // -1 if there is none
  bool trains(int cycle) const;
  std::vector<int> nodes_of(DeclarationKind kind) const;
  // Returns for each node the indices of its incoming arrows, in order.
  std::vector<std::vector<size_t>> arrows_into() const;
  // Returns the nodes in topological order. Nodes in loops, and after them, are missing.
  std::vector<int> order() const;
  // Returns the layers that have no outgoing arrow in this cycle.
  std::vector<int> terminal_layers(int cycle) const;
  // Returns the producers read by an arrow of this cycle or, if `with_taps`, by a tap.
  std::vector<int> producers_used(int cycle, bool with_taps) const;
  // Returns the branch literals of this cycle if all, or none, of its conditions hold.
  std::set<int> branches(int cycle, bool hold = true) const;
};

// The errors of a harmonic, and the graph of the parts that could be resolved.
class GraphErrors : public SourceErrors {
 public:
  struct Rest {
    Graph graph;                // without refused arrows and taps
    std::set<int> refused;      // nodes whose shape may depend on a refused part
    std::set<int> doubted;      // producers read by a refused arrow or tap
    bool all_producers = true;  // false: unread text may declare more
  };
  GraphErrors(std::vector<Error> errors, Rest rest)
      : SourceErrors(*rest.graph.source, std::move(errors)), rest_(std::make_shared<const Rest>(std::move(rest))) {}
  const Rest& rest() const { return *rest_; }

 private:
  std::shared_ptr<const Rest> rest_;
};

// Resolves one harmonic by name; "" selects the first. Throws up to twenty errors at once (GraphErrors).
Graph make_graph(const Flow& flow, Registry& registry, const std::string& name = "");
// The certain errors of a harmonic of FlowErrors::read(), as reported by make_graph(), and the rest of the graph.
struct Examined {
  std::vector<Error> errors;
  GraphErrors::Rest rest;
};
Examined examine(const Flow& flow, const Harmonic& harmonic, Registry& registry);

}  // namespace harmonics::engine
