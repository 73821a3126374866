// Decoder and Session: a model continues sequences token by token, with caches in place.
//
// Plans are compiled per number of tokens and capacity. All sessions share them and the model's weights. If the model
// supports pages (Model::paged) and the device computes in host memory, sessions hold pages of one pool, sessions with
// a common prefix share its pages, and a step computes tokens of many sessions. Otherwise each session has its own
// caches, which are bound for each run and mirrored on a device with its own memory, and sessions are computed one at a
// time. A plan runs once at a time; sessions of several threads run concurrently, each on its own plan. With
// batch-invariant kernels, such as those of the CPU device, results depend neither on chunks nor on the other sessions
// of a step.
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

// What a step computes of one session.
struct StepPart {
  enum Scores : uint8_t { none, last, all };

  Session* session = nullptr;
  std::span<const int32_t> tokens = {};  // to append
  Scores wanted = last;
  int64_t missing = 0;                 // instead of tokens: so many of Session::missing() are computed again
  std::span<const float> scores = {};  // the result, as append() or append_all() return it
};

class Decoder {
 public:
  // `model` needs the entries "prefill" and "decode" with the inputs "tokens" i32 [B, T] and "start" i32 [B], B being 1
  // unless Model::paged; decode returns "scores" f32 [B, vocabulary] after the last token. Model and executor must
  // outlive the decoder. Throws ErrorKind::Device for a device that is not available.
  Decoder(const Model& model, Executor& executor, CompileOptions options = {});
  const Model& model() const { return model_; }
  size_t plans() const;  // compiled and still in use

  // Sets how many tokens have their keys and values in memory, those of living sessions and, as long as there is room
  // and up to `kept`, those of prefixes that another session may begin with. Not below what was set before. Without it
  // there is room for the contexts of all living sessions, and prefixes are shared between living sessions only. Does
  // nothing without pages.
  void limit_caches(int64_t tokens, int64_t kept);
  uint64_t token_bytes() const;   // of keys and values
  const PagePool* pages() const;  // null: every session has its own caches
  // Computes the parts, of different sessions, in one run if they have at most 128 tokens together. Allocates nothing
  // for numbers of tokens and capacities that occurred before. Throws what append() throws, and
  // ErrorKind::Unavailable if there are not enough pages; then no sequence has changed.
  void step(std::span<StepPart> parts);
  // What steps may need.
  struct Expected {
    size_t sequences = 1;                                  // at once
    int64_t context = 0;                                   // of the sessions; 0: the model's
    int64_t length = 1;                                    // most tokens of a sequence
    std::function<bool()> stopped = [] { return false; };  // called before each plan
  };
  // Compiles the plans that steps of this kind take, beside steps of other threads, so that none waits for its plan.
  // Does nothing without pages. Throws what compilation throws.
  void prepare(const Expected& expected);
  static constexpr int64_t kLeastCapacity = 64;      // of a session
  static constexpr int64_t kLeastRowCapacity = 256;  // of steps over several sequences; grows by 4, to need fewer plans

 private:
  friend class Session;

  struct Plan {
    std::unique_ptr<Executable> executable;
    std::vector<int> cache;                              // by state of the plan: index into Session::caches_, or -1
    std::vector<void*> addresses;                        // of the states, filled for each run
    std::vector<std::shared_ptr<DeviceTensor>> tensors;  // the same on a device with a memory of its own
    std::vector<int32_t> tokens, start, pages;           // the inputs, filled for each run
    std::vector<const void*> inputs;                     // in the order of the plan
    const float* scores = nullptr;                       // [scored, vocabulary]
  };
  struct Key {
    int64_t scored, sequences, tokens, capacity;  // scored 0: prefill
    auto operator<=>(const Key&) const = default;
  };
  struct Plans {
    std::vector<std::unique_ptr<Plan>> all;
    std::vector<Plan*> free;
    uint64_t used = 0;  // when they were last taken
  };
  class Lease;
  struct Row;

