// Properties of functionals are in their table rows: code queries traits and signatures instead of comparing names.
#include <regex>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>

#include "tests/architecture/sources.hpp"

using namespace harmonics::engine::testing;

namespace {

// Returns whether a line compares the name of a call's functional with a literal.
bool compares_name(const std::string& line) {
  static const std::regex pattern(R"re((callee|functional|\bop)(\(\))?\s*[!=]=\s*"[a-z_]{2,})re");
  static const std::regex reversed(R"re("[a-z_]{2,}"\s*[!=]=\s*[a-z_.>-]*callee)re");
  return std::regex_search(line, pattern) || std::regex_search(line, reversed);
}

}  // namespace

TEST_CASE("names: no room but the functionals' own compares the name of a functional") {
  for (const std::string& room : kEngine) {
    if (room == "functional") continue;
    for (const fs::path& file : sources("engine/" + room)) {
      std::stringstream text(read(file));
      size_t number = 0;
      for (std::string line; std::getline(text, line);) {
        ++number;
        INFO(file.lexically_relative(kRoot).string()
             << ":" << number << ": use a trait or the signature of the functional (engine/program/functional.hpp)\n"
             << line);
        CHECK_FALSE(compares_name(line));
      }
    }
  }
}

TEST_CASE("names: comparisons with the name of a functional are found") {
  CHECK(compares_name("if (node.callee == \"linear\") return;"));
  CHECK(compares_name("return op != \"rope\";"));
  CHECK(compares_name("if (\"sgd\" == node.callee)"));
  CHECK_FALSE(compares_name("node.callee = \"dot_add\";"));
  CHECK_FALSE(compares_name("if (c.op == \"<=\") return v <= c.value;"));
  CHECK_FALSE(compares_name("CallExample call{op, \"none\"};  // another word before the comma"));
}
