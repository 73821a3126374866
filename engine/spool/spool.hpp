// Spool: a write-ahead log that makes live streams replayable. Arriving samples are written to disk, acknowledged to
// the sender as durable, and read from there. They are kept until a checkpoint covers them. docs/live.md describes
// the files.
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

namespace harmonics::engine {

struct SpoolOptions {
  std::string directory;
  uint64_t most_bytes =
      uint64_t{4} << 30;   // limit on disk; when full, samples are accepted only after a checkpoint releases segments
  bool keeps_all = false;  // never release segments
  std::function<void(const std::string&)> on_note = nullptr;  // receives notes about damage that was skipped
  FileCalls* calls = &FileCalls::system();
};

// Groups are committed continuously: while one is written to disk, the next accumulates.
class Spool {
 public:
  // Creates the directory if needed and locks it for this process. Throws ErrorKind::Output, or Usage if another
  // process holds the lock.
  explicit Spool(SpoolOptions options);
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  ~Spool();

  // Returns the sample type of a stream that has samples in the spool, or nothing if it is unknown.
  std::optional<StreamInfo> type_of(const std::string& name) const;
  // Returns a producer that delivers the same samples through the disk, with its own positions. Streams of one
  // `source` stay aligned: after a crash they end at the same sample. All streams must be added before any is read; the
  // spool must outlive them.
  std::shared_ptr<Producer> add(const std::string& name, const std::string& source, std::shared_ptr<Producer> upstream);

 private:
  friend class SpoolProducer;
  using StreamPtr = std::shared_ptr<spool::SpooledStream>;

  // Wakes the writer. Shared with the threads of sources, which may outlive the spool.
  class Bell {
   public:
    void ring();
    void stop();
    bool wait();  // waits for the next ring, for a limited time; false: stopped

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
  static uint64_t level_of(const std::vector<StreamPtr>& group);  // number of samples that have arrived on all streams
  bool wait_for_room(uint64_t bytes);
  uint64_t share() const;
  uint64_t bytes_on_disk() const;

  SpoolOptions options_;
  int lock_ = -1;
  std::vector<StreamPtr> streams_;
  std::vector<std::vector<StreamPtr>> groups_;  // by source
  bool begun_ = false;
  std::atomic<bool> keeps_{false}, full_{false};  // some reader releases segments; the writer is waiting for a release
  std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::vector<std::pair<StreamPtr, std::thread>> pumps_;
  std::thread writer_;
};

}  // namespace harmonics::engine
