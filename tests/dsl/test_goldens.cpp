// tests/dsl/good: flows and their canonical form. tests/dsl/bad: flows and the parser's full error text.
#include <catch2/catch.hpp>

#include "dsl/hmx/print.hpp"
#include "dsl/load.hpp"
#include "tests/dsl/golden.hpp"
#include "tests/dsl/same_flow.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

const std::filesystem::path kGoldenSource = HARMONICS_SOURCE_DIR;
const std::filesystem::path kGood = kGoldenSource / "tests/dsl/good", kBad = kGoldenSource / "tests/dsl/bad";

Flow parse_file(const std::string& name, const std::string& text) {
  return parse_flow(std::make_shared<const SourceText>(name, text));
}

}  // namespace

TEST_CASE("goldens: good flows parse and print canonically") {
  golden::check_no_orphans(kGood, ".printed", ".hmx");
  const auto paths = golden::files(kGood, ".hmx");
  CHECK(paths.size() >= 15);
  for (const auto& path : paths) {
    INFO(path.string());
    const Flow flow = parse_file(path.filename().string(), golden::read(path));
    const std::string text = to_text(flow);
    golden::check(std::filesystem::path(path).replace_extension(".printed"), text);
    const Flow again = parse_file("printed", text);
    CHECK(same_flow(flow, again));
    CHECK(to_text(again) == text);
  }
}

TEST_CASE("goldens: bad flows are rejected with the expected text") {
  golden::check_no_orphans(kBad, ".error", ".hmx");
  const auto paths = golden::files(kBad, ".hmx");
  CHECK(paths.size() >= 180);
  for (const auto& path : paths) {
    INFO(path.string());
    std::string report;
    try {
      parse_file(path.filename().string(), golden::read(path));
    } catch (const SourceErrors& errors) {
      report = errors.what();
      CHECK(errors.errors().size() <= 20);
    }
    CHECK(!report.empty());
    golden::check(std::filesystem::path(path).replace_extension(".error"), report);
  }
}

TEST_CASE("the sample flows parse from their files") {
  const auto samples = golden::files(kGoldenSource / "samples", ".hmx");
  CHECK(!samples.empty());
  for (const auto& path : samples) {
    INFO(path.string());
    CHECK_NOTHROW(parse_flow_file(path.string()));
  }
  CHECK(golden::read(kGoldenSource / "samples/mnist.hmx") == golden::read(kGood / "mnist.hmx"));
}

TEST_CASE("load: an unreadable file reports the reason") {
  try {
    parse_flow_file("/no/such/flow.hmx");
    FAIL("read a file that is not there");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::NoInput);
    CHECK(std::string(error.what()) == "cannot read '/no/such/flow.hmx': No such file or directory");
  }
}
