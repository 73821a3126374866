// The commands that errors and notes quote.
#include <catch2/catch.hpp>

#include "engine/cli/terminal/command_text.hpp"

using namespace harmonics::engine::cli;

TEST_CASE("command text: --resume is an option, before arguments that follow --") {
  CHECK(resuming_line({"harmonics", "run", "f.hmx", "--steps", "3"}, "runs") ==
        "harmonics run f.hmx --steps 3 --resume runs");
  CHECK(resuming_line({"harmonics", "run", "--steps=3", "--", "-f.hmx"}, "runs") ==
        "harmonics run --steps=3 --resume runs -- -f.hmx");
  CHECK(resuming_line({"harmonics", "run", "f.hmx", "--resume", "old", "--quiet"}, "") ==
        "harmonics run f.hmx --quiet --resume");
}
