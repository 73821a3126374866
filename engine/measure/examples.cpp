#include "engine/measure/examples.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace harmonics::engine {

namespace {

// Returns the image layout of a sample: [h, w], one or three channels first or last, or a flat square. Returns none for
// other shapes.
PictureShape picture(const Shape& s) {
  const auto channels = [&](uint32_t axis) { return s[axis] == 1 || s[axis] == 3; };
  if (s.rank() == 2) return {s[0], s[1]};
  if (s.rank() == 3 && channels(0)) return {s[1], s[2], s[0], true};
  if (s.rank() == 3 && channels(2)) return {s[0], s[1], s[2]};
  if (s.rank() != 1) return {};
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(s[0]))));
  return side > 3 && side * side == s[0] ? PictureShape{side, side} : PictureShape{};
}

// Reads joined streams in batches of a few samples.
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

// Returns the first producer whose samples are images; -1 if there is none.
int image_of(BoundGraph& graph) {
  for (int n : graph.graph().producers_used(0, false))
    if (graph.types().at(n).positions == 0 && picture(graph.types().at(n).sample)) return n;
  return -1;
}

const GraphTap* tap_of(const Graph& g, const std::string& layer) {
  const auto tap = std::find_if(g.taps.begin(), g.taps.end(),
                                [&](const GraphTap& t) { return g.nodes[static_cast<size_t>(t.layer)].name == layer; });
  return tap == g.taps.end() ? nullptr : &*tap;
}

// Returns the image layout of a layer with `outputs` numbers: that of its target or of the layer itself, or, for a flat
// layer, that of an image input with as many numbers. Both sides need at least 8 pixels, because few numbers are rarely
// an image.
PictureShape output_picture(BoundGraph& graph, const std::string& layer, int64_t outputs, const PictureShape& input) {
  constexpr int64_t kLeastSide = 8;
  const auto fits = [&](const PictureShape& p) {
    return p.count() == outputs && std::min(p.rows, p.columns) >= kLeastSide;
  };
  if (const GraphTap* tap = tap_of(graph.graph(), layer)) {
    if (const auto type = graph.types().find(tap->target); type != graph.types().end())
      if (const PictureShape p = picture(type->second.sample); type->second.positions == 0 && fits(p))
        if (type->second.sample.rank() > 1) return p;
    for (const int node : {tap->target, tap->layer})
      if (const auto width = graph.widths().of.find(node); width != graph.widths().of.end())
        if (const PictureShape p = picture(width->second.shape); width->second.positions == 0 && fits(p))
          if (width->second.shape.rank() > 1) return p;
  }
  return fits(input) ? input : PictureShape{};
}

// Returns the first producer whose samples are `length` symbols; -1 if there is none.
int symbols_of(BoundGraph& graph, int64_t length) {
  for (int n : graph.graph().producers_used(0, false)) {
    const StreamType& type = graph.types().at(n);
    if (!type.symbols.empty() && is_integer(type.dtype) && type.sample.count() == length) return n;
  }
  return -1;
}

// Returns the batch size, which is smaller for long sequences in order to limit the memory.
int64_t piece_size(BoundGraph& graph, const std::vector<int>& producers, int64_t most) {
  constexpr int64_t kPositions = 4096;
  int64_t longest = 1;
  for (int n : producers) {
    const StreamType& type = graph.types().at(n);
    int64_t positions = 1;
    for (uint32_t axis = 0; axis < type.positions; ++axis) positions *= type.sample[axis];
    longest = std::max(longest, positions);
  }
  return std::clamp<int64_t>(kPositions / longest, 1, most);
}

// Returns a view of a producer's sample in `pieces`.
HTensor sample_of(BoundGraph& graph, int producer, const Pieces& pieces, int64_t at) {
  const StreamType& type = graph.types().at(producer);
  const size_t bytes = static_cast<size_t>(type.sample.count()) * element_bytes(type.dtype);
  return view_of({type.dtype, type.sample},
                 static_cast<std::byte*>(pieces.of(producer)) + static_cast<size_t>(at) * bytes);
}

void add_pixels(Example& e, BoundGraph& graph, int image, const Pieces& pieces, int64_t at) {
  if (image < 0) return;
  const HTensor pixels = cast(sample_of(graph, image, pieces, at), DType::F32);
  e.pixels.assign(pixels.data<float>(), pixels.data<float>() + pixels.size());
  if (graph.types().at(image).dtype == DType::U8)
    for (float& p : e.pixels) p /= 255;
}

void add_tokens(Example& e, BoundGraph& graph, int producer, const Pieces& pieces, int64_t at) {
  if (producer < 0) return;
  const HTensor tokens = cast(sample_of(graph, producer, pieces, at), DType::I64);
  e.tokens.assign(tokens.data<int64_t>(), tokens.data<int64_t>() + tokens.size());
}

