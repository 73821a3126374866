// Every decision record has the sections required by docs/decisions/README.md, and is listed there.
#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/architecture/sources.hpp"

using namespace harmonics::engine::testing;

namespace {

std::vector<fs::path> decision_records() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(kRoot / "docs/decisions"))
    if (entry.path().filename() != "README.md") found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

bool has_section(const std::string& record, const std::string& name) {
  return record.find("\n**" + name) != std::string::npos;
}

}  // namespace

TEST_CASE("decisions: every record has a date, a status, context, choice, reason, and cost or alternatives") {
  const std::vector<fs::path> records = decision_records();
  REQUIRE(records.size() >= 98);
  for (const fs::path& path : records) {
    const std::string record = read(path);
    INFO(path.filename().string());
    CHECK(record.find("\nDate: 20") != std::string::npos);
    CHECK(record.find(" Status: ") != std::string::npos);
    for (const char* name : {"Context.", "Choice", "Reason."}) {
      INFO("section " << name);
      CHECK(has_section(record, name));
    }
    CHECK((has_section(record, "Cost.") || has_section(record, "Rejected.")));
  }
}

TEST_CASE("decisions: the list has every record by its number and title") {
  const std::string list = read(kRoot / "docs/decisions/README.md");
  for (const fs::path& path : decision_records()) {
    const std::string file = path.filename().string(), number = file.substr(0, 3), record = read(path);
    const std::string title = record.substr(0, record.find('\n')), start = "# " + number + " ";
    INFO(file);
    REQUIRE(title.compare(0, start.size(), start) == 0);
    CHECK(list.find("| [" + number + "](" + file + ") | " + title.substr(start.size()) + " |") != std::string::npos);
  }
}
