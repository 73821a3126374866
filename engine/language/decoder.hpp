// Decoder and Session: a model continues sequences token by token, with caches updated in place.
//
// Plans are compiled per number of tokens and capacity. All sessions share plans and weights. If the model supports
// pages (Model::paged), sessions use pages of one pool, sessions with a common prefix share its pages, and one step
// computes tokens of many sessions. Otherwise, and on a device with its own memory that has no kernels for pages, each
// session has its own caches, which are bound for each run and mirrored on the device, and sessions are computed one at
// a time.
// A plan is run by one thread at a time; sessions of several threads run concurrently on separate plans. With
// batch-invariant kernels, such as those of the CPU device, results depend neither on chunks nor on other sessions of a
// step.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "engine/execution/executable.hpp"
#include "engine/language/paged_caches.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

class Session;

// What a step computes for one session.
struct StepPart {
  enum Scores : uint8_t { none, last, all };

  Session* session = nullptr;
  std::span<const int32_t> tokens = {};  // to append
  Scores wanted = last;
  int64_t missing = 0;                 // instead of tokens: recompute this many of Session::missing()
  std::span<const float> scores = {};  // the result, as returned by append() or append_all()
};

class Decoder {
 public:
  // `model` needs the entries "prefill" and "decode" with the inputs "tokens" i32 [B, T] and "start" i32 [B]; B is 1
  // unless Model::paged. "decode" returns "scores" f32 [B, vocabulary] after the last token. Model and executor must
  // outlive the decoder. Throws ErrorKind::Device if the device is unavailable.
  Decoder(const Model& model, Executor& executor, CompileOptions options = {});
  const Model& model() const { return model_; }
  size_t plans() const;  // number of compiled plans

  // Limits the tokens whose keys and values are in memory: those of living sessions and, while there is room and up to
  // `kept`, those of prefixes that another session may start with. The limit is never lowered. Without a limit there is
  // room for the contexts of all living sessions, and only living sessions share prefixes. Has no effect without pages.
  void limit_caches(int64_t tokens, int64_t kept);
  uint64_t token_bytes() const;   // of keys and values
  const PagePool* pages() const;  // null if every session has its own caches
  int64_t page_limit() const;     // pages that the pool may have; on a device it grows up to this number
  int64_t available_pages() const;
  // Computes the parts, which belong to different sessions, in one run if they have at most 128 tokens in total.
  // Allocates nothing for numbers of tokens and capacities that occurred before. Throws the errors of append(), and
  // ErrorKind::Unavailable if there are not enough pages; then no sequence has changed.
  void step(std::span<StepPart> parts);
  // The steps to prepare for.
  struct Expected {
    size_t sequences = 1;                                  // concurrent
    int64_t context = 0;                                   // of the sessions; 0 for the model's
    int64_t length = 1;                                    // maximum number of tokens of a sequence
    std::function<bool()> stopped = [] { return false; };  // called before each plan; true ends the preparation
  };
  // Compiles the plans for such steps, so that steps need not wait for them. Steps of other threads may run meanwhile.
  // Has no effect without pages. Throws errors of compilation.
  void prepare(const Expected& expected);
  static constexpr int64_t kLeastCapacity = 64;      // of a session
  static constexpr int64_t kLeastRowCapacity = 256;  // of steps over several sequences; quadruples, to need fewer plans

 private:
  friend class Session;

  struct Plan {
    std::unique_ptr<Executable> executable;
    std::vector<int> cache;                              // by state of the plan: index into Session::caches_, or -1
    std::vector<void*> addresses;                        // of the states; filled in for each run
    std::vector<std::shared_ptr<DeviceTensor>> tensors;  // the same on a device with its own memory
    std::vector<int32_t> tokens, start, pages;           // the inputs; filled in for each run
    std::vector<const void*> inputs;                     // in the order of the plan's inputs
    const float* scores = nullptr;                       // [scored, vocabulary]
  };
  struct Key {
    int64_t scored, sequences, tokens, capacity;  // scored 0: prefill
    auto operator<=>(const Key&) const = default;
  };
  struct Plans {
    std::vector<std::unique_ptr<Plan>> all;
    std::vector<Plan*> free;
    uint64_t used = 0;  // time of the last use, see taken_
  };
  class Lease;
  struct Row;

  Plan& take(const Key& key, const Session& session);
  Plan* take_free(const Key& key);
  std::unique_ptr<Plan> compiled(const Key& key, const Session* session);  // null: with pages. Requires compiling_.
  void drop_unused();                                                      // requires mutex_
  static Key row_key(size_t rows, size_t scored, int64_t capacity);

