#include "engine/bound/prepared_step.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/core.h>
#include <harmonics/philox.hpp>

namespace harmonics::engine {

namespace {

constexpr uint64_t kRows = 2048, kBatches = 8, kMostBytes = uint64_t{128} << 20;

void fill_random(const std::string& name, const StreamType& type, PhiloxStream& random, std::vector<std::byte>& to) {
  if (type.dtype == DType::F32) {
    auto* numbers = reinterpret_cast<float*>(to.data());
    for (size_t i = 0; i < to.size() / sizeof(float); ++i) numbers[i] = random.uniform();
    return;
  }
  if (type.dtype != DType::I32 || type.classes <= 0)
    throw Error(ErrorKind::Usage,
                fmt::format("there are no random samples for producer '{}' of {}", name,
                            sample_type_text(type.dtype, type.sample)),
                {}, {fmt::format("bind it: --producer {}=ADDRESS", name)});
  auto* numbers = reinterpret_cast<int32_t*>(to.data());
  for (size_t i = 0; i < to.size() / sizeof(int32_t); ++i)
    numbers[i] = std::min(static_cast<int32_t>(random.uniform() * static_cast<float>(type.classes)),
                          static_cast<int32_t>(type.classes - 1));
}

}  // namespace

Rows::Rows(BoundGraph& graph, int cycle, bool trains, uint64_t batch, uint64_t seed)
    : producers_(graph.graph().producers_used(cycle, trains)) {
  const auto name_of = [&](int n) { return graph.graph().nodes[static_cast<size_t>(n)].name; };
  graph.assume_declared_streams();
  for (int n : producers_) {
    const auto type = graph.types().find(n);
    if (type == graph.types().end())
      throw Error(
          ErrorKind::Usage, fmt::format("the sample type of producer '{}' is unknown", name_of(n)), {},
          {fmt::format("bind it (--producer {}=ADDRESS), or declare its shape to get random numbers", name_of(n))});
    bytes_.push_back(tensor_bytes(type->second.dtype, type->second.sample));
  }
  const uint64_t sample = std::max<uint64_t>(1, std::accumulate(bytes_.begin(), bytes_.end(), uint64_t{0}));
  count_ = std::max(batch, std::min(std::max(kRows, kBatches * batch), kMostBytes / sample));
  std::vector<size_t> bound;
  for (size_t i = 0; i < producers_.size(); ++i) {
    rows_.emplace_back(bytes_[i] * count_);
    if (graph.streams().bound(producers_[i])) {
      bound.push_back(i);
      continue;
    }
    streamed_ = false;
    PhiloxStream random(philox_key(seed, i), 0);
    fill_random(name_of(producers_[i]), graph.types().at(producers_[i]), random, rows_.back());
  }
  if (!bound.empty()) read(graph, bound, seed);
}

void Rows::read(BoundGraph& graph, const std::vector<size_t>& bound, uint64_t seed) {
  std::vector<int> nodes;
  for (size_t i : bound) nodes.push_back(producers_[i]);
  const auto reader = graph.streams().reader(graph.graph(), nodes, 1, false, seed);
  std::vector<void*> to(bound.size());
  uint64_t epoch = 0;
  reader->begin(epoch);
  for (uint64_t have = 0; have < count_;) {
    for (size_t i = 0; i < bound.size(); ++i) to[i] = rows_[bound[i]].data() + have * bytes_[bound[i]];
    const uint64_t n = reader->read(count_ - have, to.data());
    have += n;
    if (n > 0) continue;
    if (reader->position() == 0)
      throw Error(ErrorKind::Stream, fmt::format("the streams of '{}' have no samples", graph.graph().name));
    reader->begin(++epoch);
  }
}

PreparedStep::PreparedStep(BoundGraph& graph, const Rows& rows, const PreparedSettings& settings)
    : lr_(static_cast<float>(settings.update.optimizer.lr)), seed_(settings.seed) {
  LoweringOptions o;
  o.mode = settings.trains ? Mode::train : Mode::infer;
  o.cycle = settings.cycle;
  o.batch = settings.batch;
  o.seed = settings.seed;
  o.device = settings;
  static_cast<UpdateSettings&>(o) = settings.update;
  if (!settings.trains) o.wanted = graph.results(settings.cycle);
  o.branches = graph.graph().branches(settings.cycle);
  const CompileOptions c = graph.compile_options(settings, settings.trains);
  step_ = std::make_unique<CompiledStep>(graph.lower(o), graph.store(), graph.executor(settings.threads), c);

  lay_out(graph, rows, settings);
  for (const auto& pointers : pointers_) step_->check_indices(pointers.data());
}

// Lays out the batches consecutively, each aligned to a cache line, as a running cycle does. A running cycle transfers
// each batch to a device with its own memory during earlier steps; here all batches are transferred in advance.
void PreparedStep::lay_out(BoundGraph& graph, const Rows& rows, const PreparedSettings& settings) {
  const auto batch = static_cast<uint64_t>(settings.batch);
  if (rows.count() < batch)
    throw Error(ErrorKind::Internal, fmt::format("{} rows do not fill a batch of {}", rows.count(), batch));
  pointers_.resize(rows.count() / batch);
  std::vector<size_t> producers;
  std::vector<uint64_t> bytes;
  for (int node : step_->lowered().inputs) {
    const auto at = std::find(rows.producers().begin(), rows.producers().end(), node);
    producers.push_back(static_cast<size_t>(at - rows.producers().begin()));
    bytes.push_back(batch * rows.bytes(producers.back()));
  }
  const ItemPtr device = graph.registry().find(HX_DEVICE, settings.device);
  if (device && has_own_memory(*device))
    on_device_ = InputPrefetch::open(device, graph.store().queue_on(device), bytes, pointers_.size());
  for (size_t s = 0; s < producers.size(); ++s) {
    const uint64_t stride = (bytes[s] + 63) / 64 * 64;
    prepared_bytes_ += stride * pointers_.size();
    if (!on_device_) streams_.push_back(std::make_shared<Storage>(stride * pointers_.size()));
    for (uint64_t i = 0; i < pointers_.size(); ++i) {
      void* to = on_device_ ? on_device_->host(i, s) : static_cast<std::byte*>(streams_[s]->data()) + i * stride;
      std::memcpy(to, rows.row(producers[s], i * batch), bytes[s]);
      pointers_[i].push_back(to);
    }
  }
  for (size_t i = 0; on_device_ && i < pointers_.size(); ++i) on_device_->start(i, bytes);
}

size_t PreparedStep::next() {
  const size_t batch = static_cast<size_t>(count_++) % pointers_.size();
  step_->set(pointers_[batch].data(), lr_, count_, seed_);
  return batch;
}

}  // namespace harmonics::engine
