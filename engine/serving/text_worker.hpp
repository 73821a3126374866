// Generates texts of many clients with one model, on one thread. Each step computes one token of every running text
// and chunks of the prompts of new texts. Another thread compiles the plans of steps before they are needed, so that
// clients do not wait for the compiler.
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
#include "engine/serving/prompt_budget.hpp"

namespace harmonics::engine {

// A text to generate.
struct TextJob {
  // Called first, on the worker's thread; may throw.
  struct Prompt {
    std::vector<int32_t> ids;
    ContinuationSettings settings;
  };
  std::function<Prompt()> prepare;
  void release() { prepare = nullptr, tell = nullptr; }  // breaks a cycle: the closures may own the job
  // Called on the worker's thread: once with `begun`, then with text, at last with `over` or an error.
  struct News {
    bool begun = false, over = false;
    std::string text = {};
    const Continuation* done = nullptr;  // valid during the call
    const Error* error = nullptr;
  };
  std::function<void(const News&)> tell;
  std::atomic<bool> cancelled{false};             // no further events are sent
  std::shared_ptr<const std::atomic<bool>> gone;  // the client; null: not known
  bool is_cancelled() const { return cancelled || (gone && *gone); }
};

class TextWorker {
 public:
  struct Settings {
    size_t sequences = 4, queue = 64;  // concurrent texts; waiting texts
    int64_t context = 0;               // of each; 0: the model's
    // Tokens whose keys and values are kept, at least one context. 0: `sequences` whole contexts, with at most 1 GiB of
    // prefixes that no text uses.
    int64_t cached_tokens = 0;
    // Creates the drafter of a text; null: none. Called on the worker's thread. Texts with a grammar or mirostat get no
    // sampled drafts.
    std::function<std::shared_ptr<Drafter>()> drafter = nullptr;
  };
  struct Report {
    uint64_t requests = 0, failed = 0, cancelled = 0, refused = 0;
    int64_t prompt_tokens = 0, reused_tokens = 0, tokens = 0;
    uint64_t prefix_hits = 0;  // texts whose prompt begins with a cached prefix
    uint64_t preempted = 0;    // how often a text yielded its pages to an older one
    uint64_t steps = 0;
    int64_t step_tokens = 0;            // of all steps
    int64_t drafted = 0, accepted = 0;  // draft tokens; accepted draft tokens
    size_t active = 0, waiting = 0;
    int64_t pages = 0, pages_used = 0, pages_kept = 0;  // limit; used by texts; used by prefixes only
    double seconds = 0;                                 // of computing
  };

  // Decoder and tokenizer must outlive it.
  TextWorker(Decoder& decoder, const Tokenizer& tokenizer, const Settings& settings);
  ~TextWorker();  // ends all texts
  TextWorker(const TextWorker&) = delete;
  TextWorker& operator=(const TextWorker&) = delete;

  // Returns false if the queue is full, or after drain().
  bool add(std::shared_ptr<TextJob> job);
  // Accepts no more texts and waits for the present ones, at most this long. Returns whether all are finished.
  bool drain(std::chrono::milliseconds most);
  Report report() const;
  const Settings& settings() const { return settings_; }

 private:
  struct Slot {
    std::unique_ptr<Session> session;
    std::shared_ptr<Drafter> drafter;  // null: none
    std::shared_ptr<TextJob> job;      // null: free
    std::unique_ptr<Generation> text;
    uint64_t number = 0;     // of the text: older texts have smaller ones
    bool preempted = false;  // in this step
  };
  void work();
  void prepare();
  void expect_length(int64_t length);
  bool take_waiting();
  void drop_cancelled();
  void begin(std::shared_ptr<TextJob> job);
  Slot& slot_for(const std::vector<int32_t>& ids);
  void step();
  void choose_parts();
  bool add_part(Slot& slot, int64_t most, int64_t drafts);
  bool has_room(const Slot& slot, int64_t least) const;
  bool make_room(Slot& slot, int64_t length);
  void take_scores(Slot& slot, const StepPart& part, double seconds);
  void end(Slot& slot, uint64_t Report::*counter);
  void fail(TextJob& job, const Error& error);
  void fail_all(const Error& error);

  Decoder& decoder_;
  const Tokenizer& tokenizer_;
  const Settings settings_;
  // Used by the worker's thread only.
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> running_;  // the oldest text first
  std::vector<StepPart> parts_;
  std::vector<Slot*> owners_;  // of the parts
  PromptBudget budget_;
  uint64_t begun_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_, longer_;
  std::deque<std::shared_ptr<TextJob>> waiting_;
  Report report_;
  bool draining_ = false, over_ = false;
  int64_t expected_length_ = 0;  // of sequences, for which plans are wanted
  std::thread thread_, preparing_;
};

}  // namespace harmonics::engine
