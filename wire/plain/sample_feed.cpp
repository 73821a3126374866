#include "wire/plain/sample_feed.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace harmonics::plain {
namespace {

using Locked = std::lock_guard<std::mutex>;

constexpr size_t kMostBefore = 256u << 10;  // maximum buffered bytes after the first sample, before reading begins
constexpr uint64_t kFrameBytes = 256u << 10;
constexpr uint64_t kShownRefusals = 3;  // reports the first reasons up to this number, then the latest
constexpr uint64_t kFeedPeer = 1;

wire::InboxOptions inbox_of(const FeedOptions& options) {
  wire::InboxOptions inbox;
  inbox.where = options.where;
  inbox.remedy = options.remedy;
  inbox.one_way = true;
  inbox.endless = options.endless;
  return inbox;
}

bool is_name(const std::string& text) {
  return !text.empty() && text.size() < 200 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 127; });
}

}  // namespace

SampleFeed::SampleFeed(FeedOptions options) : options_(std::move(options)), inbox_(inbox_of(options_)) {
  make_decoder(options_.format, options_.decoder);
  if (!options_.dead_letters.empty())
    kept_ = std::make_unique<RefusedSamples>(options_.where, options_.dead_letters, options_.dead_letters_limit);
}
SampleFeed::~SampleFeed() = default;

void SampleFeed::wake_by(std::function<void()> wake) {
  inbox_.wake_by(wake);
  const Locked lock(mutex_);
  wake_ = std::move(wake);
}

SampleFeed::Peer& SampleFeed::peer(uint64_t number, std::optional<Format> format) {
  const auto [at, fresh] = peers_.try_emplace(number);
  Peer& peer = at->second;
  if (!fresh) return peer;
  peer.number = number;
  peer.format = format.value_or(options_.format);
  peer.decoder = make_decoder(peer.format, options_.decoder);
  ++came_;
  return peer;
}

void SampleFeed::came(uint64_t number) {
  const Locked lock(mutex_);
  peer(number);
}

Outcome SampleFeed::arrived(uint64_t number, std::span<const std::byte> bytes) {
  const Locked lock(mutex_);
  Peer& from = peer(number);
  from.decoder->arrived(bytes);
  decode(from);
  send();
  return from.outcome;
}

Outcome SampleFeed::message(uint64_t number, std::span<const std::byte> bytes, std::optional<Format> format) {
  const Locked lock(mutex_);
  Peer& from = peer(number, format);
  from.decoder->arrived(bytes);
  from.decoder->flush();
  decode(from);
  send();
  if (from.outcome.broken) from.decoder = make_decoder(format.value_or(options_.format), options_.decoder);
  const Outcome outcome = from.outcome;
  from.outcome.broken = false;
  return outcome;
}

Outcome SampleFeed::left(uint64_t number) {
  const Locked lock(mutex_);
  const auto at = peers_.find(number);
  if (at == peers_.end()) return {};
  at->second.decoder->flush();
  at->second.gone = true;
  decode(at->second);
  send();
  const Outcome outcome = at->second.outcome;
  end_if_over();
  return outcome;
}

void SampleFeed::refused(const std::string& reason) {
  const Locked lock(mutex_);
  Outcome outcome;
  refuse(reason, outcome);
}

void SampleFeed::note(const std::string& text) {
  const Locked lock(mutex_);
  last_error_ = text;
}

bool SampleFeed::all_known() const {
  return std::all_of(chosen_.begin(), chosen_.end(), [](const Chosen& c) { return c.selection.is_known(); });
}

bool SampleFeed::is_full() const {
  const Locked lock(mutex_);
  if (begun_) return inbox_.is_full();
  if (!first_ && !all_known()) return false;
  if (options_.messages) return true;
  size_t held = 0;
  for (const auto& [number, peer] : peers_) held += peer.decoder->held();
  return held >= kMostBefore;
}

size_t SampleFeed::held(uint64_t number) const {
  const Locked lock(mutex_);
  const auto at = peers_.find(number);
  return at == peers_.end() ? 0 : at->second.decoder->held();
}

bool SampleFeed::has_begun() const {
  const Locked lock(mutex_);
  return begun_;
}

void SampleFeed::close_input() {
  const Locked lock(mutex_);
  closed_ = true;
  end_if_over();
  changed_.notify_all();
}

