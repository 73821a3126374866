// Spool: a write-ahead log that makes live streams replayable. What arrives is brought to the disk, said to be durable
// to who sends, and read from there; it is kept until a checkpoint covers it. docs/live.md describes the files.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/spool/spooled_stream.hpp"

namespace harmonics {

struct SpoolOptions {
  std::string directory;
  uint64_t most_bytes =
      uint64_t{4} << 30;   // on the disk; then nothing more is taken until a checkpoint lets something go
  bool keeps_all = false;  // nothing is let go
  std::function<void(const std::string&)> on_note = nullptr;  // what was found damaged and left out, for people
  FileCalls* calls = &FileCalls::system();
};

// Groups are committed as they come: while one is brought to the disk, the next gathers.
class Spool {
 public:
  // Makes the directory where needed and takes it for this process alone. Throws ErrorKind::Output, or Usage when
  // another has it.
  explicit Spool(SpoolOptions options);
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  ~Spool();

  // What the samples of a stream are, of which it holds some; none: that is not known.
  std::optional<StreamInfo> type_of(const std::string& name) const;
  // A producer of the same samples by way of the disk, with positions of its own. Streams of one `source` stay level:
  // after a crash they end at the same sample. All are added before one is read; the spool must outlive them.
  std::shared_ptr<Producer> add(const std::string& name, const std::string& source, std::shared_ptr<Producer> upstream);

 private:
  friend class SpoolProducer;
  using StreamPtr = std::shared_ptr<spool::SpooledStream>;

  // Wakes the writer; shared with sources' threads, which may outlive the spool.
  class Bell {
   public:
    void ring();
    void stop();
    bool wait();  // for the next ring; false: stopped

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool rung_ = false, stopped_ = false;
  };

  void begin();
  void recover(const std::vector<StreamPtr>& group);
  void write();
  bool commit_groups();
  bool commit_ends();
  static uint64_t level_of(const std::vector<StreamPtr>& group);  // the sample up to which all have arrived
  bool wait_for_room(uint64_t bytes);
  uint64_t share() const;
  uint64_t bytes_on_disk() const;

  SpoolOptions options_;
  int lock_ = -1;
  std::vector<StreamPtr> streams_;
  std::vector<std::vector<StreamPtr>> groups_;  // by source
  bool begun_ = false;
  std::atomic<bool> keeps_{false}, full_{false};  // somebody releases what it holds; it waits for that
  std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::vector<std::pair<StreamPtr, std::thread>> pumps_;
  std::thread writer_;
};

}  // namespace harmonics
