// Rows made of documents, mixtures of data sets, and the order of rows.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <vector>

#include "engine/corpus/mixture.hpp"
#include "engine/corpus/packing.hpp"
#include "engine/corpus/row_order.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

using Numbers = std::vector<int32_t>;

// Documents whose tokens are numbered through; negative lengths are documents without a learned token.
std::unique_ptr<TokenStore> store_of(const std::vector<int>& lengths, uint64_t limit = 1 << 20) {
  auto store = std::make_unique<TokenStore>("test", limit);
  int32_t next = 10;
  for (const int length : lengths) {
    Numbers document;
    for (int i = 0; i < std::abs(length); ++i) document.push_back(length < 0 ? ~next++ : next++);
    store->add(document);
  }
  store->finish();
  return store;
}

struct PackedRow {
  Numbers tokens, next, documents;
};

PackedRow row_of(const TokenStore& store, const PackedRows& rows, uint64_t row, uint64_t window) {
  PackedRow made{Numbers(window), Numbers(window), Numbers(window)};
  fill_row(store, rows, row, window, 0, {made.tokens.data(), made.next.data(), made.documents.data()});
  return made;
}

PackingOptions options_of(RowPacking packing, uint64_t window, TooLong too_long = TooLong::skip) {
  return {packing, too_long, window, "test"};
}

}  // namespace

TEST_CASE("packing: concatenated documents are cut where rows end, and no target crosses documents") {
  const auto store = store_of({6, 4});
  const PackedRows rows = pack_rows(*store, options_of(RowPacking::concatenate, 4));
  REQUIRE(rows.size() == 2);
  CHECK(rows.several);
  const PackedRow first = row_of(*store, rows, 0, 4), second = row_of(*store, rows, 1, 4);
  CHECK(first.tokens == Numbers{10, 11, 12, 13});
  CHECK(first.next == Numbers{11, 12, 13, 14});
  CHECK(first.documents == Numbers{0, 0, 0, 0});
  CHECK(second.tokens == Numbers{14, 16, 17, 18});
  CHECK(second.next == Numbers{15, 17, 18, 19});
  CHECK(second.documents == Numbers{0, 1, 1, 1});
}

TEST_CASE("packing: one text gives rows of one document, and the last is padded") {
  const auto store = store_of({8});
  const PackedRows rows = pack_rows(*store, options_of(RowPacking::concatenate, 4));
  CHECK_FALSE(rows.several);
  REQUIRE(rows.size() == 2);
  const PackedRow last = row_of(*store, rows, 1, 4);
  CHECK(last.tokens == Numbers{14, 15, 16, 0});
  CHECK(last.next == Numbers{15, 16, 17, -100});
  CHECK(last.documents == Numbers{0, 0, 0, 1});
}

TEST_CASE("packing: whole documents go into the first row with room") {
  const auto store = store_of({4, 5, 2, 3});  // 3, 4, 1 and 2 positions
  const PackedRows rows = pack_rows(*store, options_of(RowPacking::pack, 5));
  REQUIRE(rows.size() == 3);
  const PackedRow first = row_of(*store, rows, 0, 5), second = row_of(*store, rows, 1, 5);
  CHECK(first.tokens == Numbers{10, 11, 12, 19, 0});
  CHECK(first.documents == Numbers{0, 0, 0, 1, 2});
  CHECK(second.tokens == Numbers{14, 15, 16, 17, 0});
  CHECK(rows.learned == 3 + 4 + 1 + 2);
}

TEST_CASE("packing: every document is in some row once, for random lengths") {
  std::vector<int> lengths;
  uint32_t random = 7;
  for (int i = 0; i < 500; ++i)
    lengths.push_back(2 + static_cast<int>((random = random * 1664525u + 1013904223u) >> 27));
  const auto store = store_of(lengths);
  for (const RowPacking packing : {RowPacking::concatenate, RowPacking::pack, RowPacking::pad}) {
    const PackedRows rows = pack_rows(*store, options_of(packing, 40));
    std::multiset<int32_t> targets;
    for (uint64_t row = 0; row < rows.size(); ++row) {
      const PackedRow made = row_of(*store, rows, row, 40);
      for (size_t i = 0; i < 40; ++i)
        if (made.next[i] != -100) {
          targets.insert(made.next[i]);
          CHECK(made.next[i] == made.tokens[i] + 1);
        }
    }
    CHECK(targets.size() == store->tokens() - store->documents());
    CHECK(std::set<int32_t>(targets.begin(), targets.end()).size() == targets.size());
    CHECK(rows.positions == targets.size());
  }
}

TEST_CASE("packing: what becomes of documents that are too long") {
  const auto store = store_of({3, 10});
  CHECK(pack_rows(*store, options_of(RowPacking::pad, 4, TooLong::skip)).skipped == 1);
  const PackedRows cut = pack_rows(*store, options_of(RowPacking::pad, 4, TooLong::truncate));
  CHECK(cut.truncated == 1);
  CHECK(row_of(*store, cut, 1, 4).next == Numbers{14, 15, 16, 17});
  const PackedRows split = pack_rows(*store, options_of(RowPacking::pad, 4, TooLong::split));
  CHECK(split.size() == 4);  // 2 positions, and 4 + 4 + 1
  CHECK(row_of(*store, split, 3, 4).tokens == Numbers{21, 0, 0, 0});
  const std::string message = message_of([&] { pack_rows(*store, options_of(RowPacking::pad, 4, TooLong::error)); });
  CHECK(message.find("example 2 has 10 tokens, but a row holds 5") != std::string::npos);
}

