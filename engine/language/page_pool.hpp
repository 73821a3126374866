// PagePool: tracks the holders of the pages of a decoder's caches, and the prefix that each page continues.
//
// A page contains the keys and values of kRows positions. Sequences with a common prefix share its pages. A full page
// can be published: then it can be found by the name of the prefix before it and its own tokens, even after its last
// holder has released it, until its memory is needed. Names are unique numbers and tokens are compared, so prefixes
// cannot be confused.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace harmonics::engine {

// Thread-safe. Allocates only in raise_limit().
class PagePool {
 public:
  static constexpr int64_t kRows = 16;
  static constexpr uint64_t kNoPrefix = 1;  // name of the empty prefix
  static constexpr int32_t kNone = -1;

  // Sets the maximum number of pages that are held or kept as prefixes. Never lowers it.
  void raise_limit(int64_t pages);
  // Sets how many published pages are kept after their last holder released them. Initially none.
  void keep_prefixes(int64_t most);

  // Returns a page for one holder: a free page, or else the kept page that was released first. kNone if all pages are
  // held.
  int32_t take();
  void share(int32_t page);  // adds a holder
  void release(int32_t page);
  // Makes a page writable for its only holder and unpublishes it. Returns false if it has other holders.
  bool withdraw(int32_t page);

  // Publishes a full page after the prefix `before`. Returns the name of the prefix that ends with the page. If another
  // page with the same prefix is published already, returns the name of that one and leaves it published.
  uint64_t publish(int32_t page, uint64_t before, std::span<const int32_t> tokens);
  struct Found {
    int32_t page = kNone;
    uint64_t name = 0;
  };
  // Finds the page that continues the prefix `before` by these tokens, and adds a holder. kNone if there is none.
  Found find(uint64_t before, std::span<const int32_t> tokens);

  int64_t limit() const;
  int64_t held() const;       // pages held by sequences
  int64_t kept() const;       // pages kept as prefixes, without a holder
  int64_t available() const;  // pages that take() can return

 private:
  struct Page {
    int32_t holders = 0;
    uint64_t name = 0, before = 0;         // name 0: not published
    int32_t next = kNone;                  // next page in the bucket
    int32_t older = kNone, newer = kNone;  // in the list of pages without a holder
  };
  // These require mutex_.
  size_t bucket(uint64_t before, std::span<const int32_t> tokens) const;
  std::span<int32_t> tokens_of(int32_t page);
  int32_t look_up(uint64_t before, std::span<const int32_t> tokens);
  void forget(int32_t page);
  void unlink(int32_t page);
  int32_t drop_oldest();
  Page& at(int32_t page) { return pages_[static_cast<size_t>(page)]; }

  mutable std::mutex mutex_;
  std::vector<Page> pages_;       // up to the limit
  std::vector<int32_t> tokens_;   // kRows per page
  std::vector<int32_t> buckets_;  // first page of each bucket; the number of buckets is a power of two
  std::vector<int32_t> free_;
  int32_t unused_ = 0;  // this page and those after it were never taken
  int32_t oldest_ = kNone, newest_ = kNone;
  int64_t held_ = 0, kept_ = 0;
  uint64_t last_name_ = kNoPrefix;
  int64_t most_kept_ = 0;
};

}  // namespace harmonics::engine
