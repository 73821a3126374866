// Attention within the documents of packed rows: each document is bitwise equal to the document alone.
#include <cmath>
#include <numeric>

#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

struct PackedCase {
  int64_t batch, shared, group, width, value_width;
  std::vector<int64_t> lengths;  // document lengths of every row
  bool causal = true, positions_first = false;
  int64_t window = 0;
  double softcap = 0;
  std::string operands = "documents";

  bool has_sinks() const { return operands != "documents"; }
  int64_t positions() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  int64_t heads() const { return shared * group; }
  Dims rows(int64_t b, int64_t n, int64_t h, int64_t w) const {
    return positions_first ? Dims{b, n, h, w} : Dims{b, h, n, w};
  }
  KernelCall call(const char* op) const {
    KernelCall made(op);
    made.set("causal", causal ? 1 : 0).set("positions_first", positions_first ? 1 : 0);
    if (window) made.set("window", window);
    if (softcap > 0) made.set("softcap", softcap);
    return made;
  }
  // Returns positions [first, first + n) of item b of x, which has `h` heads.
  Tensor part(const Tensor& x, int64_t b, int64_t first, int64_t n, int64_t h, int64_t w) const {
    std::vector<float> values;
    const auto row = [&](int64_t head, int64_t t) {
      const int64_t at = positions_first ? (b * positions() + t) * h + head : (b * h + head) * positions() + t;
      for (int64_t d = 0; d < w; ++d) values.push_back(x[at * w + d]);
    };
    if (positions_first) {
      for (int64_t t = first; t < first + n; ++t)
        for (int64_t head = 0; head < h; ++head) row(head, t);
    } else {
      for (int64_t head = 0; head < h; ++head)
        for (int64_t t = first; t < first + n; ++t) row(head, t);
    }
    return {rows(1, n, h, w), values};
  }
  // Likewise for lse [B, H, T].
  Tensor part_of_lse(const Tensor& lse, int64_t b, int64_t first, int64_t n) const {
    std::vector<float> values;
    for (int64_t head = 0; head < heads(); ++head)
      for (int64_t t = first; t < first + n; ++t) values.push_back(lse[(b * heads() + head) * positions() + t]);
    return {{1, heads(), n}, values};
  }
};

const PackedCase kPackedCases[] = {{2, 2, 1, 16, 16, {5, 1, 40, 7}},
                                   {2, 2, 3, 12, 20, {33, 130, 2}, true, true},
                                   {1, 1, 2, 8, 8, {1, 1, 1}, false},
                                   {1, 2, 2, 24, 16, {64, 9}, false, true},
                                   {2, 2, 2, 16, 8, {50, 3, 20}, true, true, 7},
                                   {2, 1, 3, 16, 16, {50, 3, 200}, true, false, 0, 1.5},
                                   {3, 1, 1, 5, 3, {17}, true, true, 4, 2},
                                   {2, 2, 1, 16, 16, {5, 1, 40, 7}, true, false, 0, 0, "documents,sinks"},
                                   {2, 2, 3, 12, 20, {33, 130, 2}, true, true, 0, 0, "sinks,documents"},
                                   {1, 1, 2, 8, 8, {1, 1, 1}, false, false, 0, 0, "documents,sinks"},
                                   {2, 1, 3, 16, 16, {50, 3, 200}, true, true, 9, 1.5, "documents,sinks"}};

}  // namespace

