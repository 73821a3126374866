// The receiver's half of the protocol of docs/wire.md with one sender of one stream, without sockets, threads or a
// clock. It survives reconnection and restarts of the sender; a position taken from it survives the session itself.
#pragma once

#include <optional>

#include "wire/send_session.hpp"

namespace harmonics::wire {

struct ReceiveOptions {
  std::string stream, producer;
  bool durable = true;              // samples become durable; false: senders that ask for it are rejected
  std::vector<TensorPart> tensors;  // expected, in this order; none: any
  uint64_t window_samples = 4096, window_bytes = 16u << 20;  // not yet consumed; one frame may exceed them
  uint64_t max_frame_bytes = 16u << 20;
  Time resume_after = std::chrono::milliseconds(500);  // interval of repeated requests for the same samples
  Time grant_after = std::chrono::milliseconds(100);   // delay of grants that the sender does not need yet
  Time alive_after = std::chrono::seconds(1);          // delay of keep-alive answers while a frame arrives
};

// The part of a sender's state that a checkpoint keeps.
struct Position {
  uint64_t epoch = 0;
  uint64_t seq = 0;    // the next expected sample
  bool ended = false;  // no sample follows
};

struct ReceiveCounts {
  uint64_t samples = 0, duplicates = 0, gaps = 0, stale = 0, over_credit = 0, refused = 0;
  uint64_t lost = 0;  // samples that no sender has any more and that were never acknowledged as requested
};

class ReceiveSession {
 public:
  explicit ReceiveSession(ReceiveOptions options) : options_(std::move(options)) {}
  // Treats everything before the position as durable.
  void restore(const Position& position);

  // The new samples of a DATA frame. The caller owns them; they are in order, and each is returned once.
  struct Taken {
    uint32_t first = 0, count = 0;
  };
  Taken receive(const Frame& frame, Time now);
  // Reports bytes of an incomplete frame. On a slow link a frame may take longer than the sender waits for an answer,
  // so the sender gets a keep-alive.
  void arriving(Time now) { say_grant_ |= greeted_ && now - granted_at_ >= options_.alive_after; }
  // Reports an unreadable frame from this sender.
  void damaged(const std::string& reason, Time now);
  // Reports that taken samples, and their bytes, have left memory: the sender may send as many more.
  void consumed(uint64_t samples, uint64_t bytes);
  // Sets the tensors expected from now on.
  void expect(std::vector<TensorPart> tensors) { options_.tensors = std::move(tensors); }
  // Limits the samples not yet consumed; earlier grants stay valid.
  void set_window(uint64_t samples, uint64_t bytes) {
    options_.window_samples = samples, options_.window_bytes = bytes;
  }
  // Returns whether the sender may be waiting for the next answer of poll().
  bool is_granting_due(Time now) const;
  // Declares that a restart would begin at this position, which may be before position().
  void durable(const Position& position);
  // Returns the next answer; empty: none now.
  std::optional<Frame> poll(Time now);
  // Time of the next poll if nothing arrives.
  Time deadline() const { return granted_at_ + options_.grant_after; }

  // Returns the position after the taken samples, consumed or not. A HELLO alone does not move it.
  Position position() const { return before_hello_ ? before_hello_->position : Position{epoch_, next_, ended_}; }
  // Returns whether a HELLO was accepted without a sample or an end after it. Any peer can send a HELLO.
  bool is_only_greeted() const { return before_hello_.has_value(); }
  // Return the incarnation of the last HELLO, and whether it has declared its end.
  uint64_t epoch() const { return epoch_; }
  bool is_ended() const { return ended_; }
  // Restores the state before such a HELLO, because its connection is gone.
  void take_back_hello();
  // Returns, once per request, whether the sender's memory is full until samples become durable.
  bool take_durable_wanted() { return std::exchange(durable_wanted_, false); }
  bool is_greeted() const { return greeted_; }
  // DATA has no session number; its sample numbers identify the session.
  bool is_of_session(const Frame& frame) const {
    return greeted_ && frame.epoch == epoch_ && (frame.kind == Kind::Data || frame.session == session_);
  }
  uint64_t session() const { return session_; }
  // The last reason of a rejection.
  const std::string& refusal() const { return refusal_text_; }
  const ReceiveCounts& counts() const { return counts_; }

 private:
  void hello(const Frame& frame, Time now);
  bool knows(const Frame& frame, Time now);
  Taken data(const Frame& frame, Time now);
  void end(const Frame& frame, Time now);
  void ask(Code code, const std::string& text, Time now);
  void refuse(const Frame& frame, Code code, const std::string& text);
  uint64_t free_seq() const;
  uint64_t free_bytes() const;
  Frame control(Kind kind) const;
  Frame granting(Kind kind);
  Frame welcome();

  ReceiveOptions options_;
  ReceiveCounts counts_;
  uint64_t epoch_ = 0, next_ = 0, durable_ = 0;
  uint64_t held_samples_ = 0, held_bytes_ = 0;  // taken but not consumed
  bool ended_ = false, durable_end_ = false, durable_wanted_ = false;

  struct BeforeHello {
    Position position;
    bool durable_end;
    uint64_t lost;
  };
  std::optional<BeforeHello> before_hello_;

  // State of the session.
  bool greeted_ = false;
  uint64_t session_ = 0, base_ = 0, bytes_ = 0;  // seq of WELCOME, and bytes of samples since
  uint64_t granted_seq_ = 0, granted_bytes_ = 0, told_received_ = 0, told_durable_ = 0;
  Acknowledgement level_ = Acknowledgement::None;
  Time granted_at_{};

  // Answers to send.
  std::optional<Frame> refusal_, asking_;
  std::string refusal_text_;
  bool say_welcome_ = false, say_pong_ = false, say_bye_ = false, say_grant_ = false;
  std::optional<uint64_t> asked_seq_;
  Time asked_at_{};
  uint64_t end_ = 0;
};

}  // namespace harmonics::wire