void SampleFeed::fail(const std::string& reason) {
  const Locked lock(mutex_);
  stop(reason);
}

// Decodes this peer's available records to samples. Before reading begins, decodes only the first one.
void SampleFeed::decode(Peer& from) {
  std::string reason;
  while (begun_ || !(first_ || all_known())) {
    switch (from.decoder->next(record_, reason)) {
      case RecordDecoder::Next::None:
        return;
      case RecordDecoder::Next::Refused:
        ++from.samples;
        refuse(reason, from, from.decoder->raw());
        break;
      case RecordDecoder::Next::Broken:
        if (!std::exchange(from.outcome.broken, true)) {
          ++from.samples;
          refuse(reason, from, from.decoder->raw());
        }
        if (options_.single) stop(reason);
        return;
      case RecordDecoder::Next::Record:
        ++from.samples;
        if (begun_) {
          if (!take(record_, from.outcome, reason)) refuse(reason, from, from.decoder->raw());
          break;
        }
        first_ = record_;
        if (kept_) first_bytes_ = from.decoder->raw();
        for (const auto& [number, peer] : peers_)
          if (&peer == &from) first_of_ = number;
        changed_.notify_all();
    }
  }
}

void SampleFeed::refuse(const std::string& reason, Outcome& outcome) {
  if (outcome.refused++ == 0) outcome.first_refusal = reason;
  last_error_ = refused_ > 0 && refused_ < kShownRefusals ? last_error_ + "; " + reason : reason;
  ++refused_;
  inbox_.turned_away(reason);
  if (options_.strict) stop(reason);
}

void SampleFeed::refuse(const std::string& reason, Peer& from, std::string_view bytes) {
  if (kept_) kept_->keep({from.format, from.number, from.samples, bytes, from.decoder->header()}, reason);
  refuse(reason, from.outcome);
}

void SampleFeed::stop(const std::string& reason) {
  if (failure_.empty()) failure_ = reason;
  inbox_.fail(reason);
  changed_.notify_all();
}

bool SampleFeed::take(const Record& record, Outcome& outcome, std::string& reason) {
  std::vector<std::span<const std::byte>> pieces;
  for (size_t i = 0; i < chosen_.size(); ++i) {
    sample_[i].clear();
    if (!chosen_[i].selection.encode(record, sample_[i], reason)) return false;
    pieces.emplace_back(sample_[i]);
    if (chosen_[i].selection.has_note()) filled_ = chosen_[i].selection.take_note();
  }
  announce();
  builder_->append(pieces);
  ++outcome.accepted;
  if (builder_->is_full()) send();
  return true;
}

void SampleFeed::say(wire::Kind kind) {
  wire::Frame frame;
  frame.kind = kind;
  frame.stream = "samples";
  frame.producer = "plain";
  frame.epoch = 1;
  frame.seq = seq_;
  if (kind == wire::Kind::Hello)
    for (const Chosen& c : chosen_) {
      frame.tensors.push_back(c.selection.part());
      frame.tensors.back().name = c.name;
    }
  inbox_.arrived(kFeedPeer, wire::owned(wire::encode(frame).bytes()));
  inbox_.poll();
}

// Announces the layout to readers.
void SampleFeed::announce() {
  if (!std::exchange(announced_, true)) say(wire::Kind::Hello);
}

void SampleFeed::send() {
  if (!builder_ || builder_->count() == 0) return;
  const wire::Batch batch = builder_->take(seq_);
  seq_ = batch.end();
  gave_ = true;
  inbox_.arrived(kFeedPeer, batch.frame);
  inbox_.poll();
}

// Removes peers that have gone and have no bytes left.
void SampleFeed::end_if_over() {
  if (!begun_) return changed_.notify_all();
  std::erase_if(peers_, [](const auto& entry) { return entry.second.gone; });
  if (options_.endless || !peers_.empty() || came_ == 0) return;
  if (gave_)
    say(wire::Kind::End);
  else if (closed_)
    inbox_.close_input();
}

