// DeadLetters: samples that a run had to leave out, kept as frames for later inspection or training.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include <harmonics/stream.hpp>

#include "engine/base/file.hpp"

namespace harmonics::engine {

struct DeadLetterOptions {
  std::string directory;
  uint64_t most_bytes = uint64_t{256} << 20;  // of all files, including those of earlier runs; then no more are kept
  std::function<void(const std::string&)> on_note = nullptr;  // receives the message that no more are kept, and why
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

 private:
  int file_of(const std::string& stream);
  void read_kept(const std::string& path);
  void give_up(const std::string& why);

  DeadLetterOptions options_;
  std::mutex mutex_;
  std::map<std::string, int> files_;
  std::multiset<size_t> known_;  // in a resumed run: fingerprints of the samples already kept
  uint64_t bytes_ = 0;
  bool over_ = false;
};

}  // namespace harmonics::engine
