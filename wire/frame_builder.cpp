#include "wire/frame_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include <harmonics/quantity.hpp>

namespace harmonics::wire {
namespace {

constexpr size_t kMostFree = 8u << 20;

size_t rounded(size_t bytes) { return (bytes + 7) / 8 * 8; }
size_t bytes_of(const TensorPart& part) { return tensor_bytes(part.dtype, part.sample); }

Frame frame_like(const FrameOrigin& origin) {
  Frame frame;
  frame.kind = Kind::Hello;
  frame.stream = origin.stream;
  frame.producer = origin.producer;
  frame.epoch = origin.epoch;
  frame.tensors = origin.tensors;
  encode(frame);  // rejects invalid names and shapes
  return frame;
}

}  // namespace

FrameMemory::FrameMemory(size_t size, size_t most_free_bytes)
    : size_(size), most_(most_free_bytes / std::max<size_t>(1, size)), free_(std::make_shared<Free>()) {
  free_->pieces.reserve(most_);
}

std::shared_ptr<std::byte[]> FrameMemory::take() {
  std::unique_ptr<std::byte[]> piece;
  {
    const std::lock_guard<std::mutex> lock(free_->mutex);
    if (!free_->pieces.empty()) piece = std::move(free_->pieces.back()), free_->pieces.pop_back();
  }
  if (!piece) piece.reset(new std::byte[size_]);
  const auto give_back = [free = free_, most = most_](std::byte* bytes) {
    std::unique_ptr<std::byte[]> back(bytes);
    const std::lock_guard<std::mutex> lock(free->mutex);
    if (free->pieces.size() < most) free->pieces.push_back(std::move(back));
  };
  return {piece.release(), give_back};
}

FrameBuilder::FrameBuilder(FrameOrigin origin, uint64_t bytes)
    : origin_(std::move(origin)), encoder_(frame_like(origin_)) {
  sample_bytes_ = wire::sample_bytes(frame_like(origin_));
  capacity_ = static_cast<uint32_t>(std::clamp<uint64_t>(
      std::min<uint64_t>(bytes, Limits{}.frame_bytes / 2) / std::max<uint64_t>(1, sample_bytes_), 1, 1u << 16));
  head_ = encoder_.most_head_bytes();
  size_ = head_;
  for (const TensorPart& part : origin_.tensors) {
    sizes_.push_back(bytes_of(part));
    at_.push_back(size_);
    size_ = rounded(size_ + capacity_ * sizes_.back());
  }
  if (size_ > Limits{}.frame_bytes)
    throw Error(ErrorKind::Stream,
                fmt::format("samples of {} bytes, but a frame has at most {}", sample_bytes_, Limits{}.frame_bytes))
        .note("send smaller samples");
  sent_.emplace(size_, kMostFree);
}

void FrameBuilder::append(std::span<const std::span<const std::byte>> tensors) {
  if (tensors.size() != at_.size())
    throw Error(ErrorKind::Shape, fmt::format("a sample of {}, but '{}' sends {}", quantity(tensors.size(), "tensor"),
                                              origin_.producer, at_.size()));
  for (size_t i = 0; i < at_.size(); ++i)
    if (tensors[i].size() != sizes_[i])
      throw Error(ErrorKind::Shape, fmt::format("'{}' of {} bytes, but it has {}", origin_.tensors[i].name,
                                                tensors[i].size(), sizes_[i]));
  if (!memory_) memory_ = sent_->take();
  for (size_t i = 0; i < at_.size(); ++i)
    if (!tensors[i].empty())
      std::memcpy(memory_.get() + at_[i] + count_ * tensors[i].size(), tensors[i].data(), tensors[i].size());
  ++count_;
}

Batch FrameBuilder::take(uint64_t seq) {
  size_t end = head_;
  for (size_t i = 0; i < at_.size(); ++i) {
    const size_t begin = rounded(end), bytes = count_ * sizes_[i];
    std::memset(memory_.get() + end, 0, begin - end);
    if (begin != at_[i]) std::memmove(memory_.get() + begin, memory_.get() + at_[i], bytes);  // the frame is not full
    end = begin + bytes;
  }
  const size_t head = encoder_.write_head(seq, count_, memory_.get() + head_, end - head_);
  const std::span<const std::byte> frame(memory_.get() + head_ - head, head + end - head_);
  Batch batch{seq, count_, count_ * sample_bytes_, {}};
  count_ = 0;
  if (2 * frame.size() < size_) {  // the frame may be kept for long: do not retain mostly empty memory
    batch.frame = owned({frame.begin(), frame.end()});
    return batch;
  }
  batch.frame = {std::move(memory_), frame};
  memory_.reset();
  return batch;
}

}  // namespace harmonics::wire
