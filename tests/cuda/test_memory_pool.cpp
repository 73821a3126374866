// Memory that the pool caches, and its return to the driver.
#include <catch2/catch.hpp>

#include "kernels/shared/memory_pool.hpp"

using namespace harmonics;
using kernels::MemoryPool;

namespace {

// A driver with limited memory.
struct Driver {
  uint64_t free;
  std::map<uint64_t, uint64_t> given;
  uint64_t next = 0;

  uint64_t take(uint64_t bytes) {
    if (bytes > free) throw Error(ErrorKind::Device, "its memory is full");
    free -= bytes;
    given[++next] = bytes;
    return next;
  }
  void give_back(uint64_t buffer) {
    free += given.at(buffer);
    given.erase(buffer);
  }
  MemoryPool pool() {
    return {[this](uint64_t bytes) { return take(bytes); }, [this](uint64_t buffer) { give_back(buffer); }};
  }
};

}  // namespace

TEST_CASE("memory pool: a cached block serves equal and slightly smaller requests") {
  Driver driver{10000, {}};
  MemoryPool pool = driver.pool();
  const uint64_t used = pool.allocate(5000), large = pool.allocate(1000), small = pool.allocate(900);
  pool.release(large), pool.release(small);
  CHECK(pool.kept_bytes() == 1900);
  CHECK(pool.allocate(850) == small);  // the smallest block that fits
  CHECK(pool.allocate(800) == large);
  CHECK(pool.allocate(800) != large);
  CHECK(pool.kept_bytes() == 0);
  pool.release(large);
  CHECK(pool.allocate(799) != large);   // it would waste a quarter
  CHECK(pool.allocate(1001) != large);  // too small
  CHECK(driver.given.count(used) == 1);
}

TEST_CASE("memory pool: caches at most what is in use, releases the oldest first") {
  Driver driver{10000, {}};
  {
    MemoryPool pool = driver.pool();
    const uint64_t a = pool.allocate(400), b = pool.allocate(300), c = pool.allocate(500), d = pool.allocate(600);
    pool.release(a), pool.release(b);
    CHECK(driver.given.size() == 4);  // 700 cached, 1100 used
    pool.release(c);                  // 1200 cached, 600 used
    CHECK(driver.given == std::map<uint64_t, uint64_t>{{c, 500}, {d, 600}});
    pool.release(d);  // nothing is in use
    CHECK(driver.given.empty());
    CHECK(pool.kept_bytes() == 0);
    pool.allocate(100);
    pool.release(pool.allocate(50));
  }
  CHECK(driver.given.size() == 1);  // the pool's destructor releases the cache
}

TEST_CASE("memory pool: releases its cache before reporting out of memory") {
  Driver driver{1000, {}};
  MemoryPool pool = driver.pool();
  const uint64_t used = pool.allocate(500);
  pool.release(pool.allocate(400));
  CHECK(pool.kept_bytes() == 400);
  const uint64_t other = pool.allocate(450);  // the driver has 100 left
  CHECK(driver.given == std::map<uint64_t, uint64_t>{{used, 500}, {other, 450}});
  CHECK_THROWS_WITH(pool.allocate(451), "its memory is full");
  CHECK(driver.given.size() == 2);
}
