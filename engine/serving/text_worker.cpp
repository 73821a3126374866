#include "engine/serving/text_worker.hpp"

#include <algorithm>
#include <chrono>
#include <exception>

#include <sys/resource.h>
#include <unistd.h>

namespace harmonics::engine {

namespace {

constexpr int64_t kDraftRows = 32;                  // rows per step for running texts and their draft tokens
constexpr uint64_t kKeptBytes = uint64_t{1} << 30;  // default limit for cached prefixes that no text uses

size_t shared_tokens(std::span<const int32_t> a, const std::vector<int32_t>& b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first -
                             a.begin());
}

}  // namespace

TextWorker::TextWorker(Decoder& decoder, const Tokenizer& tokenizer, const Settings& settings)
    : decoder_(decoder), tokenizer_(tokenizer), settings_(settings) {
  const int64_t context = settings.context > 0 ? settings.context : decoder.model().context;
  const int64_t one = context + PagePool::kRows;  // one page more, for copy-on-write of a shared page
  const int64_t all = settings.cached_tokens > 0 ? std::max(settings.cached_tokens, one)
                                                 : static_cast<int64_t>(settings.sequences) * one;
  const auto usual = static_cast<int64_t>(kKeptBytes / std::max<uint64_t>(decoder.token_bytes(), 1));
  decoder.limit_caches(all, settings.cached_tokens > 0 ? all : std::min(all, usual));
  parts_.reserve(settings.sequences);
  owners_.reserve(settings.sequences);
  running_.reserve(settings.sequences);
  expect_length(1);
  thread_ = std::thread([this] { work(); });
  if (decoder.pages()) preparing_ = std::thread([this] { prepare(); });
}

TextWorker::~TextWorker() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  longer_.notify_all();
  thread_.join();
  if (preparing_.joinable()) preparing_.join();
  for (const std::shared_ptr<TextJob>& job : waiting_) job->release();
  for (const auto& slot : slots_)
    if (slot->job) slot->job->release();
}

bool TextWorker::add(std::span<const std::shared_ptr<TextJob>> jobs) {
  {
    const std::lock_guard lock(mutex_);
    drop_cancelled();
    if (draining_ || over_ || waiting_.size() + jobs.size() > settings_.queue + settings_.sequences) {
      ++report_.refused;
      return false;
    }
    waiting_.insert(waiting_.end(), jobs.begin(), jobs.end());
  }
  wake_.notify_all();
  return true;
}

bool TextWorker::drain(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  return idle_.wait_for(lock, most, [this] { return waiting_.empty() && report_.active == 0; });
}

bool TextWorker::is_draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

TextWorker::Report TextWorker::report() const {
  const std::lock_guard lock(mutex_);
  Report report = report_;
  report.waiting = waiting_.size();
  if (const PagePool* pages = decoder_.pages()) {
    report.pages = decoder_.page_limit();
    report.pages_used = pages->held();
    report.pages_kept = pages->kept();
  }
  return report;
}

void TextWorker::work() {
  while (take_waiting()) step();
}

// Requests plans for longer sequences. Capacities of plans are the smallest capacity times a power of four. When
// sequences fill three quarters of one, plans for the next are prepared.
void TextWorker::expect_length(int64_t length) {
  int64_t capacity = Decoder::kLeastRowCapacity;
  while (length >= capacity / 4 * 3) capacity *= 4;
  const std::lock_guard lock(mutex_);
  if (capacity <= expected_length_) return;
  expected_length_ = capacity;
  longer_.notify_all();
}

void TextWorker::prepare() {
  constexpr int kNice = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);  // of this thread
  for (int64_t prepared = 0;;) {
    {
      std::unique_lock lock(mutex_);
      longer_.wait(lock, [&] { return over_ || expected_length_ > prepared; });
      if (over_) return;
      prepared = expected_length_;
    }
    try {
      const size_t rows = settings_.drafter ? std::max<size_t>(settings_.sequences, kDraftRows) : settings_.sequences;
      decoder_.prepare({rows, settings_.context, prepared, [this] {
                          const std::lock_guard lock(mutex_);
                          return over_;
                        }});
    } catch (const std::exception&) {  // ignored: a step that needs the plan will fail with the same error
    }
  }
}

// Removes cancelled jobs from the waiting ones. mutex_ must be held.
void TextWorker::drop_cancelled() {
  std::erase_if(waiting_, [this](const std::shared_ptr<TextJob>& job) {
    if (!job->is_cancelled()) return false;
    job->release();
    ++report_.cancelled;
    return true;
  });
}

// Begins waiting texts while there are free slots. Blocks if there is nothing to do. Returns false on shutdown.
bool TextWorker::take_waiting() {
  for (;;) {
    std::shared_ptr<TextJob> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return over_ || !waiting_.empty() || report_.active > 0; });
      if (over_) return false;
      drop_cancelled();
      if (waiting_.empty() && report_.active == 0) {
        idle_.notify_all();
        continue;
      }
      if (waiting_.empty() || report_.active == settings_.sequences) return true;
      auto next = std::find_if(waiting_.begin(), waiting_.end(), [](const std::shared_ptr<TextJob>& waiting) {
        return !waiting->ready || *waiting->ready;
      });
      if (next == waiting_.end() && report_.active > 0) return true;
      if (next == waiting_.end()) next = waiting_.begin();  // the text that it waits for is gone
      job = std::move(*next);
      waiting_.erase(next);
      ++report_.active;
      ++report_.requests;
    }
    begin(std::move(job));
  }
}

