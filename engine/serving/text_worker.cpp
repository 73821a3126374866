#include "engine/serving/text_worker.hpp"

#include <algorithm>
#include <exception>

namespace harmonics::engine {

namespace {

constexpr int64_t kPromptTokens = 128;  // computed before other texts have their turn

size_t shared_tokens(std::span<const int32_t> a, const std::vector<int32_t>& b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first -
                             a.begin());
}

}  // namespace

TextWorker::TextWorker(Decoder& decoder, const Tokenizer& tokenizer, const Settings& settings)
    : decoder_(decoder), tokenizer_(tokenizer), settings_(settings), thread_([this] { work(); }) {}

TextWorker::~TextWorker() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
  for (const std::shared_ptr<TextJob>& job : waiting_) job->release();
  for (Slot& slot : slots_)
    if (slot.job) slot.job->release();
}

bool TextWorker::add(std::shared_ptr<TextJob> job) {
  {
    const std::lock_guard lock(mutex_);
    if (draining_ || over_ || waiting_.size() >= settings_.queue + settings_.sequences) {
      ++report_.refused;
      return false;
    }
    waiting_.push_back(std::move(job));
  }
  wake_.notify_all();
  return true;
}

bool TextWorker::drain(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  return idle_.wait_for(lock, most, [this] { return waiting_.empty() && report_.active == 0; });
}

TextWorker::Report TextWorker::report() const {
  const std::lock_guard lock(mutex_);
  Report report = report_;
  report.waiting = waiting_.size();
  return report;
}

void TextWorker::work() {
  while (take_waiting())
    for (Slot& slot : slots_)
      if (slot.job) advance(slot);
}

// Begins waiting texts while there is room. Waits if there is nothing to do. Returns false at the end.
bool TextWorker::take_waiting() {
  for (;;) {
    std::shared_ptr<TextJob> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return over_ || !waiting_.empty() || report_.active > 0; });
      if (over_) return false;
      if (waiting_.empty() || report_.active == settings_.sequences) return true;
      job = std::move(waiting_.front());
      waiting_.pop_front();
      ++report_.active;
      ++report_.requests;
    }
    begin(std::move(job));
  }
}

// A free session; of several, the one with the longest beginning in common.
TextWorker::Slot& TextWorker::slot_for(const std::vector<int32_t>& ids) {
  Slot* best = nullptr;
  size_t most = 0;
  for (Slot& slot : slots_) {
    if (slot.job) continue;
    const size_t shared = shared_tokens(slot.session->tokens(), ids);
    if (best && shared <= most) continue;
    best = &slot;
    most = shared;
  }
  if (best && (most > 0 || slots_.size() == settings_.sequences)) return *best;
  if (slots_.size() == settings_.sequences) throw Error(ErrorKind::Internal, "no session is free");
  slots_.push_back({std::make_unique<Session>(decoder_, settings_.context), nullptr, nullptr});
  return slots_.back();
}

void TextWorker::begin(std::shared_ptr<TextJob> job) {
  try {
    TextJob::Prompt prompt = job->prepare();
    Slot& slot = slot_for(prompt.ids);
    slot.text = std::make_unique<Generation>(*slot.session, tokenizer_, std::move(prompt.ids), prompt.settings);
    job->tell({.begun = true});
    slot.job = std::move(job);
    return;
  } catch (const Error& e) {
    fail(*job, e);
  } catch (const std::exception& e) {  // no request may end the thread
    fail(*job, Error(ErrorKind::Internal, e.what()));
  }
  job->release();
  const std::lock_guard lock(mutex_);
  ++report_.failed;
  --report_.active;
  idle_.notify_all();
}

void TextWorker::fail(TextJob& job, const Error& error) {
  if (!job.cancelled) job.tell({.over = true, .error = &error});
}

void TextWorker::advance(Slot& slot) {
  if (slot.job->cancelled) return end(slot, &Report::cancelled);
  try {
    const std::string text = slot.text->step(kPromptTokens);
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

void TextWorker::end(Slot& slot, uint64_t Report::*counter) {
  const Continuation& done = slot.text->done();
  {
    const std::lock_guard lock(mutex_);
    report_.prompt_tokens += done.prompt_tokens;
    report_.reused_tokens += done.reused_tokens;
    report_.tokens += done.tokens;
    report_.seconds += done.prompt_seconds + done.seconds;
    if (counter) ++(report_.*counter);
    --report_.active;
  }
  slot.job->release();
  slot.text.reset();
  slot.job.reset();
  idle_.notify_all();
}

}  // namespace harmonics::engine
