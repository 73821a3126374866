#include "kernel_call.hpp"

#include <algorithm>
#include <limits>

namespace harmonics::engine::kernel_tests {
namespace {

struct Heads {
  int64_t batch, heads, shared, queries, keys, width, value_width;
  bool causal;

  Dims q() const { return {batch, heads, queries, width}; }
  Dims k() const { return {batch, shared, keys, width}; }
  Dims v() const { return {batch, shared, keys, value_width}; }
  Dims out() const { return {batch, heads, queries, value_width}; }
  Dims lse() const { return {batch, heads, queries}; }
};

// Reference by definition, in double.
struct Reference {
  std::vector<double> out, lse, dq, dk, dv;

  Reference(const Heads& h, double scale, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& dout)
      : out(static_cast<size_t>(elements(h.out()))),
        dq(static_cast<size_t>(q.size())),
        dk(static_cast<size_t>(k.size())),
        dv(static_cast<size_t>(v.size())) {
    const int64_t group = h.heads / h.shared;
    for (int64_t row = 0; row < h.batch * h.heads * h.queries; ++row) {
      const int64_t head = row / h.queries / group, t = row % h.queries;
      const int64_t seen = h.causal ? std::max<int64_t>(0, t + 1 + h.keys - h.queries) : h.keys;
      std::vector<double> p;
      double sum = 0;
      for (int64_t j = 0; j < seen; ++j) {
        double s = 0;
        for (int64_t d = 0; d < h.width; ++d)
          s += static_cast<double>(q[row * h.width + d]) * k[(head * h.keys + j) * h.width + d];
        p.push_back(s * scale);
      }
      const double most = seen ? *std::max_element(p.begin(), p.end()) : 0;
      for (double& e : p) sum += e = std::exp(e - most);
      lse.push_back(seen ? std::log(sum) + most : -std::numeric_limits<double>::infinity());
      double inner = 0;
      std::vector<double> dp(p.size());
      for (int64_t j = 0; j < seen; ++j) {
        const auto i = static_cast<size_t>(j);
        p[i] /= sum;
        for (int64_t d = 0; d < h.value_width; ++d) {
          const int64_t at = (head * h.keys + j) * h.value_width + d;
          out[static_cast<size_t>(row * h.value_width + d)] += p[i] * v[at];
          dv[static_cast<size_t>(at)] += p[i] * dout[row * h.value_width + d];
          dp[i] += static_cast<double>(dout[row * h.value_width + d]) * v[at];
        }
        inner += p[i] * dp[i];
      }
      for (int64_t j = 0; j < seen; ++j) {
        const double ds = p[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - inner) * scale;
        for (int64_t d = 0; d < h.width; ++d) {
          const int64_t at = (head * h.keys + j) * h.width + d;
          dq[static_cast<size_t>(row * h.width + d)] += ds * k[at];
          dk[static_cast<size_t>(at)] += ds * q[row * h.width + d];
        }
      }
    }
  }
};

// Returns integers whose scores are exact in f32, far from 0 and close to each other.
Tensor far_rows(Random& random, const Dims& dims, float far) {
  const Tensor near = random.integers<int64_t>(dims, -1, 2);
  std::vector<float> v;
  for (int64_t i = 0; i < near.size(); ++i)
    v.push_back(i % dims.back() == 0 ? far : static_cast<float>(near.data<int64_t>()[i]));
  return {dims, v};
}

const Heads kHeads[] = {{2, 4, 4, 33, 33, 32, 32, true},   {1, 2, 2, 128, 128, 32, 32, true},
                        {2, 6, 2, 20, 300, 16, 24, false}, {1, 4, 1, 40, 170, 20, 20, true},
                        {1, 1, 1, 1, 150, 64, 64, true},   {1, 2, 1, 9, 4, 8, 8, true},
                        {1, 1, 1, 300, 290, 12, 7, true},  {3, 1, 1, 5, 1, 3, 1, false}};

}  // namespace

TEST_CASE("attention and its gradient, causal or not, with shared heads") {
  Random random(81);
  for (const Heads& h : kHeads) {
    const Tensor q = random.floats(h.q(), -2, 2), k = random.floats(h.k(), -2, 2), v = random.floats(h.v()),
                 dout = random.floats(h.out());
    const double scale = 1 / std::sqrt(static_cast<double>(h.width));
    KernelCall forward("attention"), backward("attention_grad");
    const auto y = forward.set("causal", h.causal ? 1 : 0).in(q).in(k).in(v).out(h.out()).out(h.lse()).run();
    backward.set("causal", h.causal ? 1 : 0).set("scale", scale).in(q).in(k).in(v).in(y[0]).in(y[1]).in(dout);
    const auto g = backward.out(h.q()).out(h.k()).out(h.v()).run();
    const Reference e(h, scale, q, k, v, dout);
    INFO(h.queries << " queries, " << h.keys << " keys, width " << h.width << (h.causal ? ", causal" : ""));
    require_close(y[0], e.out, 1e-5, 2e-6);
    require_close(y[1], e.lse, 1e-6, 2e-6);
    require_close(g[0], e.dq, 1e-4, 1e-5);
    require_close(g[1], e.dk, 1e-4, 2e-5);
    require_close(g[2], e.dv, 1e-4, 2e-5);
  }
}

namespace {

// [a, b, c, d] -> [a, c, b, d]
Tensor swapped(const Tensor& x) {
  std::vector<float> v;
  for (int64_t a = 0; a < x.dims[0]; ++a)
    for (int64_t c = 0; c < x.dims[2]; ++c)
      for (int64_t b = 0; b < x.dims[1]; ++b)
        for (int64_t d = 0; d < x.dims[3]; ++d) v.push_back(x[((a * x.dims[1] + b) * x.dims[2] + c) * x.dims[3] + d]);
  return {{x.dims[0], x.dims[2], x.dims[1], x.dims[3]}, v};
}
Dims swapped(const Dims& d) { return {d[0], d[2], d[1], d[3]}; }

}  // namespace

TEST_CASE("attention with the positions first has the bits of attention with the heads first") {
  Random random(84);
  for (const Heads& h : kHeads) {
    const Tensor q = random.floats(h.q(), -2, 2), k = random.floats(h.k(), -2, 2), v = random.floats(h.v()),
                 dout = random.floats(h.out());
    KernelCall forward("attention"), backward("attention_grad"), other("attention"), other_back("attention_grad");
    for (KernelCall* call : {&forward, &backward, &other, &other_back}) call->set("causal", h.causal ? 1 : 0);
    for (KernelCall* call : {&other, &other_back}) call->set("positions_first", 1);
    const auto y = forward.in(q).in(k).in(v).out(h.out()).out(h.lse()).run();
    const auto g = backward.in(q).in(k).in(v).in(y[0]).in(y[1]).in(dout).out(h.q()).out(h.k()).out(h.v()).run();
    other.in(swapped(q)).in(swapped(k)).in(swapped(v));
    const auto z = other.out(swapped(h.out())).out(h.lse()).run();
    other_back.in(swapped(q)).in(swapped(k)).in(swapped(v)).in(z[0]).in(z[1]).in(swapped(dout));
    const auto s = other_back.out(swapped(h.q())).out(swapped(h.k())).out(swapped(h.v())).run();
    CHECK(swapped(z[0]).bytes == y[0].bytes);
    CHECK(z[1].bytes == y[1].bytes);
    for (size_t i = 0; i < 3; ++i) CHECK(swapped(s[i]).bytes == g[i].bytes);
  }
}

TEST_CASE("attention: long sequences of few heads have a part for each of many threads") {
  Random random(86);
  const Heads h{1, 2, 2, 1024, 1024, 4, 4, false};
  const Tensor q = random.floats(h.q(), -2, 2), k = random.floats(h.k(), -2, 2), v = random.floats(h.v());
  KernelCall forward("attention");
  const auto y = forward.in(q).in(k).in(v).out(h.out()).out(h.lse()).run();
  CHECK(forward.parts() == 32);
  const Reference e(h, 1 / std::sqrt(static_cast<double>(h.width)), q, k, v, random.floats(h.out()));
  require_close(y[0], e.out, 1e-5, 2e-6);
  require_close(y[1], e.lse, 1e-6, 2e-6);
}

TEST_CASE("attention: distant scores do not overflow") {
  Random random(82);
  const Tensor q = random.floats({1, 1, 4, 8}, 50, 60), k = random.floats({1, 1, 400, 8}, -60, 60),
               v = random.floats({1, 1, 400, 8});
  const auto y = KernelCall("attention").set("scale", 1.0).in(q).in(k).in(v).out({1, 1, 4, 8}).out({1, 1, 4}).run();
  for (int64_t i = 0; i < y[0].size(); ++i) CHECK(std::abs(y[0][i]) <= 1);
}

TEST_CASE("attention: large scores keep precision") {
  Random random(86);
  for (const Heads& h : kHeads)
    for (const float far : {64.0f, -256.0f, 1024.0f}) {
      const Tensor q = far_rows(random, h.q(), far), k = far_rows(random, h.k(), std::abs(far)),
                   v = random.floats(h.v()), dout = random.floats(h.out());
      KernelCall forward("attention"), backward("attention_grad");
      for (KernelCall* call : {&forward, &backward}) call->set("causal", h.causal ? 1 : 0).set("scale", 1.0);
      const auto y = forward.in(q).in(k).in(v).out(h.out()).out(h.lse()).run();
      backward.in(q).in(k).in(v).in(y[0]).in(y[1]).in(dout);
      const auto g = backward.out(h.q()).out(h.k()).out(h.v()).run();
      const Reference e(h, 1, q, k, v, dout);
      INFO(h.queries << " queries, " << h.keys << " keys, width " << h.width << (h.causal ? ", causal, " : ", ")
                     << far);
      require_close(y[0], e.out, 1e-5, 2e-6);
      require_close(g[0], e.dq, 1e-5, 1e-5 * std::abs(far));
      require_close(g[1], e.dk, 1e-5, 1e-5 * std::abs(far));
      require_close(g[2], e.dv, 1e-5, 2e-5);
    }
}

TEST_CASE("attention: a query that sees one key has gradients of exactly 0") {
  Random random(87);
  for (const Heads& h : {Heads{2, 2, 1, 3, 1, 8, 5, false}, Heads{1, 2, 2, 1, 1, 8, 8, true},
                         Heads{1, 1, 1, 40, 40, 8, 8, true}, Heads{1, 1, 1, 45, 5, 8, 8, true}}) {
    const Tensor q = random.floats(h.q()), k = random.floats(h.k()), v = random.floats(h.v()),
                 dout = random.floats(h.out());
    KernelCall forward("attention"), backward("attention_grad");
    for (KernelCall* call : {&forward, &backward}) call->set("causal", h.causal ? 1 : 0);
    const auto y = forward.in(q).in(k).in(v).out(h.out()).out(h.lse()).run();
    const auto g = backward.in(q).in(k).in(v).in(y[0]).in(y[1]).in(dout).out(h.q()).out(h.k()).out(h.v()).run();
    INFO(h.queries << " queries, " << h.keys << " keys");
    const int64_t rows = h.keys == 1 ? h.batch * h.heads * h.queries : h.queries - h.keys + 1;
    for (int64_t i = 0; i < rows * h.width; ++i) CHECK(g[0][i] == 0);
    if (h.keys == 1)
      for (int64_t i = 0; i < g[1].size(); ++i) CHECK(g[1][i] == 0);
    else
      CHECK(g[0][rows * h.width] != 0);
  }
}

TEST_CASE("attention: a negative scale is declined") {
  KernelCall call("attention");
  call.set("scale", -1.0)
      .in(Tensor({1, 1, 4, 8}, std::vector<float>(32)))
      .in(Tensor({1, 1, 4, 8}, std::vector<float>(32)));
  CHECK_FALSE(call.in(Tensor({1, 1, 4, 8}, std::vector<float>(32))).out({1, 1, 4, 8}).out({1, 1, 4}).served());
}

TEST_CASE("attention: a NaN key affects only queries that see it") {
  Random random(85);
  const Dims dims{1, 2, 50, 8};
  Tensor k = random.floats(dims);
  const Tensor q = random.floats(dims), v = random.floats(dims);
  std::vector<float> values;
  for (int64_t i = 0; i < k.size(); ++i) values.push_back(k[i]);
  values[39 * 8 + 3] = std::numeric_limits<float>::quiet_NaN();
  k = {dims, values};
  const auto y = KernelCall("attention").set("causal", 1).in(q).in(k).in(v).out(dims).out({1, 2, 50}).run();
  for (int64_t i = 0; i < y[0].size(); ++i) CHECK(std::isnan(y[0][i]) == (i >= 39 * 8 && i < 50 * 8));
  for (int64_t i = 0; i < y[1].size(); ++i) CHECK(std::isnan(y[1][i]) == (i >= 39 && i < 50));
}

TEST_CASE("rope: rotation and its inverse") {
  Random random(83);
  const Tensor x = random.floats({2, 3, 50, 22});
  const Tensor y = KernelCall("rope").set("base", 1000.0).set("offset", 7).in(x).out(x.dims).run_one();
  const Tensor back =
      KernelCall("rope").set("base", 1000.0).set("offset", 7).set("inverse", 1).in(y).out(x.dims).run_one();
  std::vector<double> e, same;
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t row = i / 22, d = i % 22, pair = d % 11;
    const double angle = static_cast<double>(7 + row % 50) * std::pow(1000.0, -static_cast<double>(pair) / 11);
    const double a = x[row * 22 + pair], b = x[row * 22 + pair + 11];
    e.push_back(d < 11 ? a * std::cos(angle) - b * std::sin(angle) : b * std::cos(angle) + a * std::sin(angle));
    same.push_back(x[i]);
  }
  require_close(y, e, 1e-6, 1e-6);
  require_close(back, same, 1e-5, 1e-6);
  KernelCall by_position("rope");
  by_position.set("base", 1000.0).set("offset", 7).set("positions_first", 1);
  const Tensor rows = by_position.in(swapped(x)).out(swapped(x.dims)).run_one();
  CHECK(swapped(rows).bytes == y.bytes);
}

}  // namespace harmonics::engine::kernel_tests
