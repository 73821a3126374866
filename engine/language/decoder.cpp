#include "engine/language/decoder.hpp"

#include <algorithm>
#include <array>
#include <shared_mutex>
#include <utility>

#include <fmt/core.h>

#include "engine/execution/device_memory.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/passes/observe.hpp"

namespace harmonics::engine {

namespace {

constexpr std::array<int64_t, 4> kChunks{64, 32, 8, 1};
constexpr size_t kLeastChunk = 32;  // with pages, fewer tokens are computed as rows of one run
// Numbers of rows for which plans are compiled. A row is one token.
constexpr std::array<int64_t, 11> kRowCounts{1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128};
constexpr size_t kMostRows = 128;
// If only some rows need scores: numbers of rows, and of rows with scores. Fewer, because each pair is a plan.
constexpr std::array<int64_t, 6> kMixedCounts{4, 8, 16, 32, 64, 128};
constexpr std::array<int64_t, 6> kScoredCounts{0, 1, 8, 32, 64, 128};
constexpr size_t kMostPlans = 256;       // over pages; more are dropped if unused
constexpr size_t kMostDevicePlans = 48;  // the same on a device, where each plan has memory
constexpr int64_t kFirstPages = 64;      // on a device

int64_t least_of(std::span<const int64_t> counts, size_t count) {
  return *std::ranges::find_if(counts, [&](int64_t c) { return static_cast<size_t>(c) >= count; });
}

int64_t whole_pages(int64_t positions) { return (positions + PagePool::kRows - 1) / PagePool::kRows; }

using Mirrors = std::map<std::string, std::shared_ptr<DeviceTensor>>;

// Binds parameters to the model and states to one session. `mirrors` are the states on a device with its own memory.
class SessionBinding final : public TensorBinding {
 public:
  SessionBinding(const Model& model, std::map<std::string, void*> states, Mirrors mirrors,
                 std::shared_ptr<DeviceQueue> queue)
      : store_(*model.parameters), states_(std::move(states)), mirrors_(std::move(mirrors)), queue_(std::move(queue)) {}
  void* parameter(const std::string& name, const TensorType& type) override {
    const auto at = states_.find(name);
    return at == states_.end() ? store_.parameter(name, type) : at->second;
  }
  Layout layout(const std::string& name, const TensorType& type, Layout preferred) override {
    return states_.count(name) ? Layout::natural : store_.layout(name, type, preferred);
  }
  bool is_constant(const std::string& name) override { return !states_.count(name) && store_.is_constant(name); }
  // States have none: they are not constant.
  std::vector<std::shared_ptr<const Storage>> packed(std::span<const PackedParameter> parameters) override {
    return store_.packed(parameters);
  }
  void will_change(const std::string& name) override {
    if (!states_.count(name))
      throw Error(ErrorKind::Internal, fmt::format("an entry for inference changes the parameter '{}'", name));
  }
  std::shared_ptr<const void> user_of(const std::string& name) override {
    return states_.count(name) ? nullptr : store_.user_of(name);
  }
  std::shared_ptr<DeviceQueue> queue_on(const ItemPtr& device) override {
    return queue_ ? queue_ : TensorBinding::queue_on(device);
  }
  std::shared_ptr<DeviceTensor> parameter_on(const std::shared_ptr<DeviceQueue>& queue, const std::string& name,
                                             const TensorType& type) override {
    const auto state = mirrors_.find(name);
    return state != mirrors_.end() ? state->second : store_.parameter_on(queue, name, type);
  }

