#include "engine/bound/generate.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/bound/window_cache.hpp"
#include "engine/language/sampler.hpp"
#include "engine/tensor/finite.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

// Encodes `text` as symbols of the vocabulary, always taking the longest match.
std::vector<int32_t> encode(const std::string& text, const std::vector<std::string>& symbols) {
  std::vector<int32_t> ids;
  for (size_t at = 0; at < text.size();) {
    int32_t best = -1;
    size_t length = 0;
    for (size_t i = 0; i < symbols.size(); ++i)
      if (symbols[i].size() > length && text.compare(at, symbols[i].size(), symbols[i]) == 0)
        best = static_cast<int32_t>(i), length = symbols[i].size();
    if (best < 0)
      throw Error(ErrorKind::Usage,
                  fmt::format("the prompt has '{}' at byte {}, which the model's {} symbols do not include",
                              text.substr(at, decode_utf8(text, at).length), at, symbols.size()));
    ids.push_back(best);
    at += length;
  }
  return ids;
}

// Checks that the dtype can hold every symbol (see store_symbols).
void check_symbols(const StreamType& stream, const std::string& name) {
  const size_t room = stream.dtype == DType::U8                                  ? 256
                      : stream.dtype == DType::U16                               ? 65536
                      : stream.dtype == DType::I32 || stream.dtype == DType::I64 ? SIZE_MAX
                                                                                 : 0;
  if (stream.symbols.size() > room)
    throw Error(ErrorKind::Weights, fmt::format("'{}' has {} symbols numbered by {}, which cannot be written", name,
                                                stream.symbols.size(), dtype_name(stream.dtype)));
}

// Runs the whole window for every symbol.
class WholeWindow {
 public:
  WholeWindow(CompiledStep& step, const std::string& output, DType dtype, int64_t window, uint64_t seed)
      : step_(step),
        scores_(step.executable().output(output)),
        dtype_(dtype),
        seed_(seed),
        padded_(static_cast<size_t>(window)),
        buffer_(static_cast<size_t>(window) * element_bytes(dtype)) {}
  const float* scores(const std::vector<int32_t>& text) {
    const size_t used = std::min(text.size(), padded_.size());
    std::fill(std::copy(text.end() - static_cast<int64_t>(used), text.end(), padded_.begin()), padded_.end(), 0);
    store_symbols(buffer_.data(), dtype_, padded_.data(), padded_.size());
    const void* input = buffer_.data();
    step_.set(&input, 0, 1, seed_);
    step_.run();
    return scores_.data<float>() + (static_cast<int64_t>(used) - 1) * scores_.shape().back();
  }

 private:
  CompiledStep& step_;
  const HTensor& scores_;
  DType dtype_;
  uint64_t seed_;
  std::vector<int32_t> padded_;
  std::vector<std::byte> buffer_;
};

}  // namespace

std::string generate(BoundGraph& graph, int cycle, const GenerateSettings& settings,
                     const std::function<void(const std::string&)>& emit) {
  const std::vector<int> producers = graph.graph().producers_used(cycle, false), results = graph.results(cycle);
  const auto& types = graph.types();
  if (producers.size() != 1 || results.size() != 1)
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' has {} and {}; generating text needs one of each", graph.graph().name,
                            quantity(producers.size(), "producer"), quantity(results.size(), "result")));
  const auto type = types.find(producers.front());
  if (type == types.end() || type->second.symbols.empty())
    throw Error(ErrorKind::Usage, fmt::format("'{}' has no symbols for its producer", graph.graph().name), {},
                {"give --weights of a model trained on text, or bind the text: --producer file:book.txt?window=128"});
  const StreamType& stream = type->second;
  check_symbols(stream, graph.graph().nodes[static_cast<size_t>(producers.front())].name);
  const auto classes = static_cast<int64_t>(stream.symbols.size());
  const int64_t window = stream.sample.count();

  LoweringOptions o;
  o.mode = Mode::infer;
  o.cycle = cycle;
  o.batch = 1;
  o.wanted = results;
  const CompileOptions c = graph.compile_options(settings);
  Lowered lowered = graph.lower(o);
  const std::string output = lowered.values.at(results.front());
  const TensorType result = lowered.program.type(lowered.program.output(output)->value);
  const int64_t scored =
      result.shape.rank() == 3 ? result.shape.back() : 0;  // the declared width, possibly more than the symbols
  if (result.shape != Shape{1, window, std::max(scored, classes)})
    throw Error(ErrorKind::Usage, fmt::format("the result of '{}' is {} for one window; generating text needs [1, {}, "
                                              "{}]: a score of every symbol at every position",
                                              graph.graph().name, result.str(), window, classes));
  Executor& executor = graph.executor(settings.threads);
  WindowCache cache(lowered, output, stream.dtype, window, graph.store(), executor, c);
  std::unique_ptr<CompiledStep> step;
  std::optional<WholeWindow> whole;
  if (!cache.refused().empty()) {
    step = std::make_unique<CompiledStep>(std::move(lowered), graph.store(), executor, c);
    whole.emplace(*step, output, stream.dtype, window, settings.seed);
  }

  std::vector<int32_t> context = encode(settings.prompt, stream.symbols);
  if (context.empty()) {  // start as after a newline, if there is such a symbol
    const auto newline = std::find(stream.symbols.begin(), stream.symbols.end(), "\n");
    context.push_back(newline == stream.symbols.end() ? 0 : static_cast<int32_t>(newline - stream.symbols.begin()));
  }
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int64_t i = 0; i < settings.symbols; ++i) {
    if (i > 0 && settings.seconds > 0 && std::chrono::duration<double>(Clock::now() - start).count() > settings.seconds)
      break;
    const float* scores = whole ? whole->scores(context) : cache.scores(context);
    if (const int64_t bad = first_not_finite(result.dtype, scores, classes); bad >= 0)
      throw Error(ErrorKind::Diverged, fmt::format("symbol {} cannot be chosen: its scores are infinite or NaN", i + 1),
                  {}, {"the weights, or what they compute, are not finite: train again with a lower learning rate"});
    context.push_back(sample({scores, static_cast<size_t>(classes)}, {settings.temperature, settings.seed},
                             static_cast<uint64_t>(i)));
    emit(stream.symbols[static_cast<size_t>(context.back())]);
  }
  return cache.refused();
}

}  // namespace harmonics::engine
