// Gather, scatter, the largest and the order of rows, and gradients of windows. Bytes: the minimum memory traffic.
#include <fmt/core.h>
#include <harmonics/ops.hpp>

#include "tests/bench/program.hpp"

namespace harmonics::engine::bench {

namespace {

// Reads or writes `places` rows of `inner` numbers in a table of 1,024 rows.
void add_rows(DType type, int64_t places, int64_t inner) {
  constexpr auto rows = static_cast<int64_t>(kWholeLimit);
  const TensorType table{type, {rows, inner}}, updates{type, {places, inner}}, ids{DType::I32, {places}},
      pairs{DType::I32, {places, 2}}, plane{type, {rows, rows}}, cells{type, {places}};
  const std::string size = fmt::format("{}/{}x{}", element_type(type).name, places, inner);
  const auto bytes = [](const TensorType& t) { return static_cast<double>(t.bytes()); };
  add_program(
      "gather/" + size, std::vector<TensorType>{table, ids},
      [](const auto& x) { return std::vector{gather(x[0], x[1])}; }, 0, 2 * bytes(updates));
  if (type == DType::F32)
    add_program(
        "scatter_add/" + size, std::vector<TensorType>{table, ids, updates},
        [](const auto& x) { return std::vector{scatter_add(x[0], x[1], x[2])}; }, 0, 2 * bytes(table) + bytes(updates));
  add_program(
      "gather_nd/" + size, std::vector<TensorType>{plane, pairs},
      [](const auto& x) { return std::vector{gather_nd(x[0], x[1])}; }, 0, bytes(pairs) + 2 * bytes(cells));
  for (const char* reduction : {"set", "add", "max"})
    add_program(
        fmt::format("scatter_nd_{}/{}", reduction, size), std::vector<TensorType>{plane, pairs, cells},
        [=](const auto& x) { return std::vector{scatter_nd(x[0], x[1], x[2], reduction)}; }, 0,
        2 * bytes(plane) + bytes(pairs) + bytes(cells));
}

void add_order(DType type, int64_t rows, int64_t columns) {
  const TensorType x{type, {rows, columns}};
  const std::string size = fmt::format("{}/{}x{}", element_type(type).name, rows, columns);
  const auto bytes = static_cast<double>(x.bytes());
  add_program(
      "sort/" + size, std::vector<TensorType>{x},
      [](const auto& in) {
        const auto [values, order] = sort(in[0], 1);
        return std::vector{values, order};
      },
      0, 2 * bytes + 8 * static_cast<double>(rows * columns));
  if (type == DType::F32)
    add_program(
        "top_40/" + size, std::vector<TensorType>{x},
        [](const auto& in) { return std::vector{top_k(in[0], 40).first}; }, 0, bytes);
}

// Max pooling over 3 x 3 windows, and its gradient.
void add_windows(DType type, int64_t planes, int64_t side, bool with_gradient) {
  const TensorType x{type, {planes, side, side}};
  const Window window{{1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {0, 1, 1}};
  const auto bytes = static_cast<double>(x.bytes());
  add_program(
      fmt::format("{}/{}/{}x{}x{}", with_gradient ? "max_windows_and_gradient" : "max_windows", element_type(type).name,
                  planes, side, side),
      std::vector<TensorType>{x},
      [=](const auto& in) {
        const HTensor y = reduce_window(in[0], "max", window);
        if (!with_gradient) return std::vector{y};
        const Attributes a = Attributes()
                                 .set("window", window.size)
                                 .set("strides", window.strides)
                                 .set("padding_low", window.padding_low)
                                 .set("padding_high", window.padding_high)
                                 .set("dilation", std::vector<int64_t>{1, 1, 1});
        return std::vector{y, call1("reduce_window_grad", {in[0], y, y}, a)};
      },
      0, with_gradient ? 3.5 * bytes : 1.25 * bytes);
}

void add_all() {
  for (const DType type : {DType::F32, DType::F16}) {
    add_rows(type, 1000, 8);  // for the smoke test
    add_rows(type, 100000, 64);
    add_order(type, 40, 1000);
    add_order(type, 1, 32000);
    add_order(type, 4096, 32);
    add_windows(type, 16, 28, false);
    add_windows(type, 512, 56, false);
  }
  add_windows(DType::F32, 16, 28, true);
  add_windows(DType::F32, 512, 56, true);
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