 private:
  ParameterStore& store_;
  std::map<std::string, void*> states_;
  Mirrors mirrors_;
  std::shared_ptr<DeviceQueue> queue_;
};

// Returns whether a device has kernels for pages, which the portable bodies of these calls would copy for every token.
bool serves_pages(const Model& model, const CompileOptions& options, Registry& registry) {
  KernelSource kernels(options.device, registry, options.precision);
  EntrySizes sizes{2, 1, 2 * PagePool::kRows};
  sizes.pages = 4, sizes.page_rows = PagePool::kRows, sizes.scored = 1;
  const Program program = model.trace(model.entry("decode"), sizes);
  return std::ranges::all_of(program.nodes, [&](const Node& node) {
    const bool pages = node.op == Op::call && node.attributes.text("operands", "").find("pages") != std::string::npos;
    return !pages || kernels.find(program, node);
  });
}

}  // namespace

// Takes a plan for one run and returns it afterwards.
class Decoder::Lease {
 public:
  Lease(Decoder& decoder, const Key& key, const Session& session) : decoder_(decoder), key_(key) {
    if (decoder.caches_) moving_ = std::shared_lock(decoder.caches_->moving);
    plan_ = &decoder.take(key, session);
  }
  ~Lease() {
    const std::lock_guard lock(decoder_.mutex_);
    decoder_.plans_.at(key_).free.push_back(plan_);  // the entry exists: sessions keep plans of their capacity
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Plan& operator*() { return *plan_; }

 private:
  Decoder& decoder_;
  const Key key_;
  std::shared_lock<std::shared_mutex> moving_;
  Plan* plan_ = nullptr;
};

// One token of a step.
struct Decoder::Row {
  Session* session;
  int32_t token;
  int64_t position;
  float* scores;  // destination; null if not needed
};

Decoder::Decoder(const Model& model, Executor& executor, CompileOptions options)
    : model_(model), executor_(executor), options_(std::move(options)), files_(model.parameters->files()) {
  if (!model_.find("prefill") && model_.find("forward"))
    throw Error(
        ErrorKind::Usage,
        fmt::format("'{}' does not generate text: it computes embeddings or scores of whole texts", model_.name), {},
        {"for embeddings: harmonics embed MODEL TEXT", "for its scores: harmonics infer MODEL"});
  model_.entry("prefill");
  model_.entry("decode");
  Registry& registry = options_.registry ? *options_.registry : Registry::global();
  if (const ItemPtr device = registry.find(HX_DEVICE, options_.device); device && has_own_memory(*device))
    queue_ = model.parameters->queue_on(device);
  if (model.paged && (!queue_ || serves_pages(model, options_, registry)))
    caches_ = std::make_unique<PagedCaches>(model, queue_);
}

size_t Decoder::plans() const {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [key, plans] : plans_) count += plans.all.size();
  return count;
}

const PagePool* Decoder::pages() const { return caches_ ? &caches_->pool() : nullptr; }

int64_t Decoder::page_limit() const {
  const std::lock_guard lock(mutex_);
  return most_pages_;
}

int64_t Decoder::available_pages() const {
  if (!caches_) return 0;
  const PagePool& pool = caches_->pool();
  return pool.available() + std::max<int64_t>(page_limit() - pool.limit(), 0);
}

uint64_t Decoder::token_bytes() const {
  if (caches_) return caches_->page_bytes() / static_cast<uint64_t>(PagePool::kRows);
  uint64_t one = 0, two = 0;
  for (const ModelState& state : model_.states) {
    one += state.type({1, 1, 1}).bytes();
    two += state.type({1, 1, 2}).bytes();
  }
  return two - one;
}

void Decoder::limit_caches(int64_t tokens, int64_t kept) {
  if (!caches_) return;
  const int64_t pages = std::max<int64_t>(whole_pages(tokens), 1);
  raise_page_limit(pages);
  caches_->pool().keep_prefixes(whole_pages(kept));
  const std::lock_guard lock(mutex_);
  limited_ = true;
}

// Reserves one page more than the context needs, for the copy of a shared page that is written.
void Decoder::session_opened(int64_t context) {
  if (!caches_) return;
  int64_t pages;
  {
    const std::lock_guard lock(mutex_);
    reserved_ += whole_pages(context) + 1;
    if (limited_) return;
    pages = reserved_;
  }
  try {
    raise_page_limit(pages);
  } catch (...) {
    session_closed(context);
    throw;
  }
}

// On a device, whose memory is allocated at once, makes room for the first pages only.
void Decoder::raise_page_limit(int64_t pages) {
  const std::lock_guard growing(growing_);
  const int64_t now = queue_ ? std::min(pages, kFirstPages) : pages;
  make_room(now);
  caches_->pool().raise_limit(now);
  const std::lock_guard lock(mutex_);
  most_pages_ = std::max(most_pages_, pages);
}

int32_t Decoder::take_page() {
  if (queue_) add_pages();
  return caches_->pool().take();
}

// Doubles the pages on a device if none is free, up to the limit. If the device has no memory for them, the limit
// becomes the present number.
void Decoder::add_pages() {
  PagePool& pool = caches_->pool();
  if (pool.held() + pool.kept() < pool.limit()) return;
  const std::lock_guard growing(growing_);
  const int64_t now = pool.limit(), wanted = std::min(2 * now, page_limit());
  if (pool.held() + pool.kept() < now || wanted <= now) return;
  try {
    make_room(wanted);
    pool.raise_limit(wanted);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Device) throw;
    const std::lock_guard lock(mutex_);
    most_pages_ = now;
  }
}