TEST_CASE("attention of documents: each has the bits that it has alone") {
  Random random(911);
  for (const PackedCase& c : kPackedCases) {
    const int64_t t = c.positions();
    INFO(c.batch << " rows of " << c.lengths.size() << " documents, " << t << " positions, window " << c.window);
    const Tensor q = random.floats(c.rows(c.batch, t, c.heads(), c.width), -2, 2),
                 k = random.floats(c.rows(c.batch, t, c.shared, c.width), -2, 2),
                 v = random.floats(c.rows(c.batch, t, c.shared, c.value_width)),
                 dout = random.floats(c.rows(c.batch, t, c.heads(), c.value_width)),
                 sinks = random.floats({c.heads()}, -1, 3);
    std::vector<int32_t> numbers;
    for (int64_t b = 0; b < c.batch; ++b)
      for (size_t i = 0; i < c.lengths.size(); ++i)
        numbers.insert(numbers.end(), static_cast<size_t>(c.lengths[i]), static_cast<int32_t>(3 * i) - 1);
    const Tensor documents{{c.batch, t}, numbers};
    const auto optional = [&](KernelCall& call) {
      call.set("operands", c.operands.c_str());
      if (c.operands.starts_with("sinks")) call.in(sinks);
      call.in(documents);
      if (c.operands.ends_with("sinks")) call.in(sinks);
    };
    const auto optional_alone = [&](KernelCall& call) {
      if (c.has_sinks()) call.set("operands", "sinks").in(sinks);
    };
    KernelCall forward = c.call("attention");
    forward.in(q).in(k).in(v);
    optional(forward);
    const std::vector<Tensor> y = forward.out(dout.dims).out({c.batch, c.heads(), t}).run();
    CHECK(forward.kernel() == "attention of documents");
    KernelCall backward = c.call("attention_grad");
    backward.in(q).in(k).in(v).in(y[0]).in(y[1]).in(dout);
    optional(backward);
    backward.out(q.dims).out(k.dims).out(v.dims);
    if (c.has_sinks()) backward.out(sinks.dims);
    const std::vector<Tensor> g = backward.run();
    CHECK(backward.kernel() == "attention of documents");
    std::vector<double> dsinks(static_cast<size_t>(c.heads())), sizes(dsinks.size());
    for (int64_t b = 0; b < c.batch; ++b) {
      int64_t first = 0;
      for (const int64_t n : c.lengths) {
        const Tensor own_q = c.part(q, b, first, n, c.heads(), c.width),
                     own_k = c.part(k, b, first, n, c.shared, c.width),
                     own_v = c.part(v, b, first, n, c.shared, c.value_width),
                     own_dout = c.part(dout, b, first, n, c.heads(), c.value_width);
        KernelCall forth = c.call("attention");
        forth.in(own_q).in(own_k).in(own_v);
        optional_alone(forth);
        const std::vector<Tensor> alone = forth.out(own_dout.dims).out({1, c.heads(), n}).run();
        REQUIRE(c.part(y[0], b, first, n, c.heads(), c.value_width).bytes == alone[0].bytes);
        REQUIRE(c.part_of_lse(y[1], b, first, n).bytes == alone[1].bytes);
        KernelCall back = c.call("attention_grad");
        back.in(own_q).in(own_k).in(own_v).in(alone[0]).in(alone[1]).in(own_dout);
        optional_alone(back);
        back.out(own_q.dims).out(own_k.dims).out(own_v.dims);
        if (c.has_sinks()) back.out(sinks.dims);
        const std::vector<Tensor> own = back.run();
        for (size_t h = 0; c.has_sinks() && h < dsinks.size(); ++h) {
          const auto one = static_cast<double>(own[3][static_cast<int64_t>(h)]);
          dsinks[h] += one;
          sizes[h] += std::abs(one);
        }
        REQUIRE(c.part(g[0], b, first, n, c.heads(), c.width).bytes == own[0].bytes);
        REQUIRE(c.part(g[1], b, first, n, c.shared, c.width).bytes == own[1].bytes);
        REQUIRE(c.part(g[2], b, first, n, c.shared, c.value_width).bytes == own[2].bytes);
        first += n;
      }
    }
    for (size_t h = 0; c.has_sinks() && h < dsinks.size(); ++h)
      CHECK(std::abs(static_cast<double>(g[3][static_cast<int64_t>(h)]) - dsinks[h]) < 1e-5 * (1 + sizes[h]));
  }
}

TEST_CASE("attention of documents keeps no scores in memory") {
  for (const char* op : {"attention", "attention_grad"}) {
    std::vector<uint64_t> bytes;
    for (const int64_t t : {1024, 2048}) {
      const bool gradient = std::string(op) == "attention_grad";
      KernelCall call(op);
      const Tensor x = Tensor::zeros({1, 2, t, 16});
      call.set("operands", "documents").in(x).in(x).in(x);
      if (gradient) call.in(x).in(Tensor::zeros({1, 2, t})).in(x);
      call.in(Tensor::zeros({1, t}, HX_I32)).out(x.dims);
      bytes.push_back((gradient ? call.out(x.dims).out(x.dims) : call.out({1, 2, t})).workspace());
    }
    CHECK(bytes[1] <= 2 * bytes[0] + 4096);
  }
}

}  // namespace harmonics::engine::kernel_tests
