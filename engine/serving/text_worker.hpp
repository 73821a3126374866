// Generates texts for many clients with one model, on one thread. Each step computes one token of every running text
// and chunks of the prompts of new texts. A second thread compiles plans before they are needed, so that clients do not
// wait for the compiler.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <harmonics/error.hpp>

#include "engine/language/continuation.hpp"
#include "engine/serving/prompt_budget.hpp"

namespace harmonics::engine {

// A text to generate.
struct TextJob {
  // `prepare` is called first, on the worker's thread, and may throw.
  struct Prompt {
    std::vector<int32_t> ids;
    ContinuationSettings settings;
  };
  std::function<Prompt()> prepare;
  void release() { prepare = nullptr, tell = nullptr; }  // breaks the ownership cycle of closures that own the job
  // `tell` is called on the worker's thread: once with `begun`, then with text, finally with `over` or an error.
  struct News {
    bool begun = false, over = false;
    std::string text = {};
    const Continuation* done = nullptr;  // valid during the call
    const Error* error = nullptr;
  };
  std::function<void(const News&)> tell;
  std::atomic<bool> cancelled{false};             // set by the owner to end the text
  std::shared_ptr<const std::atomic<bool>> gone;  // whether the client has disconnected; null: unknown
  // Begins when this is set: the owner sets it when a text with the same prompt has computed it. Null: begins at once.
  std::shared_ptr<const std::atomic<bool>> ready;
  bool is_cancelled() const { return cancelled || (gone && *gone); }
};

class TextWorker {
 public:
  struct Settings {
    size_t sequences = 4, queue = 64;  // concurrent texts; waiting texts
    int64_t context = 0;               // context length of each text; 0: the model's
    // Tokens whose keys and values are cached, at least one context. 0: `sequences` whole contexts, including at most
    // 1 GiB of prefixes that no text uses.
    int64_t cached_tokens = 0;
    // Creates the drafter of a session; null: none. Called on the worker's thread. Texts sampled with a grammar or
    // mirostat do not use drafters that sample.
    std::function<std::shared_ptr<Drafter>()> drafter = nullptr;
  };
  struct Report {
    uint64_t requests = 0, failed = 0, cancelled = 0, refused = 0;
    int64_t prompt_tokens = 0, reused_tokens = 0, tokens = 0;
    uint64_t prefix_hits = 0;  // texts whose prompt began with a cached prefix
    uint64_t preempted = 0;    // number of times that a text lost its pages to an older one
    uint64_t steps = 0;
    int64_t step_tokens = 0;            // tokens of all steps
    int64_t drafted = 0, accepted = 0;  // draft tokens; accepted draft tokens
    size_t active = 0, waiting = 0;
    int64_t pages = 0, pages_used = 0, pages_kept = 0;  // limit; used by texts; used by prefixes only
    double seconds = 0;                                 // time spent computing
  };

  // Decoder and tokenizer must outlive the worker.
  TextWorker(Decoder& decoder, const Tokenizer& tokenizer, const Settings& settings);
  ~TextWorker();  // ends all texts
  TextWorker(const TextWorker&) = delete;
  TextWorker& operator=(const TextWorker&) = delete;

  // Queues texts, all or none. Returns false if the queue is full, or after drain().
  bool add(std::span<const std::shared_ptr<TextJob>> jobs);
  bool add(const std::shared_ptr<TextJob>& job) { return add(std::span(&job, 1)); }
  // Stops accepting texts and waits for the current ones, up to this time. Returns whether all are finished.
  bool drain(std::chrono::milliseconds most);
  bool is_draining() const;  // whether drain() was called
  Report report() const;
  const Settings& settings() const { return settings_; }

 private:
  struct Slot {
    std::unique_ptr<Session> session;
    std::shared_ptr<Drafter> drafter;  // null: none
    std::shared_ptr<TextJob> job;      // null: free
    std::unique_ptr<Generation> text;
    uint64_t number = 0;     // of the text; smaller for older texts
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
  bool choose_parts();
  void choose_parts(Slot*& at);
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
  // Accessed only by the worker's thread.
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
  int64_t expected_length_ = 0;  // sequence length to prepare plans for
  std::thread thread_, preparing_;
};

}  // namespace harmonics::engine