void Decoder::session_closed(int64_t context) {
  const std::lock_guard lock(mutex_);
  reserved_ -= whole_pages(context) + 1;
}

Error Decoder::caches_full() const {
  return Error(
      ErrorKind::Unavailable,
      fmt::format("the caches are full: {} pages of {} tokens are in use", caches_->pool().held(), PagePool::kRows), {},
      {"end other texts, or give more memory: --cache-memory"});
}

// Reserves memory for so many pages, before the pool may give them out. Drops all plans if the addresses move, because
// plans depend on them and on the number of pages.
void Decoder::make_room(int64_t wanted) {
  {
    const std::shared_lock lock(caches_->moving);
    if (caches_->pages() >= wanted) return;
  }
  const std::unique_lock lock(caches_->moving);
  if (caches_->pages() >= wanted) return;
  {
    const std::lock_guard guard(mutex_);
    plans_.clear();
  }
  caches_->reserve(wanted);
}

std::unique_ptr<Decoder::Plan> Decoder::compiled(const Key& key, const Session* session) {
  const bool decode = key.scored > 0;
  auto plan = std::make_unique<Plan>();
  Plan& p = *plan;
  const Entry& entry = model_.entry(decode ? "decode" : "prefill");
  std::map<std::string, void*> states;
  Mirrors mirrors;
  for (size_t i = 0; i < model_.states.size(); ++i)
    states[model_.states[i].name] = caches_ ? caches_->address(i) : session->caches_[i]->data();
  for (size_t i = 0; queue_ && i < model_.states.size(); ++i)
    mirrors[model_.states[i].name] = caches_ ? caches_->tensor(i) : session->mirrors_[i];
  SessionBinding binding(model_, std::move(states), std::move(mirrors), queue_);
  EntrySizes sizes{key.sequences, key.tokens, key.capacity};
  if (caches_) {
    sizes.pages = caches_->pages();
    sizes.page_rows = PagePool::kRows;
    sizes.scored = key.scored;
    p.pages.resize(static_cast<size_t>(key.sequences * (key.capacity / PagePool::kRows)));
  }
  const Program program =
      observe(model_.trace(entry, sizes), [](const std::string& output) { return output == "scores"; });
  p.executable = compile(program, &binding, executor_, options_);
  p.tokens.resize(static_cast<size_t>(key.sequences * key.tokens));
  p.start.resize(static_cast<size_t>(key.sequences));
  for (const std::string& name : p.executable->input_names())
    p.inputs.push_back(name == "start" ? p.start.data() : name == "pages" ? p.pages.data() : p.tokens.data());
  for (const BoundState& s : p.executable->states()) {
    const auto state =
        std::find_if(model_.states.begin(), model_.states.end(), [&](const ModelState& m) { return m.name == s.name; });
    p.cache.push_back(state == model_.states.end() ? -1 : static_cast<int>(state - model_.states.begin()));
  }
  p.addresses.resize(p.cache.size());
  p.tensors.resize(p.cache.size());
  if (decode) p.scores = p.executable->output("scores").data<float>();
  return plan;
}

