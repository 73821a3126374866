// Fault injection itself: counted calls, faults, and replay of traces.
#include "tests/faults/faulted.hpp"

#include <map>

#include <fcntl.h>

using namespace faults;

namespace {

std::vector<std::vector<std::string>> fields_of_lines(const std::string& path) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream in(read(path));
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    lines.emplace_back();
    for (std::string field; std::getline(fields, field, '\t');) lines.back().push_back(field);
  }
  return lines;
}

// Returns the files after the calls of a trace.
std::map<std::string, std::string> replayed(const std::string& trace) {
  std::map<std::string, std::string> files;
  const std::string bytes = read(trace + ".bytes");
  for (const auto& line : fields_of_lines(trace)) {
    const std::string &call = line.at(3), &path = line.at(7);
    const long result = std::stol(line.at(4));
    if (result < 0) continue;
    if (call == "open" && std::stoul(line.at(8), nullptr, 8) & O_TRUNC) files[path].clear();
    if (call == "open") files[path];
    if (call == "write") {
      const size_t at = std::stoul(line.at(8)), from = std::stoul(line.at(10)), wrote = static_cast<size_t>(result);
      files[path].resize(std::max(files[path].size(), at + wrote));
      files[path].replace(at, wrote, bytes, from, wrote);
    }
    if (call == "truncate") files[path].resize(std::stoul(line.at(8)));
    if (call == "rename") files[line.at(8)] = files.extract(path).mapped();
    if (call == "remove") files.erase(path);
  }
  return files;
}

}  // namespace

TEST_CASE("fault injection: replaying the trace of a run gives its files") {
  Folder f;
  const Small small(f);
  fs::create_directory(f / "out");
  const std::string run = small.from_files() + "--quiet --save " + (f / "out/w.safetensors") + " --checkpoint " +
                          (f / "out/kept") + " --every 4steps --keep 1 --log " + (f / "out/l.csv") + " --tensorboard " +
                          (f / "out/board") + " --report " + (f / "out/r.html");
  const std::string traced = variables(f, {"", 0, f / "out/*"}) + " FAULTS_TRACE='" + (f / "trace") + "'";
  REQUIRE(harmonics_in(traced, run).code == 0);
  const auto files = replayed(f / "trace");
  size_t found = 0;
  for (const auto& entry : fs::recursive_directory_iterator(f / "out")) {
    if (!entry.is_regular_file()) continue;
    INFO(entry.path());
    REQUIRE(files.count(entry.path().string()));
    CHECK(files.at(entry.path().string()) == read(entry.path()));
    ++found;
  }
  CHECK(found == files.size());
  CHECK(found >= 6);  // weights, checkpoint, its lock, log, events, report
  size_t counted = 0;
  for (const auto& line : fields_of_lines(f / "trace")) counted += line.at(2) != "0";
  CHECK(counted > 30);
}

TEST_CASE("fault injection: calls are counted in order, and a fault is reported") {
  Folder f;
  const Small small(f);
  fs::create_directory(f / "out");
  const std::string run = small.from_files() + "--quiet --save " + (f / "out/w.safetensors");
  for (const auto& [at, call] :
       std::vector<std::pair<size_t, std::string>>{{1, "open"}, {2, "remove"}, {3, "open"}, {4, "write"}}) {
    CHECK(harmonics_in(variables(f, {"kill", at, f / "out/*"}), run).code == kKilled);
    const Struck struck = struck_in(f);
    CHECK(struck.number == at);
    CHECK(struck.call == call);
    CHECK(struck.path.starts_with(f / "out/.harmonics-"));
  }
  CHECK(harmonics_in(variables(f, {"kill", 1, f / "out/*", false, "rename"}), run).code == kKilled);
  CHECK(struck_in(f).call == "rename");
  CHECK(!fs::exists(f / "out/w.safetensors"));
  CHECK(harmonics_in(variables(f, {"tear", 1, f / "out/*", false, "rename"}), run).code == kKilled);
  CHECK(fs::exists(f / "out/w.safetensors"));
  CHECK(harmonics_in(variables(f, {"kill", 1, f / "elsewhere/*"}), run).code == 0);
  CHECK(struck_in(f).number == 0);
}
