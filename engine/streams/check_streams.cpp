#include "engine/streams/check_streams.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

std::string text_of(const StreamType& t) {
  return t.sample.rank() == 0 ? std::string(dtype_name(t.dtype)) : TensorType{t.dtype, t.sample}.str();
}

bool compares_classes(const GraphTap& tap) {
  return std::any_of(tap.losses.begin(), tap.losses.end(), [](const BoundCall& c) {
    return (c.item->flags & HX_TAKES_CLASSES) && !(c.item->flags & HX_SHIFTS_TARGET);
  });
}

class Checker {
 public:
  Checker(const Graph& graph, const std::map<int, StreamType>& streams) : graph_(graph), streams_(streams) {}

  void run() const {
    for (const GraphTap& tap : graph_.taps) {
      const StreamType* target = undeclared(tap.target);
      if (!target || !compares_classes(tap)) continue;
      exchanged(tap, *target);
      real_numbers(tap, *target);
    }
  }

 private:
  const GraphNode& node(int n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  // Returns the stream type of a producer without a declared shape, null for every other node.
  const StreamType* undeclared(int n) const {
    const auto it = streams_.find(n);
    return node(n).kind == DeclarationKind::Producer && !node(n).has_shape && it != streams_.end() ? &it->second
                                                                                                   : nullptr;
  }

  // Throws if the streams look swapped: class numbers as input, and whole samples where classes are expected.
  void exchanged(const GraphTap& tap, const StreamType& target) const {
    if (target.sample.count() < 2 || target.positions > 0) return;
    for (const GraphEdge& e : graph_.edges) {
      const StreamType* source = undeclared(e.source);
      if (!source || e.source == tap.target || source->classes == 0 || source->sample.rank() != 0 ||
          !(e.is_stream || e.implied_affine))
        continue;
      throw Error(
          ErrorKind::Stream,
          fmt::format("'{}' gives class numbers ({} of them) as input, and '{}' gives {} as classes to compare with",
                      node(e.source).name, source->classes, node(tap.target).name, text_of(target)),
          tap.span,
          {fmt::format("exchange their addresses: --producer {}=... --producer {}=...", node(e.source).name,
                       node(tap.target).name),
           fmt::format("if this is intended, declare the shape: producer {} {{{}}};", node(tap.target).name,
                       target.sample.count())});
    }
  }

  void real_numbers(const GraphTap& tap, const StreamType& target) const {
    const GraphNode& layer = node(tap.layer);
    int64_t width = layer.has_shape ? 1 : 0;
    for (int64_t d : layer.shape) width *= d;  // cannot overflow: make_graph checked the product
    if (is_integer(target.dtype) || target.sample.count() != 1 || width < 2) return;
    throw Error(ErrorKind::Stream,
                fmt::format("'{}' gives real numbers ({}), '{}' compares {} classes by whole numbers",
                            node(tap.target).name, text_of(target), layer.name, width),
                tap.span,
                {fmt::format("give class numbers from 0 to {}, or compare numbers: {} <-(mse)- {};", width - 1,
                             layer.name, node(tap.target).name)});
  }

  const Graph& graph_;
  const std::map<int, StreamType>& streams_;
};

}  // namespace

void check_meaning(const Graph& graph, const std::map<int, StreamType>& streams) { Checker(graph, streams).run(); }

}  // namespace harmonics::engine
