#include "engine/bound/generate.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include <fmt/core.h>

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

void store_ids(std::vector<std::byte>& buffer, DType dtype, const std::vector<int32_t>& window) {
  for (size_t i = 0; i < window.size(); ++i) switch (dtype) {
      case DType::U8:
        reinterpret_cast<uint8_t*>(buffer.data())[i] = static_cast<uint8_t>(window[i]);
        break;
      case DType::U16:
        reinterpret_cast<uint16_t*>(buffer.data())[i] = static_cast<uint16_t>(window[i]);
        break;
      case DType::I64:
        reinterpret_cast<int64_t*>(buffer.data())[i] = window[i];
        break;
      case DType::I32:
        reinterpret_cast<int32_t*>(buffer.data())[i] = window[i];
        break;
      default:
        break;  // refused by check_symbols
    }
}

// Checks that the dtype can hold every symbol (see store_ids).
void check_symbols(const StreamType& stream, const std::string& name) {
  const size_t room = stream.dtype == DType::U8                                  ? 256
                      : stream.dtype == DType::U16                               ? 65536
                      : stream.dtype == DType::I32 || stream.dtype == DType::I64 ? SIZE_MAX
                                                                                 : 0;
  if (stream.symbols.size() > room)
    throw Error(ErrorKind::Weights, fmt::format("'{}' has {} symbols numbered by {}, which cannot be written", name,
                                                stream.symbols.size(), dtype_name(stream.dtype)));
}

}  // namespace

void generate(BoundGraph& graph, int cycle, const GenerateSettings& settings,
              const std::function<void(const std::string&)>& emit) {
  const std::vector<int> producers = graph.graph().producers_used(cycle, false), results = graph.results(cycle);
  const auto& types = graph.types();
  if (producers.size() != 1 || results.size() != 1)
    throw Error(ErrorKind::Usage, fmt::format("'{}' has {} producers and {} results; writing text needs one of each",
                                              graph.graph().name, producers.size(), results.size()));
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
  CompiledStep step(graph.lower(o), graph.store(), graph.executor(settings.threads), c);
  const std::string output = step.lowered().values.at(results.front());
  const TensorType result = type_of(step.executable().output(output));
  const int64_t scored =
      result.shape.rank() == 3 ? result.shape.back() : 0;  // as declared, possibly more than there are symbols
  if (result.shape != Shape{1, window, std::max(scored, classes)})
    throw Error(ErrorKind::Usage, fmt::format("the result of '{}' is {} for one window; writing text needs [1, {}, "
                                              "{}]: a score of every symbol at every position",
                                              graph.graph().name, result.str(), window, classes));

  std::vector<int32_t> context = encode(settings.prompt, stream.symbols);
  if (context.empty()) {  // begin at the start of a line if the text has lines
    const auto newline = std::find(stream.symbols.begin(), stream.symbols.end(), "\n");
    context.push_back(newline == stream.symbols.end() ? 0 : static_cast<int32_t>(newline - stream.symbols.begin()));
  }
  std::vector<std::byte> buffer(static_cast<size_t>(window) * element_bytes(stream.dtype));
  std::vector<int32_t> padded(static_cast<size_t>(window));
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int64_t i = 0; i < settings.symbols; ++i) {
    if (i > 0 && settings.seconds > 0 && std::chrono::duration<double>(Clock::now() - start).count() > settings.seconds)
      return;
    const size_t used = std::min<size_t>(context.size(), static_cast<size_t>(window));
    std::fill(std::copy(context.end() - static_cast<int64_t>(used), context.end(), padded.begin()), padded.end(), 0);
    store_ids(buffer, stream.dtype, padded);
    const void* input = buffer.data();
    step.set(&input, 0, 1, settings.seed);
    step.run();
    const float* scores = step.executable().output(output).data<float>() + (static_cast<int64_t>(used) - 1) * scored;
    if (const int64_t bad = first_not_finite(result.dtype, scores, classes); bad >= 0)
      throw Error(ErrorKind::Diverged, fmt::format("symbol {} cannot be chosen: its scores are infinite or NaN", i + 1),
                  {}, {"the weights, or what they compute, are not finite: train again with a lower rate"});
    context.push_back(sample({scores, static_cast<size_t>(classes)}, {settings.temperature, settings.seed},
                             static_cast<uint64_t>(i)));
    emit(stream.symbols[static_cast<size_t>(context.back())]);
  }
}

}  // namespace harmonics::engine
