// Attention and its gradients, with and without the causal mask, and one query over a cache, which is limited by
// bandwidth.
#include <fmt/core.h>
#include <harmonics/ops.hpp>

#include "tests/bench/program.hpp"

namespace harmonics::engine::bench {

namespace {

void add(int64_t batch, int64_t heads, int64_t positions, int64_t width, bool causal, bool positions_first = false) {
  const Shape shape = positions_first ? Shape{batch, positions, heads, width} : Shape{batch, heads, positions, width};
  const auto seen = static_cast<double>(causal ? positions * (positions + 1) / 2 : positions * positions);
  const double product = 2.0 * static_cast<double>(batch * heads * width) * seen;
  const Attributes how = Attributes().set("causal", causal).set("positions_first", positions_first);
  const std::string what = fmt::format("{}/{}x{}x{}x{}", causal ? "_causal" : "", batch, heads, positions, width);
  add_program(
      "attention" + what, {shape, shape, shape},
      [=](const auto& x) { return std::vector{call("attention", x, how).at(0)}; }, 2 * product, 0);
  const Shape sums{batch, heads, positions};
  add_program(
      "attention_grad" + what, {shape, shape, shape, shape, sums, shape},
      [=](const auto& x) { return call("attention_grad", x, how); }, 5 * product, 0);
}

struct CacheCase {
  DType type;
  int64_t keys, shared, width, group = 4, queries = 1, page = 0;  // page: rows per page, 0: contiguous
};

// Adds the next tokens of a sequence. All heads of a group share one read of the keys and values.
void add_cached(const CacheCase& c) {
  const Shape shape =
      c.page > 0 ? Shape{c.keys / c.page, c.page, c.shared, c.width} : Shape{1, c.keys, c.shared, c.width};
  const TensorType cache{c.type, shape}, q{DType::F32, {1, c.queries, c.group * c.shared, c.width}};
  const Attributes how = Attributes()
                             .set("operands", c.page > 0 ? "lengths,pages" : "lengths")
                             .set("causal", true)
                             .set("positions_first", true);
  const auto trace = [=](const std::vector<HTensor>& x) {
    std::vector<HTensor> in{x[0], x[1], x[2], full(DType::I32, {1}, static_cast<double>(c.keys))};
    if (c.page > 0) {  // adjacent pages are not contiguous
      const int64_t n = c.keys / c.page;
      in.push_back(cast(remainder(iota(DType::I64, {1, n}, 1) * 5.0, static_cast<double>(n)), DType::I32));
    }
    return std::vector{call("attention", in, how).at(0)};
  };
  const std::string pages = c.page > 0 ? fmt::format("/pages:{}", c.page) : "";
  const std::string name = fmt::format("cached_attention/{}/{}x{}x{}x{}/group:{}{}", element_type(c.type).name,
                                       c.queries, c.keys, c.shared, c.width, c.group, pages);
  const double pairs = static_cast<double>(c.queries * c.group * c.shared) *
                       (static_cast<double>(c.keys) - static_cast<double>(c.queries - 1) / 2);
  add_program(name, std::vector<TensorType>{q, cache, cache}, trace,
              c.queries > 1 ? 4 * pairs * static_cast<double>(c.width) : 0,
              c.queries > 1 ? 0 : 2 * static_cast<double>(cache.bytes()));
}

void add_all() {
  for (const DType type : {DType::F32, DType::F16, DType::Q8_0}) {
    add_cached({type, 512, 2, 64});  // for the smoke test, with the next one
    add_cached({type, 512, 2, 64, 4, 1, 32});
    for (const int64_t width : {64, 128})
      for (const int64_t keys : {512, 2048, 8192})
        for (const int64_t group : {1, 2, 4, 8}) add_cached({type, keys, 8, width, group});
    add_cached({type, 32768, 8, 128});
    for (const int64_t page : {16, 32}) add_cached({type, 8192, 8, 128, 4, 1, page});
    for (const int64_t queries : {8, 32, 256}) add_cached({type, 4096, 8, 128, 4, queries});
  }
  for (bool causal : {false, true}) {
    add(8, 6, 128, 64, causal);
    add(1, 8, 1024, 64, causal);
  }
  add(16, 4, 128, 32, true, true);
  add(8, 6, 256, 64, true, true);  // a GPT of width 384
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
