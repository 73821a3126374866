// Conversion of Markdown to manual pages.
#include <catch2/catch.hpp>

#include "engine/cli/options/roff.hpp"

using harmonics::engine::cli::roff_of_markdown;

TEST_CASE("manual pages: a list item over several lines is one item") {
  CHECK(roff_of_markdown("Before:\n\n- one item\n  over two lines\n- another\n") ==
        ".PP\nBefore:\n.IP \\(bu 2\none item\nover two lines\n.IP \\(bu 2\nanother\n");
}

TEST_CASE("manual pages: numbered lines are items of a list") {
  CHECK(roff_of_markdown("1. first\n   with more\n2. second\n10. tenth\n\nAfter.\n") ==
        ".IP 1. 4\nfirst\nwith more\n.IP 2. 4\nsecond\n.IP 10. 4\ntenth\n.PP\nAfter.\n");
}

TEST_CASE("manual pages: a number within a paragraph begins no list") {
  CHECK(roff_of_markdown("As of contract\n2. it holds.\n\n    code\n") ==
        ".PP\nAs of contract\n2. it holds.\n.PP\n.RS 4\n.nf\ncode\n.fi\n.RE\n");
}
