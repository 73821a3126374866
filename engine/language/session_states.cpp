// Copies the states of a session out of its caches and back.
#include <algorithm>
#include <cstring>
#include <shared_mutex>

#include <fmt/core.h>

#include "engine/execution/device_memory.hpp"
#include "engine/language/decoder.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

namespace {

// The layout of a state: `outer` runs of contiguous rows of `row` bytes.
struct Runs {
  size_t outer = 1, row = 0;
  Runs(const TensorType& type, uint32_t axis) {
    for (uint32_t i = 0; i < axis; ++i) outer *= static_cast<size_t>(type.shape[i]);
    row = type.bytes() / (outer * static_cast<size_t>(type.shape[axis]));
  }
};

}  // namespace

std::vector<HTensor> Session::states() const {
  std::vector<HTensor> all;
  if (computed_ == 0) return all;
  const auto& states = decoder_.model().states;
  for (size_t i = 0; i < states.size(); ++i) {
    const TensorType type = states[i].type({1, 1, computed_});
    HTensor copy = make_value(type, std::make_shared<Storage>(type.bytes()));
    auto* at = static_cast<std::byte*>(copy.raw()->storage->data());
    all.push_back(std::move(copy));
    if (decoder_.caches_) {
      const std::shared_lock lock(decoder_.caches_->moving);
      decoder_.caches_->read(i, pages_, at, type.bytes());
      continue;
    }
    if (!mirrors_.empty()) mirrors_[i]->fetch();
    const Runs to(type, states[i].growing_axis), from(states[i].type({1, 1, capacity_}), states[i].growing_axis);
    const auto* cache = static_cast<const std::byte*>(caches_[i]->data());
    const size_t kept = to.row * static_cast<size_t>(computed_), stride = from.row * static_cast<size_t>(capacity_);
    for (size_t run = 0; run < to.outer; ++run) std::memcpy(at + run * kept, cache + run * stride, kept);
  }
  return all;
}

void Session::restore(std::span<const int32_t> tokens, const std::vector<HTensor>& states) {
  const auto count = static_cast<int64_t>(tokens.size());
  if (count > context_)
    throw Error(ErrorKind::Usage, fmt::format("the sequence has {} tokens, but the context holds {}", count, context_),
                {}, {"give a larger --context"});
  keep(0);
  if (count == 0) return;
  if (!reserve(count)) throw Error(ErrorKind::Unavailable, "the caches have no room for the sequence");
  const auto& own = decoder_.model().states;
  for (size_t i = 0; i < own.size(); ++i) {
    const TensorType type = own[i].type({1, 1, count});
    const auto* at = static_cast<const std::byte*>(states.at(i).bytes());
    if (decoder_.caches_) {
      const std::shared_lock lock(decoder_.caches_->moving);
      decoder_.caches_->write(i, pages_, at, type.bytes());
      continue;
    }
    const Runs from(type, own[i].growing_axis);
    if (!mirrors_.empty()) mirrors_[i]->going_to_change();
    auto* cache = static_cast<std::byte*>(caches_[i]->data());
    const size_t kept = from.row * static_cast<size_t>(count), stride = from.row * static_cast<size_t>(capacity_);
    for (size_t run = 0; run < from.outer; ++run) std::memcpy(cache + run * stride, at + run * kept, kept);
  }
  advance(tokens, count);
}

}  // namespace harmonics::engine
