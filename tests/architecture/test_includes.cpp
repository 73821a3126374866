// Enforces the include rules and file layout of docs/map.md.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/architecture/sources.hpp"

using namespace harmonics::engine::testing;

namespace {

// The folders of the command line. Each may include those before it.
const std::vector<std::string> kCommandLine = {"terminal", "options", "remote", "run", "commands", "main.cpp"};

size_t rank_of(const std::string& folder) {
  return static_cast<size_t>(std::find(kEngine.begin(), kEngine.end(), folder) - kEngine.begin());
}

// Returns the subfolder of `top` that an include, possibly relative to the file, refers to; "": none.
std::string included_subfolder(const fs::path& top, const fs::path& file, const std::string& include) {
  for (const fs::path& candidate : {kRoot / include, file.parent_path() / include}) {
    const fs::path inside = candidate.lexically_normal().lexically_relative(top);
    if (fs::exists(candidate) && !inside.empty() && *inside.begin() != "..") return inside.begin()->string();
  }
  return "";
}

// Checks that each folder of `top` includes, within `top`, only itself and `shared`.
void check_separate_folders(const std::string& top, const std::string& shared) {
  for (const fs::path& file : sources(top)) {
    const std::string folder = fs::relative(file, kRoot / top).begin()->string();
    for (const std::string& i : includes(file)) {
      const std::string other = included_subfolder(kRoot / top, file, i);
      INFO(file.string() << " includes " << i);
      CHECK((other.empty() || other == folder || other == shared));
    }
  }
}

// Returns whether the line limit applies: to C++, CUDA, CMake, scripts, templates and sample flows, but not to test
// inputs.
bool has_line_limit(const fs::path& p) {
  static const std::set<std::string> kEndings = {".cmake", ".sh", ".in"};
  const fs::path inside = p.lexically_relative(kRoot);
  if (inside.string().rfind("tests/fuzz/corpus/", 0) == 0) return false;
  for (const fs::path& part : inside)
    if (part == "bad") return false;  // test inputs
  const std::string ending = p.extension().string();
  return is_source(p) || kEndings.count(ending) != 0 || p.filename() == "CMakeLists.txt" || inside == ".ci/run" ||
         (*inside.begin() == "samples" && ending == ".hmx") || (*inside.begin() == "scripts" && ending == ".py");
}

std::vector<fs::path> files_with_line_limit() {
  std::vector<fs::path> found;
  for (const char* folder : {"include", "formats", "engine", "dsl", "producers", "consumers", "kernels", "plugins",
                             "python", "samples", "sender", "tests", "tokens", "wire", "cmake", "scripts", ".ci"}) {
    if (!fs::exists(kRoot / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
      if (entry.is_regular_file() && has_line_limit(entry.path())) found.push_back(entry.path());
  }
  for (const auto& entry : fs::directory_iterator(kRoot))
    if (entry.is_regular_file() && has_line_limit(entry.path())) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// Counts UTF-8 characters, not bytes.
size_t columns(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

TEST_CASE("public headers include only themselves and the standard library") {
  for (const fs::path& file : sources("include/harmonics"))
    for (const std::string& i : includes(file)) {
      INFO(file.string() << " includes " << i);
      const bool maps = file.filename() == "file_mapping.hpp" && i == "sys/mman.h";
      CHECK((starts(i, "harmonics/") || i.find('/') == std::string::npos || maps));
      CHECK(i.find("views") == std::string::npos);
      CHECK(i != "source_location");
      CHECK(i != "format");
    }
}

TEST_CASE("engine folders include only the folders above them in the map") {
  for (const fs::path& file : sources("engine")) {
    const std::string folder = fs::relative(file, kRoot / "engine").begin()->string();
    for (const std::string& i : includes(file)) {
      if (!ours(i)) continue;
      INFO(file.string() << " includes " << i);
      if (folder == "cli" || (folder == "embed" && starts(i, "dsl/"))) continue;
      if (folder == "transformer" && (starts(i, "dsl/spec/") || starts(i, "dsl/ndsl/") || starts(i, "dsl/document/")))
        continue;
      if (folder == "library" && (i == "producers/register.hpp" || i == "consumers/register.hpp")) continue;
      if (folder == "spool" && starts(i, "wire/")) continue;
      if (folder == "serving" && (i == "wire/keys.hpp" || i == "wire/freed_memory.hpp")) continue;
      if (starts(i, "formats/")) continue;
      REQUIRE(starts(i, "engine/"));
      const std::string other = i.substr(7, i.find('/', 7) - 7);
      REQUIRE(rank_of(other) < kEngine.size());
      CHECK(rank_of(other) <= rank_of(folder));
    }
  }
}

TEST_CASE("command line: a room includes only those before it") {
  const auto rank = [](const std::string& room) {
    const auto at = std::find(kCommandLine.begin(), kCommandLine.end(), room);
    REQUIRE(at != kCommandLine.end());
    return at - kCommandLine.begin();
  };
  for (const fs::path& file : sources("engine/cli")) {
    const auto room = rank(fs::relative(file, kRoot / "engine/cli").begin()->string());
    for (const std::string& i : includes(file)) {
      if (!starts(i, "engine/cli/")) continue;
      INFO(file.string() << " includes " << i);
      CHECK(rank(i.substr(11, i.find('/', 11) - 11)) <= room);
    }
  }
}

TEST_CASE("languages include only base and plain data types") {
  const std::set<std::string> allowed = {"engine/flow/flow.hpp"};
  for (const fs::path& file : sources("dsl"))
    for (const std::string& i : includes(file)) {
      if (!ours(i)) continue;
      INFO(file.string() << " includes " << i);
      CHECK((starts(i, "dsl/") || starts(i, "engine/base/") || starts(i, "formats/") || allowed.count(i)));
    }
}

TEST_CASE("streams, kernels, plugins, samples and the Python module see only public headers") {
  for (const std::string folder : {"producers", "consumers", "kernels", "plugins", "python", "samples"})
    for (const fs::path& file : sources(folder))
      for (const std::string& i : includes(file)) {
        if (!ours(i)) continue;
        INFO(file.string() << " includes " << i);
        const bool archive = folder != "kernels" && folder != "python" && folder != "samples" && starts(i, "formats/");
        const bool vocabulary = folder == "plugins" && starts(i, "tokens/");
        CHECK((starts(i, folder + "/") || starts(i, "wire/") || archive || vocabulary));
      }
}

TEST_CASE("plugins: a folder includes no other folder of plugins") { check_separate_folders("plugins", ""); }

TEST_CASE("kernels: a folder includes only itself and kernels/shared") { check_separate_folders("kernels", "shared"); }

TEST_CASE("kernels: headers of a CPU family are private to the folder of families") {
  size_t headers = 0;
  for (const fs::path& file : sources("kernels/cpu"))
    for (const std::string& i : includes(file)) {
      const bool own = file.parent_path().filename() == "families";
      headers += own && fs::exists(file.parent_path() / i) && !starts(i, "../");
      INFO(file.string() << " includes " << i);
      CHECK((own || i.find("families/") == std::string::npos));
    }
  CHECK(headers > 0);
}

TEST_CASE("sender: includes only itself, transport endpoints and wire") {
  for (const fs::path& file : sources("sender"))
    for (const std::string& i : includes(file)) {
      if (!ours(i)) continue;
      INFO(file.string() << " includes " << i);
      CHECK((starts(i, "plugins/sockets/") || starts(i, "plugins/zmq/") || starts(i, "wire/")));
    }
}

TEST_CASE("wire, formats, tokens: include only themselves, plain formats and tokens also formats") {
  for (const std::string folder : {"wire", "formats", "tokens"})
    for (const fs::path& file : sources(folder))
      for (const std::string& i : includes(file)) {
        if (!ours(i)) continue;
        INFO(file.string() << " includes " << i);
        const bool plain = folder == "tokens" || fs::relative(file, kRoot / "wire").begin()->string() == "plain";
        CHECK((starts(i, folder + "/") || (plain && starts(i, "formats/"))));
      }
}

TEST_CASE("heavy headers stay in few sources") {
  const std::map<std::string, size_t> limits = {{"oneapi/tbb/flow_graph.h", 1},
                                                {"boost/asio.hpp", 4},
                                                {"boost/beast/http.hpp", 2},
                                                {"hxs.pb.h", 1},
                                                {"dnnl.hpp", 6},
                                                {"boost/dll/shared_library.hpp", 1},
                                                {"pybind11/pybind11.h", 1}};
  std::map<std::string, size_t> users;
  for (const std::string folder : {"formats", "engine", "dsl", "producers", "consumers", "kernels", "plugins", "python",
                                   "sender", "tokens", "wire"})
    for (const fs::path& file : sources(folder))
      for (const std::string& i : includes(file))
        if (limits.count(i)) ++users[i];
  for (const auto& [header, limit] : limits) {
    INFO(header);
    CHECK(users[header] <= limit);
  }
  CHECK(users["boost/dll/shared_library.hpp"] == 1);  // only the loader opens plugins
}

TEST_CASE("files have valid names and sizes") {
  for (const std::string folder : {"include", "formats", "engine", "dsl", "producers", "consumers", "kernels",
                                   "plugins", "python", "samples", "sender", "tests", "tokens", "wire"})
    for (const fs::path& file : sources(folder)) {
      const std::string name = file.filename().string(), text = read(file);
      INFO(file.string());
      for (const char* word : {"manager", "helper", "utils"}) CHECK(name.find(word) == std::string::npos);
      CHECK(std::count(text.begin(), text.end(), '\n') <= 600);
    }
}

TEST_CASE("fuzz: dictionaries use only escapes that libFuzzer accepts") {
  size_t entries = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kRoot / "tests/fuzz")) {
    if (entry.path().extension() != ".dict") continue;
    INFO(entry.path().string());
    std::stringstream text(read(entry.path()));
    for (std::string line; std::getline(text, line);) {
      if (line.empty() || line[0] == '#') continue;
      INFO(line);
      CHECK((line.size() > 2 && line.front() == '"' && line.back() == '"'));
      for (size_t at = line.find('\\'); at != std::string::npos; at = line.find('\\', at + 2)) {
        const std::string escape = line.substr(at, 4);
        const bool hexadecimal = escape.size() == 4 && escape[1] == 'x' &&
                                 escape.find_first_not_of("0123456789abcdefABCDEF", 2) == std::string::npos;
        CHECK((hexadecimal || escape.substr(0, 2) == "\\\\" || escape.substr(0, 2) == "\\\""));
      }
      ++entries;
    }
  }
  CHECK(entries > 100);
}

TEST_CASE("layout: no line is longer than 120 columns") {
  const std::vector<fs::path> files = files_with_line_limit();
  REQUIRE(files.size() > 100);
  for (const fs::path& file : files) {
    std::stringstream text(read(file));
    size_t number = 0;
    for (std::string line; std::getline(text, line);) {
      ++number;
      if (columns(line) <= 120) continue;
      FAIL_CHECK(file.lexically_relative(kRoot).string() << ":" << number << ": " << columns(line) << " columns");
    }
  }
}

TEST_CASE("layout: a line's columns are its characters, not its bytes") {
  CHECK(columns("") == 0);
  CHECK(columns("a ─▶ b") == 6);
}

TEST_CASE("the map names every folder") {
  const std::string map = read(kRoot / "docs/map.md");
  REQUIRE(!map.empty());
  for (const std::string& folder : kEngine) {
    INFO(folder);
    CHECK(map.find("engine/" + folder) != std::string::npos);
  }
  for (const char* folder : {"formats", "dsl", "producers", "consumers", "kernels/cpu", "plugins", "`python`",
                             "samples", "sender", "tests", "tokens", "wire", "cmake", "scripts", "workloads"}) {
    INFO(folder);
    CHECK(map.find(folder) != std::string::npos);
  }
}
