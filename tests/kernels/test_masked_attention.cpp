// Compares attention with masks, biases, windows, caps and sinks, and its gradient, with the definition in double.
#include <algorithm>
#include <limits>

#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

enum class Rows { none, shared, batch, head };  // [T, S], [B, 1, T, S], [B, H, T, S]

struct MaskedCase {
  int64_t batch, shared, group, queries, keys, width, value_width;
  bool causal = false;
  int64_t window = 0;
  double softcap = 0;
  bool lengths = false;
  Rows mask = Rows::none, bias = Rows::none;
  bool sinks = false, positions_first = false;

  int64_t heads() const { return shared * group; }
  Dims rows(int64_t n, int64_t h, int64_t w) const {
    return positions_first ? Dims{batch, n, h, w} : Dims{batch, h, n, w};
  }
  size_t at(int64_t b, int64_t h, int64_t t, int64_t d, int64_t n, int64_t all, int64_t w) const {
    return static_cast<size_t>((positions_first ? (b * n + t) * all + h : (b * all + h) * n + t) * w + d);
  }
  Dims table(Rows rows) const {
    if (rows == Rows::shared) return {queries, keys};
    return {batch, rows == Rows::head ? heads() : 1, queries, keys};
  }
  size_t in_table(Rows rows, int64_t b, int64_t h, int64_t t, int64_t j) const {
    const int64_t table = rows == Rows::shared ? 0 : rows == Rows::batch ? b : b * heads() + h;
    return static_cast<size_t>((table * queries + t) * keys + j);
  }
  size_t row(int64_t b, int64_t h, int64_t t) const { return static_cast<size_t>((b * heads() + h) * queries + t); }
  std::string operands() const {
    std::string list;
    const auto add = [&](bool given, const char* name) {
      if (given) list += (list.empty() ? "" : ",") + std::string(name);
    };
    add(sinks, "sinks");
    add(lengths, "lengths");
    add(mask != Rows::none, "mask");
    add(bias != Rows::none, "bias");
    return list;
  }
  std::string text() const {
    return std::to_string(batch) + " x " + std::to_string(shared) + " x " + std::to_string(group) + " heads, " +
           std::to_string(queries) + " queries, " + std::to_string(keys) + " keys, width " + std::to_string(width) +
           ", window " + std::to_string(window) + ", cap " + std::to_string(softcap) + (causal ? ", causal, " : ", ") +
           operands() + (positions_first ? ", positions first" : "");
  }
};

struct MaskedNumbers {
  Tensor q, k, v, dout, lengths, mask, bias, sinks;

  MaskedNumbers(const MaskedCase& c, Random& random)
      : q(random.floats(c.rows(c.queries, c.heads(), c.width), -2, 2)),
        k(random.floats(c.rows(c.keys, c.shared, c.width), -2, 2)),
        v(random.floats(c.rows(c.keys, c.shared, c.value_width))),
        dout(random.floats(c.rows(c.queries, c.heads(), c.value_width))),
        sinks(random.floats({c.heads()}, -1, 3)) {
    std::vector<int32_t> valid;
    for (int64_t b = 0; b < c.batch; ++b)
      valid.push_back(static_cast<int32_t>(c.lengths ? random.below(c.keys + 2) : c.keys));
    lengths = {{c.batch}, valid};
    if (c.mask != Rows::none) {
      mask = random.integers<uint8_t>(c.table(c.mask), 0, 2);
      mask.dtype = HX_BOOL;
    }
    if (c.bias != Rows::none) bias = random.floats(c.table(c.bias), -3, 3);
    // Rows beyond the lengths must not affect results.
    std::vector<float> keys = k.values<float>(), values = v.values<float>();
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t j = valid[static_cast<size_t>(b)]; j < c.keys; ++j)
        for (int64_t h = 0; h < c.shared; ++h) {
          keys[c.at(b, h, j, 0, c.keys, c.shared, c.width)] = kNaN;
          values[c.at(b, h, j, 0, c.keys, c.shared, c.value_width)] = kNaN;
        }
    k = {k.dims, keys};
    v = {v.dims, values};
  }
};