Decoder::Plan* Decoder::take_free(const Key& key) {
  const std::lock_guard lock(mutex_);
  Plans& plans = plans_[key];
  plans.used = ++taken_;
  if (plans.free.empty()) return nullptr;
  Plan* free = plans.free.back();
  plans.free.pop_back();
  return free;
}

Decoder::Plan& Decoder::take(const Key& key, const Session& session) {
  if (Plan* free = take_free(key)) return *free;
  const std::lock_guard compiling(compiling_);
  if (Plan* free = take_free(key)) return *free;  // another thread compiled it meanwhile
  auto made = compiled(key, &session);
  const std::lock_guard lock(mutex_);
  Plans& plans = plans_[key];
  plans.all.push_back(std::move(made));
  plans.free.reserve(plans.all.size());
  Plan& plan = *plans.all.back();
  drop_unused();
  return plan;
}

Decoder::Key Decoder::row_key(size_t rows, size_t scored, int64_t capacity) {
  if (rows == scored) {
    const int64_t count = least_of(kRowCounts, rows);
    return {count, count, 1, capacity};
  }
  const int64_t count = least_of(kMixedCounts, rows);
  return {std::min(least_of(kScoredCounts, scored), count), count, 1, capacity};
}

void Decoder::prepare(const Expected& expected) {
  if (!caches_ || queue_) return;
  const int64_t context = expected.context > 0 ? expected.context : model_.context,
                length = std::clamp<int64_t>(expected.length, 1, context);
  std::vector<Key> keys;
  const auto add = [&](const Key& key) {
    if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  };
  for (int64_t capacity = kLeastCapacity;; capacity *= 2) {
    const int64_t held = whole_pages(std::min(capacity, context)) * PagePool::kRows;
    for (const int64_t chunk : kChunks)
      if (chunk == 1 || static_cast<size_t>(chunk) >= kLeastChunk)
        for (const int64_t scored : {1, 0}) add({scored, 1, chunk, held});
    if (capacity >= length) break;
  }
  const size_t most = std::min(expected.sequences, kMostRows), longest = most > 1 ? kMostRows : kLeastChunk;
  for (int64_t capacity = kLeastRowCapacity;; capacity *= 4) {
    for (size_t rows = 2; rows <= most; ++rows) add(row_key(rows, rows, capacity));
    for (const int64_t count : kMixedCounts) {
      const auto rows = static_cast<size_t>(count);
      for (size_t scored = 0; rows <= longest && scored < rows && scored <= most; ++scored)
        add(row_key(rows, scored, capacity));
    }
    if (capacity >= length) break;
  }
  for (const Key& key : keys) {
    if (expected.stopped()) return;
    const std::shared_lock moving(caches_->moving);
    const std::lock_guard compiling(compiling_);
    {
      const std::lock_guard lock(mutex_);
      if (const auto at = plans_.find(key); at != plans_.end() && !at->second.all.empty()) continue;
    }
    auto made = compiled(key, nullptr);
    const std::lock_guard lock(mutex_);
    Plans& plans = plans_[key];
    plans.used = ++taken_;
    plans.all.push_back(std::move(made));
    plans.free.push_back(plans.all.back().get());
  }
}

void Decoder::drop_unused() {
  while (caches_ && plans_.size() > (queue_ ? kMostDevicePlans : kMostPlans)) {
    auto oldest = plans_.end();
    for (auto at = plans_.begin(); at != plans_.end(); ++at)
      if (at->second.free.size() == at->second.all.size() &&
          (oldest == plans_.end() || at->second.used < oldest->second.used))
        oldest = at;
    if (oldest == plans_.end()) return;
    plans_.erase(oldest);
  }
}