  void run(Session& session, bool decode, std::span<const int32_t> tokens);
  void run_rows(std::span<const Row> rows);
  void run_few(Session& session, bool decode, std::span<const int32_t> tokens);
  void step_alone(StepPart& part);
  void step_rows(std::span<StepPart> parts);
  void capacity_changed(int64_t from, int64_t to);  // of a session with its own caches; 0 for none
  void session_opened(int64_t context);
  void session_closed(int64_t context);
  void make_room(int64_t pages);
  void raise_page_limit(int64_t pages);
  int32_t take_page();  // of the pool; PagePool::kNone if all are held
  void add_pages();
  Error caches_full() const;

  const Model& model_;
  Executor& executor_;
  CompileOptions options_;
  std::vector<std::shared_ptr<const MappedFile>> files_;  // files that contain weights
  std::shared_ptr<DeviceQueue> queue_;                    // null for a device in host memory
  std::unique_ptr<PagedCaches> caches_;                   // null if every session has its own caches
  std::mutex growing_;                                    // locked before the others
  std::mutex compiling_;                                  // locked before mutex_
  mutable std::mutex mutex_;                              // guards the members below
  std::map<Key, Plans> plans_;
  uint64_t taken_ = 0;                 // number of plans taken so far
  std::map<int64_t, int> capacities_;  // of living sessions with their own caches
  int64_t reserved_ = 0;               // pages for the contexts of living sessions
  int64_t most_pages_ = 0;             // of the pool
  bool limited_ = false;
};

// One sequence. Not thread-safe, but different threads may use different sessions of one decoder.
class Session {
 public:
  // `context` is the maximum number of tokens; 0 for the number that the model was trained for. `whole`: allocate
  // memory for all of them now instead of growing; an error if a limit of the caches does not allow it.
  explicit Session(Decoder& decoder, int64_t context = 0, bool whole = false);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();
  // Returns a session with the same sequence that shares its pages. Without pages it recomputes the sequence at its
  // next append.
  std::unique_ptr<Session> fork() const;

  // Appends at least one token and returns the scores of the next one, [vocabulary], valid until the next append.
  // Allocates nothing while the capacity is unchanged. Throws ErrorKind::Usage for tokens outside the vocabulary and
  // for more tokens than the context holds, and ErrorKind::Unavailable if the limit of the decoder leaves no page; then
  // the sequence is unchanged.
  std::span<const float> append(std::span<const int32_t> tokens);
  // Same as append(), but returns the scores after each of the tokens: [tokens, vocabulary].
  std::span<const float> append_all(std::span<const int32_t> tokens);
  // Shortens the sequence to its first `length` tokens, which need not be computed again.
  void keep(int64_t length);
  // Sets the sequence to the longest proper prefix of `ids` of at most `most` tokens that has been computed, here or in
  // pages of other sessions. Returns its length.
  int64_t begin(std::span<const int32_t> ids, int64_t most = INT64_MAX);
  int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t context() const { return context_; }
  int64_t capacity() const { return capacity_; }
  uint64_t cache_bytes() const;

  // Returns copies of the states for the computed tokens, by Model::states.
  std::vector<HTensor> states() const;
  // Sets the sequence to `tokens` and their states, which must have the types of states(). Throws ErrorKind::Usage if
  // the context is too small for the tokens; then the sequence is unchanged.
  void restore(std::span<const int32_t> tokens, const std::vector<HTensor>& states);

  // Releases the pages but keeps the sequence; append() or steps recompute its tokens.
  void release();
  // Returns the tokens that are not computed, after searching pages of other sessions for them.
  std::span<const int32_t> missing();
  // Allocates memory for a sequence of `length` tokens, at most the context. Returns false without a change if the
  // limit of the decoder leaves none.
  bool reserve(int64_t length);

 private:
  friend class Decoder;
  void grow(int64_t least);
  void adopt_pages(std::span<const int32_t> ids, int64_t most);
  bool own_last_page();
  void drop_pages(size_t first);
  void expect(std::span<const int32_t> tokens) const;
  void advance(std::span<const int32_t> tokens, int64_t computed);

  Decoder& decoder_;
  int64_t context_ = 0, computed_ = 0, capacity_ = 0;
  std::vector<int32_t> pages_;                          // in the order of positions
  std::vector<uint64_t> names_;                         // names of the prefixes that end with each full page
  std::vector<std::shared_ptr<Storage>> caches_;        // without pages; by Model::states
  std::vector<std::shared_ptr<DeviceTensor>> mirrors_;  // the caches on the device of the decoder
  std::vector<float> scores_, all_scores_;
  std::vector<int32_t> tokens_;  // the sequence; the first computed_ tokens are computed
};

}  // namespace harmonics::engine