TEST_CASE("packing: documents and rows without a learned position are left out and counted") {
  const auto store = store_of({-5, 4, 1, -3});
  for (const RowPacking packing : {RowPacking::pack, RowPacking::pad}) {
    const PackedRows rows = pack_rows(*store, options_of(packing, 4));
    CHECK(rows.size() == 1);
    CHECK(rows.empty == 3);
  }
  CHECK(pack_rows(*store_of({-9}), options_of(RowPacking::concatenate, 4)).size() == 0);
}

TEST_CASE("packing: tokens beyond the memory limit are read from a temporary file") {
  const std::vector<int> lengths(300, 7);
  const auto small = store_of(lengths, 64), large = store_of(lengths);
  REQUIRE(small->tokens() == large->tokens());
  CHECK(std::equal(small->data(), small->data() + small->tokens(), large->data()));
}

TEST_CASE("mixture: without weights data sets follow each other") {
  const Mixture mixture({3, 2}, {0, 0});
  CHECK(mixture.size() == 5);
  CHECK_FALSE(mixture.passes_differ());
  CHECK(mixture.at(7, 2).set == 0);
  CHECK(mixture.at(7, 3).set == 1);
  CHECK(mixture.at(7, 4).row == 1);
}

TEST_CASE("mixture: weights are shares of every part of a pass, and passes go through all rows") {
  const Mixture mixture({300, 100}, {1, 3});
  CHECK(mixture.size() == 400);
  CHECK(mixture.passes_differ());
  int second = 0;
  for (uint64_t i = 0; i < 100; ++i) second += mixture.at(0, i).set == 1;
  CHECK(second == 75);
  std::set<uint64_t> rows;
  for (uint64_t epoch = 0; epoch < 3; ++epoch)
    for (uint64_t i = 0; i < 400; ++i)
      if (const MixedRow row = mixture.at(epoch, i); row.set == 0) rows.insert(row.row);
  CHECK(rows.size() == 300);  // 100 of them in each pass
}

TEST_CASE("row order: a permutation, another one for each pass and seed") {
  for (const uint64_t size : {1, 2, 7, 64, 1000}) {
    const RowOrder order(size, 5, 0);
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < size; ++i) {
      CHECK(order.at(i) < size);
      seen.insert(order.at(i));
    }
    CHECK(seen.size() == size);
  }
  int same_pass = 0, same_seed = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    same_pass += RowOrder(1000, 5, 0).at(i) == RowOrder(1000, 5, 1).at(i);
    same_seed += RowOrder(1000, 5, 0).at(i) == RowOrder(1000, 6, 0).at(i);
  }
  CHECK(same_pass < 10);
  CHECK(same_seed < 10);
}

namespace {

PackingOptions options_of_pairs(uint64_t window, TooLong too_long = TooLong::skip) {
  PackingOptions options = options_of(RowPacking::pad, window, too_long);
  options.pairs = true;
  return options;
}

}  // namespace

TEST_CASE("packing: a pair of documents has a row, the first one before the second") {
  const auto store = store_of({3, 4, -2, 3, 1, 3});
  const PackedRows rows = pack_rows(*store, options_of_pairs(7));
  REQUIRE(rows.size() == 1);
  CHECK(rows.several);
  CHECK(rows.empty == 2);  // nothing to learn; a document of one token
  const PackedRow row = row_of(*store, rows, 0, 7);
  CHECK(row.tokens == Numbers{10, 11, 13, 14, 15, 0, 0});
  CHECK(row.next == Numbers{11, 12, 14, 15, 16, -100, -100});
  CHECK(row.documents == Numbers{0, 0, 1, 1, 1, 2, 2});
}

TEST_CASE("packing: pairs that are longer than a row are skipped, truncated or an error, and cannot be split") {
  const auto store = store_of({3, 9});
  CHECK(pack_rows(*store, options_of_pairs(6)).skipped == 1);
  const PackedRows cut = pack_rows(*store, options_of_pairs(6, TooLong::truncate));
  REQUIRE(cut.size() == 1);
  CHECK(cut.truncated == 1);
  CHECK(row_of(*store, cut, 0, 6).documents == Numbers{0, 0, 1, 1, 1, 1});
  const auto both = store_of({9, 9});
  const PackedRows halves = pack_rows(*both, options_of_pairs(6, TooLong::truncate));
  CHECK(row_of(*both, halves, 0, 6).documents == Numbers{0, 0, 0, 1, 1, 1});
  CHECK(message_of([&] { pack_rows(*store, options_of_pairs(6, TooLong::error)); }).find("the pair 1 has 12 tokens") !=
        std::string::npos);
  CHECK(message_of([&] { pack_rows(*store, options_of_pairs(6, TooLong::split)); }).find("cannot be split") !=
        std::string::npos);
}
