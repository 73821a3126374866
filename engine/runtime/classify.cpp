#include "engine/runtime/classify.hpp"

#include <algorithm>
#include <cmath>

namespace harmonics {

namespace {

// Rows and columns when a sample is one picture: [h, w], [1, h, w], or a flat square.
std::pair<int64_t, int64_t> picture(const Shape& s) {
  if (s.rank() == 2) return {s[0], s[1]};
  if (s.rank() == 3 && s[0] == 1) return {s[1], s[2]};
  if (s.rank() != 1) return {0, 0};
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(s[0]))));
  return side > 3 && side * side == s[0] ? std::pair{side, side} : std::pair<int64_t, int64_t>{0, 0};
}

int tapped_classes(const Graph& graph, int layer) {
  for (const GraphTap& t : graph.taps)
    if (t.layer == layer)
      for (const BoundCall& c : t.losses)
        if (c.item->flags & HX_TAKES_CLASSES) return t.target;
  return -1;
}

}  // namespace

std::vector<Classified> classify_images(HarmonicGraph& graph, StreamSet& streams, int64_t count, const RunSettings& settings) {
  const Graph& g = graph.graph();
  std::vector<Classified> examples;
  const std::vector<int> producers = g.producers_used(0, true);
  int image = -1, layer = -1, labels = -1;
  for (int n : g.producers_used(0, false))
    if (streams.bound(n) && graph.types().at(n).positions == 0 && picture(graph.types().at(n).sample).first > 0) image = n;
  for (const GraphTap& t : g.taps)
    if (t.cycle == 0 && tapped_classes(g, t.layer) >= 0) layer = t.layer, labels = t.target;
  if (image < 0 || layer < 0 || !std::all_of(producers.begin(), producers.end(), [&](int n) { return streams.bound(n); })) return examples;
  // A stream that was read to its end for good has nothing left to show.
  if (std::any_of(producers.begin(), producers.end(), [&](int n) { return streams.source(n).info().live || streams.source(n).info().size == 0; })) return examples;
  check_same_samples(g, graph.types(), streams.types(g));

  std::unique_ptr<JointReader> reader = streams.reader(g, producers, static_cast<uint64_t>(count), false, 0);
  reader->begin(0);
  std::vector<std::shared_ptr<Storage>> buffers;
  std::vector<void*> targets;
  for (size_t i = 0; i < producers.size(); ++i) {
    buffers.push_back(std::make_shared<Storage>(reader->bytes(i) * static_cast<size_t>(count)));
    targets.push_back(buffers.back()->data());
  }
  const auto got = static_cast<int64_t>(reader->read(targets.data()));
  if (got == 0) return examples;

  LoweringOptions o;
  o.mode = Mode::infer;
  o.batch = got;
  o.wanted = {layer};
  for (size_t i = 0; i < g.conditionals.size(); ++i)
    if (g.conditionals[i].cycle == 0) o.branches.insert(static_cast<int>(2 * i));
  const CompileOptions c = graph.compile_options(settings);
  Lowered lowered = graph.lower(o);
  if (!lowered.values.count(layer)) return examples;  // driven in another branch only
  CompiledStep step(std::move(lowered), graph.store(), graph.executor(settings.threads), c);
  std::vector<const void*> inputs;
  for (int n : step.lowered().inputs) inputs.push_back(targets[static_cast<size_t>(std::find(producers.begin(), producers.end(), n) - producers.begin())]);
  step.check_indices(inputs.data());
  step.set(inputs.data(), 0, 1, 0);
  step.run();
  const auto value_of = [&](int n) { return view_of({graph.types().at(n).dtype, [&] {
                                                       Shape s{got};
                                                       for (int64_t d : graph.types().at(n).sample) s.push_back(d);
                                                       return s;
                                                     }()}, targets[static_cast<size_t>(std::find(producers.begin(), producers.end(), n) - producers.begin())]); };
  const HTensor pixels = cast(value_of(image), DType::F32);
  const bool known = g.nodes[static_cast<size_t>(labels)].kind == DeclarationKind::Producer && is_integer(graph.types().at(labels).dtype) && graph.types().at(labels).sample.rank() == 0;
  const HTensor truth = known ? cast(value_of(labels), DType::I64) : HTensor();
  const HTensor scores = step.executable().output(step.lowered().values.at(layer));
  const int64_t classes = scores.shape().back(), size = pixels.size() / got;
  const auto [rows, columns] = picture(graph.types().at(image).sample);
  for (int64_t i = 0; i < got; ++i) {
    const float* row = scores.data<float>() + i * classes;
    Classified e;
    e.pixels.assign(pixels.data<float>() + i * size, pixels.data<float>() + (i + 1) * size);
    e.rows = rows;
    e.columns = columns;
    e.predicted = classes == 1 ? row[0] > 0.5f : std::max_element(row, row + classes) - row;  // one: the probability of the second of two
    if (known) e.label = truth.data<int64_t>()[i];
    examples.push_back(std::move(e));
  }
  return examples;
}

}  // namespace harmonics
