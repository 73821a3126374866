// A sender and a receiver of one stream on a network that cuts, loses, delays, reorders, duplicates and damages, in
// simulated time, determined by a seed.
#pragma once

#include <catch2/catch.hpp>

#include <map>
#include <random>

#include "tests/wire/raw_frame.hpp"
#include "wire/receive_session.hpp"

namespace harmonics::wire::testing {

constexpr Time kTick = std::chrono::milliseconds(1);

// Fault rates in the simulated network, each a chance in a thousand (per frame, or per tick).
struct FaultRates {
  uint64_t lose = 0, duplicate = 0, damage = 0, delay = 0;  // per frame
  uint64_t cut = 0, kill_receiver = 0, kill_sender = 0;     // per tick
  uint64_t until = 2000;                                    // no faults from this tick on
  bool leftovers = false;                                   // frames of a cut connection may arrive on the next one
};

struct Journey {
  uint64_t samples = 300;
  Acknowledgement acknowledgement = Acknowledgement::Durable;
  bool fresh = false;  // the receiver determines the sender's first number
  uint64_t window_samples = 32, window_bytes = 600, keep_bytes = 1u << 20;
  uint64_t consumed_a_tick = 4, checkpoint_every = 60;  // ticks
  FaultRates weather;
};

class World {
 public:
  World(uint64_t seed, const Journey& journey) : random_(seed), journey_(journey) { start_sender(), start_receiver(); }

  // Runs until the sender knows that all samples are safe. Returns false if that never happens.
  bool run() {
    for (tick_ = 1; tick_ < journey_.weather.until + 4000; ++tick_) {
      now_ += kTick;
      misfortune();
      deliver();
      produce();
      consume();
      talk();
      check();
      if (sender_->is_done()) return true;
    }
    return false;
  }

  std::vector<uint64_t> applied,
      lives;  // sample numbers in the model; the count at each start of the receiver
  uint64_t ticks() const { return tick_; }
  const SendSession& sender() const { return *sender_; }
  const ReceiveSession& receiver() const { return *receiver_; }
  uint64_t over_credit = 0, lost = 0, most_held = 0, resent = 0, duplicates = 0, gaps = 0, sessions = 0;

 private:
  struct Packet {
    uint64_t connection;
    std::vector<std::byte> bytes;
  };
  using Pipe = std::multimap<uint64_t, Packet>;  // by the tick of arrival
  struct Held {
    uint64_t seq, bytes;
  };

  bool chance(uint64_t in_a_thousand) { return tick_ < journey_.weather.until && random_() % 1000 < in_a_thousand; }

  void start_sender() {
    SendOptions options;
    options.stream = "s";
    options.producer = "p";
    options.epoch = ++epoch_;
    options.acknowledgement = journey_.acknowledgement;
    options.keep_bytes = journey_.keep_bytes;
    options.ping_after = 40 * kTick;
    options.give_up_after = 150 * kTick;
    // A restarted sender can repeat its source from any sample up to the last one it knew to be safe, or from the
    // sample that the receiver requests.
    options.behind_durable =
        !journey_.fresh && journey_.acknowledgement == Acknowledgement::Durable && random_() % 2 == 0;
    if (!journey_.fresh && !options.behind_durable)
      options.first_seq = source_ = safe_ > 0 ? safe_ - random_() % (safe_ + 1) / 2 : 0;
    sender_ = std::make_unique<SendSession>(options);
    connection_ = 0;
    finished_ = false;
  }
  void start_receiver() {
    ReceiveOptions options;
    options.stream = "s";
    options.producer = "p";
    options.window_samples = journey_.window_samples;
    options.window_bytes = journey_.window_bytes;
    options.resume_after = 15 * kTick;
    options.grant_after = 5 * kTick;
    receiver_ = std::make_unique<ReceiveSession>(options);
    receiver_->restore(saved_);
    applied.resize(saved_applied_);
    held_.clear();
    lives.push_back(saved_applied_);
  }

  void misfortune() {
    const FaultRates& w = journey_.weather;
    if (chance(w.kill_receiver)) {
      account();
      start_receiver();
      cut();
    }
    if (chance(w.kill_sender)) {
      account();
      start_sender();
      cut();
    }
    if (chance(w.cut) || sender_->is_out_of_touch(now_)) cut();
    if (connection_ == 0 && random_() % 5 == 0) {
      connection_ = ++connections_;
      sender_->connected(now_);
    }
  }
  void cut() {
    sender_->disconnected();
    connection_ = 0;
    if (!journey_.weather.leftovers) to_receiver_.clear(), to_sender_.clear();
  }

  void send(Pipe& pipe, std::vector<std::byte> bytes) {
    const FaultRates& w = journey_.weather;
    if (chance(w.lose)) return;
    if (chance(w.damage)) bytes[random_() % bytes.size()] ^= static_cast<std::byte>(1 + random_() % 255);
    for (int copies = chance(w.duplicate) ? 2 : 1; copies > 0; --copies)
      pipe.insert({tick_ + 1 + (chance(w.delay) ? random_() % 60 : 0), {connection_, bytes}});
  }
  template <typename Take>
  void deliver(Pipe& pipe, Take take) {
    while (!pipe.empty() && pipe.begin()->first <= tick_) {
      const Packet packet = std::move(pipe.extract(pipe.begin()).mapped());
      if (connection_ != 0 && (packet.connection == connection_ || journey_.weather.leftovers)) take(packet.bytes);
    }
  }
  void deliver() {
    deliver(to_receiver_, [this](const std::vector<std::byte>& bytes) {
      try {
        const Frame frame = decode(bytes);
        apply(frame, receiver_->receive(frame, now_));
      } catch (const Error& e) {
        receiver_->damaged(e.what(), now_);
      }
    });
    deliver(to_sender_, [this](const std::vector<std::byte>& bytes) {
      std::optional<Frame> frame;
      try {
        frame = decode(bytes);
      } catch (const Error&) {
        return;
      }
      sender_->receive(*frame, now_);
    });
  }

