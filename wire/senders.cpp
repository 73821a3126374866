#include "wire/senders.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace harmonics::wire {
namespace {

constexpr size_t kMostAnswers = 1024;
constexpr auto kWarnAgain = std::chrono::milliseconds(100);

bool is_of_sender(Kind kind) { return kind == Kind::Hello || kind == Kind::Data || kind == Kind::Ping || kind == Kind::End || kind == Kind::Bye; }

void add(ReceiveCounts& to, const ReceiveCounts& more) {
  to.samples += more.samples, to.duplicates += more.duplicates, to.gaps += more.gaps, to.stale += more.stale;
  to.over_credit += more.over_credit, to.refused += more.refused, to.lost += more.lost;
}

}  // namespace

std::optional<Taken> Senders::arrived(uint64_t peer, OwnedBytes bytes, std::shared_ptr<const Frame> frame) {
  if (!is_of_sender(frame->kind)) return std::nullopt;  // a receiver's own kinds say nothing to a receiver
  Sender* const sender = known(*frame, peer);
  if (!sender) return std::nullopt;
  return options_.one_way ? count(*sender, peer, bytes, frame) : converse(*sender, peer, bytes, frame);
}

// The sender this frame is to be taken from; none: it has been answered.
Sender* Senders::known(const Frame& frame, uint64_t peer) {
  const bool hello = frame.kind == Kind::Hello;
  if (hello && frame.tensors.empty()) {  // who reads has to know before the first sample comes
    ++gone_.refused;
    last_error_ = fmt::format("'{}' is refused: its HELLO does not say what will come", frame.producer);
    answer(peer, frame, Kind::Error, Code::Tensors, "HELLO does not say what will come: name the tensors, with their types and shapes");
    return nullptr;
  }
  if (!begun_ && !options_.one_way) {
    if (hello && (waiting_.size() < options_.most_senders || waiting_.count({frame.stream, frame.producer}))) {
      keep_waiting(peer, frame);
    } else if (!hello) {
      answer(peer, frame, Kind::Nack, Code::NoSession, "the receiver knows nothing of this session");
    }
    return nullptr;
  }
  const SenderName name{frame.stream, frame.producer};
  if (const auto found = all_.find(name); found != all_.end()) return found->second.get();
  if (!hello && !options_.one_way) {
    ++gone_.stale;
    if (frame.kind != Kind::Bye) answer(peer, frame, Kind::Nack, Code::NoSession, "the receiver knows nothing of this session");
    return nullptr;
  }
  if (all_.size() >= options_.most_senders && !make_room()) {
    ++gone_.refused;
    last_error_ = fmt::format("'{}' is refused: {} senders are there, and no more are taken", frame.producer, all_.size());
    answer(peer, frame, Kind::Error, Code::None, fmt::format("{} senders are there, and no more are taken", all_.size()));
    return nullptr;
  }
  return &make(name);
}

// Its HELLO is taken when the host has begun; until then it hears that somebody is there.
void Senders::keep_waiting(uint64_t peer, const Frame& hello) {
  learn(hello.tensors);
  waiting_[{hello.stream, hello.producer}] = {peer, hello};
  answer(peer, hello, Kind::Pong, Code::None, "");
}

Sender& Senders::make(const SenderName& name) {
  auto made = std::make_unique<Sender>();
  made->name = name;
  if (!options_.one_way) {
    ReceiveOptions options;
    options.stream = name.stream;
    options.producer = name.producer;
    options.durable = durable_;
    options.tensors = tensors_;
    options.window_samples = options_.window_samples;
    options.window_bytes = options_.window_bytes;
    options.max_frame_bytes = options_.limits.frame_bytes;
    made->session = std::make_unique<ReceiveSession>(std::move(options));
  }
  return *(all_[name] = std::move(made));
}

