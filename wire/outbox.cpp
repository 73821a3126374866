#include "wire/outbox.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include "wire/frame_builder.hpp"
#include "wire/inbox.hpp"

namespace harmonics::wire {
namespace {

using Lock = std::unique_lock<std::mutex>;
constexpr Time kTick = std::chrono::milliseconds(50);
constexpr Time kGather = std::chrono::milliseconds(1);  // samples pushed within this time share a frame
constexpr uint64_t kMostUnsent = 4u << 20;              // bytes, or a few frames when they are larger
constexpr uint64_t kWake = 256u << 10;                  // bytes that wake a transport that was recently busy
constexpr uint64_t kFewFrames = 4;

SendOptions session_options(const OutboxOptions& options) {
  SendOptions session;
  session.stream = options.stream;
  session.producer = options.producer;
  session.tensors = options.tensors;
  session.epoch = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  session.acknowledgement = options.acknowledgement;
  session.keep_bytes = options.keep_bytes;
  session.behind_durable = options.whole_source && options.acknowledgement == Acknowledgement::Durable;
  if (options.one_way) session.first_seq = 0;
  return session;
}

}  // namespace

struct Outbox::Body {
  explicit Body(OutboxOptions o)
      : options(std::move(o)),
        session(session_options(options)),
        builder({options.stream, options.producer, session.epoch(), options.tensors}, options.batch_bytes) {
    if (options.one_way) seq = 0;
  }

  Error nobody() const {
    const auto seconds = options.patience.count() / 1000;
    if (is_accepted)
      return Error(
                 ErrorKind::Unavailable,
                 fmt::format("{}: the peer accepted the connection but sent no reply for {} s", options.where, seconds))
          .note("check that it is a harmonics receiver and that any tunnel reaches it");
    return Error(ErrorKind::Unavailable, fmt::format("{}: no receiver answered within {} s", options.where, seconds))
        .note("start the receiver: harmonics run FLOW --producer " + options.where);
  }
  // Waits until `done`; throws after a rejection, or when no receiver answers within `patience`.
  template <typename Done>
  void wait(Lock& lock, Done done) {
    while (!done()) {
      if (failure) std::rethrow_exception(failure);
      if (now() - reached > options.patience) throw nobody();
      ++waiting;
      changed.wait_for(lock, std::chrono::milliseconds(100));
      --waiting;
    }
    if (failure) std::rethrow_exception(failure);
  }
  bool is_numbered() const { return seq || session.next_seq(); }
  bool has_room() const {
    if (held) return false;
    const uint64_t unsent = options.one_way ? ready_samples : session.unsent();
    return unsent <= kFewFrames * builder.capacity() || unsent * builder.sample_bytes() <= kMostUnsent;
  }
  // Wakes the transport, unless it polls for the next frame anyway: while it has frames to send, and shortly after (see
  // until_deadline).
  void wake() {
    const uint64_t unsent = options.one_way ? ready_samples : session.unsent();
    if (waker && asked_in_vain && (now() - sent_at >= kGather || unsent * builder.sample_bytes() >= kWake)) waker();
  }
  // Wakes waiting threads only when there is room for many samples, not for each one.
  bool has_much_room() const {
    const uint64_t unsent = options.one_way ? ready_samples : session.unsent();
    return !held &&
           (unsent <= kFewFrames / 2 * builder.capacity() || unsent * builder.sample_bytes() <= kMostUnsent / 2);
  }
  // Passes the built frame to the session, if the session takes more.
  void seal() {
    if (options.one_way) {
      ready.push_back(builder.take(*seq));
      ready_samples += ready.back().count;
      *seq = ready.back().end();
      return;
    }
    held = builder.take(*session.next_seq());
    offer();
  }
  void offer() {
    if (held && session.offer(*held)) held.reset();
  }
  // A partly filled frame is sent only when nothing else is in flight.
  bool is_idle() const {
    const uint64_t unsent = options.one_way ? ready.size() : session.unsent();
    return unsent == 0 && (finishing || now() - sent_at >= kGather);
  }
  OwnedBytes poll_one_way() {
    if (!ready.empty()) {
      OwnedBytes frame = std::move(ready.front().frame);
      ready_samples -= ready.front().count;
      ready.pop_front();
      ++in_hand;
      sent_at = now();
      return frame;
    }
    if (!finishing || builder.count() > 0 || end_given) return {};
    end_given = true;
    ++in_hand;
    return owned(encode(control(Kind::End)).bytes());
  }
  OwnedBytes poll_session() {
    if (const auto next = session.poll(now())) {
      const auto* const batch = std::get_if<Batch>(&*next);
      if (!batch) return owned(encode(std::get<Frame>(*next)).bytes());
      sent_at = now();
      return batch->frame;
    }
    if (!session.is_done() || said_bye) return {};
    said_bye = true;
    return owned(encode(control(Kind::Bye)).bytes());
  }
  Frame control(Kind kind) const {
    Frame frame;
    frame.kind = kind;
    frame.stream = options.stream;
    frame.producer = options.producer;
    frame.epoch = session.epoch();
    frame.session = session.session();
    frame.seq = options.one_way ? *seq : session.next_seq().value_or(0);
    return frame;
  }

