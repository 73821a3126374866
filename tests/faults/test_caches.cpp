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
