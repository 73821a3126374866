// Runs the program with injected faults (layer/injection.hpp), one call after another.
#pragma once

#include "tests/journeys/background.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

namespace faults {

using namespace journeys;

// A fault, the call that it affects, and the files.
struct Fault {
  std::string what;  // as in FAULTS_DO; empty: no fault, calls are only counted
  size_t at = 0;
  std::string paths;
  bool lasting = false;  // affects every later call, too
  std::string calls = {};
};

// Where and when the fault occurred; number 0: it did not.
struct Struck {
  size_t number = 0;
  std::string call, path;
};

inline std::string variables(const Folder& f, const Fault& fault) {
  fs::remove(f / "struck");
  return "LD_PRELOAD='" HARMONICS_FAULT_LAYER "' FAULTS_PATHS='" + fault.paths + "' FAULTS_CALLS='" + fault.calls +
         "' FAULTS_DO='" + fault.what + "' FAULTS_AT='" +
         (fault.at ? std::to_string(fault.at) + (fault.lasting ? "+" : "") : "") + "' FAULTS_STRUCK='" +
         (f / "struck") + "' FAULTS_COUNTED='" + (f / "counted") + "'";
}

inline Struck struck_in(const Folder& f) {
  Struck s;
  std::istringstream(read(f / "struck")) >> s.number >> s.call >> s.path;
  return s;
}

inline bool kills(const std::string& what) { return what == "kill" || what == "tear"; }
constexpr int kKilled = 128 + SIGKILL;

// Runs `attempt(fault)`, which returns whether the fault occurred, for every call in turn. Returns the number of calls.
template <typename Attempt>
size_t at_every_call(Fault fault, Attempt attempt) {
  for (fault.at = 1;; ++fault.at) {
    INFO(fault.what << (fault.lasting ? " from call " : " at call ") << fault.at << " of " << fault.paths);
    if (!attempt(fault)) return fault.at - 1;
  }
}

inline std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  if (fs::exists(folder))
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

inline size_t unfinished_in(const std::string& folder) {
  size_t n = 0;
  for (const std::string& name : names_in(folder)) n += has(name, ".tmp");
  return n;
}

// A short run: 48 samples, 12 steps.
class Small {
 public:
  explicit Small(const Folder& f) {
    f.write("g.hmx",
            "harmonic g { producer x; producer y; layer h {4}; layer o; cycle { x -(relu)-> h; h -(affine)-> o; o "
            "<-(mse)- y; } }\n");
    std::string x, y;
    for (int i = 0; i < 48; ++i)
      x += std::to_string(i * 7 % 13) + "," + std::to_string(i * 5 % 11) + "\n", y += std::to_string(i * 3 % 5) + "\n";
    f.write("x.csv", x);
    f.write("y.csv", y);
    run_ = "run " + (f / "g.hmx") + " --batch 8 --seed 3 --threads 1 ";
    from_files_ = run_ + "--epochs 2 --producer x=" + (f / "x.csv") + " --producer y=" + (f / "y.csv") + " ";
  }
  const std::string& run() const { return run_; }                // without producers
  const std::string& from_files() const { return from_files_; }  // 2 epochs

 private:
  std::string run_, from_files_;
};

}  // namespace faults