  const OutboxOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> waker;
  SendSession session;
  FrameBuilder builder;
  std::optional<Batch> held;                // a batch that the session has no room for
  std::deque<Batch> ready;                  // one way: frames to send
  std::optional<uint64_t> seq;              // one way: number of the next sample to be added
  int waiting = 0;                          // number of waiting user threads
  uint64_t ready_samples = 0, in_hand = 0;  // one way: samples in `ready`; frames given to the transport, not yet sent
  std::optional<uint64_t> source;           // whole source: number of samples that the receiver already has
  Counts counts;
  Time reached = now(), sent_at{};  // last time anything was received; last time samples were sent
  bool is_accepted = false;         // connected, but nothing received yet
  bool asked_in_vain = true;        // the last poll of the transport returned nothing
  bool finishing = false, end_given = false, said_bye = false;
  std::exception_ptr failure;
};

Outbox::Outbox(OutboxOptions options) : body_(std::make_unique<Body>(std::move(options))) {}
Outbox::~Outbox() = default;
const OutboxOptions& Outbox::options() const { return body_->options; }

void Outbox::push(std::span<const std::span<const std::byte>> tensors) {
  Lock lock(body_->mutex);
  Body& b = *body_;
  if (b.options.whole_source && !b.options.one_way) {
    if (!b.source) {
      b.wait(lock, [&] { return b.is_numbered(); });
      b.source = *b.session.next_seq();
    }
    if (b.counts.pushed < *b.source) {
      ++b.counts.pushed, ++b.counts.skipped;
      return;
    }
  }
  b.wait(lock, [&] { return !b.builder.is_full() && b.has_room(); });
  b.builder.append(tensors);
  ++b.counts.pushed;
  const bool full = b.builder.is_full();
  if (!full && b.builder.count() > 1) return;
  if (full && b.is_numbered()) b.seal();
  b.wake();
}

uint64_t Outbox::next_seq() {
  Lock lock(body_->mutex);
  if (body_->waker) body_->waker();
  body_->wait(lock, [this] { return body_->is_numbered(); });
  return *(body_->options.one_way ? body_->seq : body_->session.next_seq()) + body_->builder.count();
}

void Outbox::finish() {
  Lock lock(body_->mutex);
  Body& b = *body_;
  b.finishing = true;
  if (b.waker) b.waker();
  b.wait(lock, [&] { return b.builder.count() == 0 && !b.held && b.is_numbered(); });
  if (b.options.one_way) return b.wait(lock, [&] { return b.end_given && b.in_hand == 0; });
  b.session.finish();
  if (b.waker) b.waker();
  b.wait(lock, [&] { return b.session.is_done(); });
}

Outbox::Counts Outbox::counts() const {
  const Lock lock(body_->mutex);
  Counts counts = body_->counts;
  counts.acknowledged = body_->options.one_way ? 0 : body_->session.acknowledged();
  counts.resent = body_->session.counts().resent;
  counts.sessions = body_->session.counts().sessions;
  return counts;
}

void Outbox::wake_by(std::function<void()> wake) {
  const Lock lock(body_->mutex);
  body_->waker = std::move(wake);
}

void Outbox::connected() {
  const Lock lock(body_->mutex);
  if (body_->options.one_way) {
    body_->reached = now();
    return;
  }
  body_->is_accepted = true;  // not necessarily by the receiver: a tunnel accepts even if its far end is down
  body_->session.connected(now());
}

void Outbox::disconnected() {
  const Lock lock(body_->mutex);
  body_->session.disconnected();
}

bool Outbox::receive(std::span<const std::byte> bytes) {
  Lock lock(body_->mutex);
  body_->reached = now();
  body_->is_accepted = false;
  Frame frame;
  try {
    frame = decode(bytes);
  } catch (const Error&) {
    return false;  // damaged in transit: the receiver will repeat it
  }
  try {
    if (!body_->options.one_way && !body_->failure) body_->session.receive(frame, now());
    body_->offer();
  } catch (const Error&) {
    body_->failure = std::current_exception();
  }
  const bool tell = body_->waiting > 0;
  lock.unlock();  // otherwise the woken thread would wait for it
  if (tell) body_->changed.notify_all();
  return true;
}

OwnedBytes Outbox::poll() {
  Lock lock(body_->mutex);
  Body& b = *body_;
  if (b.failure) return {};
  b.offer();
  if (b.builder.count() > 0 && !b.held && b.is_numbered() && (b.builder.is_full() || b.is_idle())) b.seal();
  OwnedBytes frame = b.options.one_way ? b.poll_one_way() : b.poll_session();
  b.asked_in_vain = !frame;
  const bool tell = b.waiting > 0 && (!frame || b.has_much_room());
  lock.unlock();
  if (tell) b.changed.notify_all();
  return frame;
}

std::chrono::nanoseconds Outbox::until_deadline() const {
  const Lock lock(body_->mutex);
  const Body& b = *body_;
  if (now() - b.sent_at < 2 * kGather) return kGather;
  if (b.builder.count() == 0 || (b.options.one_way ? !b.ready.empty() : b.session.unsent() > 0)) return kTick;
  return std::clamp<Time>(b.sent_at + kGather - now(), std::chrono::milliseconds(1), kTick);
}

bool Outbox::is_out_of_touch() const {
  const Lock lock(body_->mutex);
  return !body_->options.one_way && body_->session.is_out_of_touch(now());
}

void Outbox::fail(const std::string& reason) {
  const Lock lock(body_->mutex);
  if (!body_->failure)
    body_->failure = std::make_exception_ptr(Error(ErrorKind::Stream, body_->options.where + ": " + reason));
  body_->changed.notify_all();
}

void Outbox::sent() {
  const Lock lock(body_->mutex);
  body_->reached = now();
  if (body_->in_hand > 0) --body_->in_hand;
  body_->changed.notify_all();
}

bool Outbox::is_quiet() const {
  const Lock lock(body_->mutex);
  const Body& b = *body_;
  return b.failure || (b.options.one_way ? b.in_hand == 0 && b.ready.empty() : b.said_bye || !b.session.is_done());
}

}  // namespace harmonics::wire
