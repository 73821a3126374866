// All senders to one address: their sessions, pending answers and positions. Not thread-safe: Inbox locks.
#pragma once

#include <deque>
#include <set>

#include "wire/inbox.hpp"
#include "wire/sample_log.hpp"

namespace harmonics::wire {

struct Sender {
  SenderName name;
  std::unique_ptr<ReceiveSession> session;  // null: one way
  uint64_t peer = 0;                        // the last connection it used; 0: none
  uint64_t queued = 0;                      // its samples that at least one reader has not taken
  Position counted;                         // one way: the next expected sample
  bool came = false, told = false;          // its HELLO was accepted; its END was acknowledged
  bool gave = false;                        // it has sent a sample or its end, in this process or before
  Time moved{};                             // time of its HELLO, or of its disconnect
  bool dirty = false;                       // it may have a pending answer
  std::optional<uint64_t> end_written;      // a position before this sample records its end
};

// The new samples of one frame, in order.
struct Taken {
  Sender* sender = nullptr;
  OwnedBytes bytes;
  std::shared_ptr<const Frame> frame;
  uint32_t first = 0, count = 0;
};

class Senders {
 public:
  explicit Senders(const InboxOptions& options) : options_(options) {}

  // Returns samples for the queue, if the frame has any.
  std::optional<Taken> arrived(uint64_t peer, OwnedBytes bytes, std::shared_ptr<const Frame> frame);
  void damaged(uint64_t peer, const std::string& reason);
  void arriving(uint64_t peer);
  void left(uint64_t peer);
  bool is_greeted(uint64_t peer) const;
  void turned_away(const std::string& reason);
  void forget_incarnation(const std::string& producer) { forgotten_.insert(producer); }
  // Returns whether a sender without samples was forgotten, after which the stream may be over.
  bool take_forgotten() { return std::exchange(fewer_, false); }
  std::optional<Inbox::Answer> poll(Time now);
  // Returns whether a sender may be waiting for an answer that poll can give.
  bool consumed(Sender& sender, uint64_t samples, uint64_t bytes);

  // Accepts senders. Senders that connect before this call wait.
  void begin(bool durable);
  bool has_begun() const { return begun_; }
  bool is_durable() const { return durable_; }
  void restore(uint64_t index, const Positions& positions);
  // Adds the ends that the position of another stream has: the positions of an address's streams are taken one after
  // the other, and a sender whose end one of them has may have gone for good.
  void restore_ends(const Positions& positions);
  // Returns the positions before sample `index`, for a checkpoint that the caller is about to write.
  std::string position(uint64_t index);
  void durable(uint64_t index);
  const SampleLog& log() const { return log_; }

  // Sets a tensor ("": the only one) that was received earlier. Senders of another one are rejected.
  void expect(TensorPart tensor) { expected_.push_back(std::move(tensor)); }
  // Returns whether a sender has arrived or is known from a position.
  bool has_come() const { return !tensors_.empty(); }
  // Returns whether all senders have ended.
  bool are_over() const;
  // The first announcement, which is binding for all senders.
  const std::vector<TensorPart>& tensors() const { return tensors_; }
  // Tells all connected senders that no reader is left. Returns true once they have been told and ended ones have gone.
  bool say_goodbye();
  void report(InboxHealth& health);
  const std::string& last_error() const { return last_error_; }

 private:
  std::optional<Taken> converse(Sender& sender, uint64_t peer, const OwnedBytes& bytes,
                                const std::shared_ptr<const Frame>& frame);
  std::optional<Taken> count(Sender& sender, uint64_t peer, const OwnedBytes& bytes,
                             const std::shared_ptr<const Frame>& frame);
  Sender* known(const Frame& frame, uint64_t peer);
  Sender& make(const SenderName& name);
  void restore(const SenderName& name, const Position& position);
  bool has_place() const;
  bool make_room();
  void keep_waiting(uint64_t peer, const Frame& hello);
  void admit_waiting();
  void forget_silent(Time now);
  void forget(std::map<SenderName, std::unique_ptr<Sender>>::iterator sender);
  bool refuses(uint64_t peer, const Frame& frame);
  void refuse(uint64_t peer, const Frame& frame, Code code, const std::string& text);
  size_t empty_names_of(uint64_t peer) const;
  void answer(uint64_t peer, const Frame& to, Kind kind, Code code, const std::string& text);
  void say(uint64_t peer, const Frame& frame);
  void share_window();
  void learn(const std::vector<TensorPart>& tensors);
  bool is_expected(const std::vector<TensorPart>& tensors) const;
  static bool is_ended(const Sender& sender) {
    return sender.session ? sender.session->is_ended() : sender.counted.ended;
  }
  void mark(Sender& sender);

  const InboxOptions& options_;
  std::map<SenderName, std::unique_ptr<Sender>> all_;
  struct Waiting {
    uint64_t peer = 0, turn = 0;
    Frame hello;
  };
  std::map<SenderName, Waiting> waiting_;  // HELLOs that wait for begin() or a free slot
  uint64_t turns_ = 0;
  std::set<std::string> forgotten_;  // names whose incarnation in a position is ignored
  bool fewer_ = false;
  std::deque<Inbox::Answer> answers_;
  std::map<uint64_t, Time> warned_;  // peers that were told about a malformed frame, and when
  std::deque<Sender*> dirty_;
  std::vector<TensorPart> tensors_, expected_;
  SampleLog log_;
  bool begun_ = false, durable_ = false, goodbye_ = false, durable_wanted_ = false;
  Time ticked_{};
  ReceiveCounts gone_;  // of forgotten senders, and counts outside sessions
  std::string last_error_;
};

}  // namespace harmonics::wire