// Returns the expected and the predicted class at each position of sequence `i` of the batch.
Example sequence_at(const CompiledStep& step, const LossInfo& info, int64_t i) {
  const MetricInputs& j = *info.metric_inputs;
  const float* rows = step.executable().output(info.name + ".prediction").data<float>() + i * j.sequence * j.outputs;
  const int32_t* target = step.executable().output(info.name + ".target").data<int32_t>() + i * j.sequence;
  Example e;
  int64_t wrong = 0, counted = 0;
  for (int64_t at = 0; at + j.shifts < j.sequence; ++at) {
    const float* row = rows + at * j.outputs;
    const int64_t label = target[at + j.shifts];
    const bool counts = label >= 0 && label < j.outputs && label != j.ignored;
    e.chosen.push_back(std::max_element(row, row + j.outputs) - row);
    e.expected.push_back(counts ? label : -1);
    counted += counts;
    wrong += counts && e.chosen.back() != label;
  }
  e.wrong = wrong > 0;
  e.badness = counted > 0 ? static_cast<double>(wrong) / static_cast<double>(counted) : 0;
  return e;
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
    e.wrong = e.predicted != e.label && known;
    if (e.wrong)
      e.badness = j.outputs == 1 ? std::abs(row[0] - static_cast<float>(e.label)) : row[e.predicted] - row[e.label];
  } else {
    e.target.assign(target.data<float>() + i * j.outputs, target.data<float>() + (i + 1) * j.outputs);
    for (size_t k = 0; k < e.target.size(); ++k)
      e.badness += std::pow(e.prediction[k] - e.target[k], 2) / static_cast<double>(e.target.size());
    e.wrong = e.badness != 0;
    if (info.sample_losses) e.badness = e.loss = step.executable().output(info.name + ".sample_loss").data<float>()[i];
    if (std::isnan(e.badness)) e.badness = std::numeric_limits<double>::infinity();
  }
  return e;
}

// Inserts an example into the `count` worst, sorted with the worst first. Among equals the earlier one is kept.
void keep_worst(std::vector<Example>& worst, Example e, size_t count) {
  if (!e.wrong || (worst.size() == count && worst.back().badness >= e.badness)) return;
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
  constexpr int64_t kJudged = 2000, kPositions = 16'384, kEach = 60;
  Pieces pieces(graph, streams, producers, piece_size(graph, producers, std::min(count, kEach)));
  if (pieces.next() == 0) return examples;

  LoweringOptions o;
  o.mode = Mode::evaluate;
  o.batch = pieces.count();
  o.metric_inputs = o.sample_losses = true;
  o.branches = g.branches(0);
  const CompileOptions c = graph.compile_options(settings);
  Lowered lowered = graph.lower(o);
  const auto found_by = [&](auto&& holds) {
    return std::find_if(lowered.losses.begin(), lowered.losses.end(),
                        [&](const LossInfo& info) { return info.metric_inputs && holds(info, *info.metric_inputs); });
  };
  auto found = found_by([&](const LossInfo&, const MetricInputs& m) { return m.rows == o.batch; });
  if (found == lowered.losses.end()) {
    found = found_by([&](const LossInfo& info, const MetricInputs& m) {
      return m.classes && m.outputs > 1 && m.sequence > m.shifts && m.rows == o.batch * m.sequence &&
             !class_names(graph, info.name).empty();
    });
    examples.sequences = found != lowered.losses.end();
  }
  if (found == lowered.losses.end()) return examples;  // unsupported, or in another branch
  const LossInfo info = *found;
  CompiledStep step(std::move(lowered), graph.store(), graph.executor(settings.threads), c);
  std::vector<const void*> inputs;
  for (int n : step.lowered().inputs) inputs.push_back(pieces.of(n));
  examples.layer = info.name;
  examples.classes = info.metric_inputs->classes && !examples.sequences;
  if (info.metric_inputs->classes) examples.names = class_names(graph, info.name);
  const int image = examples.sequences ? -1 : image_of(graph);
  const int symbols = examples.sequences ? symbols_of(graph, info.metric_inputs->sequence) : -1;
  if (symbols >= 0) examples.symbols = graph.types().at(symbols).symbols;
  if (image >= 0) examples.input = picture(graph.types().at(image).sample);
  if (!info.metric_inputs->classes)
    examples.output = output_picture(graph, info.name, info.metric_inputs->outputs, examples.input);
  const int64_t judged = examples.sequences ? std::max(count, kPositions / info.metric_inputs->sequence) : kJudged;
  do {
    step.check_indices(inputs.data());
    step.set(inputs.data(), 0, 1, 0);
    step.run();
    for (int64_t i = 0; i < o.batch; ++i) {
      Example e = examples.sequences ? sequence_at(step, info, i) : example_at(step, info, i);
      e.number = examples.judged++;
      const bool first = static_cast<int64_t>(examples.samples.size()) < count;
      const bool bad =
          e.wrong && (static_cast<int64_t>(examples.worst.size()) < count || e.badness > examples.worst.back().badness);
      if (first || bad) {
        add_pixels(e, graph, image, pieces, i);
        add_tokens(e, graph, symbols, pieces, i);
      }
      if (first) examples.samples.push_back(e);
      keep_worst(examples.worst, std::move(e), static_cast<size_t>(count));
    }
  } while (examples.judged < judged && pieces.next() == o.batch);  // a shorter last batch would need a further program
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
