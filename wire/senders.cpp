#include "wire/senders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace harmonics::wire {
namespace {

constexpr size_t kMostAnswers = 1024;
constexpr auto kWarnAgain = std::chrono::milliseconds(100);
constexpr size_t kMostEmptyNames = 16, kRemembered = 4;
constexpr Time kGoneForGood = std::chrono::seconds(5);  // senders reconnect within two
constexpr Time kEmptyPlace = std::chrono::seconds(10);  // limit for a sender without samples while others wait

// Epochs are clock values in nanoseconds, or smaller numbers.
uint64_t latest_epoch() {
  const auto latest = std::chrono::system_clock::now() + std::chrono::hours(24);
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(latest.time_since_epoch()).count());
}

bool is_of_sender(Kind kind) {
  return kind == Kind::Hello || kind == Kind::Data || kind == Kind::Ping || kind == Kind::End || kind == Kind::Bye;
}

void add(ReceiveCounts& to, const ReceiveCounts& more) {
  to.samples += more.samples, to.duplicates += more.duplicates, to.gaps += more.gaps, to.stale += more.stale;
  to.over_credit += more.over_credit, to.refused += more.refused, to.lost += more.lost;
}

}  // namespace

std::optional<Taken> Senders::arrived(uint64_t peer, OwnedBytes bytes, std::shared_ptr<const Frame> frame) {
  if (!is_of_sender(frame->kind)) return std::nullopt;  // a receiver ignores kinds that only receivers send
  if (refuses(peer, *frame)) return std::nullopt;
  Sender* const sender = known(*frame, peer);
  if (!sender) return std::nullopt;
  return options_.one_way ? count(*sender, peer, bytes, frame) : converse(*sender, peer, bytes, frame);
}

void Senders::refuse(uint64_t peer, const Frame& frame, Code code, const std::string& text) {
  ++gone_.refused;
  last_error_ = fmt::format("'{}' is refused: {}", frame.producer, text);
  answer(peer, frame, Kind::Error, code, text);
}

// Rejects frames that are invalid from any sender.
bool Senders::refuses(uint64_t peer, const Frame& frame) {
  const bool hello = frame.kind == Kind::Hello;
  if (options_.may_use && !options_.may_use(peer, frame.producer)) {
    refuse(peer, frame, Code::None, fmt::format("its key may not send as '{}'", frame.producer));
    return true;
  }
  if (!hello && !options_.one_way) return false;
  if (frame.epoch > latest_epoch()) {
    refuse(peer, frame, Code::None,
           fmt::format("its epoch {} is more than a day ahead of the receiver's clock: correct the sender's clock, or "
                       "use other epochs",
                       frame.epoch));
    return true;
  }
  if (hello && frame.tensors.empty()) {  // readers need the layout before the first sample
    refuse(peer, frame, Code::Tensors, "HELLO announces no tensors: give their names, types and shapes");
    return true;
  }
  if (!hello || is_expected(frame.tensors)) return false;
  refuse(peer, frame, Code::Tensors,
         fmt::format("the stream was {}, not {}", described(expected_), described(frame.tensors)));
  return true;
}

// Returns the sender to take this frame from; none: the frame was answered here.
Sender* Senders::known(const Frame& frame, uint64_t peer) {
  const bool hello = frame.kind == Kind::Hello;
  const SenderName name{frame.stream, frame.producer};
  const bool waits = !begun_ && !options_.one_way;
  if (const auto found = all_.find(name); found != all_.end() && !waits) return found->second.get();
  if (!hello && !options_.one_way) {
    ++gone_.stale;
    if (frame.kind != Kind::Bye) answer(peer, frame, Kind::Nack, Code::NoSession, "unknown session");
    return nullptr;
  }
  if (hello && !waiting_.count(name) && empty_names_of(peer) >= kMostEmptyNames) {
    refuse(peer, frame, Code::None,
           fmt::format("{} senders of this connection have not sent a sample yet", kMostEmptyNames));
    return nullptr;
  }
  if (waits) return keep_waiting(peer, frame), nullptr;
  if (has_place() || make_room()) return &make(name);
  if (!options_.one_way) return keep_waiting(peer, frame), nullptr;
  ++gone_.refused;
  last_error_ = fmt::format("'{}' is refused: the limit of {} senders is reached", frame.producer, all_.size());
  return nullptr;
}

