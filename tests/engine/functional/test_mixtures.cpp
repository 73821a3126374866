// Mixtures of experts composed of their functionals.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>

#include <harmonics/ops.hpp>

#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

HTensor drawn(std::mt19937_64& random, const Shape& shape) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.count(); ++i)
    values.push_back(static_cast<double>(static_cast<int64_t>(random() % 2001) - 1000) / 1000);
  return HTensor::from(shape, values);
}

struct Mixture {
  HTensor x, router, up, down;
  int64_t experts;

  Mixture(uint64_t seed, int64_t rows, int64_t count) : experts(count) {
    std::mt19937_64 random(seed);
    x = drawn(random, {rows, 6});
    router = drawn(random, {count, 6});
    up = drawn(random, {count, 9, 6});
    down = drawn(random, {count, 6, 9});
  }
  HTensor scores() const { return linear(x, router); }
  HTensor sparse(const AttributeMap& how) const {
    const auto chosen = apply("router", how, {scores()});
    const auto sent = apply("dispatch", AttributeMap().set("count", experts), {x, chosen[1]});
    const HTensor inner = silu(apply("grouped_linear", {}, {sent[0], sent[2], up}).at(0));
    return apply("combine", {}, {apply("grouped_linear", {}, {inner, sent[2], down}).at(0), sent[1], chosen[0]}).at(0);
  }
  // Computes all experts of all rows, times weights [rows, experts].
  HTensor dense(const HTensor& weights) const {
    HTensor sum;
    for (int64_t e = 0; e < experts; ++e) {
      const auto own = [&](const HTensor& w) {
        return reshape(slice_axis(w, 0, e, e + 1), {w.shape()[1], w.shape()[2]});
      };
      const HTensor y = linear(silu(linear(x, own(up))), own(down)) * slice_axis(weights, 1, e, e + 1);
      sum = sum ? sum + y : y;
    }
    return sum;
  }
};

void check_equal(const HTensor& a, const HTensor& b) {
  REQUIRE(a.shape() == b.shape());
  for (int64_t i = 0; i < a.size(); ++i) CHECK(std::abs(a.data<double>()[i] - b.data<double>()[i]) < 1e-12);
}

}  // namespace

TEST_CASE("a mixture of all experts is the dense one") {
  const Mixture m(1, 11, 5);
  const HTensor shares = softmax(m.scores());
  check_equal(m.sparse(AttributeMap().set("used", m.experts)), m.dense(shares));
  check_equal(m.sparse(AttributeMap().set("used", m.experts).set("normalized", true)), m.dense(shares));
}

TEST_CASE("a mixture has the chosen experts only, with weights that add up to 1 where asked") {
  const Mixture m(2, 13, 7);
  const HTensor shares = softmax(m.scores());
  std::vector<double> weights(static_cast<size_t>(shares.size()), 0.0);
  for (int64_t r = 0; r < 13; ++r) {
    const double* row = shares.data<double>() + r * 7;
    std::vector<int64_t> order{0, 1, 2, 3, 4, 5, 6};
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return row[a] > row[b]; });
    for (size_t j = 0; j < 2; ++j)
      weights[static_cast<size_t>(r * 7 + order[j])] = row[order[j]] / (row[order[0]] + row[order[1]]);
  }
  check_equal(m.sparse(AttributeMap().set("used", int64_t{2}).set("normalized", true)),
              m.dense(HTensor::from(shares.shape(), weights)));
}

