// LSTM and GRU over 64 positions: forward, and forward with the gradients of all weights.
#include <fmt/core.h>

#include "tests/bench/program.hpp"

namespace harmonics::engine::bench {

namespace {

// x, w_ih, w_hh, b_ih, b_hh, dy
std::vector<HTensor> step(const char* name, const std::vector<HTensor>& in) {
  const HTensor &x = in[0], &weight = in[2], &dy = in[5];
  const bool lstm = std::string(name) == "lstm";
  const HTensor gates = lstm ? linear(x, in[1], in[3] + in[4]) : linear(x, in[1], in[3]);
  const HTensor zero = full(DType::F32, {x.shape()[0], weight.shape()[1]}, 0);
  const auto kept =
      lstm ? call("lstm_scan", {gates, weight, zero, zero}) : call("gru_scan", {gates, weight, in[4], zero});
  const auto back = lstm ? call("lstm_scan_grad", {weight, kept[1], kept[2], zero, dy})
                         : call("gru_scan_grad", {weight, kept[0], kept[1], zero, dy});
  const HTensor &dgates = back[0], &dpast = lstm ? back[0] : back[1];
  const int64_t positions = x.shape()[1];
  const HTensor first = reshape(zero, {x.shape()[0], 1, weight.shape()[1]});
  const HTensor before = concat({first, slice_axis(kept[0], 1, 0, positions - 1)}, 1);
  std::vector<HTensor> results{kept[0], dot(dgates, x, {0, 1}, {0, 1}), dot(dpast, before, {0, 1}, {0, 1}),
                               reduce_sum(dgates, {0, 1})};
  if (!lstm) results.push_back(reduce_sum(dpast, {0, 1}));
  return results;
}

void add(const char* name, int64_t gates, int64_t batch, int64_t width) {
  const int64_t positions = 64;
  const double flops = 4.0 * static_cast<double>(batch * positions * gates * width * width);
  const std::vector<Shape> inputs{{batch, positions, width}, {gates * width, width}, {gates * width, width},
                                  {gates * width},           {gates * width},        {batch, positions, width}};
  const std::string size = fmt::format("{}x{}x{}", batch, positions, width);
  add_program(
      fmt::format("{}/{}", name, size), std::vector<Shape>{inputs.begin(), inputs.end() - 1},
      [=](const auto& in) { return std::vector{call(name, in).at(0)}; }, flops, 0);
  add_program(
      fmt::format("{}_train/{}", name, size), inputs, [=](const auto& in) { return step(name, in); }, 3 * flops, 0);
}

void add_all() {
  for (int64_t width : {64, 128})
    for (int64_t batch : {1, 16}) {
      add("lstm", 4, batch, width);
      add("gru", 3, batch, width);
    }
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
