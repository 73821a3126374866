// The states that a power cut can leave of a run's files. The run's trace (layer/injection.hpp) lists its writes,
// syncs, renames and removals. Data of a file are certainly on the disk once the file was synced, and a change of
// names once its directory was. Everything else may be present or not, in any combination: POSIX guarantees no order.
// An image is one such state.
#pragma once

#include "tests/faults/faulted.hpp"

#include <functional>
#include <map>

namespace faults {

// Contents by path below the root. Directories have no content.
using Image = std::map<std::string, std::string>;

struct TracedCall {
  std::string call, path;
  long result = 0, inode = 0;
  std::vector<std::string> fields;  // fields of the call
};

std::vector<TracedCall> traced_calls(const std::string& trace);

class PowerCuts {
 public:
  // `root` was empty when the traced run began.
  PowerCuts(const std::string& trace, std::string root);

  size_t calls() const { return calls_.size(); }
  const TracedCall& call(size_t n) const { return calls_[n]; }
  // Calls f once for every image that a power cut after the first `n` calls can leave: no uncertain change, all
  // changes, names without data and data without names, every prefix in call order, all changes but one, one change
  // alone, and each write torn in half.
  void each_image(size_t n, const std::function<void(const Image&)>& f) const;

 private:
  struct Change {
    enum Kind { Write, Resize, Make, Rename, Remove } kind;
    long file = 0;                 // number of the file, in order of creation
    std::string path, other = {};  // for changes of names; `other`: the new name
    size_t offset = 0, from = 0, size = 0;
    bool certain = false;
    bool of_names() const { return kind >= Make; }
  };
  std::vector<Change> changes_before(size_t n) const;
  // `torn`: the change of which only the first half is applied.
  Image image_of(const std::vector<Change>& changes, const std::vector<char>& kept, size_t torn) const;

  std::vector<TracedCall> calls_;
  std::string root_, bytes_;
};

// Makes `root` equal to the image.
void lay_out(const Image& image, const std::string& root);

// Returns variables for a process whose calls to these files are recorded.
inline std::string traced(const Folder& f, const std::string& paths) {
  for (const char* name : {"trace", "trace.bytes"}) fs::remove(f / name);
  return variables(f, {"", 0, paths}) + " FAULTS_TRACE='" + (f / "trace") + "'";
}

// Tries every state after every call, once. `promised(n)` is the durable state after the first n calls; an image is
// tried again if that differs. Of more than a hundred states, every k-th is tried, unless HARMONICS_EVERY_STATE
// requests all.
template <typename Promised, typename Try>
size_t at_every_cut(const PowerCuts& cuts, Promised promised, Try attempt) {
  std::set<std::pair<Image, decltype(promised(0))>> seen;
  for (size_t n = 0; n <= cuts.calls(); ++n)
    cuts.each_image(n, [&](const Image& image) { seen.emplace(image, promised(n)); });
  const size_t step = std::getenv("HARMONICS_EVERY_STATE") ? 1 : seen.size() / 100 + 1;
  size_t found = 0;
  seen.clear();
  for (size_t n = 0; n <= cuts.calls(); ++n)
    cuts.each_image(n, [&](const Image& image) {
      if (!seen.emplace(image, promised(n)).second || found++ % step != 0) return;
      INFO("behind call " << n << (n ? ", " + cuts.call(n - 1).call + " of " + cuts.call(n - 1).path : ""));
      std::string names;
      for (const auto& [path, content] : image) names += path + " (" + std::to_string(content.size()) + ") ";
      INFO("on the disk: " << names);
      attempt(image, promised(n));
    });
  return seen.size();
}

}  // namespace faults
