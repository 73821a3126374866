#include "wire/receive_session.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <harmonics/quantity.hpp>

namespace harmonics::wire {
namespace {

// Returns before + window - held; `held` may exceed the window.
uint64_t limit(uint64_t before, uint64_t window, uint64_t held) {
  return before + window < held ? 0 : before + window - held;
}

}  // namespace

void ReceiveSession::restore(const Position& position) {
  epoch_ = position.epoch;
  next_ = durable_ = position.seq;
  ended_ = durable_end_ = position.ended;
}

ReceiveSession::Taken ReceiveSession::receive(const Frame& frame, Time now) {
  switch (frame.kind) {
    case Kind::Hello:
      hello(frame, now);
      break;
    case Kind::Data:
      return data(frame, now);
    case Kind::Ping:
      if (!knows(frame, now)) break;
      say_pong_ = true;
      durable_wanted_ |= frame.blocked;
      if (frame.seq > next_) ask(Code::None, "", now);
      break;
    case Kind::End:
      if (knows(frame, now)) end(frame, now);
      break;
    case Kind::Bye:
      if (frame.epoch == epoch_ && frame.session == session_) greeted_ = false;
      break;
    default:
      break;  // a receiver ignores kinds that only receivers send
  }
  return {};
}

void ReceiveSession::hello(const Frame& frame, Time now) {
  if (frame.epoch < epoch_) {
    ++counts_.stale;
    return refuse(frame, Code::Stale, fmt::format("a newer session of '{}' is connected", options_.producer));
  }
  if (frame.epoch == epoch_ && frame.session < session_) return;
  if (frame.acknowledgement == Acknowledgement::Durable && !options_.durable)
    return refuse(frame, Code::NotDurable,
                  "the receiver writes nothing to disk: use ack=received, or run it with --checkpoint or --spool");
  if (!options_.tensors.empty() && !frame.tensors.empty() && !alike(frame.tensors, options_.tensors))
    return refuse(frame, Code::Tensors,
                  fmt::format("expected {}, got {}", described(options_.tensors), described(frame.tensors)));
  say_welcome_ = true;
  if (greeted_ && frame.epoch == epoch_ && frame.session == session_) return;
  if (!before_hello_) before_hello_ = BeforeHello{{epoch_, next_, ended_}, durable_end_, counts_.lost};
  if (frame.epoch > epoch_) ended_ = durable_end_ = false;
  if (!frame.fresh && frame.seq > next_) {
    counts_.lost += frame.seq - next_;
    next_ = frame.seq;
  }
  greeted_ = true;
  epoch_ = frame.epoch;
  session_ = frame.session;
  level_ = frame.acknowledgement;
  base_ = next_;
  bytes_ = 0;
  granted_seq_ = free_seq();  // samples granted by an earlier session may still arrive
  granted_bytes_ = free_bytes();
  asking_.reset();
  asked_seq_.reset();
  say_pong_ = say_bye_ = say_grant_ = false;
  granted_at_ = now;
}

void ReceiveSession::take_back_hello() {
  if (!before_hello_) return;
  const BeforeHello was = *std::exchange(before_hello_, std::nullopt);
  epoch_ = was.position.epoch, next_ = was.position.seq, ended_ = was.position.ended;
  durable_end_ = was.durable_end;
  counts_.lost = was.lost;
  greeted_ = false;
}

// Returns whether the frame belongs to the session. Without a session, asks the sender to begin one.
bool ReceiveSession::knows(const Frame& frame, Time now) {
  if (is_of_session(frame)) return true;
  ++counts_.stale;
  if (frame.epoch < epoch_ || (greeted_ && frame.epoch == epoch_ && frame.session < session_)) return false;  // late
  if (asked_seq_ && now - asked_at_ < options_.resume_after) return false;
  asked_seq_ = next_;
  asked_at_ = now;
  asking_ = control(Kind::Nack);
  asking_->epoch = frame.epoch;
  asking_->session = frame.session;
  asking_->code = Code::NoSession;
  asking_->text = "unknown session";
  return false;
}

ReceiveSession::Taken ReceiveSession::data(const Frame& frame, Time now) {
  if (!knows(frame, now)) return {};
  const uint64_t end = frame.seq + frame.count;
  if (end <= next_) {
    counts_.duplicates += frame.count;
    say_grant_ = true;  // a repeated sample means that the sender missed the acknowledgement
    return {};
  }
  if (frame.seq > next_) {
    ++counts_.gaps;
    ask(Code::None, "", now);
    return {};
  }
  if (next_ >= granted_seq_ || bytes_ >= granted_bytes_) {
    ++counts_.over_credit;
    ask(Code::Credit, fmt::format("sample {} exceeds the granted credit", next_), now);
    return {};
  }
  if (!options_.tensors.empty() && !alike(frame.tensors, options_.tensors)) {
    refuse(frame, Code::Tensors,
           fmt::format("expected {}, got {}", described(options_.tensors), described(frame.tensors)));
    greeted_ = false;
    return {};
  }
  const Taken taken{static_cast<uint32_t>(next_ - frame.seq), static_cast<uint32_t>(end - next_)};
  const uint64_t bytes = taken.count * sample_bytes(frame);
  counts_.duplicates += taken.first;
  counts_.samples += taken.count;
  before_hello_.reset();
  next_ = end;
  bytes_ += bytes;
  held_samples_ += taken.count;
  held_bytes_ += bytes;
  asked_seq_.reset();
  return taken;
}

void ReceiveSession::end(const Frame& frame, Time now) {
  if (frame.seq > next_) return ask(Code::None, "", now);
  before_hello_.reset();
  ended_ = true;
  end_ = frame.seq;
  say_bye_ = say_grant_ = true;
}

// Asks the sender to repeat samples from next_ on, optionally with a reason. Repeats the request for the same sample
// only after a delay.
void ReceiveSession::ask(Code code, const std::string& text, Time now) {
  if (asked_seq_ == next_ && now - asked_at_ < options_.resume_after) return;
  asked_seq_ = next_;
  asked_at_ = now;
  asking_ = control(code == Code::None ? Kind::Resume : Kind::Nack);
  asking_->seq = next_;
  asking_->code = code;
  asking_->text = text;
}

void ReceiveSession::refuse(const Frame& frame, Code code, const std::string& text) {
  ++counts_.refused;
  refusal_ = control(Kind::Error);
  refusal_->epoch = frame.epoch;
  refusal_->session = frame.kind == Kind::Data ? session_ : frame.session;
  refusal_->code = code;
  refusal_->text = refusal_text_ = text.substr(0, kMostText);
}

void ReceiveSession::damaged(const std::string& reason, Time now) {
  ++counts_.refused;
  if (greeted_) ask(Code::Malformed, reason.substr(0, kMostText), now);
}

void ReceiveSession::consumed(uint64_t samples, uint64_t bytes) {
  if (samples > held_samples_ || bytes > held_bytes_)
    throw Error(ErrorKind::Internal,
                fmt::format("cannot consume {} ({}): only {} ({}) held", quantity(samples, "sample"),
                            quantity(bytes, "byte"), quantity(held_samples_, "sample"), quantity(held_bytes_, "byte")));
  held_samples_ -= samples;
  held_bytes_ -= bytes;
}

void ReceiveSession::durable(const Position& position) {
  if (position.seq > next_)
    throw Error(ErrorKind::Internal,
                fmt::format("samples before {} are durable, those before {} were received", position.seq, next_));
  durable_ = std::max(durable_, position.seq);
  durable_end_ |= position.ended && position.epoch == epoch_;
}

Frame ReceiveSession::control(Kind kind) const {
  Frame frame;
  frame.kind = kind;
  frame.stream = options_.stream;
  frame.producer = options_.producer;
  frame.epoch = epoch_;
  frame.session = session_;
  return frame;
}

Frame ReceiveSession::granting(Kind kind) {
  Frame frame = control(kind);
  granted_seq_ = std::max(granted_seq_, free_seq());
  granted_bytes_ = std::max(granted_bytes_, free_bytes());
  frame.limit_seq = granted_seq_;
  frame.limit_bytes = granted_bytes_;
  frame.received_seq = told_received_ = next_;
  frame.durable_seq = told_durable_ = durable_;
  return frame;
}

Frame ReceiveSession::welcome() {
  Frame frame = granting(Kind::Welcome);
  frame.seq = base_;
  frame.acknowledgement = level_;
  frame.max_frame_bytes = options_.max_frame_bytes;
  return frame;
}

uint64_t ReceiveSession::free_seq() const { return limit(next_, options_.window_samples, held_samples_); }
uint64_t ReceiveSession::free_bytes() const { return limit(bytes_, options_.window_bytes, held_bytes_); }

// Returns true once an eighth of a window may be granted or has arrived. The sender then never waits, and reuses memory
// that is still in a cache.
bool ReceiveSession::is_granting_due(Time now) const {
  const uint64_t samples = (options_.window_samples + 7) / 8, bytes = (options_.window_bytes + 7) / 8;
  if (free_seq() >= granted_seq_ + samples || free_bytes() >= granted_bytes_ + bytes ||
      next_ >= told_received_ + samples)
    return true;
  if (durable_ > told_durable_) return true;
  const bool news = free_seq() > granted_seq_ || free_bytes() > granted_bytes_ || next_ > told_received_;
  return news && now - granted_at_ >= options_.grant_after;
}

std::optional<Frame> ReceiveSession::poll(Time now) {
  if (refusal_) return std::exchange(refusal_, std::nullopt);
  if (asking_ && asking_->code == Code::NoSession) return std::exchange(asking_, std::nullopt);
  if (!greeted_) return std::nullopt;
  if (say_welcome_ || say_pong_ || say_grant_ || is_granting_due(now)) {
    granted_at_ = now;
    say_grant_ = false;
    const bool pong = std::exchange(say_pong_, false);
    return std::exchange(say_welcome_, false) ? welcome() : granting(pong ? Kind::Pong : Kind::Grant);
  }
  if (asking_) return std::exchange(asking_, std::nullopt);
  // A sender that asked for durability keeps everything until its end is durable.
  if (!say_bye_ || (level_ == Acknowledgement::Durable && !durable_end_)) return std::nullopt;
  say_bye_ = false;
  Frame bye = control(Kind::Bye);
  bye.seq = end_;
  return bye;
}

}  // namespace harmonics::wire
