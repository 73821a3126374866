// How a graph uses the samples of its producers, and their declared types.
#include <algorithm>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/quantity.hpp>

#include "engine/flow/declared_shape.hpp"
#include "engine/flow/lowering.hpp"
#include "engine/flow/model_call.hpp"

namespace harmonics::engine {

StreamUse use_of(const Graph& graph, int producer) {
  StreamUse use;
  std::vector<int> carriers{producer};  // the producer and the layers that are its stream
  for (size_t i = 0; i < carriers.size(); ++i) {
    for (const GraphEdge& e : graph.edges) {
      for (const BoundCall& c : e.calls)
        use.tokens = use.tokens || (c.model && std::any_of(c.layers.begin(), c.layers.end(), [&](const auto& layer) {
                                      return layer.second == carriers[i];
                                    }));
      if (e.source != carriers[i]) continue;
      use.tokens = use.tokens || (!e.calls.empty() && e.calls.front().model);
      if (e.is_stream && e.calls.empty())
        carriers.push_back(e.target);
      else
        (!e.calls.empty() && (e.calls.front().item->flags & HX_TAKES_CLASSES) ? use.looked_up : use.computed) = true;
    }
    for (const GraphTap& t : graph.taps)
      if (t.target == carriers[i] && std::any_of(t.losses.begin(), t.losses.end(),
                                                 [](const BoundCall& c) { return c.item->flags & HX_TAKES_CLASSES; })) {
        use.compared = true;
        use.tokens = use.tokens || ends_in_model(graph, t.layer);
      }
  }
  return use;
}

bool read_as_numbers(const Graph& graph, int producer, const StreamType& type) {
  const StreamUse use = use_of(graph, producer);
  const bool tapped =
      std::any_of(graph.taps.begin(), graph.taps.end(), [&](const GraphTap& t) { return t.target == producer; });
  return use.computed || (tapped && (!use.compared || type.sample.rank() > type.positions));
}

namespace {

// Interprets {10} and {*, 10} on class numbers as a number of classes. Returns nothing if the declaration is a shape.
std::optional<StreamType> declared_classes(const GraphNode& node, const StreamType& source, const StreamUse& use) {
  const bool sequence = node.shape.front() < 0;
  const int64_t classes = node.shape.back();
  const bool one_number = use.compared && classes == 1;  // one class number per sample
  if (!is_integer(source.dtype) || node.shape.size() != (sequence ? 2u : 1u)) return std::nullopt;
  if (!one_number && !(classes > 1 && (use.compared || use.looked_up))) return std::nullopt;
  StreamType s = source;
  if (sequence) s.positions = 1;
  if (s.sample.rank() == s.positions + 1 && s.sample.back() == 1) s.sample = s.sample.slice(0, s.positions);
  if (sequence && s.sample.rank() == 0) s.sample = Shape{1};
  if (s.sample.rank() != s.positions) return std::nullopt;
  if (one_number) return s;
  if (s.classes > classes)
    throw Error(ErrorKind::Shape,
                fmt::format("producer '{}' is declared with {}, its source has {}", node.name,
                            quantity(classes, "class", "classes"), s.classes),
                node.span, {fmt::format("declare {{{}}}, or correct the class numbers of the source", s.classes)});
  s.classes = classes;
  return s;
}

}  // namespace

StreamType declared_stream(const GraphNode& node, const StreamType& source, const StreamUse& use) {
  StreamType s = source;
  if (!node.has_shape) {
    if (use.tokens && is_integer(s.dtype) && s.sample.rank() == 1 && s.positions == 0) s.positions = 1;
    if (use.compared && is_integer(s.dtype) && s.sample.rank() == s.positions + 1 && s.sample.back() == 1)
      s.sample = s.sample.slice(0, s.positions);
    return s;
  }
  if (auto classes = declared_classes(node, source, use)) return *classes;
  const std::vector<int64_t>& dims = node.shape;
  const bool sequence = dims.front() < 0;
  const int64_t per_position = declared_values(dims);
  Shape shape;
  if (sequence) {
    if (per_position == 0 || s.sample.count() % per_position != 0)
      throw Error(
          ErrorKind::Shape,
          fmt::format("producer '{}' is declared {}, its samples of shape {} do not divide into positions of {} values",
                      node.name, shape_text(dims), s.sample.str(), per_position),
          node.span);
    shape.push_back(s.sample.count() / per_position);
  } else if (per_position != s.sample.count()) {
    const bool labels = use.compared && !use.computed && s.sample.count() == 1 && !is_integer(s.dtype);
    throw Error(
        ErrorKind::Shape,
        fmt::format("producer '{}' is declared {} = {}, its samples have shape {} = {}", node.name, shape_text(dims),
                    quantity(per_position, "value"), s.sample.str(), quantity(s.sample.count(), "value")),
        node.span,
        {labels ? fmt::format("class numbers are integers, but these samples are {}: convert them, as with "
                              "array.astype('i8') in NumPy",
                              element_type(s.dtype).name)
                : std::string("a declared shape rearranges a sample's values, so the counts must be equal")});
  }
  for (int64_t d : dims)
    if (d >= 0) shape.push_back(d);
  s.sample = shape;
  s.positions = sequence ? 1 : 0;
  return s;
}

}  // namespace harmonics::engine
