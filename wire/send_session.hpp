// The sender's half of the conversation of docs/wire.md, without sockets, threads or a clock: it is told what arrived
// and what time it is, and asked what to send. It outlives connections; what it keeps is lost with it alone.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <variant>

#include "wire/frame.hpp"
#include "wire/owned_bytes.hpp"

namespace harmonics::wire {

using Time = std::chrono::nanoseconds;  // since any one moment

struct SendOptions {
  std::string stream, producer;
  uint64_t epoch = 1;                 // larger than that of every earlier incarnation of this producer
  std::optional<uint64_t> first_seq;  // of the first sample that will be offered; none: the receiver says
  // Where the receiver says it: behind its durable samples, of a source that can give all of them again. What it has
  // received beyond those dies with it, and an earlier incarnation that kept it is gone.
  bool behind_durable = false;
  Acknowledgement acknowledgement = Acknowledgement::Durable;
  std::vector<TensorPart> tensors;  // told in HELLO
  uint64_t keep_bytes = 64u << 20;  // of frames that are not acknowledged
  Time ping_after = std::chrono::seconds(1), give_up_after = std::chrono::seconds(5);
};

// What one DATA frame carries. The session looks at the numbers, the transport at the bytes.
struct Batch {
  uint64_t seq = 0;
  uint32_t count = 0;
  uint64_t bytes = 0;  // count × sample_bytes
  OwnedBytes frame;

  uint64_t end() const { return seq + count; }
};

struct SendCounts {
  uint64_t samples = 0, resent = 0, sessions = 0, resumes = 0, refused = 0, pings = 0;
};

class SendSession {
 public:
  explicit SendSession(SendOptions options);

  uint64_t epoch() const { return options_.epoch; }
  uint64_t session() const { return session_; }
  // The number of the next sample; none before a receiver has said where a sender that keeps nothing begins.
  std::optional<uint64_t> next_seq() const { return numbered_ ? std::optional(next_) : std::nullopt; }
  // Takes the samples from next_seq() on, to be kept until they are acknowledged. False: no more may be kept now.
  bool offer(Batch batch);
  // No sample will follow.
  void finish() { finished_ = true; }

  void connected(Time now);
  void disconnected() { connected_ = welcomed_ = false; }
  // Throws when the receiver refuses this sender for good: ErrorKind::Stream with its reason.
  void receive(const Frame& frame, Time now);
  // What to send next; empty: nothing now. To be asked until it is empty, after every call above and at deadline().
  std::optional<std::variant<Frame, Batch>> poll(Time now);
  Time deadline() const;
  // Connected, and nothing was heard for so long that another connection is needed.
  bool is_out_of_touch(Time now) const { return connected_ && (left_ || now - heard_ >= options_.give_up_after); }

  // Every sample before it is acknowledged as the options ask, and forgotten.
  uint64_t acknowledged() const { return released_; }
  // Samples that were offered and not sent since the connection was made.
  uint64_t unsent() const { return welcomed_ ? next_ - std::min(send_, next_) : next_ - released_; }
  // Every sample is acknowledged and the receiver has seen the end.
  bool is_done() const { return finished_ && ended_ && kept_.empty(); }
  const SendCounts& counts() const { return counts_; }

 private:
  Frame control(Kind kind) const;
  Frame hello();
  void greet();
  void welcome(const Frame& frame);
  void grant(const Frame& frame, Time now);
  void go_back(uint64_t seq);
  void refused(const Frame& frame);
  void release();
  void locate_base();
  std::optional<Batch> next_batch();
  std::optional<Frame> next_ping(Time now);

  struct Kept {
    Batch batch;
    uint64_t at;  // bytes of samples offered before it

    uint64_t place(uint64_t seq) const { return at + batch.bytes / batch.count * (seq - batch.seq); }
  };
  std::deque<Kept>::const_iterator kept_with(uint64_t seq) const;

  SendOptions options_;
  SendCounts counts_;
  std::deque<Kept> kept_;  // consecutive numbers, from released_ (or a little before) to next_
  uint64_t kept_bytes_ = 0, offered_bytes_ = 0;
  bool numbered_ = false, finished_ = false, ended_ = false, blocked_ = false;
  uint64_t released_ = 0, next_ = 0;

  // Of the session.
  uint64_t session_ = 0;
  bool connected_ = false, greeting_ = false, welcomed_ = false, end_sent_ = false, left_ = false;
  uint64_t send_ = 0;                   // the sample to be sent next
  uint64_t high_ = 0;                   // the end of what was sent
  uint64_t base_ = 0;                   // WELCOME's seq
  std::optional<uint64_t> base_bytes_;  // offered before it; none: not yet offered
  uint64_t limit_seq_ = 0, limit_bytes_ = 0, received_ = 0, durable_ = 0;
  uint32_t strikes_ = 0;  // refusals since something was acknowledged
  Time heard_{}, progress_{}, pinged_{};
};

}  // namespace harmonics::wire
