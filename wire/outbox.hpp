// The sender's state of its samples, without sockets: batches them into frames, keeps them until they are acknowledged,
// and resends lost ones. Transports fetch frames and deliver answers.
#pragma once

#include <functional>
#include <string>

#include "wire/owned_bytes.hpp"
#include "wire/send_session.hpp"

namespace harmonics::wire {

struct OutboxOptions {
  std::string where;  // the address, for messages
  std::string stream = "samples", producer;
  std::vector<TensorPart> tensors;  // of every sample, without bytes
  Acknowledgement acknowledgement = Acknowledgement::Received;
  // The pushed samples are those of a source from its first one on, in every incarnation of this sender; those that the
  // receiver already has are not sent again. Otherwise all samples are new.
  bool whole_source = false;
  uint64_t batch_bytes = 256u << 10;  // of samples in one frame; fewer when nothing else is in flight
  uint64_t keep_bytes = 64u << 20;
  std::chrono::milliseconds patience = std::chrono::seconds(10);  // how long to wait for a receiver
  bool one_way = false;                                           // no answers: a sample is done once it is sent
};

// Thread-safe.
class Outbox {
 public:
  explicit Outbox(OutboxOptions options);
  ~Outbox();
  const OutboxOptions& options() const;

  // ---- The user's side. Errors: Unavailable if no receiver answers within patience, Stream if the receiver rejects
  // the sender.

  // Copies one sample: one piece per tensor. Blocks while the receiver accepts no more.
  void push(std::span<const std::span<const std::byte>> tensors);
  // Returns the number of the next sample. Blocks until the receiver is known.
  uint64_t next_seq();
  // Declares the end of the samples. Blocks until all are acknowledged.
  void finish();
  struct Counts {
    uint64_t pushed = 0, skipped = 0, acknowledged = 0, resent = 0, sessions = 0;
  };
  Counts counts() const;

  // ---- The transport's side.

  // Called from any thread when poll may have something to send.
  void wake_by(std::function<void()> wake);
  void connected();
  void disconnected();
  // Handles the bytes of a receiver's frame. False: the connection is no longer usable.
  bool receive(std::span<const std::byte> frame);
  // Returns the next frame to send; empty: none now. Call it after a frame was sent or has arrived, when woken, and
  // at deadline().
  OwnedBytes poll();
  std::chrono::nanoseconds until_deadline() const;
  // Returns whether the connection has been silent for so long that a new one is needed.
  bool is_out_of_touch() const;
  // Reports that the transport has failed.
  void fail(const std::string& reason);
  // One way: reports that the frame from poll has been sent.
  void sent();
  // Returns whether nothing is left to send, so that the transport may end.
  bool is_quiet() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace harmonics::wire
