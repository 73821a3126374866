// DeadLetters: stores samples that a run had to skip, as frames for later inspection or training. Samples in plain
// formats that cannot be parsed are stored in the same folder by their source (wire/plain/refused_samples.hpp).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

#include "engine/base/file.hpp"
#include "wire/folder_budget.hpp"

namespace harmonics::engine {

struct DeadLetterOptions {
  std::string directory;
  uint64_t most_bytes = uint64_t{256} << 20;  // limit for all files together, including those of earlier runs
  std::function<void(const std::string&)> on_note = nullptr;  // receives the reason when no more samples are kept
  bool resumed = false;  // the run is resumed: samples kept before it was killed are not kept again
  FileCalls* calls = &FileCalls::system();
};

// Appends to DIRECTORY/STREAM.hxs for each stream; `file:` reads these files. One frame per sample: its producer
// field holds the reason, its number is the sender's (docs/wire.md). A write error is reported once and does not stop
// the run. Thread-safe.
class DeadLetters {
 public:
  // Creates the directory if needed. Throws ErrorKind::Output with the reason.
  explicit DeadLetters(DeadLetterOptions options);
  DeadLetters(const DeadLetters&) = delete;
  DeadLetters& operator=(const DeadLetters&) = delete;
  ~DeadLetters();

  // Keeps a sample of the type in `info`, the `index`th of its stream. `why` is one word.
  void keep(const std::string& stream, const StreamInfo& info, const char* why, uint64_t index, SampleNumber number,
            const std::byte* sample);
  // Returns the path, without extension, of the files in which the source of this stream stores refused samples.
  std::string refused_of(const std::string& stream);
  uint64_t most_bytes() const { return options_.most_bytes; }
  // Samples kept since construction, by stream.
  struct Kept {
    std::string stream;
    bool refused;  // true: refused by the source; false: left out by a join
    uint64_t samples;
    std::vector<std::string> files;
  };
  std::vector<Kept> kept() const;

 private:
  int file_of(const std::string& stream);
  void read_kept(const std::string& path);
  void give_up(const std::string& why);
  std::optional<uint64_t> bytes_kept() const;

  DeadLetterOptions options_;
  mutable std::mutex mutex_;
  std::map<std::string, int> files_;
  std::map<std::string, uint64_t> left_out_;                        // samples kept, by stream
  std::map<std::string, std::map<std::string, uint64_t>> refused_;  // sizes of files before the run, by stream
  std::multiset<size_t> known_;  // in a resumed run: fingerprints of the samples already kept
  std::unique_ptr<wire::FolderBudget> budget_;
  bool over_ = false;
};

}  // namespace harmonics::engine
