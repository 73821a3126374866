#include "engine/bound/window_cache.hpp"

#include <algorithm>
#include <array>

#include "engine/passes/continue_sequence.hpp"

namespace harmonics::engine {

namespace {

constexpr std::array<int64_t, 3> kChunks{32, 8, 1};

template <typename T>
void store_as(std::byte* to, const int32_t* symbols, size_t count) {
  std::transform(symbols, symbols + count, reinterpret_cast<T*>(to), [](int32_t id) { return static_cast<T>(id); });
}

}  // namespace

void store_symbols(std::byte* to, DType dtype, const int32_t* symbols, size_t count) {
  switch (dtype) {
    case DType::U8:
      return store_as<uint8_t>(to, symbols, count);
    case DType::U16:
      return store_as<uint16_t>(to, symbols, count);
    case DType::I32:
      return store_as<int32_t>(to, symbols, count);
    case DType::I64:
      return store_as<int64_t>(to, symbols, count);
    default:
      throw Error(ErrorKind::Internal, "this type of symbol numbers is not supported");
  }
}

WindowCache::WindowCache(const Lowered& lowered, std::string output, DType dtype, int64_t window, ParameterStore& store,
                         Executor& executor, CompileOptions options)
    : lowered_(lowered),
      output_(std::move(output)),
      dtype_(dtype),
      window_(window),
      store_(store),
      executor_(executor),
      options_(std::move(options)),
      symbols_(static_cast<size_t>(std::max(window, kChunks[0])) * element_bytes(dtype)) {
  for (const Node* leaf : lowered.program.leaves(Op::input))
    if (input_.empty() && leaf->callee[0] != '@') input_ = leaf->callee;
  refused_ = continue_sequence(lowered_.program, input_, {window_, 1}).refused;
}

WindowCache::Plan& WindowCache::plan(int64_t symbols) {
  Plan& p = plans_[symbols];
  if (p.executable) return p;
  StateBinding binding(store_, caches_,
                       [&](const std::string& name) { return name.starts_with("cache.") && !store_.find(name); });
  p.executable =
      compile(continue_sequence(lowered_.program, input_, {window_, symbols}).program, &binding, executor_, options_);
  for (const std::string& name : p.executable->input_names()) p.inputs.push_back(name == input_ ? 0 : 1);
  const HTensor& scores = p.executable->output(output_);
  p.scores = scores.data<float>() + (scores.size() - scores.shape().back());
  return p;
}

void WindowCache::append(const std::vector<int32_t>& text, size_t count) {
  const int32_t* next = text.data() + (text.size() - count);
  while (count > 0) {
    const auto left = static_cast<int64_t>(count);
    const int64_t chunk =
        left == kept() ? left : *std::find_if(kChunks.begin(), kChunks.end(), [&](int64_t c) { return c <= left; });
    Plan& p = plan(chunk);
    store_symbols(symbols_.data(), dtype_, next, static_cast<size_t>(chunk));
    const auto start = static_cast<int32_t>(length_);
    const void* inputs[2] = {};
    for (size_t i = 0; i < p.inputs.size(); ++i)
      inputs[i] = p.inputs[i] == 0 ? static_cast<const void*>(symbols_.data()) : &start;
    p.executable->run(inputs);
    for (const auto& file : store_.files()) file->expect_whole();
    last_ = p.scores;
    length_ += chunk;
    next += chunk;
    count -= static_cast<size_t>(chunk);
  }
}

const float* WindowCache::scores(const std::vector<int32_t>& text) {
  const auto window = static_cast<size_t>(window_);
  size_t fresh = text.size() - read_;
  if (static_cast<size_t>(length_) + fresh > window) {
    fresh = read_ == 0 ? window : static_cast<size_t>(kept());
    length_ = 0;
  }
  append(text, fresh);
  read_ = text.size();
  return last_;
}

}  // namespace harmonics::engine
