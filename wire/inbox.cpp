#include "wire/inbox.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "wire/data_codec.hpp"
#include "wire/senders.hpp"

namespace harmonics::wire {
namespace {

// The samples of one frame, waiting for readers.
struct Chunk {
  Taken taken;
  uint64_t begin = 0;   // number of the first sample
  bool counted = true;  // counts towards the window: no reader has taken all of it
  uint64_t sample_bytes = 0;

  uint64_t end() const { return begin + taken.count; }
  uint64_t number(uint64_t at) const { return taken.frame->seq + taken.first + (at - begin); }  // the sender's number
  std::span<const std::byte> sample(size_t tensor, uint64_t number) const {
    const TensorPart& part = taken.frame->tensors[tensor];
    const size_t one = part.bytes.size() / taken.frame->count;
    return part.bytes.subspan((taken.first + (number - begin)) * one, one);
  }
};

struct Reader {
  std::string tensor;
  std::optional<Inbox::Announced> expected;
  Time deadline{};  // for the first sender to arrive
  std::chrono::milliseconds wait{};
  std::optional<size_t> index;  // of its tensor in a frame
  uint64_t at = 0, durable = 0;
  bool cancelled = false;
};

constexpr uint64_t kMostBehind = uint64_t{1} << 30;

using Lock = std::unique_lock<std::mutex>;

}  // namespace

Time now() { return std::chrono::steady_clock::now().time_since_epoch(); }

struct Inbox::Body {
  explicit Body(InboxOptions o) : options(std::move(o)), senders(options) {}

