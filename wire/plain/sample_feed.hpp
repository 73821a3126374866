// Samples in plain formats, from any transport that brings bytes: decoded, chosen from, and put into an inbox, whose
// readers take them as they take frames. At most once: nobody is answered.
#pragma once

#include <condition_variable>
#include <mutex>

#include "wire/frame_builder.hpp"
#include "wire/inbox.hpp"
#include "wire/plain/record_decoder.hpp"
#include "wire/plain/selection.hpp"

namespace harmonics::plain {

struct FeedOptions {
  std::string where, remedy;  // as of an inbox
  Format format = Format::Jsonl;
  DecoderOptions decoder;
  bool strict = false;    // what cannot be read ends the stream
  bool endless = false;   // it outlives those who send
  bool single = false;    // there is one stream of bytes: where that cannot be read any further, this cannot
  bool messages = false;  // bytes come by message(), each of which is by itself
  std::map<std::string, std::string> schema;  // the types of fields
};

// What became of bytes.
struct Outcome {
  uint64_t accepted = 0, refused = 0;
  std::string first_refusal;
  bool broken = false;  // nothing more can be read of this peer
};

// Every function may be called from any thread.
class SampleFeed {
 public:
  explicit SampleFeed(FeedOptions options);
  ~SampleFeed();
  wire::Inbox& inbox() { return inbox_; }
  const FeedOptions& options() const { return options_; }

  // ---- The transport's side: a peer is one connection, by a number above 0.

  // Called when there is room again.
  void wake_by(std::function<void()> wake);
  void came(uint64_t peer);
  Outcome arrived(uint64_t peer, std::span<const std::byte> bytes);
  // A message by itself: what it holds ends with it, and what cannot be read is of no consequence for the next. In
  // another format than the feed's where it is said.
  Outcome message(uint64_t peer, std::span<const std::byte> bytes, std::optional<Format> format = std::nullopt);
  // What has not ended ends here. What became of all that this peer sent.
  Outcome left(uint64_t peer);
  // Somebody did not become a peer, or something was not read.
  void refused(const std::string& reason);
  // For people.
  void note(const std::string& text);
  // No bytes are taken now.
  bool is_full() const;
  // Bytes of a peer's that are of no sample yet.
  size_t held(uint64_t peer) const;
  // Nobody can come any more.
  void close_input();
  void fail(const std::string& reason);
  // Samples are taken: before, only the first is looked at.
  bool has_begun() const;

  // ---- The readers' side.

  // Which tensor; all are chosen before one is read. Errors: Usage.
  std::string choose(Asked asked);
  // What samples are; waits for the first at most so long where nothing says it. Errors: Unavailable, Name, Stream.
  wire::TensorPart describe(const std::string& tensor, std::chrono::milliseconds wait);
  void begin();
  uint32_t senders() const;
  uint32_t connected() const;
  std::string last_error() const;

 private:
  struct Peer {
    std::unique_ptr<RecordDecoder> decoder;
    Outcome outcome;
    bool gone = false;
  };
  struct Chosen {
    std::string name;
    Selection selection;
  };
  Peer& peer(uint64_t number, std::optional<Format> format = std::nullopt);
  void decode(Peer& peer);
  void take(const Record& record, Outcome& outcome);
  void refuse(const std::string& reason, Outcome& outcome);
  void stop(const std::string& reason);
  void look_for_the_first();
  void announce();
  void send();
  void end_if_over();
  bool all_known() const;
  void say(wire::Kind kind);

  const FeedOptions options_;
  wire::Inbox inbox_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> wake_;
  std::map<uint64_t, Peer> peers_;
  uint64_t came_ = 0, seq_ = 0, refused_ = 0;
  std::vector<Chosen> chosen_;
  bool begun_ = false, announced_ = false, gave_ = false, closed_ = false;
  uint64_t first_of_ = 0;        // the peer of the first record, while that waits
  std::optional<Record> first_;  // until reading begins
  Record record_;
  std::string failure_, last_error_;
  std::unique_ptr<wire::FrameBuilder> builder_;
  std::vector<std::vector<std::byte>> sample_;  // of each tensor
};

}  // namespace harmonics::plain