  // Returns a sample's size: its number and further bytes, whose count depends on the number.
  static int64_t size_of(uint64_t seq) { return static_cast<int64_t>(8 + seq / 7 % 5 * 8); }
  void produce() {
    for (int i = 0; i < 3 && !finished_ && sender_->next_seq(); ++i) {
      const uint64_t seq = *sender_->next_seq();
      if (seq >= journey_.samples) {
        sender_->finish();
        finished_ = true;
        return;
      }
      Batch batch{seq, 1, 0, {}};
      while (batch.count < 1 + random_() % 5 && batch.end() < journey_.samples && size_of(batch.end()) == size_of(seq))
        ++batch.count;
      const size_t size = static_cast<size_t>(size_of(seq));
      std::vector<uint64_t> payload(batch.count * size / 8);
      for (size_t k = 0; k < payload.size(); ++k) payload[k] = seq + k * 8 / size;
      batch.bytes = payload.size() * 8;
      Frame frame;
      frame.stream = "s", frame.producer = "p", frame.epoch = epoch_, frame.seq = seq, frame.count = batch.count;
      frame.tensors = {{"x", DType::U64, {size_of(seq) / 8}, std::as_bytes(std::span(payload))}};
      batch.frame = owned(encode(frame).bytes());
      if (!sender_->offer(std::move(batch))) return;
    }
  }

  void apply(const Frame& frame, ReceiveSession::Taken taken) {
    if (taken.count == 0) return;
    const TensorPart& part = frame.tensors.at(0);
    const uint64_t one = part.bytes.size() / frame.count;
    for (uint32_t i = taken.first; i < taken.first + taken.count; ++i) {
      uint64_t number = 0;
      std::memcpy(&number, part.bytes.data() + i * one, 8);
      if (number != frame.seq + i) FAIL("sample " << frame.seq + i << " holds " << number);
      held_.push_back({number, one});
    }
  }
  void consume() {
    for (uint64_t n = random_() % (journey_.consumed_a_tick + 1); n > 0 && !held_.empty(); --n) {
      applied.push_back(held_.front().seq);
      receiver_->consumed(1, held_.front().bytes);
      held_.erase(held_.begin());
    }
    const Position all = receiver_->position();
    const bool wanted = receiver_->take_durable_wanted() || (all.ended && held_.empty() && !saved_.ended);
    if (!wanted && tick_ % journey_.checkpoint_every != 0) return;
    saved_ = {all.epoch, all.seq - held_.size(), all.ended && held_.empty()};
    saved_applied_ = applied.size();
    receiver_->durable(saved_);
  }

  void talk() {
    if (connection_ == 0) return;
    for (int i = 0; i < 4; ++i) {
      const auto out = sender_->poll(now_);
      if (!out) break;
      if (const auto* batch = std::get_if<Batch>(&*out))
        send(to_receiver_, {batch->frame.bytes.begin(), batch->frame.bytes.end()});
      else
        send(to_receiver_, encode(std::get<Frame>(*out)).bytes());
    }
    for (int i = 0; i < 4; ++i)
      if (const auto frame = receiver_->poll(now_)) send(to_sender_, encode(*frame).bytes());
  }

  void check() {
    safe_ = std::max(safe_, sender_->acknowledged());
    if (journey_.acknowledgement == Acknowledgement::Durable && sender_->acknowledged() > saved_.seq)
      FAIL("acknowledged up to " << sender_->acknowledged() << ", safe up to " << saved_.seq);
    uint64_t bytes = 0;
    for (const Held& h : held_) bytes += h.bytes;
    most_held = std::max<uint64_t>(most_held, held_.size());
    // A full window plus one frame beyond it.
    if (held_.size() >= journey_.window_samples + 5 || bytes >= journey_.window_bytes + 5 * 40)
      FAIL(held_.size() << " samples of " << bytes << " bytes are held");
    if (sender_->is_done()) account();
  }
  void account() {
    const ReceiveCounts& r = receiver_->counts();
    over_credit += r.over_credit, lost += r.lost, duplicates += r.duplicates, gaps += r.gaps;
    resent += sender_->counts().resent, sessions += sender_->counts().sessions;
  }

  std::mt19937_64 random_;
  Journey journey_;
  uint64_t tick_ = 0, epoch_ = 0, source_ = 0, safe_ = 0, connection_ = 0, connections_ = 0;
  Time now_{};
  bool finished_ = false;
  std::unique_ptr<SendSession> sender_;
  std::unique_ptr<ReceiveSession> receiver_;
  Pipe to_receiver_, to_sender_;
  std::vector<Held> held_;
  Position saved_;
  uint64_t saved_applied_ = 0;
};

}  // namespace harmonics::wire::testing