std::string SampleFeed::choose(Asked asked) {
  const Locked lock(mutex_);
  if (const auto known = options_.schema.find(asked.selection);
      asked.type.empty() && (asked.symbols.empty() || asked.learned) && known != options_.schema.end())
    asked.type = known->second;
  for (const Chosen& c : chosen_)
    if (c.selection.asked() == asked) return c.name;
  if (begun_)
    throw Error(ErrorKind::Stream, options_.where + ": samples were read before this stream was opened")
        .note("bind all streams of an address together");
  std::string name = asked.selection.empty() ? "value" : asked.selection;
  const auto is_taken = [&](const std::string& text) {
    return std::any_of(chosen_.begin(), chosen_.end(), [&](const Chosen& c) { return c.name == text; });
  };
  if (!is_name(name) || is_taken(name)) name = fmt::format("tensor {}", chosen_.size());
  chosen_.push_back({name, Selection(std::move(asked), options_.where)});
  return name;
}

wire::TensorPart SampleFeed::describe(const std::string& tensor, std::chrono::milliseconds wait) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto chosen = std::find_if(chosen_.begin(), chosen_.end(), [&](const Chosen& c) { return c.name == tensor; });
  const auto done = [&] {
    return chosen->selection.is_known() || first_ || !failure_.empty() ||
           (closed_ && std::all_of(peers_.begin(), peers_.end(), [](const auto& p) { return p.second.gone; }));
  };
  if (!chosen->selection.is_known() && !first_) look_for_the_first();
  if (!done() && wake_) wake_();
  if (!changed_.wait_for(lock, wait, done)) {
    const auto seconds = wait.count() / 1000;
    if (refused_ > 0)
      throw Error(ErrorKind::Unavailable,
                  fmt::format("{}: no readable sample arrived within {} s; refused: {} {}: {}", options_.where, seconds,
                              refused_, refused_ == 1 ? "sample" : "samples", last_error_))
          .note("check what the sender sends");
    throw Error(ErrorKind::Unavailable, fmt::format("{}: no sample arrived within {} s", options_.where, seconds))
        .note(options_.remedy.empty() ? "start the sender, or wait longer with ?wait=SECONDS" : options_.remedy);
  }
  if (!failure_.empty()) throw Error(ErrorKind::Stream, options_.where + ": " + failure_);
  if (!chosen->selection.is_known() && !first_) {
    Error ended(ErrorKind::Stream,
                options_.where + ": it ends without a sample" + (last_error_.empty() ? "" : "; " + last_error_));
    throw ended.note("check the sender");
  }
  if (!chosen->selection.is_known()) chosen->selection.learn(*first_);
  wire::TensorPart part = chosen->selection.part();
  part.name = tensor;
  return part;
}

std::vector<std::string> SampleFeed::symbols(const std::string& tensor) const {
  const Locked lock(mutex_);
  const auto at = std::find_if(chosen_.begin(), chosen_.end(), [&](const Chosen& c) { return c.name == tensor; });
  return at->selection.symbols();
}

void SampleFeed::look_for_the_first() {
  for (auto& [number, peer] : peers_) decode(peer);
}

void SampleFeed::begin() {
  std::function<void()> wake;
  {
    const Locked lock(mutex_);
    if (begun_) return;
    wire::FrameOrigin origin{"samples", "plain", 1, {}};
    for (const Chosen& c : chosen_) {
      origin.tensors.push_back(c.selection.part());
      origin.tensors.back().name = c.name;
    }
    builder_ = std::make_unique<wire::FrameBuilder>(std::move(origin), kFrameBytes);
    sample_.resize(chosen_.size());
    begun_ = true;
    if (options_.endless) announce();
    if (first_) {                         // before the other records of its sender
      Peer& from = peers_.at(first_of_);  // peers are kept until reading begins
      std::string reason;
      if (!take(*first_, from.outcome, reason)) refuse(reason, from, first_bytes_);
      first_.reset();
      decode(from);
    }
    look_for_the_first();
    send();
    end_if_over();
    wake = wake_;
  }
  if (wake) wake();
}

uint32_t SampleFeed::senders() const {
  const Locked lock(mutex_);
  return static_cast<uint32_t>(came_);
}

uint32_t SampleFeed::connected() const {
  const Locked lock(mutex_);
  return static_cast<uint32_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const auto& p) { return !p.second.gone; }));
}

std::string SampleFeed::last_error() const {
  const Locked lock(mutex_);
  std::string all = last_error_;
  for (const std::string& more : {filled_, kept_ ? kept_->given_up() : ""})
    if (!more.empty()) all += (all.empty() ? "" : "; ") + more;
  return all;
}

}  // namespace harmonics::plain
