// Files in the user's cache directory: damage or loss does not change results.
#include "tests/faults/faulted.hpp"

using namespace faults;

namespace {

struct Answers {
  std::string listed, weights, err;
  bool operator==(const Answers&) const = default;
};

// Returns the list of plugins, and the result of a flow.
Answers answers(const Folder& f, const Small& small, const std::string& variables) {
  const std::string in = variables + " XDG_CACHE_HOME='" + (f / "cache") + "'", weights = f / "w.safetensors";
  fs::remove(weights);
  const Result listed = harmonics_in(in, "list functions --json"),
               run = harmonics_in(in, small.from_files() + "--quiet --save " + weights);
  return {listed.out, read(weights), listed.err + run.err};
}

}  // namespace

TEST_CASE("caches: any fault while the plugin cache is written gives the same result") {
  Folder f;
  const Small small(f);
  fs::create_directory(f / "cache");
  const Answers expected = answers(f, small, "");
  REQUIRE(has(expected.listed, "\"relu\""));
  REQUIRE(!expected.weights.empty());
  REQUIRE(answers(f, small, "") == expected);  // from the cache
  const std::string what = GENERATE("kill", "tear", "EIO", "ENOSPC", "short");
  const size_t calls = at_every_call({what, 0, f / "cache/*"}, [&](const Fault& fault) {
    fs::remove_all(f / "cache/harmonics");
    const Answers first = answers(f, small, variables(f, fault));
    const Struck struck = struck_in(f);
    if (struck.number > 0 && !kills(what)) CHECK(first == expected);
    CHECK(answers(f, small, "") == expected);
    CHECK(answers(f, small, "") == expected);
    return struck.number > 0;
  });
  CHECK(calls >= 4);
}

TEST_CASE("caches: a plugin cache with a changed byte is ignored") {
  Folder f;
  const Small small(f);
  fs::create_directory(f / "cache");
  const Answers expected = answers(f, small, "");
  const std::string kept = read(f / "cache/harmonics/plugins");
  REQUIRE(kept.size() > 1000);
  for (size_t at = 0; at < kept.size(); at += 29) {
    INFO("byte " << at);
    std::string changed = kept;
    changed[at] ^= 1;
    f.write("cache/harmonics/plugins", changed);
    CHECK(answers(f, small, "") == expected);
  }
}

namespace {

// A flow with one matrix of 2 MiB, which a first program transposes.
class Wide {
 public:
  explicit Wide(const Folder& f) {
    f.write("wide.hmx",
            "harmonic g { producer x; producer y; layer h {1024}; layer o; cycle { x -(relu)-> h; h -(affine)-> o; o "
            "<-(mse)- y; } }\n");
    std::string x, y;
    for (int row = 0; row < 2; ++row) {
      for (int i = 0; i < 512; ++i) x += (i ? "," : "") + std::to_string((i * 7 + row) % 13);
      x += "\n";
      y += std::to_string(row) + "\n";
    }
    const std::string from = f.write("wide_x.csv", x), to = f.write("wide_y.csv", y), weights = f / "wide.safetensors";
    REQUIRE(journeys::harmonics("run " + (f / "wide.hmx") + " --epochs 1 --quiet --threads 1 --producer x=" + from +
                                " --producer y=" + to + " --save " + weights)
                .code == 0);
    infer_ = "infer " + (f / "wide.hmx") + " --threads 1 --quiet --weights " + weights + " --producer x=" + from + " ";
  }
  const std::string& infer() const { return infer_; }

 private:
  std::string infer_;
};

}  // namespace

TEST_CASE("caches: any fault while packed weights are written gives the same result") {
  Folder f;
  const Wide wide(f);
  fs::create_directory(f / "cache");
  const std::string in = "XDG_CACHE_HOME='" + (f / "cache") + "'";
  const Result expected = harmonics_in(in, wide.infer() + "--packed-cache off");
  REQUIRE(expected.code == 0);
  REQUIRE(!expected.out.empty());
  CHECK(!fs::exists(f / "cache/harmonics/packed"));
  const auto kept = [&] {
    size_t files = 0;
    for (const std::string& name : names_in(f / "cache/harmonics/packed")) files += name.ends_with(".pack");
    return files;
  };
  const std::string what = GENERATE("kill", "tear", "EIO", "ENOSPC", "short");
  const size_t calls = at_every_call({what, 0, f / "cache/harmonics/packed*"}, [&](const Fault& fault) {
    fs::remove_all(f / "cache/harmonics/packed");
    const Result first = harmonics_in(in + " " + variables(f, fault), wide.infer());
    const Struck struck = struck_in(f);
    if (struck.number > 0 && !kills(what)) CHECK(first.out == expected.out);
    CHECK(harmonics_in(in, wide.infer()).out == expected.out);
    CHECK(kept() == 1);
    CHECK(harmonics_in(in, wide.infer()).out == expected.out);
    return struck.number > 0;
  });
  CHECK(calls >= 4);
}
