// Scores of the next symbol from a program over a window, with the keys and values of the symbols so far in caches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/execution/executable.hpp"
#include "engine/flow/lowering.hpp"
#include "engine/model/state_binding.hpp"

namespace harmonics::engine {

class WindowCache {
 public:
  // `lowered`: for one sample; its only stream, of `dtype`, has `window` symbols, and `output` a row of scores for
  // each. Everything given must outlive the cache.
  WindowCache(const Lowered& lowered, std::string output, DType dtype, int64_t window, ParameterStore& store,
              Executor& executor, CompileOptions options);
  WindowCache(const WindowCache&) = delete;
  WindowCache& operator=(const WindowCache&) = delete;
  // Why the program cannot continue from caches; then scores() must not be called. Empty: it can.
  const std::string& refused() const { return refused_; }

  // The scores after the last symbol of `text`, valid until the next call; each call's text begins with the former's.
  // A text longer than the window is read from its last symbols on: all that fit the first time, then all but an eighth
  // of the window, whenever it is full.
  const float* scores(const std::vector<int32_t>& text);

 private:
  struct Plan {
    std::unique_ptr<Executable> executable;
    std::vector<int> inputs;  // by input: 0 symbols, 1 start
    const float* scores = nullptr;
  };

  int64_t kept() const { return window_ - std::max<int64_t>(1, window_ / 8); }  // symbols of a full window
  Plan& plan(int64_t symbols);
  void append(const std::vector<int32_t>& text, size_t count);

  const Lowered& lowered_;
  std::string input_, output_, refused_;
  DType dtype_;
  int64_t window_;
  ParameterStore& store_;
  Executor& executor_;
  CompileOptions options_;
  StateBinding::States caches_;
  std::map<int64_t, Plan> plans_;  // by symbols of a run
  std::vector<std::byte> symbols_;
  size_t read_ = 0;     // symbols of the text
  int64_t length_ = 0;  // symbols in the caches
  const float* last_ = nullptr;
};

// Writes symbol numbers as elements of an integer type.
void store_symbols(std::byte* to, DType dtype, const int32_t* symbols, size_t count);

}  // namespace harmonics::engine