// Computes the next tokens of one sequence.
void Decoder::run(Session& session, bool decode, std::span<const int32_t> tokens) {
  const int64_t capacity = caches_ ? whole_pages(session.capacity_) * PagePool::kRows : session.capacity_;
  Lease lease(*this, {decode, 1, static_cast<int64_t>(tokens.size()), capacity}, session);
  Plan& p = *lease;
  std::ranges::copy(tokens, p.tokens.begin());
  p.start[0] = static_cast<int32_t>(session.computed_);
  if (caches_) {
    const auto end = std::ranges::copy(std::span(session.pages_).first(std::min(p.pages.size(), session.pages_.size())),
                                       p.pages.begin())
                         .out;
    std::fill(end, p.pages.end(), PagePool::kNone);
  }
  for (size_t i = 0; i < p.cache.size() && !caches_; ++i) {
    if (p.cache[i] < 0) continue;
    const auto cache = static_cast<size_t>(p.cache[i]);
    if (queue_)
      p.tensors[i] = session.mirrors_[cache];
    else
      p.addresses[i] = session.caches_[cache]->data();
  }
  if (queue_ && !caches_)
    p.executable->bind(p.tensors);
  else if (!caches_)
    p.executable->bind(p.addresses);
  p.executable->run(p.inputs.data());
  for (const auto& file : files_) file->expect_whole();
  if (decode) std::copy_n(p.scores, session.scores_.size(), session.scores_.begin());
}

// Computes tokens of several sequences, one per row. Keys and values of all rows are written before any row attends, so
// a row sees earlier rows of its sequence. Rows that need scores come first. Padding rows have no page.
void Decoder::run_rows(std::span<const Row> rows) {
  const auto scored =
      static_cast<size_t>(std::ranges::count_if(rows, [](const Row& row) { return row.scores != nullptr; }));
  int64_t capacity = kLeastRowCapacity;
  for (const Row& row : rows)
    while (capacity <= row.position) capacity *= 4;
  Lease lease(*this, row_key(rows.size(), scored, capacity), *rows[0].session);
  Plan& p = *lease;
  const auto table = static_cast<size_t>(capacity / PagePool::kRows);
  std::array<const Row*, kMostRows> order{};
  size_t first = 0, last = scored;
  for (const Row& row : rows) order[row.scores ? first++ : last++] = &row;
  std::fill(p.pages.begin(), p.pages.end(), PagePool::kNone);
  std::fill(p.tokens.begin(), p.tokens.end(), 0);
  std::fill(p.start.begin(), p.start.end(), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = *order[i];
    p.tokens[i] = row.token;
    p.start[i] = static_cast<int32_t>(row.position);
    const auto pages = static_cast<size_t>(row.position / PagePool::kRows) + 1;
    std::copy_n(row.session->pages_.begin(), pages, p.pages.begin() + static_cast<std::ptrdiff_t>(i * table));
  }
  p.executable->run(p.inputs.data());
  for (const auto& file : files_) file->expect_whole();
  const auto width = static_cast<size_t>(model_.vocabulary);
  for (size_t i = 0; i < scored; ++i) std::copy_n(p.scores + i * width, width, order[i]->scores);
}

// Computes a few tokens of one sequence as rows of one run, so that the weights are read once.
void Decoder::run_few(Session& session, bool decode, std::span<const int32_t> tokens) {
  std::array<Row, kLeastChunk> rows;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool wanted = decode && i + 1 == tokens.size();
    rows[i] = {&session, tokens[i], session.computed_ + static_cast<int64_t>(i),
               wanted ? session.scores_.data() : nullptr};
  }
  run_rows(std::span(rows).first(tokens.size()));
}

void Decoder::step_alone(StepPart& part) {
  Session& s = *part.session;
  std::span<const int32_t> left = part.tokens;
  if (part.missing > 0)
    left = std::span(s.tokens_).subspan(static_cast<size_t>(s.computed_), static_cast<size_t>(part.missing));
  const int64_t before = s.computed_;
  try {
    while (!left.empty()) {
      const auto count = static_cast<int64_t>(left.size());
      const bool few = caches_ && left.size() > 1 && left.size() < kLeastChunk;
      const auto chunk = few ? left.size()
                             : static_cast<size_t>(*std::find_if(kChunks.begin(), kChunks.end(),
                                                                 [&](int64_t c) { return c <= count; }));
      const bool decode = chunk == left.size() && part.missing == 0 && part.wanted != StepPart::none;
      if (few)
        run_few(s, decode, left);
      else
        run(s, decode, left.first(chunk));
      s.computed_ += static_cast<int64_t>(chunk);
      left = left.subspan(chunk);
    }
  } catch (...) {
    s.computed_ = before;
    throw;
  }
  const int64_t computed = std::exchange(s.computed_, before) - before;
  s.advance(part.tokens, computed);
  if (part.wanted != StepPart::none && part.missing == 0) part.scores = s.scores_;
}