// Forgets one that has ended and of which nothing is held.
bool Senders::make_room() {
  const auto found = std::find_if(all_.begin(), all_.end(), [this](const auto& entry) {
    const Sender& s = *entry.second;
    const bool in_log = durable_ && log_.last_of(s.name) > log_.first();
    return position_of(s).ended && (s.told || options_.one_way) && s.queued == 0 && !in_log && !s.dirty;
  });
  if (found == all_.end()) return false;
  if (found->second->session) add(gone_, found->second->session->counts());
  log_.forget(found->first);
  all_.erase(found);
  return true;
}

std::optional<Taken> Senders::converse(Sender& sender, uint64_t peer, const OwnedBytes& bytes, const std::shared_ptr<const Frame>& frame) {
  ReceiveSession& session = *sender.session;
  const uint64_t refused = session.counts().refused, former = sender.peer;
  const bool hello = frame->kind == Kind::Hello, foreign = former != 0 && former != peer && !hello;
  if (foreign && !session.is_of_session(*frame)) {  // an earlier connection of this sender, or somebody else in its name
    ++gone_.stale;
    if (frame->kind != Kind::Bye) answer(peer, *frame, Kind::Nack, Code::NoSession, "the receiver knows nothing of this session");
    return std::nullopt;
  }
  if (!foreign) sender.peer = peer;
  if (hello && !session.is_greeted()) session.set_window(1, 1);  // until it is known how many share the window
  const ReceiveSession::Taken taken = session.receive(*frame, now());
  if (session.counts().refused != refused) last_error_ = fmt::format("'{}' is refused: {}", sender.name.producer, session.refusal());
  if (hello && session.counts().refused != refused && former != 0) {  // who is refused hears it, and answers go on to who was there
    if (const auto refusal = session.poll(now())) say(peer, *refusal);
    sender.peer = former;
    return std::nullopt;
  }
  if (frame->kind == Kind::End || frame->kind == Kind::Bye) share_window();
  if (hello && session.counts().refused == refused) {
    learn(frame->tensors);
    sender.came = true;
    sender.told = false;
    if (!session.position().ended) sender.end_written.reset();
    share_window();
  }
  if (taken.count > 0) learn(frame->tensors);
  durable_wanted_ |= session.take_durable_wanted();
  if (hello || sender.peer != former || frame->kind != Kind::Data || taken.count == 0 || session.is_granting_due(now())) mark(sender);
  if (taken.count == 0) return std::nullopt;
  sender.queued += taken.count;
  if (durable_) log_.add(sender.name, frame->epoch, frame->seq + taken.first, taken.count);
  return Taken{&sender, bytes, frame, taken.first, taken.count};
}

// One way: what is missing is lost, what comes twice is dropped, and a later incarnation begins anew.
std::optional<Taken> Senders::count(Sender& sender, uint64_t peer, const OwnedBytes& bytes, const std::shared_ptr<const Frame>& frame) {
  sender.peer = peer;
  Position& at = sender.counted;
  if (frame->epoch < at.epoch) {
    ++gone_.stale;
    return std::nullopt;
  }
  const bool first = !sender.came || frame->epoch > at.epoch;
  if (frame->kind == Kind::End && sender.came && frame->epoch == at.epoch) {
    if (frame->seq > at.seq) gone_.lost += frame->seq - at.seq;
    at.seq = std::max(at.seq, frame->seq);
    at.ended = true;
  }
  learn(frame->tensors);
  if (frame->kind != Kind::Data) return std::nullopt;
  if (!alike(frame->tensors, tensors_)) {
    ++gone_.refused;
    last_error_ = fmt::format("'{}' sends {}, wanted is {}", sender.name.producer, described(frame->tensors), described(tensors_));
    return std::nullopt;
  }
  const uint64_t end = frame->seq + frame->count;
  if (first) at = {frame->epoch, frame->seq, false};
  sender.came = true;
  at.ended = false;
  if (frame->seq > at.seq) gone_.lost += frame->seq - at.seq;
  const uint64_t begin = std::max(frame->seq, at.seq);
  gone_.duplicates += std::min<uint64_t>(frame->count, begin - frame->seq);
  if (end <= begin) return std::nullopt;
  at.seq = end;
  gone_.samples += end - begin;
  sender.queued += end - begin;
  return Taken{&sender, bytes, frame, static_cast<uint32_t>(begin - frame->seq), static_cast<uint32_t>(end - begin)};
}