size_t Senders::empty_names_of(uint64_t peer) const {
  const auto waiting =
      std::count_if(waiting_.begin(), waiting_.end(), [peer](const auto& entry) { return entry.second.peer == peer; });
  const auto empty = std::count_if(all_.begin(), all_.end(), [peer](const auto& entry) {
    return entry.second->peer == peer && !entry.second->gave;
  });
  return static_cast<size_t>(waiting + empty);
}

// Accepts the HELLO once the host has begun and a slot is free, in order of arrival; until then sends keep-alives.
void Senders::keep_waiting(uint64_t peer, const Frame& hello) {
  answer(peer, hello, Kind::Pong, Code::None, "");
  const SenderName name{hello.stream, hello.producer};
  const auto known = waiting_.find(name);
  if (known == waiting_.end() && waiting_.size() >= options_.most_senders) return;  // it repeats its HELLO
  const uint64_t turn = known == waiting_.end() ? ++turns_ : known->second.turn;
  if (!begun_) learn(hello.tensors);
  waiting_[name] = {peer, turn, hello};
}

// Admits waiting senders to free slots.
void Senders::admit_waiting() {
  while (begun_ && !waiting_.empty() && (has_place() || make_room())) {
    const auto first = std::min_element(waiting_.begin(), waiting_.end(),
                                        [](const auto& a, const auto& b) { return a.second.turn < b.second.turn; });
    const Waiting next = std::move(first->second);
    waiting_.erase(first);
    if (Sender* const sender = known(next.hello, next.peer))
      converse(*sender, next.peer, {}, std::make_shared<const Frame>(next.hello));
  }
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

// Connected senders take slots. More disconnected ones are remembered, since they may return and continue.
bool Senders::has_place() const {
  const auto there = std::count_if(all_.begin(), all_.end(), [](const auto& entry) { return entry.second->peer != 0; });
  return static_cast<size_t>(there) < options_.most_senders && all_.size() < kRemembered * options_.most_senders;
}

void Senders::forget(std::map<SenderName, std::unique_ptr<Sender>>::iterator sender) {
  Sender& s = *sender->second;
  if (s.session) {
    if (!s.gave) s.session->take_back_hello();  // including the samples that it reported as lost
    add(gone_, s.session->counts());
  }
  std::erase(dirty_, &s);
  log_.forget(sender->first);
  all_.erase(sender);
}

// Forgets a sender without queued samples: an ended one, else one that sent nothing and is disconnected or has held its
// slot for long.
bool Senders::make_room() {
  const Time t = now();
  const auto find = [this](auto may_go) {
    return std::find_if(all_.begin(), all_.end(),
                        [&](const auto& entry) { return entry.second->queued == 0 && may_go(*entry.second); });
  };
  auto found = find([this](const Sender& s) {
    const bool in_log = durable_ && log_.last_of(s.name) > log_.first();
    return is_ended(s) && (s.told || options_.one_way) && !in_log && !s.dirty;
  });
  if (found == all_.end()) found = find([](const Sender& s) { return !s.gave && s.peer == 0; });
  if (found == all_.end()) found = find([t](const Sender& s) { return !s.gave && t - s.moved > kEmptyPlace; });
  if (found == all_.end()) return false;
  forget(found);
  return true;
}

// Forgets senders that only said HELLO and have been disconnected for longer than a reconnect takes.
void Senders::forget_silent(Time now) {
  for (auto at = all_.begin(); at != all_.end();) {
    const auto next = std::next(at);
    Sender& s = *at->second;
    if (s.session && s.peer == 0 && s.session->is_only_greeted() && now - s.moved > kGoneForGood) {
      fewer_ = true;
      if (s.gave)
        s.session->take_back_hello();
      else
        forget(at);
    }
    at = next;
  }
}

std::optional<Taken> Senders::converse(Sender& sender, uint64_t peer, const OwnedBytes& bytes,
                                       const std::shared_ptr<const Frame>& frame) {
  ReceiveSession& session = *sender.session;
  const uint64_t refused = session.counts().refused, former = sender.peer;
  const bool hello = frame->kind == Kind::Hello, foreign = former != 0 && former != peer && !hello;
  if (foreign &&
      !session.is_of_session(*frame)) {  // an earlier connection of this sender, or another peer with its name
    ++gone_.stale;
    if (frame->kind != Kind::Bye) answer(peer, *frame, Kind::Nack, Code::NoSession, "unknown session");
    return std::nullopt;
  }
  // A sender that only said HELLO may never send. Until it is clear which incarnation continues, the earlier one gets
  // keep-alives.
  if (hello && session.is_only_greeted() && frame->epoch < session.epoch() &&
      frame->epoch >= session.position().epoch) {
    answer(peer, *frame, Kind::Pong, Code::None, "");
    return std::nullopt;
  }
  if (!foreign) sender.peer = peer;
  if (hello && !session.is_greeted()) session.set_window(1, 1);  // until the window is shared among the senders
  const ReceiveSession::Taken taken = session.receive(*frame, now());
  if (session.counts().refused != refused)
    last_error_ = fmt::format("'{}' is refused: {}", sender.name.producer, session.refusal());
  if (hello && session.counts().refused != refused &&
      former != 0) {  // the rejected peer gets the reason; later answers go to the former peer again
    if (const auto refusal = session.poll(now())) say(peer, *refusal);
    sender.peer = former;
    return std::nullopt;
  }
  if (frame->kind == Kind::End || frame->kind == Kind::Bye) share_window();
  if (hello && session.counts().refused == refused) {
    learn(frame->tensors);
    if (!sender.came || former != peer) sender.moved = now();
    sender.came = true;
    sender.told = false;
    if (!session.is_ended()) sender.end_written.reset();
    share_window();
  }
  sender.gave |= session.is_greeted() && !session.is_only_greeted();
  if (taken.count > 0) learn(frame->tensors);
  durable_wanted_ |= session.take_durable_wanted();
  if (hello || sender.peer != former || frame->kind != Kind::Data || taken.count == 0 || session.is_granting_due(now()))
    mark(sender);
  if (taken.count == 0) return std::nullopt;
  sender.queued += taken.count;
  if (durable_) log_.add(sender.name, frame->epoch, frame->seq + taken.first, taken.count);
  return Taken{&sender, bytes, frame, taken.first, taken.count};
}

// One way: counts missing samples as lost, drops duplicates, and starts anew with a later incarnation.
std::optional<Taken> Senders::count(Sender& sender, uint64_t peer, const OwnedBytes& bytes,
                                    const std::shared_ptr<const Frame>& frame) {
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
  const bool expected = frame->kind != Kind::Data || is_expected(frame->tensors);
  if (expected) learn(frame->tensors);
  if (frame->kind != Kind::Data) return std::nullopt;
  if (!expected || !alike(frame->tensors, tensors_)) {
    ++gone_.refused;
    last_error_ = fmt::format("'{}' sends {}, expected {}", sender.name.producer, described(frame->tensors),
                              described(expected ? tensors_ : expected_));
    return std::nullopt;
  }
  const uint64_t end = frame->seq + frame->count;
  if (first) at = {frame->epoch, frame->seq, false};
  sender.came = sender.gave = true;
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

bool Senders::is_expected(const std::vector<TensorPart>& tensors) const {
  return std::all_of(expected_.begin(), expected_.end(), [&](const TensorPart& wanted) {
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorPart& part) {
      return part.name == wanted.name || (wanted.name.empty() && tensors.size() == 1);
    });
    return found != tensors.end() && found->dtype == wanted.dtype && found->sample == wanted.sample;
  });
}

