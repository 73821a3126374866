// Paged caches: attention and appended rows, compared with contiguous caches.
#include <algorithm>
#include <limits>
#include <numeric>

#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

constexpr float kBeyond = std::numeric_limits<float>::quiet_NaN();

struct PageCase {
  int64_t batch, shared, group, queries, entries, page, width, value_width;
  uint32_t cache = HX_F32;
  bool causal = true;
  int64_t window = 0;
  double softcap = 0;
  bool sinks = false, bias = false, positions_first = true;

  int64_t heads() const { return shared * group; }
  int64_t keys() const { return entries * page; }
  int64_t pool() const { return batch * entries + 3; }
  Dims rows(int64_t b, int64_t n, int64_t h, int64_t w) const {
    return positions_first ? Dims{b, n, h, w} : Dims{b, h, n, w};
  }
  std::string text() const {
    return std::to_string(batch) + " x " + std::to_string(shared) + " x " + std::to_string(group) + " heads, " +
           std::to_string(queries) + " queries, " + std::to_string(entries) + " pages of " + std::to_string(page) +
           ", width " + std::to_string(width) + ", type " + std::to_string(cache) + ", window " +
           std::to_string(window) + (causal ? ", causal" : "") + (positions_first ? "" : ", heads first");
  }
};

Tensor in_type(const PageCase& c, const Tensor& x) {
  return c.cache == HX_F16 ? as_half(x) : c.cache == HX_BF16 ? as_bfloat(x) : c.cache == HX_Q8_0 ? as_eight_bits(x) : x;
}

// The tensors of a call, contiguous and paged.
struct PageNumbers {
  Tensor q, lengths, sinks, bias, pages, k[2], v[2];  // k, v: contiguous, paged

  PageNumbers(const PageCase& c, Random& random, const std::vector<int32_t>& valid)
      : q(random.floats(c.rows(c.batch, c.queries, c.heads(), c.width), -2, 2)),
        lengths({c.batch}, valid),
        sinks(random.floats({c.heads()}, -1, 3)),
        bias(random.floats({c.batch, 1, c.queries, c.keys()})) {
    std::vector<int32_t> order(static_cast<size_t>(c.pool()));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random.engine());
    std::vector<int32_t> table(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(c.batch * c.entries));
    give(c, random, table, c.width, k);
    give(c, random, table, c.value_width, v);
    // Entries that no query reads may be any page, or invalid.
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t n = (std::max(0, valid[static_cast<size_t>(b)]) + c.page - 1) / c.page; n < c.entries; ++n)
        table[static_cast<size_t>(b * c.entries + n)] =
            std::array{-1, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(), 0}[n % 4];
    pages = {{c.batch, c.entries}, table};
  }

 private:
  void give(const PageCase& c, Random& random, const std::vector<int32_t>& table, int64_t width, Tensor* to) {
    std::vector<float> numbers = random.floats(c.rows(c.batch, c.keys(), c.shared, width), -2, 2).values<float>();
    const int64_t pieces = c.positions_first ? 1 : c.shared;  // contiguous pieces of a page
    const auto row = static_cast<size_t>(c.positions_first ? c.shared * width : width);
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < pieces; ++h)
        for (int64_t s = std::max(0, lengths.data<int32_t>()[b]); s < c.keys(); ++s)
          std::fill_n(
              numbers.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>((b * pieces + h) * c.keys() + s) * row),
              row, kBeyond);
    to[0] = in_type(c, {c.rows(c.batch, c.keys(), c.shared, width), numbers});
    const Dims dims = c.rows(c.pool(), c.page, c.shared, width);
    to[1] = in_type(c, {dims, std::vector<float>(static_cast<size_t>(elements(dims)), kBeyond)});
    const size_t bytes = to[0].bytes.size() / static_cast<size_t>(c.batch * c.entries * pieces);
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t n = 0; n < c.entries; ++n)
        for (int64_t h = 0; h < pieces; ++h)
          std::memcpy(to[1].bytes.data() +
                          static_cast<size_t>(table[static_cast<size_t>(b * c.entries + n)] * pieces + h) * bytes,
                      to[0].bytes.data() + static_cast<size_t>(((b * pieces) + h) * c.entries + n) * bytes, bytes);
  }
};

std::vector<Tensor> attend_pages(const PageCase& c, const PageNumbers& n, bool paged, bool with_lengths = true) {
  KernelCall call("attention");
  call.set("causal", c.causal ? 1 : 0).set("positions_first", c.positions_first ? 1 : 0);
  if (c.window) call.set("window", c.window);
  if (c.softcap > 0) call.set("softcap", c.softcap);
  std::string names;
  std::vector<Tensor> more;
  const auto add = [&](bool given, const char* name, const Tensor& x) {
    if (!given) return;
    names += (names.empty() ? "" : ",") + std::string(name);
    more.push_back(x);
  };
  add(c.bias, "bias", n.bias);
  add(with_lengths, "lengths", n.lengths);
  add(paged, "pages", n.pages);
  add(c.sinks, "sinks", n.sinks);
  if (!names.empty()) call.set("operands", names.c_str());
  call.in(n.q).in(n.k[paged]).in(n.v[paged]);
  for (const Tensor& x : more) call.in(x);
  call.out(c.rows(c.batch, c.queries, c.heads(), c.value_width)).out({c.batch, c.heads(), c.queries});
  const std::vector<Tensor> results = call.run();
  CHECK(call.kernel() == "cached attention");
  return results;
}

}  // namespace