// What the first says is what all send.
void Senders::learn(const std::vector<TensorPart>& tensors) {
  if (!tensors_.empty() || tensors.empty()) return;
  tensors_ = tensors;
  for (TensorPart& part : tensors_) part.bytes = {};
  for (const auto& [name, sender] : all_)
    if (sender->session) sender->session->expect(tensors_);
}

void Senders::damaged(uint64_t peer, const std::string& reason) {
  last_error_ = reason;
  bool told = false;
  for (auto& [name, sender] : all_) {
    if (sender->peer != peer || !sender->session) continue;
    sender->session->damaged(reason, now());
    mark(*sender);
    told = true;
  }
  if (!told) ++gone_.refused;
  if (told || options_.one_way) return;
  // Nobody that is known: it is told what a frame is, though not as often as it likes.
  if (const auto warned = warned_.find(peer); warned != warned_.end() && now() - warned->second < kWarnAgain) return;
  if (warned_.size() >= kMostAnswers) warned_.clear();
  warned_[peer] = now();
  Frame unknown;
  unknown.stream = unknown.producer = "unknown";
  answer(peer, unknown, Kind::Error, Code::Malformed, reason);
}

void Senders::turned_away(const std::string& reason) {
  ++gone_.refused;
  last_error_ = reason;
}

void Senders::arriving(uint64_t peer) {
  for (auto& [name, sender] : all_)
    if (sender->peer == peer && sender->session) sender->session->arriving(now()), mark(*sender);
}

void Senders::left(uint64_t peer) {
  warned_.erase(peer);
  std::erase_if(waiting_, [peer](const auto& entry) { return entry.second.first == peer; });
  std::erase_if(answers_, [peer](const Inbox::Answer& a) { return a.peer == peer; });
  for (auto& [name, sender] : all_)
    if (sender->peer == peer) sender->peer = 0;
  share_window();
}

void Senders::answer(uint64_t peer, const Frame& to, Kind kind, Code code, const std::string& text) {
  Frame frame;
  frame.kind = kind;
  frame.stream = to.stream;
  frame.producer = to.producer;
  frame.epoch = to.epoch;
  frame.session = to.session;
  frame.code = code;
  frame.text = text.substr(0, kMostText);
  say(peer, frame);
}

void Senders::say(uint64_t peer, const Frame& frame) {
  if (answers_.size() < kMostAnswers) answers_.push_back({peer, encode(frame).bytes()});
}

void Senders::mark(Sender& sender) {
  if (sender.dirty) return;
  sender.dirty = true;
  dirty_.push_back(&sender);
}

std::optional<Inbox::Answer> Senders::poll(Time now) {
  if (options_.one_way) return std::nullopt;
  if (now - ticked_ >= Inbox::kTick) {
    ticked_ = now;
    for (auto& [name, sender] : all_) mark(*sender);
  }
  if (!answers_.empty()) {
    Inbox::Answer answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }
  while (!dirty_.empty()) {
    Sender& sender = *dirty_.front();
    if (sender.peer != 0)
      if (const auto frame = sender.session->poll(now)) {
        if (frame->kind == Kind::Bye) sender.told = true;
        return Inbox::Answer{sender.peer, encode(*frame).bytes()};
      }
    sender.dirty = false;
    dirty_.pop_front();
  }
  return std::nullopt;
}

bool Senders::consumed(Sender& sender, uint64_t samples, uint64_t bytes) {
  sender.queued -= samples;
  if (!sender.session) return true;
  sender.session->consumed(samples, bytes);
  if (!sender.session->is_granting_due(now())) return false;
  mark(sender);
  return true;
}

