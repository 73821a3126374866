// docs/speed.svg shows the table of speeds in the README.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/architecture/sources.hpp"

using namespace harmonics::engine::testing;

namespace {

std::vector<std::string> table_cells(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t at = 1, end; (end = line.find('|', at)) != std::string::npos; at = end + 1) {
    const std::string cell = line.substr(at, end - at);
    const size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

// Rows of the first table below the heading, without its head.
std::vector<std::vector<std::string>> rows_below(const std::string& text, const std::string& heading) {
  std::vector<std::vector<std::string>> rows;
  size_t at = text.find("\n|", text.find(heading)) + 1;
  for (size_t end; text[at] == '|'; at = end + 1) {
    end = text.find('\n', at);
    rows.push_back(table_cells(text.substr(at, end - at)));
  }
  rows.erase(rows.begin(), rows.begin() + 2);
  return rows;
}

}  // namespace

TEST_CASE("speed: the picture has a bar for each row of the README") {
  const std::string picture = read(kRoot / "docs/speed.svg");
  const auto rows = rows_below(read(kRoot / "README.md"), "\n## Speed\n");
  REQUIRE(rows.size() >= 8);
  size_t bars = 0;
  for (size_t at = 0; (at = picture.find("<rect", at)) != std::string::npos; ++at) ++bars;
  CHECK(bars == rows.size());
  for (const auto& cells : rows) {
    REQUIRE(cells.size() == 5);  // case, ours, the peer's, ratio, peer
    INFO(cells[0] << ": run scripts/draw_speed.py");
    const size_t at = picture.find(">" + cells[0] + "</text>");
    REQUIRE(at != std::string::npos);
    const size_t ratio = picture.find("<tspan class=\"n\">", at);
    CHECK(picture.compare(ratio, 17 + cells[3].size() + 1, "<tspan class=\"n\">" + cells[3] + "<") == 0);
  }
}
