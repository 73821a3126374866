// Graph: one harmonic of a flow with its names resolved and every call bound to a registered function.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/source_text.hpp"
#include "engine/flow/flow.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/tensor/attributes.hpp"

namespace harmonics::engine {

class CalledModel;  // model_call.hpp

// One call of a tag: the function, its checked arguments, and the arguments that the engine itself handles.
struct BoundCall {
  ItemPtr item;
  Span span;
  AttributeMap arguments;                           // the function's own, defaults filled in
  std::vector<std::pair<std::string, int>> layers;  // arguments that name further sources: argument, node index
  // engine's arguments
  std::string parameter_name;  // name="x": shared under that name
  bool freeze = false;
  int tied = -1;                            // node whose incoming weight is used instead of a separate one
  std::string weights;                      // file of the initial parameters, as written
  double loss_weight = 1;                   // losses: weight=
  std::string only;                         // losses: only="disc*"
  std::optional<bool> bias;                 // activations of an implied affine map: bias=false
  std::shared_ptr<CalledModel> model = {};  // of the function model, else null
};

struct GraphEdge {
  int source = -1, target = -1;
  std::vector<BoundCall> calls;
  bool implied_affine = false;  // the learned map comes first
  bool is_stream = false;       // the target is the producer's stream itself: no weights
  std::string path;             // "source.target"
  Span span;
  int cycle = -1;             // -1: every cycle
  std::vector<int> branches;  // branch literals that must hold: 2*i for "then" of conditional i, 2*i+1 for its "else"
};

struct GraphTap {
  int layer = -1, target = -1;  // loss of `layer` against `target`
  std::vector<BoundCall> losses;
  Span span;
  int cycle = -1;
  std::vector<int> branches;
};

struct GraphNode {
  DeclarationKind kind;
  std::string name;
  Span span;
  std::vector<int64_t> shape;  // declared, -1 for '*'; empty with has_shape=false
  bool has_shape = false;
  std::optional<Ratio> ratio;
  int ratio_of = -1;
};

struct GraphConditional {
  Comparison metric;
  std::optional<BoundCall> predicate = std::nullopt;  // instead of the comparison
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
  std::vector<std::string> weights_folders;  // folders of files that calls name, besides the flow's own

  // Returns the path of the file in weights="...", or of a model's file or folder. Throws ErrorKind::Denied when the
  // flow may not name it.
  std::string weights_file(const BoundCall& call) const;
  std::string model_file(const BoundCall& call) const;
  // Likewise of another file that a call names; `spoken` for messages.
  std::string named_file(const BoundCall& call, const std::string& written, const std::string& spoken) const;

  // Place of a span in the flow, "net.hmx:9:3"; empty if it has none.
  std::string origin(Span span) const {
    if (!source || !span.line) return "";
    const std::string place = source->place(span);
    return place.substr(place.find_last_of('/') + 1);  // the file without its folders
  }

  int find(std::string_view name) const;  // -1: none
  bool trains(int cycle) const;
  std::vector<int> nodes_of(DeclarationKind kind) const;
  // For each node, the numbers of its incoming arrows, in order.
  std::vector<std::vector<size_t>> arrows_into() const;
  // Nodes in topological order.
  std::vector<int> order() const;
  // Layers of this cycle without an outgoing arrow in it.
  std::vector<int> terminal_layers(int cycle) const;
  // Producers that an arrow (with_taps: or a tap) of this cycle reads.
  std::vector<int> producers_used(int cycle, bool with_taps) const;
  // The branch literals of this cycle when all or none of its conditions hold.
  std::set<int> branches(int cycle, bool hold = true) const;
};

// Errors of the names of a harmonic, and the graph of what could be resolved.
class GraphErrors : public SourceErrors {
 public:
  struct Rest {
    Graph graph;                // without the refused arrows and taps
    std::set<int> refused;      // nodes whose shape a refused part may decide
    std::set<int> doubted;      // producers that a refused arrow or tap reads
    bool all_producers = true;  // false: text that could not be read may declare more
  };
  GraphErrors(std::vector<Error> errors, Rest rest)
      : SourceErrors(*rest.graph.source, std::move(errors)), rest_(std::make_shared<const Rest>(std::move(rest))) {}
  const Rest& rest() const { return *rest_; }

 private:
  std::shared_ptr<const Rest> rest_;
};

// Resolves one harmonic (by name; empty: the only one, or the first). Reports up to twenty errors at once
// (GraphErrors).
Graph make_graph(const Flow& flow, Registry& registry, const std::string& name = "");
// The certain errors of a harmonic of FlowErrors::read(), as make_graph would report them, and the rest.
struct Examined {
  std::vector<Error> errors;
  GraphErrors::Rest rest;
};
Examined examine(const Flow& flow, const Harmonic& harmonic, Registry& registry);

}  // namespace harmonics::engine