// Returns the free session whose tokens share the longest prefix with `ids`.
TextWorker::Slot& TextWorker::slot_for(const std::vector<int32_t>& ids) {
  Slot* best = nullptr;
  size_t most = 0;
  for (const auto& slot : slots_) {
    if (slot->job) continue;
    const size_t shared = shared_tokens(slot->session->tokens(), ids);
    if (best && shared <= most) continue;
    best = slot.get();
    most = shared;
  }
  if (best && (most > 0 || decoder_.pages() || slots_.size() == settings_.sequences)) return *best;
  if (slots_.size() == settings_.sequences) throw Error(ErrorKind::Internal, "no session is free");
  slots_.push_back(std::make_unique<Slot>());
  slots_.back()->session = std::make_unique<Session>(decoder_, settings_.context);
  if (settings_.drafter) slots_.back()->drafter = settings_.drafter();
  return *slots_.back();
}

void TextWorker::begin(std::shared_ptr<TextJob> job) {
  try {
    TextJob::Prompt prompt = job->prepare();
    Slot& slot = slot_for(prompt.ids);
    ContinuationSettings& s = prompt.settings;
    const bool verifiable = s.temperature <= 0 || (!s.grammar && s.filters.mirostat == 0);
    if (slot.drafter && (verifiable || !slot.drafter->draws())) s.drafter = slot.drafter;
    slot.text = std::make_unique<Generation>(*slot.session, tokenizer_, std::move(prompt.ids), prompt.settings);
    job->tell({.begun = true});
    slot.job = std::move(job);
    slot.number = ++begun_;
    running_.push_back(&slot);
    const std::lock_guard lock(mutex_);
    report_.prefix_hits += slot.text->done().reused_tokens > 0;
    return;
  } catch (const Error& e) {
    fail(*job, e);
  } catch (const std::exception& e) {  // a request must not terminate the thread
    fail(*job, Error(ErrorKind::Internal, e.what()));
  }
  job->release();
  for (const auto& slot : slots_)
    if (!slot->job && decoder_.pages()) slot->session->keep(0);
  const std::lock_guard lock(mutex_);
  ++report_.failed;
  --report_.active;
  idle_.notify_all();
}

void TextWorker::fail(TextJob& job, const Error& error) {
  if (!job.is_cancelled()) job.tell({.over = true, .error = &error});
}

void TextWorker::fail_all(const Error& error) {
  for (Slot* slot : owners_) {
    fail(*slot->job, error);
    end(*slot, &Report::failed);
  }
}

void TextWorker::step() {
  for (size_t i = running_.size(); i-- > 0;)
    if (running_[i]->job->is_cancelled()) end(*running_[i], &Report::cancelled);
  if (!choose_parts()) return;
  if (parts_.empty()) {
    if (running_.empty()) return;
    owners_.push_back(running_.front());
    return fail_all(Error(ErrorKind::Unavailable, "other texts hold all pages of the caches"));
  }
  const auto begin = std::chrono::steady_clock::now();
  try {
    decoder_.step(parts_);
  } catch (const Error& e) {
    return fail_all(e);
  } catch (const std::exception& e) {
    return fail_all(Error(ErrorKind::Internal, e.what()));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  size_t writing = 0;
  int64_t prompts = 0, tokens = 0, longest = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const int64_t count = parts_[i].missing + static_cast<int64_t>(parts_[i].tokens.size());
    tokens += count;
    longest = std::max(longest, parts_[i].session->length());
    if (parts_[i].missing > 0 || owners_[i]->text->in_prompt())
      prompts += count;
    else
      ++writing;
  }
  budget_.took(writing, prompts, seconds);
  expect_length(longest);
  {
    const std::lock_guard lock(mutex_);
    ++report_.steps;
    report_.step_tokens += tokens;
    report_.seconds += seconds;
  }
  for (size_t i = 0; i < parts_.size(); ++i)
    if (parts_[i].missing == 0) take_scores(*owners_[i], parts_[i], seconds);
}

// Selects the tokens of the next step: one token of every running text. Texts that are in their prompt, or whose pages
// were taken, share the remaining budget equally; budget that one of them does not use goes to later ones. Returns
// false if a text failed, for instance because its drafter did; then the next step selects anew.
bool TextWorker::choose_parts() {
  Slot* at = nullptr;
  try {
    choose_parts(at);
    return true;
  } catch (const Error& e) {
    if (at) fail(*at->job, e);
  } catch (const std::exception& e) {
    if (at) fail(*at->job, Error(ErrorKind::Internal, e.what()));
  }
  if (at) end(*at, &Report::failed);
  return false;
}