  Error nobody(const Reader& reader) const {
    return Error(ErrorKind::Unavailable,
                 fmt::format("{}: no sender started within {} s", options.where, reader.wait.count() / 1000))
        .note(options.remedy.empty() ? "start the sender, or wait longer with ?wait=SECONDS" : options.remedy);
  }
  Error cut_off() const {
    return Error(ErrorKind::Stream, options.where +
                                        (senders.has_come() ? ": it ends without the END frame of its sender"
                                                            : ": it ends without a sample") +
                                        (senders.last_error().empty() ? "" : "; " + senders.last_error()))
        .note("check the sender");
  }
  void check() const {
    if (!failure.empty()) throw Error(ErrorKind::Stream, options.where + ": " + failure);
  }
  // Waits until `done` or a failure; fails if the first sender does not arrive before the reader's deadline.
  template <typename Done>
  void wait(Lock& lock, Reader& reader, Done done) {
    while (!done() && !closed && !reader.cancelled && failure.empty()) {
      if (senders.has_come()) {
        changed.wait(lock);
      } else if (changed.wait_until(lock, std::chrono::steady_clock::time_point(reader.deadline)) ==
                     std::cv_status::timeout &&
                 !senders.has_come() && !done()) {
        throw nobody(reader);
      }
    }
  }
  size_t tensor_of(Reader& reader) {
    if (reader.index) return *reader.index;
    const std::vector<TensorPart>& tensors = senders.tensors();
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const TensorPart& part) { return part.name == reader.tensor; });
    if (found == tensors.end() && !(reader.tensor.empty() && tensors.size() == 1))
      throw Error(ErrorKind::Name, options.where + ": senders send " + described(tensors) +
                                       (reader.tensor.empty() ? "" : ", no '" + reader.tensor + "'"))
          .note("name the tensor after the address: " + options.where + "#NAME");
    const TensorPart& part = found == tensors.end() ? tensors[0] : *found;
    if (reader.expected && (part.dtype != reader.expected->dtype || part.sample != reader.expected->sample))
      throw Error(ErrorKind::Stream,
                  fmt::format("{}: its position is of {}, but the stream was {}", options.where, described({part}),
                              described({{part.name, reader.expected->dtype, reader.expected->sample, {}}})))
          .note("checkpoint and spool belong to different runs: use a matching pair");
    reader.index = found == tensors.end() ? 0 : static_cast<size_t>(found - tensors.begin());
    return *reader.index;
  }
  // Identifies the sender and, one way, its incarnation: each of those restarts the numbering.
  uint64_t identity(const Chunk& chunk) const {
    const Frame& frame = *chunk.taken.frame;
    return sender_identity(frame.stream, frame.producer, options.one_way ? frame.epoch : 0);
  }
  uint64_t end() const { return chunks.empty() ? first : chunks.back().end(); }
  Chunk& chunk_with(uint64_t number) {
    return *std::upper_bound(chunks.begin(), chunks.end(), number,
                             [](uint64_t n, const Chunk& chunk) { return n < chunk.end(); });
  }
  // Waits for the next sample of this reader; false: the end. Samples that arrived before the transport failed are read
  // first.
  bool await(Lock& lock, Reader& reader) {
    if (!senders.has_begun()) senders.begin(false), wake();
    reading = true;
    wait(lock, reader, [&] { return reader.at < end() || senders.are_over() || closed; });
    if (holds_back || reader.at == end()) check();
    if (closed && reader.at == end() && !reader.cancelled && !senders.are_over()) throw cut_off();
    return !reader.cancelled && reader.at < end();
  }
  // Called when a reader has taken the whole chunk: frees its share of the window. Slower readers may still need it,
  // and they must not stop the fastest one from receiving more.
  bool leave_window(Chunk& chunk) {
    if (!std::exchange(chunk.counted, false)) return false;
    const uint64_t bytes = chunk.taken.count * chunk.sample_bytes;
    queued_samples -= chunk.taken.count;
    queued_bytes -= bytes;
    behind_bytes += bytes;
    return senders.consumed(*chunk.taken.sender, chunk.taken.count, bytes);
  }
  // Drops the chunks that every reader has taken.
  void forget() {
    uint64_t least = end(), most = first;
    for (const auto& [id, reader] : readers) least = std::min(least, reader.at), most = std::max(most, reader.at);
    bool room = false;
    for (auto chunk = chunks.begin(); chunk != chunks.end() && chunk->end() <= most; ++chunk)
      room |= leave_window(*chunk);
    for (; !chunks.empty() && chunks.front().end() <= least; chunks.pop_front()) {
      room |= leave_window(chunks.front());
      first = chunks.front().end();
      behind_bytes -= chunks.front().taken.count * chunks.front().sample_bytes;
    }
    if (behind_bytes > kMostBehind && failure.empty()) {
      failure = fmt::format("one of its streams is read {} samples ahead of another, so {} bytes are held back",
                            most - least, behind_bytes);
      holds_back = true;
    }
    if (room) wake();
  }
  void wake() {
    if (waker) waker();
  }
  bool is_full() const { return queued_samples >= options.window_samples || queued_bytes >= options.window_bytes; }

  const InboxOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> waker;
  FrameDecoder decoder;  // of the transport's thread
  bool news = false;     // frames have arrived since readers were last woken
  Senders senders;
  std::deque<Chunk> chunks;
  uint64_t first = 0;  // the number of the first sample in `chunks`, or of the next to come
  uint64_t queued_samples = 0, queued_bytes = 0, bytes = 0;
  uint64_t behind_bytes = 0;  // samples that only some readers have taken
  Time arrived_at = now();
  std::map<int, Reader> readers;
  int next_reader = 0;
  bool reading = false, closed = false;
  std::optional<std::pair<uint64_t, std::string>> restored;
  std::string failure;
  bool holds_back = false;  // the failure is that of readers: further reading would take more memory
};

Inbox::Inbox(InboxOptions options) : body_(std::make_unique<Body>(std::move(options))) {}
Inbox::~Inbox() = default;
bool Inbox::is_one_way() const { return body_->options.one_way; }
const std::string& Inbox::where() const { return body_->options.where; }

void Inbox::wake_by(std::function<void()> wake) {
  const Lock lock(body_->mutex);
  body_->waker = std::move(wake);
}

bool Inbox::arrived(uint64_t peer, OwnedBytes bytes) {
  Body& b = *body_;
  std::shared_ptr<Frame> frame;
  try {
    frame = std::make_shared<Frame>(b.decoder.decode(bytes.bytes, b.options.limits));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Stream) throw;
    damaged(peer, e.what());
    return false;
  }
  const Lock lock(b.mutex);
  b.news = true;
  auto taken = b.senders.arrived(peer, std::move(bytes), std::move(frame));
  if (!taken) return true;
  b.arrived_at = now();
  Chunk chunk{std::move(*taken), b.end()};
  chunk.sample_bytes = sample_bytes(*chunk.taken.frame);
  const uint64_t size = chunk.taken.count * chunk.sample_bytes;
  b.queued_samples += chunk.taken.count;
  b.queued_bytes += size;
  b.bytes += size;
  b.chunks.push_back(std::move(chunk));
  return true;
}

