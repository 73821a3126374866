// Decoder and Session: a model continues sequences token by token, with caches in place.
//
// Plans are compiled per chunk of tokens and capacity, and shared by all sessions: weights are read where the model has
// them, and a session's caches are bound for each run; both are mirrored on a device with a memory of its own. A plan
// runs once at a time; sessions of several threads run at once, each on a plan of its own that another session takes
// over afterwards. Capacities double, so that a sequence of n tokens needs log n plans. Chunks do not change results
// where kernels are batch-invariant, as those of the CPU device are.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "engine/execution/executable.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

class Session;

class Decoder {
 public:
  // `model` needs the entries "prefill" and "decode" with the inputs "tokens" i32 [1, T] and "start" i32 [1]; decode
  // returns "scores" f32 [1, vocabulary] after the last token. Model and executor must outlive the decoder. Throws
  // ErrorKind::Device for a device that is not available.
  Decoder(const Model& model, Executor& executor, CompileOptions options = {});
  const Model& model() const { return model_; }
  size_t plans() const;  // compiled and still in use

 private:
  friend class Session;

  struct Plan {
    std::unique_ptr<Executable> executable;
    std::vector<int> cache;                              // by state of the plan: index into Session::caches_, or -1
    std::vector<int> input;                              // by input of the plan: 0 tokens, 1 start
    std::vector<void*> addresses;                        // of the states, filled for each run
    std::vector<std::shared_ptr<DeviceTensor>> tensors;  // the same on a device with a memory of its own
    std::vector<const void*> inputs;                     // likewise
    const float* scores = nullptr;                       // decode: the result
  };
  using Key = std::tuple<bool, int64_t, int64_t>;  // decode?, tokens, capacity
  struct Plans {
    std::vector<std::unique_ptr<Plan>> all;
    std::vector<Plan*> free;
  };

  // Both hold mutex_.
  Plan& take(const Key& key, const Session& session);
  std::unique_ptr<Plan> compiled(const Key& key, const Session& session);
  void run(Session& session, bool decode, std::span<const int32_t> tokens);
  void capacity_changed(int64_t from, int64_t to);  // of a session; 0: none

  const Model& model_;
  Executor& executor_;
  CompileOptions options_;
  std::vector<std::shared_ptr<const MappedFile>> files_;  // that weights lie in
  std::shared_ptr<DeviceQueue> queue_;                    // null: a device in host memory
  mutable std::mutex mutex_;                              // guards what follows, and compilation
  std::map<Key, Plans> plans_;
  std::map<int64_t, int> capacities_;  // of living sessions
};

// One sequence. Not thread-safe; sessions of one decoder may be used by different threads.
class Session {
 public:
  // `context`: most tokens of the sequence; 0: as many as the model was trained for. `whole`: memory for all of them at
  // once, instead of doubling.
  explicit Session(Decoder& decoder, int64_t context = 0, bool whole = false);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  // Appends at least one token and returns the scores of the next one, [vocabulary], valid until the next append.
  // Within one capacity it allocates nothing. Throws ErrorKind::Usage for tokens outside the vocabulary and for more
  // tokens than the context holds; then the sequence is unchanged.
  std::span<const float> append(std::span<const int32_t> tokens);
  // Shortens the sequence to its first tokens, which stay computed.
  void keep(int64_t length);
  int64_t length() const { return length_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t context() const { return context_; }
  int64_t capacity() const { return capacity_; }
  uint64_t cache_bytes() const;

  // By Model::states: the positions of the sequence, copied.
  std::vector<HTensor> states() const;
  // Makes this the sequence that had these states; they must have its types. Throws ErrorKind::Usage if the context
  // does not hold the tokens; then the sequence is unchanged.
  void restore(std::span<const int32_t> tokens, const std::vector<HTensor>& states);

 private:
  friend class Decoder;
  void grow(int64_t least);

  Decoder& decoder_;
  int64_t context_ = 0, length_ = 0, capacity_ = 0;
  std::vector<std::shared_ptr<Storage>> caches_;        // by Model::states
  std::vector<std::shared_ptr<DeviceTensor>> mirrors_;  // of the caches on the decoder's device
  std::vector<float> scores_;
  std::vector<int32_t> tokens_;  // of the sequence
};

}  // namespace harmonics::engine