void Decoder::step_rows(std::span<StepPart> parts) {
  const auto width = static_cast<size_t>(model_.vocabulary);
  std::array<Row, kMostRows> rows;
  size_t count = 0;
  for (const StepPart& part : parts) {
    Session& s = *part.session;
    const auto at = static_cast<size_t>(s.computed_);
    const std::span<const int32_t> tokens =
        part.missing > 0 ? std::span<const int32_t>(s.tokens_).subspan(at, static_cast<size_t>(part.missing))
                         : part.tokens;
    if (part.wanted == StepPart::all) s.all_scores_.resize(tokens.size() * width);
    for (size_t i = 0; i < tokens.size(); ++i) {
      float* scores = nullptr;
      if (part.missing == 0 && part.wanted == StepPart::all) scores = s.all_scores_.data() + i * width;
      if (part.missing == 0 && part.wanted == StepPart::last && i + 1 == tokens.size()) scores = s.scores_.data();
      rows[count++] = {&s, tokens[i], static_cast<int64_t>(at + i), scores};
      if (count < kMostRows) continue;
      run_rows(rows);
      count = 0;
    }
  }
  if (count > 0) run_rows(std::span(rows).first(count));
  for (StepPart& part : parts) {
    Session& s = *part.session;
    s.advance(part.tokens, part.missing > 0 ? part.missing : static_cast<int64_t>(part.tokens.size()));
    if (part.missing > 0 || part.wanted == StepPart::none) continue;
    part.scores = part.wanted == StepPart::all ? s.all_scores_ : s.scores_;
  }
}

void Decoder::step(std::span<StepPart> parts) {
  for (const StepPart& part : parts) {
    const Session& s = *part.session;
    const int64_t missing = s.length() - s.computed_;
    if (part.missing > 0 ? part.missing > missing || !part.tokens.empty() : missing > 0)
      throw Error(ErrorKind::Internal, "a step continues a sequence of which tokens are missing");
    if (part.missing == 0) s.expect(part.tokens);
  }
  for (const StepPart& part : parts) {
    Session& s = *part.session;
    const auto more = part.missing > 0 ? part.missing : static_cast<int64_t>(part.tokens.size());
    if (!s.reserve(s.computed_ + more)) throw caches_full();
  }
  if (caches_ && (parts.size() > 1 || (!parts.empty() && parts[0].wanted == StepPart::all))) return step_rows(parts);
  const auto width = static_cast<size_t>(model_.vocabulary);
  for (StepPart& part : parts) {
    if (part.wanted != StepPart::all || part.missing > 0) {
      step_alone(part);
      continue;
    }
    Session& s = *part.session;
    s.all_scores_.resize(part.tokens.size() * width);
    for (size_t i = 0; i < part.tokens.size(); ++i) {
      StepPart one{&s, part.tokens.subspan(i, 1)};
      step_alone(one);
      std::ranges::copy(one.scores, s.all_scores_.begin() + static_cast<std::ptrdiff_t>(i * width));
    }
    part.scores = s.all_scores_;
  }
}

// Counts the sessions per capacity. Drops the plans of a capacity that no session has any more.
void Decoder::capacity_changed(int64_t from, int64_t to) {
  const std::lock_guard lock(mutex_);
  if (to > 0) ++capacities_[to];
  if (from == 0) return;
  if (--capacities_[from] > 0 || to == 0) return;
  std::erase_if(plans_, [&](const auto& plan) { return plan.first.capacity == from; });
}

}  // namespace harmonics::engine
