// Everybody who sends to one address: a session each, what is to be said to whom, and where they stand. For Inbox,
// which locks.
#pragma once

#include <deque>
#include <set>

#include "wire/inbox.hpp"
#include "wire/sample_log.hpp"

namespace harmonics::wire {

struct Sender {
  SenderName name;
  std::unique_ptr<ReceiveSession> session;  // none one way
  uint64_t peer = 0;                        // where it spoke last; 0: nowhere
  uint64_t queued = 0;                      // samples of it that a reader has not had
  Position counted;                         // one way: what comes next
  bool came = false, told = false;          // its HELLO was taken; it was told that its end is known
  bool gave = false;                        // a sample or its end, in this process or before
  Time moved{};                             // when its HELLO came, or its connection went
  bool dirty = false;                       // something may have to be said to it
  std::optional<uint64_t> end_written;      // a position before this sample says that it ended
};

// Samples of one frame that are in order and new.
struct Taken {
  Sender* sender = nullptr;
  OwnedBytes bytes;
  std::shared_ptr<const Frame> frame;
  uint32_t first = 0, count = 0;
};

class Senders {
 public:
  explicit Senders(const InboxOptions& options) : options_(options) {}

  // Samples for the queue, if there are any.
  std::optional<Taken> arrived(uint64_t peer, OwnedBytes bytes, std::shared_ptr<const Frame> frame);
  void damaged(uint64_t peer, const std::string& reason);
  void arriving(uint64_t peer);
  void left(uint64_t peer);
  bool is_greeted(uint64_t peer) const;
  void turned_away(const std::string& reason);
  void forget_incarnation(const std::string& producer) { forgotten_.insert(producer); }
  // A sender that gave nothing was forgotten: the stream may be over.
  bool take_forgotten() { return std::exchange(fewer_, false); }
  std::optional<Inbox::Answer> poll(Time now);
  // True: somebody may wait for what poll has to say now.
  bool consumed(Sender& sender, uint64_t samples, uint64_t bytes);

  // Senders are welcome from now on; before, they are asked to wait.
  void begin(bool durable);
  bool has_begun() const { return begun_; }
  bool is_durable() const { return durable_; }
  void restore(uint64_t index, const Positions& positions);
  // As it stands before sample `index`, of which the caller is going to make a checkpoint.
  std::string position(uint64_t index);
  void durable(uint64_t index);
  const SampleLog& log() const { return log_; }

  // Of a tensor ("": the only one) that was sent before: who sends another is refused.
  void expect(TensorPart tensor) { expected_.push_back(std::move(tensor)); }
  // A sender has come, or is known from a position.
  bool has_come() const { return !tensors_.empty(); }
  // All of them have said that no sample follows.
  bool are_over() const;
  // What the first of them said is what all send.
  const std::vector<TensorPart>& tensors() const { return tensors_; }
  // Tells all who are there that nobody reads any more. True: they have been told, and those who ended have gone.
  bool say_goodbye();
  void report(InboxHealth& health);

 private:
  std::optional<Taken> converse(Sender& sender, uint64_t peer, const OwnedBytes& bytes,
                                const std::shared_ptr<const Frame>& frame);
  std::optional<Taken> count(Sender& sender, uint64_t peer, const OwnedBytes& bytes,
                             const std::shared_ptr<const Frame>& frame);
  Sender* known(const Frame& frame, uint64_t peer);
  Sender& make(const SenderName& name);
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
  std::map<SenderName, Waiting> waiting_;  // HELLOs until begin(), and until there is a place
  uint64_t turns_ = 0;
  std::set<std::string> forgotten_;  // names whose incarnation in a position does not count
  bool fewer_ = false;
  std::deque<Inbox::Answer> answers_;
  std::map<uint64_t, Time> warned_;  // peers that were told of a malformed frame, and when
  std::deque<Sender*> dirty_;
  std::vector<TensorPart> tensors_, expected_;
  SampleLog log_;
  bool begun_ = false, durable_ = false, goodbye_ = false, durable_wanted_ = false;
  Time ticked_{};
  ReceiveCounts gone_;  // of senders that were forgotten, and what no session counts
  std::string last_error_;
};

}  // namespace harmonics::wire
