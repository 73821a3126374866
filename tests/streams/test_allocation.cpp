#include <atomic>
#include <cstdlib>
#include <new>

#include "dsl/load.hpp"
#include "engine/streams/streams.hpp"
#include "tests/streams/allocated.hpp"
#include "tests/streams/under_test.hpp"

namespace {
std::atomic<uint64_t> allocations{0}, allocated{0};
}
uint64_t harmonics::engine::testing::allocations_made() { return allocations; }
uint64_t harmonics::engine::testing::bytes_allocated() { return allocated; }
__attribute__((noinline)) void* operator new(std::size_t size) {
  ++allocations;
  allocated += size;
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  allocated += size;
  return std::malloc(size ? size : 1);
}
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, std::size_t) noexcept { std::free(p); }

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("reading allocates nothing after the first batch") {
  for (const uint64_t shuffle : {0u, 32u}) {
    Source images("images", std::make_shared<CountingProducer>(1000)),
        frames("frames", std::make_shared<CountingProducer>(3000));
    JointOptions options;
    options.shuffle = shuffle;
    options.skip = 5;
    options.shards = 2;
    JointReader reader({{&images, 1}, {&frames, 3}}, options);
    std::vector<int32_t> a(2 * 64), b(6 * 64);
    void* const to[] = {a.data(), b.data()};
    reader.read(to);
    const uint64_t before = allocations;
    uint64_t batches = 0;
    for (uint64_t epoch = 1; epoch < 4; ++epoch) {
      while (reader.read(to) != 0) ++batches;
      reader.begin(epoch);
    }
    CHECK(allocations == before);
    CHECK(batches > 20);
  }
}

TEST_CASE("reading through a cache, augmented and chosen, allocates nothing after the first pass") {
  const TemporaryFolder folder;
  std::string text;
  for (int n = 0; n < 500; ++n) text += std::to_string(n) + ",1,2,3\n";
  const Graph graph = make_graph(
      parse_flow(std::make_shared<SourceText>(
          "g.hmx", "harmonic g { producer x; producer y; consumer a; consumer b; cycle { x -> a; y -> b; } }")),
      Registry::global());
  StreamSet streams;
  const std::string path = folder.write("x.csv", text);
  for (const char* options : {"?shape=2x2&cache=1M&augment=shift(1),rotate(5),noise(0.1)#0-3", "?where=value<300#0"})
    streams.bind(graph, Registry::global(), "", parse_address("file:" + path + options));
  const auto reader = streams.reader(graph, {graph.find("x"), graph.find("y")}, 32, true, 1);
  std::vector<char> x(reader->bytes(0) * 32), y(reader->bytes(1) * 32);
  void* const to[] = {x.data(), y.data()};
  while (reader->read(to) != 0) {
  }
  const uint64_t before = allocations;
  for (uint64_t epoch = 1; epoch < 4; ++epoch) {
    reader->begin(epoch);
    while (reader->read(to) != 0) {
    }
  }
  CHECK(allocations == before);
}

TEST_CASE("memory: a failed allocation is an error of its own kind, with the requested bytes") {
  try {
    HTensor(DType::F32, Shape{int64_t{1} << 50});
    FAIL("it was allocated");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Memory);
    CHECK(e.what() == std::string("not enough memory: 4503599627370496 bytes were requested"));
  }
}