struct Exact {
  std::vector<double> out, lse, dq, dk, dv, dbias, dsinks;

  Exact(const MaskedCase& c, const MaskedNumbers& n)
      : out(static_cast<size_t>(n.dout.size())),
        lse(static_cast<size_t>(c.batch * c.heads() * c.queries)),
        dq(static_cast<size_t>(n.q.size())),
        dk(static_cast<size_t>(n.k.size())),
        dv(static_cast<size_t>(n.v.size())),
        dbias(static_cast<size_t>(n.bias.dims.empty() ? 0 : n.bias.size())),
        dsinks(static_cast<size_t>(c.heads())) {
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < c.heads(); ++h)
        for (int64_t t = 0; t < c.queries; ++t) query(c, n, b, h, t);
  }

 private:
  void query(const MaskedCase& c, const MaskedNumbers& n, int64_t b, int64_t h, int64_t t) {
    const double scale = 1 / std::sqrt(static_cast<double>(c.width)), unseen = -INFINITY;
    const int64_t valid = std::min<int64_t>(n.lengths.data<int32_t>()[b], c.keys), position = valid - c.queries + t;
    const auto keys = static_cast<size_t>(c.keys);
    std::vector<double> s(keys, unseen), slope(keys, scale), dp(keys);
    double largest = c.sinks ? n.sinks[h] : unseen, sum = 0, inner = 0;
    const auto q_at = [&](int64_t d) { return c.at(b, h, t, d, c.queries, c.heads(), c.width); };
    const auto o_at = [&](int64_t d) { return c.at(b, h, t, d, c.queries, c.heads(), c.value_width); };
    const auto k_at = [&](int64_t j, int64_t d) { return c.at(b, h / c.group, j, d, c.keys, c.shared, c.width); };
    const auto v_at = [&](int64_t j, int64_t d) { return c.at(b, h / c.group, j, d, c.keys, c.shared, c.value_width); };
    for (int64_t j = 0; j < valid; ++j) {
      const auto i = static_cast<size_t>(j);
      if ((c.causal && j > position) || (c.window && j <= position - c.window)) continue;
      if (c.mask != Rows::none && !n.mask.data<uint8_t>()[c.in_table(c.mask, b, h, t, j)]) continue;
      double x = 0;
      for (int64_t d = 0; d < c.width; ++d)
        x += static_cast<double>(n.q.data<float>()[q_at(d)]) * n.k.data<float>()[k_at(j, d)];
      x *= scale;
      if (c.softcap > 0) {
        const double bent = std::tanh(x / c.softcap);
        x = c.softcap * bent;
        slope[i] *= 1 - bent * bent;
      }
      if (c.bias != Rows::none) x += n.bias.data<float>()[c.in_table(c.bias, b, h, t, j)];
      largest = std::max(largest, s[i] = x);
    }
    const double sink = c.sinks ? std::exp(n.sinks[h] - largest) : 0;
    if (largest > unseen) sum = sink;
    for (double& x : s) sum += x = x == unseen ? 0 : std::exp(x - largest);
    lse[c.row(b, h, t)] = sum == 0 ? unseen : std::log(sum) + largest;
    if (sum == 0) return;
    for (int64_t j = 0; j < valid; ++j) {
      const auto i = static_cast<size_t>(j);
      if (s[i] == 0) continue;
      s[i] /= sum;
      for (int64_t d = 0; d < c.value_width; ++d) {
        const double dout_d = n.dout.data<float>()[o_at(d)], value = n.v.data<float>()[v_at(j, d)];
        out[o_at(d)] += s[i] * value;
        dv[v_at(j, d)] += s[i] * dout_d;
        dp[i] += dout_d * value;
      }
      inner += s[i] * dp[i];
    }
    for (int64_t j = 0; j < valid; ++j) {
      const auto i = static_cast<size_t>(j);
      if (s[i] == 0) continue;
      const double ds = s[i] * (dp[i] - inner);
      if (c.bias != Rows::none) dbias[c.in_table(c.bias, b, h, t, j)] += ds;
      for (int64_t d = 0; d < c.width; ++d) {
        dq[q_at(d)] += ds * slope[i] * n.k.data<float>()[k_at(j, d)];
        dk[k_at(j, d)] += ds * slope[i] * n.q.data<float>()[q_at(d)];
      }
    }
    dsinks[static_cast<size_t>(h)] -= sink / sum * inner;
  }
};

