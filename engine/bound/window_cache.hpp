// Computes scores of the next symbol with a program over a window, and caches the keys and values of earlier symbols.
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
  // `lowered` is compiled for one sample. Its only stream has `window` symbols of type `dtype`, and `output` has a row
  // of scores for each. All references must outlive the cache.
  WindowCache(const Lowered& lowered, std::string output, DType dtype, int64_t window, ParameterStore& store,
              Executor& executor, CompileOptions options);
  WindowCache(const WindowCache&) = delete;
  WindowCache& operator=(const WindowCache&) = delete;
  // Returns why the program cannot use caches, and scores() must not be called; empty if it can.
  const std::string& refused() const { return refused_; }

  // Returns the scores after the last symbol of `text`, valid until the next call. `text` must extend that of the
  // previous call. If it exceeds the window, the caches are filled with its last symbols: a whole window in the first
  // call, later seven eighths of it whenever the window is full.
  const float* scores(const std::vector<int32_t>& text);

 private:
  struct Plan {
    std::unique_ptr<Executable> executable;
    std::vector<int> inputs;  // by input: 0 is the symbols, 1 the start position
    const float* scores = nullptr;
  };

  int64_t kept() const { return window_ - std::max<int64_t>(1, window_ / 8); }  // symbols kept when the window is full
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
  std::map<int64_t, Plan> plans_;  // by number of symbols in a run
  std::vector<std::byte> symbols_;
  size_t read_ = 0;     // symbols of the text already read
  int64_t length_ = 0;  // symbols in the caches
  const float* last_ = nullptr;
};

// Writes symbol numbers as elements of an integer type.
void store_symbols(std::byte* to, DType dtype, const int32_t* symbols, size_t count);

}  // namespace harmonics::engine