TEST_CASE("a router that is limited to groups chooses from those with the best pairs") {
  const int64_t rows = 17, experts = 12, groups = 4, used_groups = 2, used = 5, size = experts / groups;
  std::mt19937_64 random(5);
  const HTensor scores = drawn(random, {rows, experts}), bias = drawn(random, {experts});
  const AttributeMap how = AttributeMap().set("used", used).set("groups", groups).set("used_groups", used_groups);
  const AttributeMap free = AttributeMap().set("used", used);
  for (const bool biased : {false, true}) {
    std::vector<HTensor> inputs{scores};
    if (biased) inputs.push_back(bias);
    const auto found = apply("router", how, inputs);
    const HTensor shares = softmax(scores);
    int64_t other = 0;  // rows that would select from further groups
    for (int64_t r = 0; r < rows; ++r) {
      const double* share = shares.data<double>() + r * experts;
      std::vector<double> preferred(share, share + experts);
      for (int64_t e = 0; biased && e < experts; ++e) preferred[static_cast<size_t>(e)] += bias.data<double>()[e];
      std::vector<std::pair<double, int64_t>> best;  // with -g, and -e below, so that ties select the first
      for (int64_t g = 0; g < groups; ++g) {
        std::vector<double> group(preferred.begin() + g * size, preferred.begin() + (g + 1) * size);
        std::sort(group.rbegin(), group.rend());
        best.emplace_back(group[0] + group[1], -g);
      }
      std::sort(best.rbegin(), best.rend());
      std::vector<std::pair<double, int64_t>> chosen;
      for (size_t i = 0; i < static_cast<size_t>(used_groups); ++i)
        for (int64_t e = -best[i].second * size; e < (1 - best[i].second) * size; ++e)
          chosen.emplace_back(preferred[static_cast<size_t>(e)], -e);
      std::sort(chosen.rbegin(), chosen.rend());
      const auto unlimited = apply("router", free, inputs);
      for (int64_t j = 0; j < used; ++j) {
        const int64_t e = -chosen[static_cast<size_t>(j)].second;
        CHECK(found[1].data<int32_t>()[r * used + j] == e);
        CHECK(std::abs(found[0].data<double>()[r * used + j] - share[e]) < 1e-12);
        other += unlimited[1].data<int32_t>()[r * used + j] != e;
      }
    }
    CHECK(other > 0);
  }
  const auto refused = [&](int64_t groups, int64_t used_groups) {
    return apply("router", AttributeMap(free).set("groups", groups).set("used_groups", used_groups), {scores});
  };
  CHECK_THROWS_WITH(refused(5, 2), Catch::Contains("cannot choose 5 of 12 experts from 2 of 5 groups"));
  CHECK_THROWS_WITH(refused(12, 6), Catch::Contains("groups have equal sizes of 2 or more"));
  CHECK_THROWS_WITH(refused(4, 1), Catch::Contains("the chosen groups hold the chosen experts"));
  CHECK_THROWS_WITH(refused(2, 3), Catch::Contains("from 3 of 2 groups"));
}

TEST_CASE("rows beyond an expert's capacity give 0") {
  const Mixture m(3, 20, 2);
  const AttributeMap how = AttributeMap().set("used", int64_t{1}).set("capacity", int64_t{3});
  const auto chosen = apply("router", how, {m.scores()});
  const HTensor y = m.sparse(how);
  int64_t dropped = 0;
  for (int64_t r = 0; r < 20; ++r) {
    if (chosen[1].data<int32_t>()[r] != 2) continue;
    ++dropped;
    CHECK(chosen[0].data<double>()[r] == 0);
    for (int64_t i = 0; i < 6; ++i) CHECK(y.data<double>()[r * 6 + i] == 0);
  }
  CHECK(dropped == 20 - 6);
}

TEST_CASE("errors of mixtures name what does not fit") {
  const Mixture m(4, 3, 4);
  CHECK_THROWS_WITH(apply("router", AttributeMap().set("used", int64_t{5}), {m.scores()}),
                    Catch::Contains("router: uses 5 of the 4 experts"));
  CHECK_THROWS_WITH(apply("expert_choice", AttributeMap().set("capacity", int64_t{4}), {m.scores()}),
                    Catch::Contains("with at least 4 rows"));
  const HTensor offsets = HTensor::from<int32_t>({4}, {0, 1, 2, 3});
  CHECK_THROWS_WITH(apply("grouped_linear", {}, {m.x, offsets, m.up}), Catch::Contains("do not fit 4 groups"));
}
