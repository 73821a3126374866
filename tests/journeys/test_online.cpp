// Tests, then trains, on a table that arrives row by row.
#include "tests/journeys/background.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <sstream>

using namespace journeys;

namespace {

const std::string kWeatherFlow = kSamples + "online_learning/weather.hmx";

Result learn_from(const Folder& f, const std::string& table, const std::string& features, const std::string& label,
                  const std::string& more) {
  const std::string address = "unix:" + (f / "socket");
  Folder own;
  Background sender(own, "send '" + address + "?patience=60' --from 'weather=" + table + "#" + features +
                             "' --from 'rain=" + table + "#" + label + "' --quiet");
  const Result learned = harmonics("run " + kWeatherFlow + " --producer 'weather=" + address +
                                   "?batch=32#weather' --producer 'rain=" + address +
                                   "#rain' --optimizer 'adam(lr=0.01)' --seed 1 --json " + more);
  CHECK(sender.end().code == 0);
  return learned;
}

// Returns a column of a table.
std::vector<double> column(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  std::string line, cell;
  std::getline(lines, line);
  size_t wanted = 0;
  std::istringstream head(line);
  while (std::getline(head, cell, ',') && cell != name) ++wanted;
  REQUIRE(cell == name);
  std::vector<double> values;
  while (std::getline(lines, line)) {
    std::istringstream row(line);
    for (size_t i = 0; i <= wanted; ++i)
      if (!std::getline(row, cell, ',')) cell.clear();
    if (!cell.empty()) values.push_back(std::stod(cell));  // rows of epochs are empty here
  }
  return values;
}

}  // namespace

TEST_CASE("online: after a rule reverses, accuracy drops and recovers") {
  Folder f;
  std::ostringstream rows;
  uint32_t seed = 1;
  for (int i = 0; i < 20000; ++i) {
    double sum = 0;
    for (int k = 0; k < 8; ++k) {
      seed = seed * 1664525u + 1013904223u;
      const double v = static_cast<double>(seed >> 8) / (1 << 24);
      if (k < 2) sum += v;
      rows << v << ',';
    }
    rows << ((sum > 1) == (i < 10000) ? 1 : 0) << '\n';
  }
  const std::string table = f.write("rows.csv", rows.str());
  const Result learned = learn_from(f, table, "0-7", "8", "--window 1000 --log-every 1 --log " + (f / "window.csv"));
  REQUIRE(learned.code == 0);
  const std::vector<double> accuracy = column(read(f / "window.csv"), "window.output.accuracy");
  REQUIRE(accuracy.size() >= 625);
  const double before = accuracy[311], turned = *std::min_element(accuracy.begin() + 313, accuracy.begin() + 400),
               after = accuracy[624];
  INFO(before << ", then " << turned << ", then " << after);
  CHECK(before > 0.9);
  CHECK(turned < before - 0.2);
  CHECK(after > 0.9);
}

TEST_CASE("online: predictions of rain are as good as River's") {
  if (data_folder().empty()) return;
  const std::string table = data_folder() + "/streaming/weather.csv";
  Folder f;
  const auto river =
      boost::json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/streaming.json"));
  const Result learned = learn_from(f, table, "feat_1,feat_2,feat_3,feat_4,feat_5,feat_6,feat_7,feat_8", "target", "");
  REQUIRE(learned.code == 0);
  const auto report = boost::json::parse(learned.out);
  CHECK(report.at("samples").to_number<int64_t>() == river.at("rows").to_number<int64_t>());
  const double best = river.at("accuracy").at("StandardScaler | LogisticRegression").to_number<double>();
  INFO("River " << best);
  CHECK(report.at("accuracy").to_number<double>() > best - 0.005);
}
