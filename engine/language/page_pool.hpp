// PagePool: who holds the pages of a decoder's caches, and which prefix of which sequences each of them has.
//
// A page has the keys and values of kRows positions. Sequences with equal beginnings hold the same pages. A full page
// can be published: then it is found by the name of the prefix before it and its own tokens, also after its last holder
// has gone, until its memory is needed. Names are unique numbers and tokens are compared, so no two prefixes are
// mistaken for each other.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace harmonics::engine {

// Thread-safe. Allocates in raise_limit() only.
class PagePool {
 public:
  static constexpr int64_t kRows = 16;
  static constexpr uint64_t kNoPrefix = 1;  // the name of the empty prefix
  static constexpr int32_t kNone = -1;

  // Most pages that are held or kept as prefixes; never lowered.
  void raise_limit(int64_t pages);
  // How many published pages stay when their last holder goes. At first none.
  void keep_prefixes(int64_t most);

  // A page for one holder: a free one, else the published page whose last holder has been gone the longest. kNone: all
  // are held.
  int32_t take();
  void share(int32_t page);  // one more holder
  void release(int32_t page);
  // Makes a page writable for its only holder, who no longer wants it to be found. Returns false if it has others.
  bool withdraw(int32_t page);

  // Publishes a full page behind the prefix `before`, and returns the name of the prefix that ends with it. If another
  // page has the same prefix already, that one stays published, and its name is returned.
  uint64_t publish(int32_t page, uint64_t before, std::span<const int32_t> tokens);
  struct Found {
    int32_t page = kNone;
    uint64_t name = 0;
  };
  // Holds the page that continues the prefix `before` by these tokens. kNone: there is none.
  Found find(uint64_t before, std::span<const int32_t> tokens);

  int64_t limit() const;
  int64_t held() const;       // by sequences
  int64_t kept() const;       // without a holder, as prefixes
  int64_t available() const;  // that take() could give

 private:
  struct Page {
    int32_t holders = 0;
    uint64_t name = 0, before = 0;         // name 0: not published
    int32_t next = kNone;                  // in the bucket
    int32_t older = kNone, newer = kNone;  // among those without a holder
  };
  // All hold mutex_.
  size_t bucket(uint64_t before, std::span<const int32_t> tokens) const;
  std::span<int32_t> tokens_of(int32_t page);
  int32_t look_up(uint64_t before, std::span<const int32_t> tokens);
  void forget(int32_t page);
  void unlink(int32_t page);
  int32_t drop_oldest();
  Page& at(int32_t page) { return pages_[static_cast<size_t>(page)]; }

  mutable std::mutex mutex_;
  std::vector<Page> pages_;       // up to the limit
  std::vector<int32_t> tokens_;   // kRows of each page
  std::vector<int32_t> buckets_;  // first page; the number of buckets is a power of two
  std::vector<int32_t> free_;
  int32_t unused_ = 0;  // pages from here on were never taken
  int32_t oldest_ = kNone, newest_ = kNone;
  int64_t held_ = 0, kept_ = 0;
  uint64_t last_name_ = kNoPrefix;
  int64_t most_kept_ = 0;
};

}  // namespace harmonics::engine
