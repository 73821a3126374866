#include "kernel_call.hpp"

#include <algorithm>

namespace harmonics::engine::kernel_tests {

TEST_CASE("gather: any axis, out-of-range indices are clamped") {
  Random random(91);
  const Tensor x = random.floats({4, 9, 5});
  for (int64_t axis : {0, 1, 2}) {
    const int64_t size = x.dims[static_cast<size_t>(axis)], inner = axis == 0 ? 45 : axis == 1 ? 5 : 1;
    const Tensor ids = random.integers<int32_t>({2, 3}, -2, size + 2);
    Dims out = x.dims;
    out[static_cast<size_t>(axis)] = 2;
    out.insert(out.begin() + axis + 1, 3);
    const Tensor y = KernelCall("gather").set("axis", axis).in(x).in(ids).out(out).run_one();
    for (int64_t i = 0; i < y.size(); ++i) {
      const int64_t id = std::clamp<int64_t>(ids.data<int32_t>()[i / inner % 6], 0, size - 1);
      REQUIRE(y[i] == x[(i / inner / 6 * size + id) * inner + i % inner]);
    }
  }
}

TEST_CASE("embedding and its gradient") {
  Random random(92);
  for (const auto& [rows, width, count] : {std::array<int64_t, 3>{65, 128, 3000}, {1000, 8, 5000}, {3, 1, 10}}) {
    const Tensor table = random.floats({rows, width}), dy = random.floats({count, width});
    const Tensor ids = random.integers<int64_t>({count}, 0, rows);
    const Tensor y = KernelCall("embedding").in(table).in(ids).out({count, width}).run_one();
    KernelCall gradient("embedding_grad");
    const Tensor d = gradient.set("rows", rows).in(ids).in(dy).out({rows, width}).run_one();
    std::vector<float> e(static_cast<size_t>(rows * width));
    for (int64_t i = 0; i < count * width; ++i) {
      const int64_t at = ids.data<int64_t>()[i / width] * width + i % width;
      REQUIRE(y[i] == table[at]);
      e[static_cast<size_t>(at)] += dy[i];  // in index order: the same bits
    }
    REQUIRE(d.values<float>() == e);
  }
}

TEST_CASE("scatter_add adds in index order, in place when asked") {
  Random random(93);
  const Tensor x = random.floats({3, 50, 40}), updates = random.floats({3, 200, 40});
  const Tensor ids = random.integers<uint8_t>({200}, 0, 50);
  KernelCall call("scatter_add");
  const Tensor y = call.set("axis", 1).in(x).in(ids).in(updates).out(x.dims).alias(0, 0).run_one();
  CHECK(call.in_place() == 1);
  std::vector<float> e = x.values<float>();
  for (int64_t i = 0; i < updates.size(); ++i)
    e[static_cast<size_t>((i / 8000 * 50 + ids.data<uint8_t>()[i / 40 % 200]) * 40 + i % 40)] += updates[i];
  REQUIRE(y.values<float>() == e);
}

}  // namespace harmonics::engine::kernel_tests
