// Flows that branch on values of their input.
#include <cmath>

#include "tests/journeys/replies.hpp"

using namespace journeys;

namespace {

// Returns the block of docs/hmx.md that contains this text.
std::string documented(const std::string& part) {
  const std::string page = read(std::string(HARMONICS_SOURCE_DIR) + "/docs/hmx.md");
  const std::string opening = "```harmonics\n";
  const size_t begin = page.rfind(opening, page.find(part)) + opening.size();
  return page.substr(begin, page.find("```", begin) - begin);
}

}  // namespace

TEST_CASE("branches: the documented flow learns a line on each side of zero") {
  Folder f;
  std::ostringstream x, y;
  for (int i = -20; i < 20; ++i) {
    const double v = 0.1 * i + 0.05;
    x << v << '\n';
    y << (v > 0 ? 2 * v + 1 : -3 * v - 2) << '\n';
  }
  const std::string flow = f.write("pieces.hmx", documented("select(high, low)")), weights = f / "w.safetensors";
  const Result learned = harmonics("run " + flow + " --producer 'x=" + f.write("x.csv", x.str()) + "' --producer 'y=" +
                                   f.write("y.csv", y.str()) + "' --quiet --json --save " + weights);
  REQUIRE(learned.code == 0);
  CHECK(last_line(learned.out).at("loss").to_number<double>() < 1e-3);  // one line alone has a loss above 1
  const Result asked = harmonics("infer " + flow + " --weights " + weights +
                                 " --quiet --producer 'x=" + f.write("asked.csv", "1\n-1\n0.5\n-0.5\n") + "'");
  REQUIRE(asked.code == 0);
  const std::vector<std::string> lines = lines_of(asked.out);
  REQUIRE(lines.size() == 4);
  const double expected[] = {3, 1, 2, -0.5};
  for (size_t i = 0; i < 4; ++i) CHECK(std::stod(lines[i]) == Approx(expected[i]).margin(0.05));
}