TEST_CASE("attention over shuffled pages has the bits of a cache in one piece") {
  Random random(661);
  const PageCase cases[] = {{1, 2, 4, 1, 20, 32, 64, 64},
                            {5, 2, 3, 1, 40, 16, 16, 24},
                            {4, 1, 8, 1, 70, 16, 128, 128, HX_F16},
                            {3, 2, 2, 1, 30, 32, 64, 32, HX_Q8_0},
                            {2, 2, 4, 7, 36, 16, 20, 12},
                            {3, 2, 4, 9, 20, 32, 32, 64, HX_Q8_0},
                            {3, 2, 8, 1, 30, 32, 64, 32, HX_Q8_0},
                            {2, 1, 6, 9, 40, 5, 32, 64, HX_Q8_0, true, 70},
                            {2, 1, 8, 32, 40, 16, 17, 33, HX_F16},
                            {2, 1, 8, 32, 40, 16, 17, 33, HX_BF16},
                            {2, 3, 1, 40, 9, 16, 24, 24, HX_F32, true, 50, 1.5, true},
                            {2, 2, 2, 2, 25, 5, 13, 9, HX_F16, false, 0, 0, true, true},
                            {2, 2, 2, 3, 60, 1, 16, 16, HX_F32, true, 0, 0, false, true},
                            {2, 2, 12, 1, 3, 700, 32, 32, HX_F32, true, 300},
                            {3, 2, 2, 3, 24, 32, 64, 32, HX_Q8_0, true, 0, 0, false, false, false},
                            {2, 2, 10, 2, 24, 16, 12, 20, HX_F32, true, 0, 0, true, false, false}};
  for (const PageCase& c : cases)
    for (int round = 0; round < 3; ++round) {
      INFO(c.text());
      std::vector<int32_t> valid;
      for (int64_t b = 0; b < c.batch; ++b)  // full, of different lengths, short or empty
        valid.push_back(static_cast<int32_t>(round == 0   ? c.keys() + b
                                             : round == 1 ? random.below(c.keys() + 1)
                                                          : random.below(std::min(c.keys(), c.queries + 3) + 1) - b));
      const PageNumbers n(c, random, valid);
      const std::vector<Tensor> expected = attend_pages(c, n, false), y = attend_pages(c, n, true);
      REQUIRE(y[0].bytes == expected[0].bytes);
      REQUIRE(y[1].bytes == expected[1].bytes);
      if (round == 0) REQUIRE(attend_pages(c, n, true, false)[0].bytes == expected[0].bytes);
    }
}

TEST_CASE("attention over pages: an item has the same bits alone, among others and in chunks") {
  Random random(662);
  for (const auto& [type, group] : {std::pair{HX_F32, 4}, {HX_F16, 4}, {HX_Q8_0, 4}, {HX_Q8_0, 8}})
    for (const int64_t queries : {1, 24}) {
      const PageCase all{5, 2, group, queries, 45, 32, 32, 32, type};
      const PageNumbers n(all, random, {1440, 30, 700, 0, 513});
      const std::vector<Tensor> expected = attend_pages(all, n, true);
      const int64_t head_row = all.heads() * all.width;
      for (int64_t b = 0; b < all.batch; ++b)
        for (const int64_t chunk : {int64_t{1}, int64_t{8}, queries}) {
          if (chunk > queries) continue;
          PageCase c = all;
          c.batch = 1;
          c.queries = chunk;
          PageNumbers own = n;
          own.pages = {{1, c.entries},
                       std::vector<int32_t>(n.pages.data<int32_t>() + b * c.entries,
                                            n.pages.data<int32_t>() + (b + 1) * c.entries)};
          for (int64_t first = 0; first < queries; first += chunk) {
            const float* const q = n.q.data<float>() + (b * queries + first) * head_row;
            own.q = {{1, chunk, c.heads(), c.width}, std::vector<float>(q, q + chunk * head_row)};
            const auto length = static_cast<int32_t>(n.lengths.data<int32_t>()[b] - (queries - first - chunk));
            own.lengths = {{1}, std::vector<int32_t>{length}};
            if (length < 0) continue;
            const std::vector<Tensor> y = attend_pages(c, own, true);
            const float* const from = expected[0].data<float>() + (b * queries + first) * head_row;
            REQUIRE(std::memcmp(y[0].bytes.data(), from, y[0].bytes.size()) == 0);
          }
        }
    }
}

