// DeadLetters: samples that a run had to leave out, kept as frames for whoever wants to look at them or learn from them
// later.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include <harmonics/stream.hpp>

#include "engine/base/file.hpp"

namespace harmonics {

struct DeadLetterOptions {
  std::string directory;
  uint64_t most_bytes =
      uint64_t{256} << 20;  // of all files together, those of earlier runs included; then no more are kept
  std::function<void(const std::string&)> on_note = nullptr;  // for people: that no more are kept, and why
  bool resumed = false;  // the run goes on: samples that it left out and kept before it was killed are not kept again
  FileCalls* calls = &FileCalls::system();
};

// DIRECTORY/STREAM.hxs for each stream, written behind what is there; `file:` reads them. One frame a sample: its
// producer is the reason, its number that of its sender (docs/wire.md). What the disk refuses is said once and ends
// nothing. Any thread.
class DeadLetters {
 public:
  // Makes the directory where needed. Throws ErrorKind::Output with the reason.
  explicit DeadLetters(DeadLetterOptions options);
  DeadLetters(const DeadLetters&) = delete;
  DeadLetters& operator=(const DeadLetters&) = delete;
  ~DeadLetters();

  // A sample of info's type, the `index`th of its stream. `why`: a word.
  void keep(const std::string& stream, const StreamInfo& info, const char* why, uint64_t index, SampleNumber number,
            const std::byte* sample);

 private:
  int file_of(const std::string& stream);
  void read_kept(const std::string& path);
  void give_up(const std::string& why);

  DeadLetterOptions options_;
  std::mutex mutex_;
  std::map<std::string, int> files_;
  std::multiset<size_t> known_;  // of a run that goes on: which samples are there, by fingerprint
  uint64_t bytes_ = 0;
  bool over_ = false;
};

}  // namespace harmonics
