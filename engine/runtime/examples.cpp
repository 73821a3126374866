#include "engine/runtime/examples.hpp"

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

// The first samples of joined streams, in memory.
class FirstSamples {
 public:
  FirstSamples(HarmonicGraph& graph, StreamSet& streams, const std::vector<int>& producers, int64_t count) : producers_(producers) {
    std::unique_ptr<JointReader> reader = streams.reader(graph.graph(), producers, static_cast<uint64_t>(count), false, 0);
    reader->begin(0);
    for (size_t i = 0; i < producers.size(); ++i) {
      buffers_.push_back(std::make_shared<Storage>(reader->bytes(i) * static_cast<size_t>(count)));
      targets_.push_back(buffers_.back()->data());
    }
    count_ = static_cast<int64_t>(reader->read(targets_.data()));
  }
  int64_t count() const { return count_; }
  void* of(int producer) const { return targets_[static_cast<size_t>(std::find(producers_.begin(), producers_.end(), producer) - producers_.begin())]; }

 private:
  std::vector<int> producers_;
  std::vector<std::shared_ptr<Storage>> buffers_;
  std::vector<void*> targets_;
  int64_t count_ = 0;
};

bool can_be_read(const Graph& g, StreamSet& streams, const std::vector<int>& producers) {
  if (g.taps.empty()) return false;
  return std::all_of(producers.begin(), producers.end(), [&](int n) { return streams.bound(n) && !streams.source(n).info().live && streams.source(n).info().size > 0; });
}

void add_pixels(Examples& examples, HarmonicGraph& graph, int image, const FirstSamples& first) {
  const StreamType& type = graph.types().at(image);
  Shape batched{first.count()};
  for (int64_t d : type.sample) batched.push_back(d);
  const HTensor pixels = cast(view_of({type.dtype, batched}, first.of(image)), DType::F32);
  const int64_t size = pixels.size() / first.count();
  const auto [rows, columns] = picture(type.sample);
  for (int64_t i = 0; i < first.count(); ++i) {
    Example& e = examples.samples[static_cast<size_t>(i)];
    e.pixels.assign(pixels.data<float>() + i * size, pixels.data<float>() + (i + 1) * size);
    e.rows = rows;
    e.columns = columns;
  }
}

void add_predictions(Examples& examples, const CompiledStep& step, const LossInfo& info) {
  const Judged& j = *info.judged;
  const float* p = step.executable().output(info.name + ".prediction").data<float>();
  const HTensor& target = step.executable().output(info.name + ".target");
  for (int64_t i = 0; i < j.rows; ++i) {
    Example e;
    const float* row = p + i * j.outputs;
    e.prediction.assign(row, row + j.outputs);
    if (j.classes) {
      e.label = target.data<int32_t>()[i];
      e.predicted = j.outputs == 1 ? row[0] > 0.5f : std::max_element(row, row + j.outputs) - row;
    } else {
      e.target.assign(target.data<float>() + i * j.outputs, target.data<float>() + (i + 1) * j.outputs);
    }
    examples.samples.push_back(std::move(e));
  }
}

}  // namespace

Examples examples_of(HarmonicGraph& graph, StreamSet& streams, int64_t count, const RunSettings& settings) {
  const Graph& g = graph.graph();
  Examples examples;
  const std::vector<int> producers = g.producers_used(0, true);
  if (!can_be_read(g, streams, producers)) return examples;
  check_same_samples(g, graph.types(), streams.types(g));
  const FirstSamples first(graph, streams, producers, count);
  if (first.count() == 0) return examples;

  LoweringOptions o;
  o.mode = Mode::evaluate;
  o.batch = first.count();
  o.judge = true;
  o.branches = g.branches(0);
  const CompileOptions c = graph.compile_options(settings);
  Lowered lowered = graph.lower(o);
  const auto found = std::find_if(lowered.losses.begin(), lowered.losses.end(), [&](const LossInfo& info) { return info.judged && info.judged->rows == first.count(); });
  if (found == lowered.losses.end()) return examples;  // sequences, or driven in another branch only
  const LossInfo info = *found;
  CompiledStep step(std::move(lowered), graph.store(), graph.executor(settings.threads), c);
  std::vector<const void*> inputs;
  for (int n : step.lowered().inputs) inputs.push_back(first.of(n));
  step.check_indices(inputs.data());
  step.set(inputs.data(), 0, 1, 0);
  step.run();
  examples.layer = info.name;
  examples.classes = info.judged->classes;
  if (examples.classes) examples.names = class_names(graph, info.name);
  add_predictions(examples, step, info);
  for (int n : g.producers_used(0, false))
    if (graph.types().at(n).positions == 0 && picture(graph.types().at(n).sample).first > 0) {
      add_pixels(examples, graph, n, first);
      break;
    }
  return examples;
}

std::vector<std::string> class_names(HarmonicGraph& graph, const std::string& layer) {
  for (const GraphTap& t : graph.graph().taps)
    if (graph.graph().nodes[static_cast<size_t>(t.layer)].name == layer)
      if (const auto it = graph.types().find(t.target); it != graph.types().end() && !it->second.symbols.empty()) return it->second.symbols;
  return {};
}

}  // namespace harmonics
