#include "wire/send_session.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace harmonics::wire {
namespace {

// After this many consecutive rejections the frames are assumed to be invalid, not damaged in transit.
constexpr uint32_t kMostStrikes = 16;

}  // namespace

SendSession::SendSession(SendOptions options) : options_(std::move(options)) {
  if (options_.first_seq) numbered_ = true, next_ = released_ = *options_.first_seq;
}

bool SendSession::offer(Batch batch) {
  if (!numbered_ || finished_ || batch.seq != next_ || batch.count == 0 || !batch.frame)
    throw Error(ErrorKind::Internal,
                fmt::format("samples {} to {} are offered, sample {} is next", batch.seq, batch.end(), next_));
  blocked_ = !kept_.empty() && kept_bytes_ + batch.frame.size() > options_.keep_bytes;
  if (blocked_) return false;
  next_ = batch.end();
  kept_bytes_ += batch.frame.size();
  const uint64_t at = offered_bytes_;
  offered_bytes_ += batch.bytes;
  kept_.push_back({std::move(batch), at});
  if (welcomed_ && !base_bytes_) locate_base();
  release();  // the receiver may already know the samples of an earlier incarnation
  return true;
}

void SendSession::connected(Time now) {
  connected_ = true;
  heard_ = progress_ = pinged_ = now;
  greet();
}

void SendSession::greet() {
  ++session_;
  ++counts_.sessions;
  greeting_ = true;
  welcomed_ = ended_ = end_sent_ = left_ = false;
}

Frame SendSession::control(Kind kind) const {
  Frame frame;
  frame.kind = kind;
  frame.stream = options_.stream;
  frame.producer = options_.producer;
  frame.epoch = options_.epoch;
  frame.session = session_;
  frame.seq = next_;
  return frame;
}

Frame SendSession::hello() {
  Frame frame = control(Kind::Hello);
  frame.fresh = !numbered_;
  frame.seq = kept_.empty() ? next_ : kept_.front().batch.seq;
  frame.acknowledgement = options_.acknowledgement;
  frame.tensors = options_.tensors;
  return frame;
}

void SendSession::receive(const Frame& frame, Time now) {
  const bool forgotten = frame.kind == Kind::Nack && frame.code == Code::NoSession && frame.session == 0;
  if (!connected_ || frame.epoch != options_.epoch || (frame.session != session_ && !forgotten)) return;
  heard_ = now;
  switch (frame.kind) {
    case Kind::Welcome:
      if (!welcomed_) welcome(frame);
      return grant(frame, now);
    case Kind::Grant:
    case Kind::Pong:
      return grant(frame, now);
    case Kind::Resume:
      return go_back(frame.seq);
    case Kind::Nack:
    case Kind::Error:
      return refused(frame);
    case Kind::Bye:
      if (finished_ && frame.seq == next_)
        ended_ = true;
      else
        left_ = true;
      return;
    default:
      return;  // a sender ignores kinds that only senders send
  }
}

void SendSession::welcome(const Frame& frame) {
  if (frame.acknowledgement != options_.acknowledgement)
    throw Error(ErrorKind::Stream,
                fmt::format("the receiver of '{}' does not offer the acknowledgement that '{}' requests",
                            options_.stream, options_.producer))
        .note("run the receiver with --checkpoint or --spool, or use ack=received");
  if (!numbered_)
    numbered_ = true, next_ = released_ = options_.behind_durable ? std::min(frame.seq, frame.durable_seq) : frame.seq;
  const uint64_t oldest = kept_.empty() ? next_ : kept_.front().batch.seq;
  if (frame.seq < oldest)
    throw Error(ErrorKind::Stream,
                fmt::format("the receiver of '{}' requests sample {}, but '{}' has samples only from {}",
                            options_.stream, frame.seq, options_.producer, oldest))
        .note("restart the receiver with its previous checkpoint or spool");
  welcomed_ = true;
  greeting_ = false;
  send_ = high_ = base_ = frame.seq;
  limit_seq_ = limit_bytes_ = 0;
  base_bytes_.reset();
  locate_base();
  received_ = frame.received_seq;
}

