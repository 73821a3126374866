// `plugin check` for importers and tokenizers.
#include <catch2/catch.hpp>

#include "tests/journeys/shell.hpp"

TEST_CASE("readers: plugin check names the rule that an importer or tokenizer breaks") {
  const journeys::Result r =
      journeys::harmonics("plugin check --calls 1000 " HARMONICS_TEST_PLUGINS "/libmisbehaving_readers.so");
  CHECK(r.code != 0);
  const auto finding = [&](const std::string& kind, const std::string& name) {
    const size_t at = r.out.find(kind + " " + name + "\n");
    REQUIRE(at != std::string::npos);
    const size_t line = r.out.find('\n', at) + 1;
    return r.out.substr(line, r.out.find('\n', line) - line);
  };
  CHECK(journeys::has(finding("importer", "good"), "ok      reads or refuses any bytes: "));
  CHECK(journeys::has(finding("importer", "too_sure"), "it gives the score 101; the highest is 100"));
  CHECK(journeys::has(finding("importer", "moody"), "it gives another answer for the same "));
  CHECK(journeys::has(finding("importer", "breaks"), "cannot look"));
  CHECK(journeys::has(finding("tokenizer", "too_many"), "encoded the id 3; it has 3 tokens"));
}
