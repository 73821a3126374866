// Samples in plain formats from any transport that delivers bytes: decodes them, selects their fields, and passes them
// to an inbox, whose readers take them like frames. Delivers at most once: senders get no answer.
#pragma once

#include <condition_variable>
#include <mutex>

#include "wire/frame_builder.hpp"
#include "wire/inbox.hpp"
#include "wire/plain/record_decoder.hpp"
#include "wire/plain/refused_samples.hpp"
#include "wire/plain/selection.hpp"

namespace harmonics::plain {

struct FeedOptions {
  std::string where, remedy;  // as for an inbox
  Format format = Format::Jsonl;
  DecoderOptions decoder;
  bool strict = false;                                // unreadable input ends the stream
  bool endless = false;                               // the stream outlives its senders
  bool single = false;                                // a single byte stream: the feed fails if it becomes unreadable
  bool messages = false;                              // bytes arrive by message(), each message on its own
  std::map<std::string, std::string> schema;          // the types of fields
  std::string dead_letters;                           // path of refused samples, without extension; "": not kept
  uint64_t dead_letters_limit = uint64_t{256} << 20;  // limit of all dead letters in that folder
};

// The result of processing bytes.
struct Outcome {
  uint64_t accepted = 0, refused = 0;
  std::string first_refusal;
  bool broken = false;  // nothing more can be read from this peer
};

// Thread-safe.
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
  // Handles an independent message: its records end with it, and errors do not affect the next one. A given format
  // replaces the feed's.
  Outcome message(uint64_t peer, std::span<const std::byte> bytes, std::optional<Format> format = std::nullopt);
  // Completes or rejects this peer's unfinished records. Returns the result over all its bytes.
  Outcome left(uint64_t peer);
  // Counts a rejected connection or unreadable input.
  void refused(const std::string& reason);
  // Adds a note for the user.
  void note(const std::string& text);
  // Returns whether no bytes are accepted at present.
  bool is_full() const;
  // Returns the bytes of a peer that do not belong to a sample yet.
  size_t held(uint64_t peer) const;
  // Reports that no more peers will come.
  void close_input();
  void fail(const std::string& reason);
  // Returns whether reading has begun. Until then, only the first sample is decoded.
  bool has_begun() const;

  // ---- The readers' side.

  // Selects a tensor. Select all before the first read. Errors: Usage.
  std::string choose(Asked asked);
  // Returns the layout of samples. If the address does not declare it, waits up to the given time for the first sample.
  // Errors: Unavailable, Name, Stream.
  wire::TensorPart describe(const std::string& tensor, std::chrono::milliseconds wait);
  // Returns the words that are this tensor's classes. Call after describe().
  std::vector<std::string> symbols(const std::string& tensor) const;
  void begin();
  uint32_t senders() const;
  uint32_t connected() const;
  std::string last_error() const;

 private:
  struct Peer {
    std::unique_ptr<RecordDecoder> decoder;
    Outcome outcome;
    bool gone = false;
    uint64_t number = 0, samples = 0;  // of this peer; samples it sent, including refused ones
    Format format = Format::Jsonl;
  };
  struct Chosen {
    std::string name;
    Selection selection;
  };
  Peer& peer(uint64_t number, std::optional<Format> format = std::nullopt);
  void decode(Peer& peer);
  bool take(const Record& record, Outcome& outcome, std::string& reason);
  void refuse(const std::string& reason, Outcome& outcome);
  void refuse(const std::string& reason, Peer& from, std::string_view bytes);
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
  uint64_t first_of_ = 0;        // peer of first_
  std::optional<Record> first_;  // the first record, until reading begins
  std::string first_bytes_;      // its bytes, if refused samples are stored
  Record record_;
  std::string failure_, last_error_;
  std::string filled_;  // note on a field that was filled in for all samples
  std::unique_ptr<wire::FrameBuilder> builder_;
  std::vector<std::vector<std::byte>> sample_;  // bytes of each tensor
  std::unique_ptr<RefusedSamples> kept_;        // null: refused samples are not stored
};

}  // namespace harmonics::plain