void SendSession::grant(const Frame& frame, Time now) {
  if (!welcomed_) return;
  limit_seq_ = std::max(limit_seq_, frame.limit_seq);
  limit_bytes_ = std::max(limit_bytes_, frame.limit_bytes);
  if (frame.received_seq > received_ || frame.durable_seq > durable_) progress_ = now, strikes_ = 0;
  received_ = std::max(received_, frame.received_seq);
  durable_ = std::max(durable_, frame.durable_seq);
  release();
}

void SendSession::release() {
  const uint64_t safe = options_.acknowledgement == Acknowledgement::Durable ? durable_ : received_;
  while (!kept_.empty() && kept_.front().batch.end() <= safe) {
    kept_bytes_ -= kept_.front().batch.frame.size();
    kept_.pop_front();
  }
  released_ = std::max(released_, std::min(safe, next_));
}

void SendSession::go_back(uint64_t seq) {
  ++counts_.resumes;
  if (!welcomed_ || seq < received_) return;  // late: that sample has arrived since
  if (seq < send_) send_ = seq;
  end_sent_ = false;
}

void SendSession::refused(const Frame& frame) {
  ++counts_.refused;
  if (frame.kind == Kind::Nack && frame.code == Code::NoSession) {
    if (welcomed_) greet();
    return;
  }
  if (frame.kind == Kind::Nack && ++strikes_ <= kMostStrikes) return go_back(frame.seq);
  throw Error(ErrorKind::Stream, fmt::format("the receiver of '{}' refuses '{}': {}", options_.stream,
                                             options_.producer, frame.text.empty() ? "no reason given" : frame.text));
}

// Returns the first batch that ends after this sample.
std::deque<SendSession::Kept>::const_iterator SendSession::kept_with(uint64_t seq) const {
  return std::upper_bound(kept_.begin(), kept_.end(), seq,
                          [](uint64_t s, const Kept& kept) { return s < kept.batch.end(); });
}

void SendSession::locate_base() {
  if (base_ == next_) base_bytes_ = offered_bytes_;
  if (base_ < next_) base_bytes_ = kept_with(base_)->place(base_);
}

std::optional<Batch> SendSession::next_batch() {
  const auto kept = kept_with(send_);
  if (kept == kept_.end()) return std::nullopt;
  const Batch& batch = kept->batch;
  if (batch.end() > high_) {
    // Samples that arrived on an earlier connection may have been dropped since.
    const uint64_t from = std::max(high_, batch.seq);
    if (from >= limit_seq_ || kept->place(from) - *base_bytes_ >= limit_bytes_) return std::nullopt;
  }
  counts_.samples += batch.count;
  counts_.resent += std::min<uint64_t>(batch.count, high_ > batch.seq ? high_ - batch.seq : 0);
  high_ = std::max(high_, batch.end());
  send_ = batch.end();
  return batch;
}

std::optional<Frame> SendSession::next_ping(Time now) {
  const bool quiet = now - heard_ >= options_.ping_after,
             stuck = !kept_.empty() && now - progress_ >= options_.ping_after;
  if (now - pinged_ < options_.ping_after || !(quiet || stuck || blocked_ || finished_)) return std::nullopt;
  pinged_ = now;
  ++counts_.pings;
  Frame frame = control(finished_ && send_ >= next_ ? Kind::End : Kind::Ping);
  frame.seq = frame.kind == Kind::End ? next_ : std::min(send_, next_);
  frame.blocked = frame.kind == Kind::Ping && blocked_;
  return frame;
}

std::optional<std::variant<Frame, Batch>> SendSession::poll(Time now) {
  if (!connected_ || is_done()) return std::nullopt;
  if (greeting_ || (!welcomed_ && now - pinged_ >= options_.ping_after)) {
    greeting_ = false;
    pinged_ = now;
    return hello();
  }
  if (!welcomed_) return std::nullopt;
  if (auto batch = next_batch()) return *std::move(batch);
  if (finished_ && send_ >= next_ && !end_sent_) {
    end_sent_ = true;
    pinged_ = now;
    return control(Kind::End);
  }
  if (auto ping = next_ping(now)) return *std::move(ping);
  return std::nullopt;
}

Time SendSession::deadline() const { return std::min(pinged_ + options_.ping_after, heard_ + options_.give_up_after); }

}  // namespace harmonics::wire