// Each who sends has an equal part of the window. What was granted stays granted, so n of them hold at most 1 + 1/2 + ... + 1/n windows,
// and that only until the first ones have used up theirs.
void Senders::share_window() {
  const auto is_active = [](const Sender& s) { return s.session && s.peer != 0 && s.session->is_greeted() && !s.session->position().ended; };
  uint64_t active = 0;
  for (const auto& [name, sender] : all_) active += is_active(*sender);
  if (active == 0) return;
  for (const auto& [name, sender] : all_)
    if (is_active(*sender)) sender->session->set_window(std::max<uint64_t>(1, options_.window_samples / active), std::max<uint64_t>(1, options_.window_bytes / active));
}

void Senders::begin(bool durable) {
  if (begun_) return;
  begun_ = true;
  durable_ = durable && !options_.one_way;
  for (const auto& [name, waiting] : std::exchange(waiting_, {})) {
    const auto& [peer, hello] = waiting;
    if (Sender* const sender = known(hello, peer)) converse(*sender, peer, {}, std::make_shared<const Frame>(hello));
  }
}

void Senders::restore(uint64_t index, const Positions& positions) {
  log_.begin(index, positions.senders);
  if (!positions.tensors.empty()) tensors_ = positions.tensors;
  durable_ = true;
  for (const auto& [name, position] : positions.senders) {
    Sender& sender = make(name);
    sender.session->restore(position);
    sender.came = true;
  }
}

std::string Senders::position(uint64_t index) {
  Positions positions;
  positions.tensors = tensors_;
  positions.senders = log_.at(index);
  for (auto& [name, sender] : all_) {
    if (!sender->came || log_.last_of(name) > index) continue;
    const Position at = sender->session->position();  // behind its samples there may be a gap, a new incarnation, its end
    positions.senders[name] = at;
    if (at.ended && !sender->end_written) sender->end_written = index;
  }
  return positions_text(positions);
}

void Senders::durable(uint64_t index) {
  log_.forget(index);
  for (const auto& [name, at] : log_.at(index)) {
    const auto found = all_.find(name);
    if (found == all_.end()) continue;
    Sender& sender = *found->second;
    Position position = at;
    const bool ended = sender.end_written && *sender.end_written <= index;
    if (ended) position = sender.session->position();
    sender.session->durable(position);
    mark(sender);
  }
  for (auto& [name, sender] : all_)  // that ended without a sample
    if (sender->end_written && *sender->end_written <= index) sender->session->durable(sender->session->position()), mark(*sender);
  durable_wanted_ = false;
}

bool Senders::are_over() const {
  if (!waiting_.empty()) return false;
  bool came = false;
  for (const auto& [name, sender] : all_) {
    if (!sender->came) continue;
    came = true;
    if (!position_of(*sender).ended) return false;
  }
  return came;
}

bool Senders::say_goodbye() {
  if (!goodbye_) {
    goodbye_ = true;
    for (const auto& [name, sender] : all_) {
      if (sender->peer == 0 || !sender->session || !sender->session->is_greeted() || sender->told) continue;
      Frame to;
      to.stream = name.stream, to.producer = name.producer;
      to.epoch = sender->session->position().epoch, to.session = sender->session->session();
      answer(sender->peer, to, Kind::Bye, Code::None, "");
      sender->peer = 0;
    }
  }
  if (!answers_.empty()) return false;
  return std::none_of(all_.begin(), all_.end(), [](const auto& entry) {
    return entry.second->session && entry.second->peer != 0 && entry.second->session->is_greeted();
  });
}

void Senders::report(InboxHealth& health) {
  ReceiveCounts counts = gone_;
  for (const auto& [name, sender] : all_) {
    if (sender->session) add(counts, sender->session->counts());
    health.senders += sender->came;
    health.connected += sender->peer != 0;
  }
  health.senders += static_cast<uint32_t>(waiting_.size());
  health.samples = counts.samples;
  health.lost = counts.lost;
  health.duplicates = counts.duplicates;
  health.refused = counts.refused + counts.over_credit;
  health.resent = counts.gaps;
  health.wants_durable = durable_wanted_;
  health.last_error = last_error_;
}

}  // namespace harmonics::wire