  Plan& take(const Key& key, const Session& session);
  Plan* take_free(const Key& key);
  std::unique_ptr<Plan> compiled(const Key& key, const Session* session);  // null: with pages. Holds compiling_.
  void drop_unused();                                                      // holds mutex_
  static Key row_key(size_t rows, size_t scored, int64_t capacity);

  void run(Session& session, bool decode, std::span<const int32_t> tokens);
  void run_rows(std::span<const Row> rows);
  void run_few(Session& session, bool decode, std::span<const int32_t> tokens);
  void step_alone(StepPart& part);
  void step_rows(std::span<StepPart> parts);
  void capacity_changed(int64_t from, int64_t to);  // of a session with its own caches; 0: none
  void session_opened(int64_t context);
  void session_closed(int64_t context);
  void make_room();

  const Model& model_;
  Executor& executor_;
  CompileOptions options_;
  std::vector<std::shared_ptr<const MappedFile>> files_;  // that weights lie in
  std::shared_ptr<DeviceQueue> queue_;                    // null: a device in host memory
  std::unique_ptr<PagedCaches> caches_;                   // null: every session has its own
  std::mutex compiling_;                                  // taken before mutex_
  mutable std::mutex mutex_;                              // guards what follows
  std::map<Key, Plans> plans_;
  uint64_t taken_ = 0;                 // plans, so far
  std::map<int64_t, int> capacities_;  // of living sessions with their own caches
  int64_t reserved_ = 0;               // pages for the contexts of living sessions
  bool limited_ = false;
};

// One sequence. Not thread-safe; sessions of one decoder may be used by different threads.
class Session {
 public:
  // `context`: most tokens of the sequence; 0: as many as the model was trained for. `whole`: memory for all of them at
  // once, instead of growing.
  explicit Session(Decoder& decoder, int64_t context = 0, bool whole = false);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();
  // A session with the same sequence, which shares its pages. Without pages it computes the sequence when it appends.
  std::unique_ptr<Session> fork() const;

  // Appends at least one token and returns the scores of the next one, [vocabulary], valid until the next append.
  // Within one capacity it allocates nothing. Throws ErrorKind::Usage for tokens outside the vocabulary and for more
  // tokens than the context holds, and ErrorKind::Unavailable if the decoder's limit leaves no page; then the sequence
  // is unchanged.
  std::span<const float> append(std::span<const int32_t> tokens);
  // The same, with the scores after each of the tokens: [tokens, vocabulary].
  std::span<const float> append_all(std::span<const int32_t> tokens);
  // Shortens the sequence to its first tokens, which stay computed.
  void keep(int64_t length);
  // Sets the sequence to the longest proper prefix of `ids` that is computed already, here or in pages of other
  // sessions. Returns its length.
  int64_t begin(std::span<const int32_t> ids);
  int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t context() const { return context_; }
  int64_t capacity() const { return capacity_; }
  uint64_t cache_bytes() const;

  // By Model::states: the positions of the sequence, copied.
  std::vector<HTensor> states() const;
  // Makes this the sequence that had these states; they must have its types. Throws ErrorKind::Usage if the context
  // does not hold the tokens; then the sequence is unchanged.
  void restore(std::span<const int32_t> tokens, const std::vector<HTensor>& states);

  // Releases the pages and keeps the sequence; append() or steps compute the missing tokens again.
  void release();
  // The tokens that are not computed, after looking for them in pages of other sessions.
  std::span<const int32_t> missing();
  // Allocates memory for a sequence of this many tokens, at most the context. Returns false without a change if the
  // decoder's limit leaves none.
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
  std::vector<int32_t> pages_;                          // of the positions, in order
  std::vector<uint64_t> names_;                         // of the prefixes that end with each full page
  std::vector<std::shared_ptr<Storage>> caches_;        // without pages: by Model::states
  std::vector<std::shared_ptr<DeviceTensor>> mirrors_;  // of the caches on the decoder's device
  std::vector<float> scores_, all_scores_;
  std::vector<int32_t> tokens_;  // of the sequence, of which the first computed_ are computed
};

}  // namespace harmonics::engine