void Inbox::arriving(uint64_t peer) {
  const Lock lock(body_->mutex);
  body_->senders.arriving(peer);
}

void Inbox::damaged(uint64_t peer, const std::string& reason) {
  const Lock lock(body_->mutex);
  body_->senders.damaged(peer, reason);
}

void Inbox::turned_away(const std::string& reason) {
  const Lock lock(body_->mutex);
  body_->senders.turned_away(reason);
}

bool Inbox::is_greeted(uint64_t peer) const {
  const Lock lock(body_->mutex);
  return body_->senders.is_greeted(peer);
}

void Inbox::left(uint64_t peer) {
  const Lock lock(body_->mutex);
  body_->senders.left(peer);
}

std::optional<Inbox::Answer> Inbox::poll() {
  Lock lock(body_->mutex);
  const bool news = std::exchange(body_->news, false);
  std::optional<Answer> answer = body_->senders.poll(now());
  const bool fewer = body_->senders.take_forgotten();
  lock.unlock();  // otherwise the woken thread would wait for it
  if (news || fewer) body_->changed.notify_all();
  return answer;
}

bool Inbox::is_full() const {
  const Lock lock(body_->mutex);
  return body_->is_full();
}

void Inbox::close_input() {
  const Lock lock(body_->mutex);
  if (body_->options.endless) return;
  body_->closed = true;
  body_->changed.notify_all();
}

void Inbox::fail(const std::string& reason) {
  const Lock lock(body_->mutex);
  if (body_->failure.empty()) body_->failure = reason;
  body_->changed.notify_all();
}

bool Inbox::say_goodbye() {
  const Lock lock(body_->mutex);
  return body_->senders.say_goodbye();
}

int Inbox::open(const std::string& tensor, std::chrono::milliseconds wait) {
  const Lock lock(body_->mutex);
  if (body_->reading)
    throw Error(ErrorKind::Stream, body_->options.where + ": samples were read before this stream was opened")
        .note("bind all streams of an address together");
  const int id = body_->next_reader++;
  Reader& reader = body_->readers[id];
  reader.tensor = tensor;
  reader.wait = wait;
  reader.deadline = now() + wait;
  reader.at = reader.durable = body_->first;
  return id;
}

void Inbox::close(int reader) {
  const Lock lock(body_->mutex);
  body_->readers.erase(reader);
  if (!body_->readers.empty()) body_->forget();
}

Inbox::Announced Inbox::announced(int id) {
  Lock lock(body_->mutex);
  Reader& reader = body_->readers.at(id);
  if (reader.expected) return *reader.expected;
  body_->wait(lock, reader, [this] { return body_->senders.has_come(); });
  if (!body_->senders.has_come()) body_->check();
  if (body_->closed && !body_->senders.has_come()) throw body_->cut_off();
  if (!body_->senders.has_come())
    throw Error(ErrorKind::Unavailable, body_->options.where + ": reading was cancelled before a sender started");
  const TensorPart& part = body_->senders.tensors()[body_->tensor_of(reader)];
  return {part.dtype, part.sample, part.classes};
}

void Inbox::expect(int id, const Announced& what) {
  const Lock lock(body_->mutex);
  Reader& reader = body_->readers.at(id);
  reader.expected = what;
  body_->senders.expect({reader.tensor, what.dtype, what.sample, {}, what.classes});
}

void Inbox::forget_incarnation(const std::string& producer) {
  const Lock lock(body_->mutex);
  body_->senders.forget_incarnation(producer);
}

std::optional<Received> Inbox::next(int id, SampleNumber* number) {
  Lock lock(body_->mutex);
  Reader& reader = body_->readers.at(id);
  if (!body_->await(lock, reader)) return std::nullopt;
  const Chunk& chunk = body_->chunk_with(reader.at);
  const size_t tensor = body_->tensor_of(reader);
  const TensorPart& part = chunk.taken.frame->tensors[tensor];
  Received received{part.dtype, part.sample, {chunk.taken.bytes.owner, chunk.sample(tensor, reader.at)}};
  if (number) *number = {chunk.number(reader.at), body_->identity(chunk)};
  if (++reader.at == chunk.end()) body_->forget();
  return received;
}