TEST_CASE("attention over pages: items share pages, and entries that name none read the nearest") {
  Random random(663);
  const PageCase c{3, 1, 2, 1, 4, 16, 16, 16};
  PageNumbers n(c, random, {64, 64, 64});
  std::vector<int32_t> table = n.pages.values<int32_t>();
  for (size_t i = 0; i < 3; ++i) table[4 + i] = table[i];  // item 1 shares the first 48 keys of item 0
  n.pages = {{3, 4}, table};
  for (Tensor* const x : {n.k, n.v})
    std::memcpy(x[0].bytes.data() + x[0].bytes.size() / 3, x[0].bytes.data(), x[0].bytes.size() / 4);
  CHECK(attend_pages(c, n, true)[0].bytes == attend_pages(c, n, false)[0].bytes);
  PageNumbers near = n, wrong = n;
  table[1] = 0, table[6] = static_cast<int32_t>(c.pool()) - 1;
  near.pages = {{3, 4}, table};
  table[1] = -7, table[6] = std::numeric_limits<int32_t>::max();
  wrong.pages = {{3, 4}, table};
  for (Tensor* const x : {&near.k[1], &near.v[1], &wrong.k[1], &wrong.v[1]}) *x = random.floats(x->dims);
  wrong.k[1] = near.k[1], wrong.v[1] = near.v[1];
  CHECK(attend_pages(c, wrong, true)[0].bytes == attend_pages(c, near, true)[0].bytes);
}

TEST_CASE("cache_append writes to pages: rows without a page nowhere, of equal places the last") {
  Random random(664);
  constexpr int64_t kBatch = 4, kPool = 9, kEntries = 3;
  for (const int64_t page : {1, 5, 16})
    for (const int64_t rows : {1, 7, 40})
      for (const int64_t width : {32, 96})
        for (const uint32_t type : {HX_F32, HX_F16, HX_BF16, HX_Q8_0})
          for (const bool narrows : {false, true}) {
            if (narrows == (type == HX_F32) || (!narrows && type == HX_Q8_0)) continue;
            const auto stored = [&](const Tensor& x) {
              return type == HX_F16    ? as_half(x)
                     : type == HX_BF16 ? as_bfloat(x)
                     : type == HX_Q8_0 ? as_eight_bits(x)
                                       : x;
            };
            const Tensor cache = stored(random.floats({kPool, page, 2, width}));
            const Tensor added = random.floats({kBatch, rows, 2, width}), block = stored(added);
            const Tensor start = random.integers<int32_t>({kBatch}, -3, kEntries * page + 2);
            const Tensor pages = random.integers<int32_t>({kBatch, kEntries}, -2, kPool + 2);
            std::vector<char> expected = cache.bytes;
            const size_t row = cache.bytes.size() / static_cast<size_t>(kPool * page);
            for (int64_t b = 0; b < kBatch; ++b)
              for (int64_t i = 0; i < rows; ++i) {
                const int64_t at = start.data<int32_t>()[b] + i;
                if (at < 0 || at >= kEntries * page) continue;
                const int64_t named = pages.data<int32_t>()[b * kEntries + at / page];
                if (named < 0 || named >= kPool) continue;
                std::memcpy(expected.data() + static_cast<size_t>(named * page + at % page) * row,
                            block.bytes.data() + static_cast<size_t>(b * rows + i) * row, row);
              }
            for (const bool in_place : {false, true}) {
              KernelCall call("cache_append");
              call.set("operands", "pages").in(cache).in(narrows ? added : block).in(start).in(pages);
              call.out(cache.dims, cache.dtype);
              if (in_place) call.alias(0, 0);
              CHECK(call.run_one().bytes == expected);
              CHECK(call.kernel() == "paged cache append");
              CHECK(call.in_place() == 1);
            }
          }
}

TEST_CASE("pages without their name, of other types and of gradients are declined") {
  const Tensor q = Tensor::zeros({2, 1, 4, 8}), pool = Tensor::zeros({5, 3, 2, 8}),
               pages({2, 2}, std::vector<int32_t>{0, 1, 2, 3}), lengths({2}, std::vector<int32_t>{1, 2});
  const auto served = [&](const char* operands, const Tensor& first, const Tensor& second) {
    KernelCall call("attention");
    call.set("positions_first", 1).set("operands", operands).in(q).in(pool).in(pool).in(first).in(second);
    return call.out(q.dims).out({2, 4, 1}).served();
  };
  CHECK(served("lengths,pages", lengths, pages));
  CHECK(served("pages,lengths", pages, lengths));
  CHECK_FALSE(served("lengths,pages", lengths, Tensor::zeros({2, 2})));
  CHECK_FALSE(served("lengths,tables", lengths, pages));
  CHECK_FALSE(served("lengths", lengths, pages));
  KernelCall gradient("attention_grad");
  gradient.set("positions_first", 1).set("operands", "pages").in(q).in(pool).in(pool).in(q);
  gradient.in(Tensor::zeros({2, 4, 1})).in(q).in(pages).out(q.dims).out(pool.dims).out(pool.dims);
  CHECK_FALSE(gradient.served());
  for (const char* const operands : {"", "tables", "pages"}) {
    KernelCall append("cache_append");
    if (*operands) append.set("operands", operands);
    append.in(pool).in(Tensor::zeros({2, 1, 2, 8})).in(lengths).in(pages).out(pool.dims);
    CHECK(append.served() == (std::string(operands) == "pages"));
  }
}

}  // namespace harmonics::engine::kernel_tests
