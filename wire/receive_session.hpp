// The receiver's half of the conversation of docs/wire.md with one sender of one stream, without sockets, threads or a
// clock. It outlives connections and the sender's restarts; a position taken from it outlives its own.
#pragma once

#include <optional>

#include "wire/send_session.hpp"

namespace harmonics::wire {

struct ReceiveOptions {
  std::string stream, producer;
  bool durable = true;              // samples will be said to be durable; false: senders that ask for it are refused
  std::vector<TensorPart> tensors;  // wanted, in this order; none: any
  uint64_t window_samples = 4096, window_bytes = 16u << 20;  // not yet consumed; a frame may go beyond them
  uint64_t max_frame_bytes = 16u << 20;
  Time resume_after = std::chrono::milliseconds(500);  // the same samples are asked for again
  Time grant_after = std::chrono::milliseconds(100);   // news that nobody waits for is told
  Time alive_after = std::chrono::seconds(1);          // no news is told while a frame arrives
};

// What a checkpoint keeps of a sender.
struct Position {
  uint64_t epoch = 0;
  uint64_t seq = 0;    // the sample wanted next
  bool ended = false;  // no sample follows those before it
};

struct ReceiveCounts {
  uint64_t samples = 0, duplicates = 0, gaps = 0, stale = 0, over_credit = 0, refused = 0;
  uint64_t lost = 0;  // that no sender has any more, and that never were acknowledged as it asked
};

class ReceiveSession {
 public:
  explicit ReceiveSession(ReceiveOptions options) : options_(std::move(options)) {}
  // Everything before the position is durable.
  void restore(const Position& position);

  // Of a DATA frame: which of its samples are new. They are the caller's from now on, in order, each once.
  struct Taken {
    uint32_t first = 0, count = 0;
  };
  Taken receive(const Frame& frame, Time now);
  // Bytes of a frame that is not whole: on a slow way that takes longer than its sender waits for an answer, so it is
  // told that all is well.
  void arriving(Time now) { say_grant_ |= greeted_ && now - granted_at_ >= options_.alive_after; }
  // A frame from this sender that could not be read.
  void damaged(const std::string& reason, Time now);
  // Samples that were taken, and their bytes, have left memory: as many more may come.
  void consumed(uint64_t samples, uint64_t bytes);
  // These are wanted from now on.
  void expect(std::vector<TensorPart> tensors) { options_.tensors = std::move(tensors); }
  // Of the samples not yet consumed; what was granted before stays granted.
  void set_window(uint64_t samples, uint64_t bytes) {
    options_.window_samples = samples, options_.window_bytes = bytes;
  }
  // Somebody may wait for what poll would say.
  bool is_granting_due(Time now) const;
  // A restart would begin at this position, which may lie before position().
  void durable(const Position& position);
  // What to say next; empty: nothing now.
  std::optional<Frame> poll(Time now);
  // When poll is to be asked again if nothing arrives.
  Time deadline() const { return granted_at_ + options_.grant_after; }

  // Behind the samples that were taken, consumed or not. A HELLO alone does not move it.
  Position position() const { return before_hello_ ? before_hello_->position : Position{epoch_, next_, ended_}; }
  // A HELLO was taken, and no sample or end behind it yet: anyone may say one.
  bool is_only_greeted() const { return before_hello_.has_value(); }
  // The incarnation that said HELLO last, and whether it has said that no sample follows.
  uint64_t epoch() const { return epoch_; }
  bool is_ended() const { return ended_; }
  // The connection of such a HELLO is gone: as before it.
  void take_back_hello();
  // The sender can keep no more until something is durable; asking answers no until it says so again.
  bool take_durable_wanted() { return std::exchange(durable_wanted_, false); }
  bool is_greeted() const { return greeted_; }
  // DATA says no session: its numbers say enough.
  bool is_of_session(const Frame& frame) const {
    return greeted_ && frame.epoch == epoch_ && (frame.kind == Kind::Data || frame.session == session_);
  }
  uint64_t session() const { return session_; }
  // Why it was refused last.
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
  uint64_t held_samples_ = 0, held_bytes_ = 0;  // taken and not consumed
  bool ended_ = false, durable_end_ = false, durable_wanted_ = false;

  struct BeforeHello {
    Position position;
    bool durable_end;
    uint64_t lost;
  };
  std::optional<BeforeHello> before_hello_;

  // Of the session.
  bool greeted_ = false;
  uint64_t session_ = 0, base_ = 0, bytes_ = 0;  // WELCOME's seq, and bytes of samples since
  uint64_t granted_seq_ = 0, granted_bytes_ = 0, told_received_ = 0, told_durable_ = 0;
  Acknowledgement level_ = Acknowledgement::None;
  Time granted_at_{};

  // To be said.
  std::optional<Frame> refusal_, asking_;
  std::string refusal_text_;
  bool say_welcome_ = false, say_pong_ = false, say_bye_ = false, say_grant_ = false;
  std::optional<uint64_t> asked_seq_;
  Time asked_at_{};
  uint64_t end_ = 0;
};

}  // namespace harmonics::wire
