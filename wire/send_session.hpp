// The sender's half of the protocol of docs/wire.md, without sockets, threads or a clock: the caller passes frames and
// the time, and polls for frames to send. The session survives reconnection; unacknowledged samples are lost only if
// the session is destroyed.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <variant>

#include "wire/frame.hpp"
#include "wire/owned_bytes.hpp"

namespace harmonics::wire {

using Time = std::chrono::nanoseconds;  // since an arbitrary epoch

struct SendOptions {
  std::string stream, producer;
  uint64_t epoch = 1;                 // larger than that of every earlier incarnation of this producer
  std::optional<uint64_t> first_seq;  // number of the first sample; none: the receiver decides
  // If the receiver decides: start after its durable samples, for a source that can repeat all samples. Samples that it
  // received beyond those are lost if it ends, and an earlier incarnation that kept them may be gone.
  bool behind_durable = false;
  Acknowledgement acknowledgement = Acknowledgement::Durable;
  std::vector<TensorPart> tensors;  // announced in HELLO
  uint64_t keep_bytes = 64u << 20;  // maximum bytes of unacknowledged frames
  Time ping_after = std::chrono::seconds(1), give_up_after = std::chrono::seconds(5);
};

// One DATA frame. The session uses the numbers, the transport the bytes.
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
  // Returns the number of the next sample; none until a receiver has assigned the first number.
  std::optional<uint64_t> next_seq() const { return numbered_ ? std::optional(next_) : std::nullopt; }
  // Takes the samples from next_seq() on and keeps them until they are acknowledged. Returns false if there is no room.
  bool offer(Batch batch);
  // Declares that no sample follows.
  void finish() { finished_ = true; }

  void connected(Time now);
  void disconnected() { connected_ = welcomed_ = false; }
  // Throws ErrorKind::Stream with the reason when the receiver rejects this sender for good.
  void receive(const Frame& frame, Time now);
  // Returns what to send next; empty: nothing now. Poll until it is empty, after every call above and at deadline().
  std::optional<std::variant<Frame, Batch>> poll(Time now);
  Time deadline() const;
  // Returns whether the connection has been silent for so long that a new one is needed.
  bool is_out_of_touch(Time now) const { return connected_ && (left_ || now - heard_ >= options_.give_up_after); }

  // All samples before this number are acknowledged at the requested level, and dropped.
  uint64_t acknowledged() const { return released_; }
  // Samples that were offered and not yet sent on this connection.
  uint64_t unsent() const { return welcomed_ ? next_ - std::min(send_, next_) : next_ - released_; }
  // Returns whether all samples are acknowledged and the receiver has seen the end.
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
    uint64_t at;  // bytes of samples offered before this batch

    uint64_t place(uint64_t seq) const { return at + batch.bytes / batch.count * (seq - batch.seq); }
  };
  std::deque<Kept>::const_iterator kept_with(uint64_t seq) const;

  SendOptions options_;
  SendCounts counts_;
  std::deque<Kept> kept_;  // consecutive numbers, from released_ (or a little before) to next_
  uint64_t kept_bytes_ = 0, offered_bytes_ = 0;
  bool numbered_ = false, finished_ = false, ended_ = false, blocked_ = false;
  uint64_t released_ = 0, next_ = 0;

  // State of the session.
  uint64_t session_ = 0;
  bool connected_ = false, greeting_ = false, welcomed_ = false, end_sent_ = false, left_ = false;
  uint64_t send_ = 0;                   // the next sample to send
  uint64_t high_ = 0;                   // the end of what was sent
  uint64_t base_ = 0;                   // seq of WELCOME
  std::optional<uint64_t> base_bytes_;  // bytes offered before base_; none: not yet offered
  uint64_t limit_seq_ = 0, limit_bytes_ = 0, received_ = 0, durable_ = 0;
  uint32_t strikes_ = 0;  // rejections since the last acknowledgement
  Time heard_{}, progress_{}, pinged_{};
};

}  // namespace harmonics::wire