uint64_t Inbox::read(int id, uint64_t n, std::byte* to, SampleNumber* numbers) {
  Lock lock(body_->mutex);
  Reader& reader = body_->readers.at(id);
  uint64_t got = 0;
  while (got < n && body_->await(lock, reader)) {
    const Chunk& chunk = body_->chunk_with(reader.at);
    const std::span<const std::byte> one = chunk.sample(body_->tensor_of(reader), reader.at);
    const uint64_t count = std::min(n - got, chunk.end() - reader.at);
    std::memcpy(to + got * one.size(), one.data(), count * one.size());
    if (numbers) {
      const uint64_t sender = body_->identity(chunk);
      for (uint64_t i = 0; i < count; ++i) numbers[got + i] = {chunk.number(reader.at + i), sender};
    }
    got += count;
    reader.at += count;
    if (reader.at == chunk.end()) body_->forget();
  }
  return got;
}

bool Inbox::restore(int id, uint64_t index, const std::string& position) {
  const Lock lock(body_->mutex);
  Body& b = *body_;
  if (b.options.one_way) return false;
  Reader& reader = b.readers.at(id);
  if (b.restored && b.restored->first != index)
    throw Error(ErrorKind::Stream, fmt::format("{}: one stream resumes at sample {}, another at {}", b.options.where,
                                               index, b.restored->first))
        .note("streams of one address must resume at the same sample");
  if (!b.restored) {
    if (b.senders.has_begun())
      throw Error(ErrorKind::Internal,
                  b.options.where + ": samples were read before the stream was given its position");
    b.senders.restore(index, read_positions(position));
    b.restored = {index, position};
    b.first = index;
    for (auto& [other, r] : b.readers)
      if (r.expected && b.senders.has_come()) b.tensor_of(r);
    for (auto& [other, r] : b.readers) r.at = r.durable = index;
    b.senders.begin(true);
    b.wake();
    b.changed.notify_all();
  } else if (position != b.restored->second) {
    b.senders.restore_ends(read_positions(position));
    b.wake();
    b.changed.notify_all();
  }
  reader.at = reader.durable = index;
  return true;
}

std::string Inbox::position(int id, uint64_t index) const {
  const Lock lock(body_->mutex);
  if (!body_->senders.is_durable() || !body_->readers.count(id)) return "";
  return body_->senders.position(index);
}

void Inbox::durable(int id, uint64_t index) {
  const Lock lock(body_->mutex);
  const auto mine = body_->readers.find(id);
  if (!body_->senders.is_durable() || mine == body_->readers.end()) return;
  mine->second.durable = index;
  uint64_t least = index;
  for (const auto& [other, reader] : body_->readers) least = std::min(least, reader.durable);
  body_->senders.durable(least);
  body_->wake();
}

void Inbox::cancel(int id) {
  const Lock lock(body_->mutex);
  if (const auto mine = body_->readers.find(id); mine != body_->readers.end()) mine->second.cancelled = true;
  body_->changed.notify_all();
}

InboxHealth Inbox::health() const {
  const Lock lock(body_->mutex);
  const Body& b = *body_;
  InboxHealth health;
  body_->senders.report(health);
  health.bytes = b.bytes;
  health.queued_samples = b.queued_samples;
  health.queued_bytes = b.queued_bytes;
  health.window_bytes = b.options.window_bytes;
  // For small samples, the sample count is the limit: the window is then the number of bytes of that many samples.
  if (b.queued_samples > 0)
    health.window_bytes =
        std::clamp<uint64_t>(b.queued_bytes * b.options.window_samples / b.queued_samples, 1, b.options.window_bytes);
  health.idle_seconds = std::chrono::duration<double>(now() - b.arrived_at).count();
  health.state = !b.failure.empty()     ? InboxHealth::Failed
                 : b.senders.are_over() ? InboxHealth::Ended
                 : health.connected > 0 ? InboxHealth::Receiving
                                        : InboxHealth::Waiting;
  if (!b.failure.empty()) health.last_error = b.failure;
  return health;
}

}  // namespace harmonics::wire
