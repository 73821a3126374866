// The receiver's state of all senders to one address, without sockets: their sessions, and their samples in order of
// arrival until every reader has taken them. Transports deliver frames and fetch answers. Each reader takes one tensor
// of the same samples.
#pragma once

#include <functional>
#include <string>

#include "wire/owned_bytes.hpp"
#include "wire/positions.hpp"

namespace harmonics::wire {

Time now();  // steady clock

struct InboxOptions {
  std::string where;                                         // the address, for messages
  std::string remedy;                                        // how to send to this address, for messages
  uint64_t window_samples = 4096, window_bytes = 16u << 20;  // of all senders together
  Limits limits;
  size_t most_senders = 256;
  // Returns whether this peer may send under this name. Called for each of its frames, by the thread that delivers
  // them. Unset: every peer may.
  std::function<bool(uint64_t peer, const std::string& producer)> may_use = nullptr;
  bool endless = false;  // the stream does not end when all senders have ended
  bool one_way = false;  // no answers: DATA and END are accepted as they come, missing samples count as lost
};

// One tensor of one sample; `owner` keeps its bytes alive.
struct Received {
  DType dtype = DType::F32;
  Shape shape;
  OwnedBytes bytes;
};

struct InboxHealth {
  enum State : uint32_t { Waiting, Receiving, Ended, Failed } state = Waiting;
  uint32_t senders = 0, connected = 0;
  uint64_t samples = 0, bytes = 0, queued_samples = 0, queued_bytes = 0, window_bytes = 0;
  uint64_t lost = 0, duplicates = 0, refused = 0, resent = 0;
  double idle_seconds = 0;
  bool wants_durable = false;
  std::string last_error;
};

// Thread-safe.
class Inbox {
 public:
  explicit Inbox(InboxOptions options);
  ~Inbox();
  const std::string& where() const;
  bool is_one_way() const;

  // ---- The transport's side: one thread, except wake_by. A peer is one connection, identified by a number above 0
  // that is never reused.

  // Called from any thread whenever poll may have an answer (or, one way, whenever there is room again).
  void wake_by(std::function<void()> wake);
  // Returns false if the bytes are not a frame. In a byte stream the next frame cannot be found then: send the answer
  // of poll to this peer and close the connection.
  bool arrived(uint64_t peer, OwnedBytes frame);
  // Reports bytes of an incomplete frame; to be called once a second.
  void arriving(uint64_t peer);
  // Like arrived, for bytes that do not begin a frame.
  void damaged(uint64_t peer, const std::string& reason);
  void left(uint64_t peer);
  // Returns whether a HELLO of this connection was accepted or is waiting.
  bool is_greeted(uint64_t peer) const;
  // Counts a connection that was rejected before it became a peer.
  void turned_away(const std::string& reason);
  struct Answer {
    uint64_t peer;
    std::vector<std::byte> frame;
  };
  // Returns the next answer; empty: none now. Wakes readers. Call it after frames have arrived, when woken, and every
  // kTick.
  std::optional<Answer> poll();
  static constexpr std::chrono::milliseconds kTick{50};
  // One way: whether the window is full. Sessions keep within it themselves.
  bool is_full() const;
  // One way: reports that no more input will come. An endless inbox ignores it. Senders without an END count as cut
  // off, and readers get an error.
  void close_input();
  // Reports that the transport has failed; readers get the reason after the samples that have arrived.
  void fail(const std::string& reason);
  // Tells senders that no reader is left. Returns true when all of them have been told.
  bool say_goodbye();

  // ---- The readers' side.

  // A reader receives every sample from its opening on; all readers open before the first one reads. Selects the
  // tensor by name, or the only one. `wait` limits the time until the first sender, from now on.
  int open(const std::string& tensor, std::chrono::milliseconds wait);
  void close(int reader);
  struct Announced {
    DType dtype = DType::F32;
    Shape sample;
    uint32_t classes = 0;  // number of classes; 0: unknown
  };
  // Call before restore: forgets this sender's incarnation, so that one with an earlier clock is accepted; its
  // samples are not.
  void forget_incarnation(const std::string& producer);
  // Returns what the senders announce. Waits for the first one. Errors: Unavailable when none comes, Name.
  Announced announced(int reader);
  // Call before announced: sets what senders announced in an earlier process that this one continues. announced()
  // then returns it at once, and senders that announce something else are rejected.
  void expect(int reader, const Announced& what);
  // Waits for the next sample; empty: all known senders have ended.
  std::optional<Received> next(int reader, SampleNumber* number = nullptr);
  // Reads up to n samples, back to back; fewer only at the end. `numbers` receives one entry per sample.
  uint64_t read(int reader, uint64_t n, std::byte* to, SampleNumber* numbers = nullptr);

  // See the live tail of a Producer (harmonics/stream.hpp).
  bool restore(int reader, uint64_t index, const std::string& position);
  std::string position(int reader, uint64_t index) const;
  void durable(int reader, uint64_t index);
  void cancel(int reader);
  InboxHealth health() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace harmonics::wire