// Adopts the first announcement, which is binding for all senders.
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
  // Answers an unknown peer with the frame format, but at a limited rate.
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

bool Senders::is_greeted(uint64_t peer) const {
  const auto waits = [peer](const auto& entry) { return entry.second.peer == peer; };
  const auto is_there = [peer](const auto& entry) { return entry.second->peer == peer; };
  return std::any_of(waiting_.begin(), waiting_.end(), waits) || std::any_of(all_.begin(), all_.end(), is_there);
}

void Senders::left(uint64_t peer) {
  warned_.erase(peer);
  std::erase_if(waiting_, [peer](const auto& entry) { return entry.second.peer == peer; });
  std::erase_if(answers_, [peer](const Inbox::Answer& a) { return a.peer == peer; });
  for (auto& [name, sender] : all_)
    if (sender->peer == peer) sender->peer = 0, sender->moved = now();
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
    forget_silent(now);
    admit_waiting();
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

// Gives each active sender an equal part of the window. Earlier grants stay valid, so n senders hold at most 1 + 1/2
// + ... + 1/n windows, and only until the first ones have used up theirs.
void Senders::share_window() {
  const auto is_active = [](const Sender& s) {
    return s.session && s.peer != 0 && s.session->is_greeted() && !s.session->is_ended();
  };
  uint64_t active = 0;
  for (const auto& [name, sender] : all_) active += is_active(*sender);
  if (active == 0) return;
  for (const auto& [name, sender] : all_)
    if (is_active(*sender))
      sender->session->set_window(std::max<uint64_t>(1, options_.window_samples / active),
                                  std::max<uint64_t>(1, options_.window_bytes / active));
}

void Senders::begin(bool durable) {
  if (begun_) return;
  begun_ = true;
  durable_ = durable && !options_.one_way;
  for (const auto& [name, waiting] : std::exchange(waiting_, {})) {
    const auto& [peer, turn, hello] = waiting;
    if (Sender* const sender = known(hello, peer)) converse(*sender, peer, {}, std::make_shared<const Frame>(hello));
  }
}

void Senders::restore(uint64_t index, const Positions& positions) {
  log_.begin(index, positions.senders);
  if (!positions.tensors.empty()) tensors_ = positions.tensors;
  durable_ = true;
  for (const auto& [name, position] : positions.senders) restore(name, position);
}

void Senders::restore(const SenderName& name, const Position& position) {
  const auto known = all_.find(name);
  Sender& sender = known == all_.end() ? make(name) : *known->second;
  const bool has_incarnation = !forgotten_.count(name.producer) && position.epoch <= latest_epoch();
  sender.session->restore({has_incarnation ? position.epoch : 0, position.seq, position.ended});
  sender.came = sender.gave = true;
}

void Senders::restore_ends(const Positions& positions) {
  for (const auto& [name, position] : positions.senders) {
    if (!position.ended) continue;
    if (const auto known = all_.find(name); known != all_.end()) {
      const ReceiveSession& session = *known->second->session;
      const Position at = session.position();
      const bool is_earlier = std::tie(position.epoch, position.seq) < std::tie(at.epoch, at.seq);
      if (is_earlier || session.is_greeted()) continue;  // one that has come back ends itself
    }
    restore(name, position);
  }
}

std::string Senders::position(uint64_t index) {
  Positions positions;
  positions.tensors = tensors_;
  positions.senders = log_.at(index);
  for (auto& [name, sender] : all_) {
    if (!sender->gave || log_.last_of(name) > index) continue;
    const Position at =
        sender->session->position();  // after its samples there may be a gap, a new incarnation, or its end
    positions.senders[name] = at;
    if (at.ended && is_ended(*sender) && !sender->end_written) sender->end_written = index;
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
    const bool ended = sender.end_written && *sender.end_written <= index && is_ended(sender);
    if (ended) position = sender.session->position();
    sender.session->durable(position);
    mark(sender);
  }
  for (auto& [name, sender] : all_)  // that ended without a sample
    if (sender->end_written && *sender->end_written <= index && is_ended(*sender))
      sender->session->durable(sender->session->position()), mark(*sender);
  durable_wanted_ = false;
}

bool Senders::are_over() const {
  if (options_.endless || !waiting_.empty()) return false;
  bool came = false;
  for (const auto& [name, sender] : all_) {
    if (!sender->came) continue;
    came = true;
    if (!is_ended(*sender)) return false;
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
