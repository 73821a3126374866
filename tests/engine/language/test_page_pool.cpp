// Pages of caches: their users, the prefixes they hold, and the order of reuse.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "engine/language/page_pool.hpp"

using namespace harmonics::engine;

namespace {

std::vector<int32_t> page_of(int32_t first) {
  std::vector<int32_t> tokens(static_cast<size_t>(PagePool::kRows), 3);
  tokens[0] = first;
  return tokens;
}

}  // namespace

TEST_CASE("page pool: pages are taken up to the limit, and again when their last holder goes") {
  PagePool pool;
  CHECK(pool.take() == PagePool::kNone);
  pool.raise_limit(3);
  const int32_t a = pool.take(), b = pool.take(), c = pool.take();
  CHECK(std::set<int32_t>{a, b, c} == std::set<int32_t>{0, 1, 2});
  CHECK(pool.take() == PagePool::kNone);
  pool.share(b);
  pool.release(b);
  CHECK(pool.take() == PagePool::kNone);
  pool.release(b);
  CHECK(pool.available() == 1);
  CHECK(pool.take() == b);
  pool.raise_limit(5);
  CHECK(pool.available() == 2);
  pool.raise_limit(2);
  CHECK(pool.limit() == 5);
}

TEST_CASE("page pool: a prefix is found by what came before and by its tokens, and by nothing less") {
  PagePool pool;
  pool.raise_limit(8);
  pool.keep_prefixes(12);
  const int32_t first = pool.take(), second = pool.take(), same = pool.take();
  const uint64_t one = pool.publish(first, PagePool::kNoPrefix, page_of(1));
  const uint64_t two = pool.publish(second, one, page_of(2));
  CHECK(pool.publish(same, PagePool::kNoPrefix, page_of(1)) == one);
  CHECK(pool.find(PagePool::kNoPrefix, page_of(2)).page == PagePool::kNone);
  CHECK(pool.find(two, page_of(2)).page == PagePool::kNone);
  const PagePool::Found found = pool.find(one, page_of(2));
  CHECK(found.page == second);
  CHECK(found.name == two);
  CHECK_FALSE(pool.withdraw(second));
  pool.release(second);
  CHECK(pool.withdraw(second));
  CHECK(pool.find(one, page_of(2)).page == PagePool::kNone);
  pool.raise_limit(300);  // rehashes
  CHECK(pool.find(PagePool::kNoPrefix, page_of(1)).page == first);
}

TEST_CASE("page pool: prefixes without a holder stay until their memory is needed, the oldest goes first") {
  PagePool pool;
  pool.raise_limit(3);
  pool.keep_prefixes(12);
  std::vector<int32_t> pages;
  for (int32_t i = 0; i < 3; ++i) {
    pages.push_back(pool.take());
    pool.publish(pages.back(), PagePool::kNoPrefix, page_of(i));
  }
  for (const int32_t page : pages) pool.release(page);
  CHECK(pool.kept() == 3);
  CHECK(pool.held() == 0);
  CHECK(pool.available() == 3);
  CHECK(pool.find(PagePool::kNoPrefix, page_of(0)).page == pages[0]);
  pool.release(pages[0]);  // most recently used
  CHECK(pool.take() == pages[1]);
  CHECK(pool.find(PagePool::kNoPrefix, page_of(1)).page == PagePool::kNone);
  CHECK(pool.find(PagePool::kNoPrefix, page_of(0)).page == pages[0]);
  CHECK(pool.kept() == 1);
  pool.release(pages[0]);
  pool.release(pages[1]);
  CHECK(pool.kept() == 2);
  pool.keep_prefixes(1);
  CHECK(pool.kept() == 1);
  CHECK(pool.find(PagePool::kNoPrefix, page_of(0)).page == pages[0]);  // the more recently used one
  PagePool forgetful;
  forgetful.raise_limit(1);
  const int32_t page = forgetful.take();
  forgetful.publish(page, PagePool::kNoPrefix, page_of(1));
  forgetful.release(page);
  CHECK(forgetful.kept() == 0);
  CHECK(forgetful.find(PagePool::kNoPrefix, page_of(1)).page == PagePool::kNone);
}

TEST_CASE("page pool: in random order pages have the holders that they should, and prefixes what was published") {
  std::mt19937 random(5);
  PagePool pool;
  pool.raise_limit(12);
  pool.keep_prefixes(12);
  std::map<int32_t, int> holders;
  std::map<int32_t, int32_t> published;  // page to its first token
  for (int turn = 0; turn < 5000; ++turn) {
    const auto pick = [&] { return std::next(holders.begin(), static_cast<long>(random() % holders.size()))->first; };
    const auto token = static_cast<int32_t>(random() % 20);
    switch (random() % 5) {
      case 0: {
        const int32_t page = pool.take();
        REQUIRE((page == PagePool::kNone) == (holders.size() == 12));
        if (page == PagePool::kNone) break;
        REQUIRE(holders.emplace(page, 1).second);
        published.erase(page);
        break;
      }
      case 1: {
        if (holders.empty()) break;
        const int32_t page = pick();
        pool.release(page);
        if (--holders[page] == 0) holders.erase(page);
        break;
      }
      case 2: {
        if (holders.empty()) break;
        const int32_t page = pick();
        pool.share(page);
        ++holders[page];
        break;
      }
      case 3: {
        if (holders.empty()) break;
        const int32_t page = pick();
        const bool known = std::ranges::any_of(published, [&](const auto& p) { return p.second == token; });
        if (known || published.count(page)) break;
        pool.publish(page, PagePool::kNoPrefix, page_of(token));
        published[page] = token;
        break;
      }
      default: {
        const int32_t page = pool.find(PagePool::kNoPrefix, page_of(token)).page;
        const auto expected = std::ranges::find_if(published, [&](const auto& p) { return p.second == token; });
        REQUIRE(page == (expected == published.end() ? PagePool::kNone : expected->first));
        if (page != PagePool::kNone) ++holders[page];
      }
    }
    REQUIRE(pool.held() == static_cast<int64_t>(holders.size()));
  }
}
