// What a receiver keeps of all who send to one address, without sockets: their sessions, and their samples in the order
// of arrival until every reader has had them. Transports bring frames and carry away answers; readers take one tensor
// each of the same samples.
#pragma once

#include <functional>
#include <string>

#include "wire/owned_bytes.hpp"
#include "wire/positions.hpp"

namespace harmonics::wire {

Time now();  // of a clock that never goes back

struct InboxOptions {
  std::string where;                                         // the address, for messages
  std::string remedy;                                        // what to write to send there, for messages
  uint64_t window_samples = 4096, window_bytes = 16u << 20;  // of all senders together
  Limits limits;
  size_t most_senders = 256;
  // May this peer send in this name? Asked for each of its frames, by the thread that brings them; none: any may.
  std::function<bool(uint64_t peer, const std::string& producer)> may_use = nullptr;
  bool endless = false;  // it is not over when all who sent have ended
  bool one_way = false;  // nobody is answered: DATA and END are taken as they come, what is missing is counted as lost
};

// One tensor of one sample; the owner keeps its bytes.
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

// Every function may be called from any thread.
class Inbox {
 public:
  explicit Inbox(InboxOptions options);
  ~Inbox();
  const std::string& where() const;
  bool is_one_way() const;

  // ---- The transport's side, but for wake_by of one thread. A peer is one connection, by a number above 0 that is
  // never used again.

  // Called whenever poll may have something to say (or, one way, whenever there is room again), from any thread.
  void wake_by(std::function<void()> wake);
  // False: what arrived is no frame. On a stream of bytes the next one cannot be found: say what poll has for this
  // peer, then end it.
  bool arrived(uint64_t peer, OwnedBytes frame);
  // Bytes of a frame have come that is not whole; to be said once a second.
  void arriving(uint64_t peer);
  // As arrived, for what does not even begin like a frame.
  void damaged(uint64_t peer, const std::string& reason);
  void left(uint64_t peer);
  // Has a sender said HELLO there, and was taken or may wait?
  bool is_greeted(uint64_t peer) const;
  // Somebody did not even become a peer.
  void turned_away(const std::string& reason);
  struct Answer {
    uint64_t peer;
    std::vector<std::byte> frame;
  };
  // What to say next; empty: nothing now. Wakes readers. To be asked when frames have arrived, when woken, and every
  // kTick.
  std::optional<Answer> poll();
  static constexpr std::chrono::milliseconds kTick{50};
  // One way: as many samples are held as may be. Sessions never hold more.
  bool is_full() const;
  // One way: nothing will come any more. Of an endless one that says nothing. Who has not said that no sample follows
  // has been cut off: readers are told.
  void close_input();
  // The transport cannot go on: readers are told.
  void fail(const std::string& reason);
  // No reader is left: senders are told. True when there is nobody left to be told.
  bool say_goodbye();

  // ---- The readers' side.

  // A reader has every sample from its opening on; all are opened before one reads. Its tensor: by name, or the only
  // one there is. `wait` for the first sender, from now on.
  int open(const std::string& tensor, std::chrono::milliseconds wait);
  void close(int reader);
  struct Announced {
    DType dtype = DType::F32;
    Shape sample;
    uint32_t classes = 0;  // 0: not known
  };
  // Before restore: the incarnation of this sender is forgotten, so that one of an earlier clock is taken; its samples
  // are not.
  void forget_incarnation(const std::string& producer);
  // What senders say they send. Waits for the first. Errors: Unavailable when none comes, Name.
  Announced announced(int reader);
  // Before: what they sent in an earlier process that this one continues. announced() says this at once, and who sends
  // otherwise is refused.
  void expect(int reader, const Announced& what);
  // Waits for the next sample; empty: every sender that came has said that none follows.
  std::optional<Received> next(int reader, SampleNumber* number = nullptr);
  // Up to n samples, back to back; less only at the end. `numbers`: of as many samples as are given.
  uint64_t read(int reader, uint64_t n, std::byte* to, SampleNumber* numbers = nullptr);

  // As the live tail of a Producer (harmonics/stream.hpp) says.
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
