// Writes texts of many clients with one model: in turn, a token of each, on one thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <harmonics/error.hpp>

#include "engine/language/continuation.hpp"

namespace harmonics::engine {

// A text to write.
struct TextJob {
  // Called first, on the worker's thread; may throw.
  struct Prompt {
    std::vector<int32_t> ids;
    ContinuationSettings settings;
  };
  std::function<Prompt()> prepare;
  void release() { prepare = nullptr, tell = nullptr; }  // what they hold may hold the job
  // Called on the worker's thread: once with `begun`, then with text, at last with `over` or an error.
  struct News {
    bool begun = false, over = false;
    std::string text = {};
    const Continuation* done = nullptr;  // while it is called
    const Error* error = nullptr;
  };
  std::function<void(const News&)> tell;
  std::atomic<bool> cancelled{false};  // no further news are sent
};

class TextWorker {
 public:
  struct Settings {
    size_t sequences = 4, queue = 64;  // texts at once, and texts that wait
    int64_t context = 0;               // of each; 0: the model's
  };
  struct Report {
    uint64_t requests = 0, failed = 0, cancelled = 0, refused = 0;
    int64_t prompt_tokens = 0, reused_tokens = 0, tokens = 0;
    size_t active = 0, waiting = 0;
    double seconds = 0;  // of computing
  };

  // Decoder and tokenizer must outlive it.
  TextWorker(Decoder& decoder, const Tokenizer& tokenizer, const Settings& settings);
  ~TextWorker();  // ends all texts
  TextWorker(const TextWorker&) = delete;
  TextWorker& operator=(const TextWorker&) = delete;

  // Returns false if the queue is full, or after drain().
  bool add(std::shared_ptr<TextJob> job);
  // Takes no more texts, and waits for those that it has, at most so long. Returns whether all are written.
  bool drain(std::chrono::milliseconds most);
  Report report() const;
  const Settings& settings() const { return settings_; }

 private:
  struct Slot {
    std::unique_ptr<Session> session;
    std::shared_ptr<TextJob> job;  // null: free
    std::unique_ptr<Generation> text;
  };
  void work();
  bool take_waiting();
  void begin(std::shared_ptr<TextJob> job);
  Slot& slot_for(const std::vector<int32_t>& ids);
  void advance(Slot& slot);
  void end(Slot& slot, uint64_t Report::*counter);
  void fail(TextJob& job, const Error& error);

  Decoder& decoder_;
  const Tokenizer& tokenizer_;
  const Settings settings_;
  std::vector<Slot> slots_;  // of the thread alone
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<std::shared_ptr<TextJob>> waiting_;
  Report report_;
  bool draining_ = false, over_ = false;
  std::thread thread_;
};

}  // namespace harmonics::engine
