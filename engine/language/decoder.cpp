#include "engine/language/decoder.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/core.h>

#include "engine/execution/device_memory.hpp"
#include "engine/passes/observe.hpp"

namespace harmonics::engine {

namespace {

constexpr std::array<int64_t, 3> kChunks{32, 8, 1};
constexpr int64_t kLeastCapacity = 64;

using Mirrors = std::map<std::string, std::shared_ptr<DeviceTensor>>;

// Parameters of the model, states of one session; `mirrors` has the states on a device with a memory of its own.
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
  std::shared_ptr<const Storage> packed(const std::string& name, const Packing& packing) override {
    return states_.count(name) ? nullptr : store_.packed(name, packing);
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

// A cache on a device, which keeps the host's side alive.
struct MirroredCache {
  std::shared_ptr<Storage> host;
  DeviceTensor tensor;
  MirroredCache(const std::shared_ptr<DeviceQueue>& queue, std::shared_ptr<Storage> storage)
      : host(std::move(storage)), tensor(queue, host->data(), host->bytes()) {}
};
std::shared_ptr<DeviceTensor> mirror_of(const std::shared_ptr<DeviceQueue>& queue, std::shared_ptr<Storage> cache) {
  const auto both = std::make_shared<MirroredCache>(queue, std::move(cache));
  return {both, &both->tensor};
}

// Copies the first `rows` of every run along `axis` to a larger tensor.
void copy_rows(const Storage& from, const TensorType& type, Storage& to, const TensorType& larger, uint32_t axis,
               int64_t rows) {
  int64_t outer = 1;
  for (uint32_t i = 0; i < axis; ++i) outer *= type.shape[i];
  const size_t row = type.bytes() / static_cast<size_t>(outer * type.shape[axis]);
  const size_t stride = row * static_cast<size_t>(type.shape[axis]),
               wide = row * static_cast<size_t>(larger.shape[axis]);
  for (int64_t i = 0; i < outer; ++i)
    std::memcpy(static_cast<std::byte*>(to.data()) + static_cast<size_t>(i) * wide,
                static_cast<const std::byte*>(from.data()) + static_cast<size_t>(i) * stride,
                row * static_cast<size_t>(rows));
}

}  // namespace

Decoder::Decoder(const Model& model, Executor& executor, CompileOptions options)
    : model_(model), executor_(executor), options_(std::move(options)), files_(model.parameters->files()) {
  model_.entry("prefill");
  model_.entry("decode");
  Registry& registry = options_.registry ? *options_.registry : Registry::global();
  if (const ItemPtr device = registry.find(HX_DEVICE, options_.device); device && has_own_memory(*device))
    queue_ = model.parameters->queue_on(device);
}

size_t Decoder::plans() const {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [key, plans] : plans_) count += plans.all.size();
  return count;
}

std::unique_ptr<Decoder::Plan> Decoder::compiled(const Key& key, const Session& session) {
  const auto [decode, tokens, capacity] = key;
  auto plan = std::make_unique<Plan>();
  Plan& p = *plan;
  const Entry& entry = model_.entry(decode ? "decode" : "prefill");
  std::map<std::string, void*> states;
  Mirrors mirrors;
  for (size_t i = 0; i < session.caches_.size(); ++i) states[model_.states[i].name] = session.caches_[i]->data();
  for (size_t i = 0; i < session.mirrors_.size(); ++i) mirrors[model_.states[i].name] = session.mirrors_[i];
  SessionBinding binding(model_, std::move(states), std::move(mirrors), queue_);
  const Program program =
      observe(model_.trace(entry, {1, tokens, capacity}), [](const std::string& output) { return output == "scores"; });
  p.executable = compile(program, &binding, executor_, options_);
  for (const std::string& name : p.executable->input_names()) p.input.push_back(name == "start" ? 1 : 0);
  for (const BoundState& s : p.executable->states()) {
    const auto state =
        std::find_if(model_.states.begin(), model_.states.end(), [&](const ModelState& m) { return m.name == s.name; });
    p.cache.push_back(state == model_.states.end() ? -1 : static_cast<int>(state - model_.states.begin()));
  }
  p.addresses.resize(p.cache.size());
  p.tensors.resize(p.cache.size());
  p.inputs.resize(p.input.size());
  if (decode) p.scores = p.executable->output("scores").data<float>();
  return plan;
}

Decoder::Plan& Decoder::take(const Key& key, const Session& session) {
  Plans& plans = plans_[key];
  if (plans.free.empty()) {
    plans.all.push_back(compiled(key, session));
    plans.free.reserve(plans.all.size());
    return *plans.all.back();
  }
  Plan* free = plans.free.back();
  plans.free.pop_back();
  return *free;
}

void Decoder::run(Session& session, bool decode, std::span<const int32_t> tokens) {
  const Key key{decode, static_cast<int64_t>(tokens.size()), session.capacity_};
  std::unique_lock lock(mutex_);
  Plan& p = take(key, session);
  lock.unlock();
  const auto give_back = [&] {
    lock.lock();
    plans_.at(key).free.push_back(&p);  // the session keeps the plans of its capacity alive
    lock.unlock();
  };
  try {
    const auto start = static_cast<int32_t>(session.length_);
    for (size_t i = 0; i < p.cache.size(); ++i) {
      if (p.cache[i] < 0) continue;
      const auto cache = static_cast<size_t>(p.cache[i]);
      if (queue_)
        p.tensors[i] = session.mirrors_[cache];
      else
        p.addresses[i] = session.caches_[cache]->data();
    }
    for (size_t i = 0; i < p.input.size(); ++i) p.inputs[i] = p.input[i] == 1 ? &start : tokens.data();
    if (queue_)
      p.executable->bind(p.tensors);
    else
      p.executable->bind(p.addresses);
    p.executable->run(p.inputs.data());
    for (const auto& file : files_) file->expect_whole();
    if (decode) std::copy_n(p.scores, session.scores_.size(), session.scores_.begin());
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
}

// Plans of capacities that no session has any more go.
void Decoder::capacity_changed(int64_t from, int64_t to) {
  const std::lock_guard lock(mutex_);
  if (to > 0) ++capacities_[to];
  if (from == 0) return;
  if (--capacities_[from] > 0 || to == 0) return;
  std::erase_if(plans_, [&](const auto& plan) { return std::get<2>(plan.first) == from; });
}

Session::Session(Decoder& decoder, int64_t context, bool whole)
    : decoder_(decoder), context_(context > 0 ? context : decoder.model().context) {
  if (context_ < 1)
    throw Error(ErrorKind::Usage, "the model does not say how many tokens it was trained for", {},
                {"give the most tokens of a sequence: --context N"});
  scores_.resize(static_cast<size_t>(decoder.model().vocabulary));
  grow(whole ? context_ : 1);
}

Session::~Session() { decoder_.capacity_changed(capacity_, 0); }

void Session::grow(int64_t least) {
  int64_t capacity = std::max(kLeastCapacity, capacity_);
  while (capacity < least) capacity *= 2;
  capacity = std::min(capacity, context_);
  if (capacity == capacity_) return;
  const auto& states = decoder_.model().states;
  std::vector<std::shared_ptr<Storage>> caches;
  std::vector<std::shared_ptr<DeviceTensor>> mirrors;
  for (size_t i = 0; i < states.size(); ++i) {
    const TensorType type = states[i].type({1, 1, capacity});
    caches.push_back(std::make_shared<Storage>(type.bytes()));
    if (decoder_.queue_) mirrors.push_back(mirror_of(decoder_.queue_, caches.back()));
    if (length_ == 0) continue;
    if (decoder_.queue_) mirrors_[i]->fetch();
    const TensorType old = states[i].type({1, 1, capacity_});
    copy_rows(*caches_[i], old, *caches[i], type, states[i].growing_axis, length_);
  }
  caches_ = std::move(caches);
  mirrors_ = std::move(mirrors);
  decoder_.capacity_changed(capacity_, capacity);
  capacity_ = capacity;
  tokens_.reserve(static_cast<size_t>(capacity));
}

void Session::keep(int64_t length) {
  if (length < 0 || length > length_)
    throw Error(ErrorKind::Usage, fmt::format("a sequence of {} tokens cannot be shortened to {}", length_, length));
  length_ = length;
  tokens_.resize(static_cast<size_t>(length));
}

uint64_t Session::cache_bytes() const {
  uint64_t bytes = 0;
  for (const auto& cache : caches_) bytes += cache->bytes();
  return bytes;
}

std::span<const float> Session::append(std::span<const int32_t> tokens) {
  if (tokens.empty()) throw Error(ErrorKind::Usage, "a sequence is continued by at least one token");
  const int64_t vocabulary = decoder_.model().vocabulary;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      throw Error(ErrorKind::Usage, fmt::format("token {} at place {} is outside the model's vocabulary of {}",
                                                tokens[i], i, vocabulary));
  const auto count = static_cast<int64_t>(tokens.size());
  if (count > context_ - length_)
    throw Error(ErrorKind::Usage,
                fmt::format("the sequence would have {} tokens, and its context holds {}", length_ + count, context_));
  grow(length_ + count);
  while (!tokens.empty()) {
    const auto left = static_cast<int64_t>(tokens.size());
    const auto chunk =
        static_cast<size_t>(*std::find_if(kChunks.begin(), kChunks.end(), [&](int64_t c) { return c <= left; }));
    decoder_.run(*this, chunk == tokens.size(), tokens.first(chunk));
    length_ += static_cast<int64_t>(chunk);
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(chunk));
    tokens = tokens.subspan(chunk);
  }
  return scores_;
}

}  // namespace harmonics::engine