void set(const MaskedCase& c, KernelCall& call) {
  call.set("causal", c.causal ? 1 : 0).set("positions_first", c.positions_first ? 1 : 0);
  if (c.window) call.set("window", c.window);
  if (c.softcap > 0) call.set("softcap", c.softcap);
  if (const std::string list = c.operands(); !list.empty()) call.set("operands", list.c_str());
}
void give(const MaskedCase& c, const MaskedNumbers& n, KernelCall& call) {
  if (c.sinks) call.in(n.sinks);
  if (c.lengths) call.in(n.lengths);
  if (c.mask != Rows::none) call.in(n.mask);
  if (c.bias != Rows::none) call.in(n.bias);
}
std::vector<Tensor> forward(const MaskedCase& c, const MaskedNumbers& n) {
  KernelCall call("attention");
  set(c, call);
  give(c, n, call.in(n.q).in(n.k).in(n.v));
  return call.out(n.dout.dims).out({c.batch, c.heads(), c.queries}).run();
}
KernelCall backward(const MaskedCase& c, const MaskedNumbers& n, const std::vector<Tensor>& y) {
  KernelCall call("attention_grad");
  set(c, call);
  give(c, n, call.in(n.q).in(n.k).in(n.v).in(y[0]).in(y[1]).in(n.dout));
  call.out(n.q.dims).out(n.k.dims).out(n.v.dims);
  if (c.sinks) call.out(n.sinks.dims);  // in the order of `operands`
  if (c.bias != Rows::none) call.out(n.bias.dims);
  return call;
}

const MaskedCase kCases[] = {{2, 2, 3, 9, 37, 16, 16, false, 0, 0, false, Rows::shared},
                             {2, 2, 2, 33, 33, 8, 12, true, 0, 0, false, Rows::head, Rows::none, false, true},
                             {2, 1, 3, 40, 170, 20, 7, true, 0, 0, false, Rows::none, Rows::shared},
                             {2, 2, 2, 5, 600, 13, 9, false, 0, 0, true, Rows::batch, Rows::batch},
                             {2, 2, 2, 35, 131, 16, 24, true, 20, 1.5, true, Rows::batch, Rows::head, true},
                             {2, 2, 2, 35, 131, 16, 24, true, 20, 1.5, true, Rows::batch, Rows::head, true, true},
                             {1, 1, 1, 1, 1, 5, 3, false, 0, 0, false, Rows::none, Rows::shared},
                             {3, 2, 1, 7, 5, 8, 8, true, 0, 0, true, Rows::none, Rows::batch},
                             {2, 3, 2, 70, 300, 8, 8, true, 65, 0, true},
                             {2, 2, 2, 12, 12, 16, 16, true, 0, 2},
                             {2, 2, 3, 18, 40, 16, 16, false, 0, 0, true, Rows::none, Rows::none, true, true},
                             {1, 20, 1, 3, 1030, 8, 8, true, 0, 0, true, Rows::head, Rows::shared, true}};

}  // namespace

TEST_CASE("attention with masks and biases by definition") {
  Random random(391);
  for (const MaskedCase& c : kCases)
    for (int round = 0; round < 2; ++round) {
      INFO(c.text());
      const MaskedNumbers n(c, random);
      const Exact e(c, n);
      const std::vector<Tensor> y = forward(c, n);
      require_close(y[0], e.out, 2e-5, 4e-6);
      require_close(y[1], e.lse, 2e-6, 4e-6);
    }
}