// `at`: the text that is being looked at.
void TextWorker::choose_parts(Slot*& at) {
  parts_.clear();
  owners_.clear();
  size_t writing = 0, others = 0, scored = 0;
  for (Slot* slot : running_) {
    at = slot;
    slot->preempted = false;
    const bool behind = slot->text->in_prompt() || !slot->session->missing().empty();
    ++(behind ? others : writing);
    scored += slot->text->scores_prompt();
  }
  int64_t left = budget_.tokens(writing);
  const int64_t drafts = kDraftRows / static_cast<int64_t>(std::max<size_t>(writing, 1)) - 1;
  for (Slot* slot : running_) {  // oldest first: it may take pages of younger ones
    if (slot->preempted) continue;
    at = slot;
    const bool behind = slot->text->in_prompt() || !slot->session->missing().empty();
    if (!behind) {
      add_part(*slot, 1, drafts);
      continue;
    }
    int64_t share = std::max<int64_t>(left / static_cast<int64_t>(std::max<size_t>(others, 1)), 1);
    if (slot->text->scores_prompt())
      share = std::clamp<int64_t>(Generation::kMostScored / static_cast<int64_t>(scored), 1, share);
    others -= others > 0;
    const size_t before = parts_.size();
    add_part(*slot, share, 0);
    if (parts_.size() > before) left -= parts_.back().missing + static_cast<int64_t>(parts_.back().tokens.size());
    left = std::max<int64_t>(left, 1);
  }
}

// Adds up to `most` tokens of the text to the step, and draft tokens if there are pages for them. Returns false if the
// text must wait for pages.
bool TextWorker::add_part(Slot& slot, int64_t most, int64_t drafts) {
  Session& session = *slot.session;
  const auto missing = static_cast<int64_t>(session.missing().size());
  StepPart part{&session};
  int64_t length = 0;
  if (missing > 0) {
    part.missing = std::min(missing, most);
    length = session.length() - missing + part.missing;
    if (missing == session.length() && !has_room(slot, session.length() + 1)) return false;
  } else {
    const bool writing = !slot.text->in_prompt();
    part.tokens = slot.text->wanted(most, drafts);
    const bool drafted = writing && part.tokens.size() > 1;
    if (drafted && !session.reserve(session.length() + static_cast<int64_t>(part.tokens.size())))
      part.tokens = part.tokens.first(1);
    part.wanted = slot.text->needed_scores(part.tokens.size());
    length = session.length() + static_cast<int64_t>(part.tokens.size());
    if (session.length() == 0 && !has_room(slot, slot.text->done().prompt_tokens)) return false;
  }
  if (!make_room(slot, length)) return false;
  parts_.push_back(part);
  owners_.push_back(&slot);
  return true;
}

// Returns whether a text without pages may begin: its tokens must fit in addition to one page for each running text,
// because otherwise texts would take pages from each other in turn. The oldest text may always begin.
bool TextWorker::has_room(const Slot& slot, int64_t least) const {
  if (!decoder_.pages() || running_.front() == &slot) return true;
  const int64_t needed = (least + PagePool::kRows - 1) / PagePool::kRows;
  return decoder_.available_pages() >= needed + static_cast<int64_t>(running_.size());
}

// Reserves pages for `length` tokens. If none are free, takes them from the youngest texts.
bool TextWorker::make_room(Slot& slot, int64_t length) {
  while (!slot.session->reserve(length)) {
    Slot* victim = nullptr;
    for (Slot* other : running_)
      if (other->number > slot.number && other->session->cache_bytes() > 0) victim = other;
    if (!victim) return false;
    victim->session->release();
    victim->preempted = true;
    const std::lock_guard lock(mutex_);
    ++report_.preempted;
  }
  return true;
}

void TextWorker::take_scores(Slot& slot, const StepPart& part, double seconds) {
  try {
    const std::string text = slot.text->take(part.tokens.size(), part.scores, seconds);
    const bool over = slot.text->is_over();
    if (!text.empty() || over) slot.job->tell({.over = over, .text = text, .done = &slot.text->done()});
    if (over) end(slot, nullptr);
    return;
  } catch (const Error& e) {
    fail(*slot.job, e);
  } catch (const std::exception& e) {
    fail(*slot.job, Error(ErrorKind::Internal, e.what()));
  }
  end(slot, &Report::failed);
}

// Ends a text and releases its pages, whose prefixes stay cached.
void TextWorker::end(Slot& slot, uint64_t Report::*counter) {
  const Continuation done = slot.text->done();
  slot.job->release();
  slot.text.reset();
  slot.job.reset();
  if (decoder_.pages()) slot.session->keep(0);
  std::erase(running_, &slot);
  {
    const std::lock_guard lock(mutex_);
    report_.prompt_tokens += done.prompt_tokens;
    report_.reused_tokens += done.reused_tokens;
    report_.tokens += done.tokens;
    report_.drafted += done.drafted;
    report_.accepted += done.accepted;
    if (counter) ++(report_.*counter);
    --report_.active;  // last, because drain() returns when it is 0
  }
  idle_.notify_all();
}

}  // namespace harmonics::engine
