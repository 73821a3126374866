#include "engine/measure/examples.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace harmonics::engine {

namespace {

// Returns rows and columns if a sample is one picture: [h, w], [1, h, w], or a flat square.
std::pair<int64_t, int64_t> picture(const Shape& s) {
  if (s.rank() == 2) return {s[0], s[1]};
  if (s.rank() == 3 && s[0] == 1) return {s[1], s[2]};
  if (s.rank() != 1) return {0, 0};
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(s[0]))));
  return side > 3 && side * side == s[0] ? std::pair{side, side} : std::pair<int64_t, int64_t>{0, 0};
}

// Reads joined streams a few samples at a time.
class Pieces {
 public:
  Pieces(BoundGraph& graph, StreamSet& streams, const std::vector<int>& producers, int64_t each)
      : producers_(producers),
        reader_(streams.reader(graph.graph(), producers, static_cast<uint64_t>(each), false, 0)) {
    reader_->begin(0);
    for (size_t i = 0; i < producers.size(); ++i) {
      buffers_.push_back(std::make_shared<Storage>(reader_->bytes(i) * static_cast<size_t>(each)));
      targets_.push_back(buffers_.back()->data());
    }
  }
  int64_t next() { return count_ = static_cast<int64_t>(reader_->read(targets_.data())); }
  int64_t count() const { return count_; }
  void* of(int producer) const {
    return targets_[static_cast<size_t>(std::find(producers_.begin(), producers_.end(), producer) -
                                        producers_.begin())];
  }

 private:
  std::vector<int> producers_;
  std::unique_ptr<JointReader> reader_;
  std::vector<std::shared_ptr<Storage>> buffers_;
  std::vector<void*> targets_;
  int64_t count_ = 0;
};

bool can_be_read(const Graph& g, StreamSet& streams, const std::vector<int>& producers) {
  if (g.taps.empty()) return false;
  return std::all_of(producers.begin(), producers.end(), [&](int n) {
    return streams.bound(n) && !streams.source(n).info().live && streams.source(n).info().size > 0;
  });
}

// Returns the producer whose samples are pictures; -1 if there is none.
int image_of(BoundGraph& graph) {
  for (int n : graph.graph().producers_used(0, false))
    if (graph.types().at(n).positions == 0 && picture(graph.types().at(n).sample).first > 0) return n;
  return -1;
}

void add_pixels(Example& e, BoundGraph& graph, int image, const Pieces& pieces, int64_t at) {
  if (image < 0) return;
  const StreamType& type = graph.types().at(image);
  const size_t bytes = type.sample.count() * dtype_bytes(type.dtype);
  const HTensor pixels = cast(
      view_of({type.dtype, type.sample}, static_cast<std::byte*>(pieces.of(image)) + static_cast<size_t>(at) * bytes),
      DType::F32);
  e.pixels.assign(pixels.data<float>(), pixels.data<float>() + pixels.size());
  std::tie(e.rows, e.columns) = picture(type.sample);
}

Example example_at(const CompiledStep& step, const LossInfo& info, int64_t i) {
  const MetricInputs& j = *info.metric_inputs;
  const float* row = step.executable().output(info.name + ".prediction").data<float>() + i * j.outputs;
  const HTensor& target = step.executable().output(info.name + ".target");
  Example e;
  e.prediction.assign(row, row + j.outputs);
  if (j.classes) {
    e.label = target.data<int32_t>()[i];
    e.predicted = j.outputs == 1 ? row[0] > 0.5f : std::max_element(row, row + j.outputs) - row;
    const bool known = e.label >= 0 && e.label < std::max<int64_t>(j.outputs, 2);
    if (e.predicted != e.label && known)
      e.badness = j.outputs == 1 ? std::abs(row[0] - static_cast<float>(e.label)) : row[e.predicted] - row[e.label];
  } else {
    e.target.assign(target.data<float>() + i * j.outputs, target.data<float>() + (i + 1) * j.outputs);
    for (size_t k = 0; k < e.target.size(); ++k)
      e.badness += std::pow(e.prediction[k] - e.target[k], 2) / static_cast<double>(e.target.size());
  }
  return e;
}

// Keeps the `count` worst, the worst first; of equals the earlier.
void keep_worst(std::vector<Example>& worst, Example e, size_t count) {
  if (!(e.badness > 0) || (worst.size() == count && worst.back().badness >= e.badness)) return;
  const auto at = std::upper_bound(worst.begin(), worst.end(), e,
                                   [](const Example& a, const Example& b) { return a.badness > b.badness; });
  worst.insert(at, std::move(e));
  if (worst.size() > count) worst.pop_back();
}

}  // namespace

Examples examples_of(BoundGraph& graph, StreamSet& streams, int64_t count, const RunSettings& settings) {
  const Graph& g = graph.graph();
  Examples examples;
  const std::vector<int> producers = g.producers_used(0, true);
  if (!can_be_read(g, streams, producers)) return examples;
  check_same_samples(g, graph.types(), streams.types(g));
  constexpr int64_t kJudged = 2000, kEach = 60;
  Pieces pieces(graph, streams, producers, std::min(count, kEach));
  if (pieces.next() == 0) return examples;

  LoweringOptions o;
  o.mode = Mode::evaluate;
  o.batch = pieces.count();
  o.metric_inputs = true;
  o.branches = g.branches(0);
  const CompileOptions c = graph.compile_options(settings);
  Lowered lowered = graph.lower(o);
  const auto found = std::find_if(lowered.losses.begin(), lowered.losses.end(), [&](const LossInfo& info) {
    return info.metric_inputs && info.metric_inputs->rows == pieces.count();
  });
  if (found == lowered.losses.end()) return examples;  // sequences, or a layer driven only in another branch
  const LossInfo info = *found;
  CompiledStep step(std::move(lowered), graph.store(), graph.executor(settings.threads), c);
  std::vector<const void*> inputs;
  for (int n : step.lowered().inputs) inputs.push_back(pieces.of(n));
  examples.layer = info.name;
  examples.classes = info.metric_inputs->classes;
  if (examples.classes) examples.names = class_names(graph, info.name);
  const int image = image_of(graph);
  do {
    step.check_indices(inputs.data());
    step.set(inputs.data(), 0, 1, 0);
    step.run();
    for (int64_t i = 0; i < o.batch; ++i) {
      Example e = example_at(step, info, i);
      e.number = examples.judged++;
      const bool first = static_cast<int64_t>(examples.samples.size()) < count;
      const bool bad = e.badness > 0 && (static_cast<int64_t>(examples.worst.size()) < count ||
                                         e.badness > examples.worst.back().badness);
      if (first || bad) add_pixels(e, graph, image, pieces, i);
      if (first) examples.samples.push_back(e);
      keep_worst(examples.worst, std::move(e), static_cast<size_t>(count));
    }
  } while (examples.judged < kJudged && pieces.next() == o.batch);  // a shorter last batch would need another program
  return examples;
}

std::vector<std::string> class_names(BoundGraph& graph, const std::string& layer) {
  for (const GraphTap& t : graph.graph().taps)
    if (graph.graph().nodes[static_cast<size_t>(t.layer)].name == layer)
      if (const auto it = graph.types().find(t.target); it != graph.types().end() && !it->second.symbols.empty())
        return it->second.symbols;
  return {};
}

}  // namespace harmonics::engine
