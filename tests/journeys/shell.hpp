// Runs the built program as users do.
#pragma once

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <vector>

namespace journeys {

namespace fs = std::filesystem;

struct Result {
  int code;
  std::string out, err;
};

inline std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline const std::string kProgram = std::string(HARMONICS_BINARY_DIR) + "/bin/harmonics";
inline const std::string kSamples = std::string(HARMONICS_SOURCE_DIR) + "/samples/";

// The state folder of test runs, in place of the user's folder.
inline const std::string kState = [] {
  const std::string folder = std::string(HARMONICS_BINARY_DIR) + "/tests/state";
  ::setenv("XDG_STATE_HOME", folder.c_str(), 1);
  return folder;
}();

// A fresh folder for one test, removed by the destructor.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "harmonics-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }

 private:
  fs::path path_;
};

// Runs a command line as typed in a shell, after variables ("NAME=value"), for at most `seconds`.
inline Result harmonics_in(const std::string& variables, const std::string& arguments, int seconds = 120) {
  Folder f;
  const std::string command = variables + " timeout " + std::to_string(seconds) + " '" + kProgram + "' " + arguments +
                              " >'" + (f / "out") + "' 2>'" + (f / "err") + "' </dev/null";
  const int status = std::system(command.c_str());
  Result r{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(f / "out"), read(f / "err")};
  UNSCOPED_INFO(variables << " harmonics " << arguments << "\nexit " << r.code << "\n"
                          << r.out.substr(0, 2000) << r.err.substr(0, 4000));
  return r;
}

inline Result harmonics(const std::string& arguments, int seconds = 120) {
  return harmonics_in("", arguments, seconds);
}

// Returns a number of the JSON object on the last line, or NaN if it is absent or null.
inline double number(const std::string& out, const std::string& key) {
  const size_t last = out.rfind('\n', out.size() - 2);
  const std::string line = out.substr(last == std::string::npos ? 0 : last + 1);
  const size_t at = line.find("\"" + key + "\":");
  if (at == std::string::npos) return std::nan("");
  const char* text = line.c_str() + at + key.size() + 3;
  char* end = nullptr;
  const double v = std::strtod(text, &end);
  return end == text ? std::nan("") : v;
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Returns the folder of real data, or "" after printing a warning.
inline std::string data_folder() {
  const char* set = std::getenv("HARMONICS_TEST_DATA");
  const fs::path path = set ? fs::path(set) : fs::path(HARMONICS_SOURCE_DIR) / "../shared/data";
  if (fs::exists(path / "mnist")) return path.string();
  WARN("skipped: no data folder at " << path.string() << " (set HARMONICS_TEST_DATA)");
  return "";
}

}  // namespace journeys
