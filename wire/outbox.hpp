// What a sender keeps of the samples it was given, without sockets: put together into frames, kept until they are
// acknowledged, sent again when they were lost. Transports carry frames away and bring answers.
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
  // The samples pushed are those of a source from its first one on, as in every incarnation of this sender: what the
  // receiver has is not sent again. Otherwise they are new ones.
  bool whole_source = false;
  uint64_t batch_bytes = 256u << 10;  // of samples in one frame; fewer when nothing else is on its way
  uint64_t keep_bytes = 64u << 20;
  std::chrono::milliseconds patience = std::chrono::seconds(10);  // without any receiver
  bool one_way = false;                                           // nobody answers: sent is done
};

// Every function may be called from any thread.
class Outbox {
 public:
  explicit Outbox(OutboxOptions options);
  ~Outbox();
  const OutboxOptions& options() const;

  // ---- The user's side. Errors: Unavailable when nobody listens for longer than patience, Stream with the receiver's
  // refusal.

  // One sample, copied: a piece for each tensor. Waits while the receiver takes no more.
  void push(std::span<const std::span<const std::byte>> tensors);
  // The number that the next sample has; waits for the receiver.
  uint64_t next_seq();
  // No sample follows; waits until every one is acknowledged.
  void finish();
  struct Counts {
    uint64_t pushed = 0, skipped = 0, acknowledged = 0, resent = 0, sessions = 0;
  };
  Counts counts() const;

  // ---- The transport's side.

  // Called when poll may have something to send, from any thread.
  void wake_by(std::function<void()> wake);
  void connected();
  void disconnected();
  // Bytes of a receiver's frame. False: the connection is of no use any more.
  bool receive(std::span<const std::byte> frame);
  // What to send next; empty: nothing now. To be asked when something was sent or has arrived, when woken, and at
  // deadline().
  OwnedBytes poll();
  std::chrono::nanoseconds until_deadline() const;
  // Connected, and silent for so long that another connection is needed.
  bool is_out_of_touch() const;
  // The transport cannot go on.
  void fail(const std::string& reason);
  // One way: what poll gave has been sent.
  void sent();
  // There is nothing left to send: the transport may end.
  bool is_quiet() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace harmonics::wire