TEST_CASE("the gradient of attention with all optional inputs by definition") {
  Random random(392);
  for (const MaskedCase& c : kCases)
    for (int round = 0; round < 2; ++round) {
      INFO(c.text());
      const MaskedNumbers n(c, random);
      const Exact e(c, n);
      KernelCall call = backward(c, n, forward(c, n));
      const std::vector<Tensor> g = call.run();
      CHECK(call.kernel() == "sequence attention");
      require_close(g[0], e.dq, 1e-4, 2e-5);
      require_close(g[1], e.dk, 1e-4, 3e-5);
      require_close(g[2], e.dv, 1e-4, 3e-5);
      size_t next = 3;
      if (c.sinks) require_close(g[next++], e.dsinks, 1e-4, 3e-5);
      if (c.bias != Rows::none) require_close(g[next], e.dbias, 1e-4, 3e-5);
    }
}

TEST_CASE("attention with a mask and a bias: a query has the same bits in every chunk") {
  Random random(393);
  const MaskedCase whole{2, 2, 3, 64, 1200, 24, 20, false, 0, 0, false, Rows::batch, Rows::head, false, true};
  const MaskedNumbers n(whole, random);
  const std::vector<Tensor> expected = forward(whole, n);
  const auto queries = [&](const Tensor& x, int64_t outer, int64_t first, int64_t count, int64_t bytes) {
    Tensor part = x;
    part.bytes.clear();
    for (int64_t i = 0; i < outer; ++i) {
      const auto at = x.bytes.begin() + (i * whole.queries + first) * bytes;
      part.bytes.insert(part.bytes.end(), at, at + count * bytes);
    }
    return part;
  };
  for (const int64_t chunk : {1, 8, 32})
    for (int64_t first = 0; first < whole.queries; first += chunk == 1 ? 13 : chunk) {
      MaskedCase c = whole;
      c.queries = chunk;
      MaskedNumbers part = n;
      part.q = queries(n.q, c.batch, first, chunk, c.heads() * c.width * 4);
      part.q.dims[1] = chunk;
      part.mask = queries(n.mask, c.batch, first, chunk, c.keys);
      part.bias = queries(n.bias, c.batch * c.heads(), first, chunk, c.keys * 4);
      part.mask.dims[2] = part.bias.dims[2] = chunk;
      part.dout.dims[1] = chunk;
      const std::vector<Tensor> y = forward(c, part);
      REQUIRE(y[0].bytes == queries(expected[0], c.batch, first, chunk, c.heads() * c.value_width * 4).bytes);
      REQUIRE(y[1].bytes == queries(expected[1], c.batch * c.heads(), first, chunk, 4).bytes);
    }
}

TEST_CASE("attention with optional inputs keeps no scores in memory") {
  Random random(394);
  std::vector<uint64_t> forward_bytes, backward_bytes;
  for (const int64_t t : {512, 1024}) {
    const MaskedCase c{1, 2, 2, t, t, 16, 16, true, 0, 0, true, Rows::none, Rows::shared, true};
    const MaskedNumbers n(c, random);
    KernelCall call("attention");
    set(c, call);
    give(c, n, call.in(n.q).in(n.k).in(n.v));
    forward_bytes.push_back(call.out(n.dout.dims).out({c.batch, c.heads(), t}).workspace());
    const std::vector<Tensor> y{n.dout, Tensor::zeros({c.batch, c.heads(), t})};
    backward_bytes.push_back(backward(c, n, y).workspace());
  }
  for (const auto& bytes : {forward_bytes, backward_bytes}) CHECK(bytes[1] <= 2 * bytes[0] + 4096);
}

TEST_CASE("the gradient of attention: a query that sees one key has gradients of exactly 0") {
  Random random(395);
  const MaskedCase c{2, 2, 2, 40, 40, 8, 5, true, 1, 0, false, Rows::none, Rows::shared};
  const MaskedNumbers n(c, random);
  const std::vector<Tensor> g = backward(c, n, forward(c, n)).run();
  for (const size_t i : {0u, 1u, 3u})
    for (int64_t j = 0; j < g[i].size(); ++j) REQUIRE(g[i][j] == 0);
}

}  // namespace harmonics::engine::kernel_tests
