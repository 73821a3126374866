// Data files that disappear during a run.
#include "tests/journeys/background.hpp"

using namespace journeys;

namespace {

// Builds an IDX file of `count` samples of 784 bytes.
std::string pictures(unsigned count) {
  std::string bytes("\0\0\x08\x03", 4);
  for (const unsigned n : {count, 28u, 28u})
    bytes += {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8), static_cast<char>(n)};
  for (unsigned i = 0; i < count * 784; ++i) bytes += static_cast<char>(i * 7 % 251);
  return bytes;
}
std::string labels(unsigned count) {
  std::string bytes("\0\0\x08\x01", 4);
  bytes += {static_cast<char>(count >> 24), static_cast<char>(count >> 16), static_cast<char>(count >> 8),
            static_cast<char>(count)};
  for (unsigned i = 0; i < count; ++i) bytes += static_cast<char>(i % 10);
  return bytes;
}

}  // namespace

TEST_CASE("lost data: truncating a data file ends its run with a checkpoint and the learned weights") {
  constexpr unsigned kCount = 20000;
  const std::string which = GENERATE("x.idx", "y.idx");
  const uintmax_t left = GENERATE(0, 8192);
  Folder f;
  const std::string x = f.write("x.idx", pictures(kCount)), y = f.write("y.idx", labels(kCount)), log = f / "l.csv";
  Background run(f, "run " + kSamples + "mnist.hmx --producer " + x + " --producer " + y +
                        " --threads 1 --epochs 100000 --checkpoint " + (f / "kept") + " --every 1h --save " +
                        (f / "w.safetensors") + " --log " + log + " --log-every 1");
  REQUIRE(run.await([&] { return fs::exists(log) && fs::file_size(log) > 300; }));
  fs::resize_file(f / which, left);
  const Result end = run.end();
  CHECK(end.code == 75);
  CHECK(has(end.err, "'" + (f / which) + "' became shorter while it was read: it had "));
  CHECK(has(end.err, "to continue:  "));
  CHECK(harmonics("ckpt verify " + (f / "kept")).code == 0);
  CHECK(fs::exists(f / "w.safetensors"));
}
