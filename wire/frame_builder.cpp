#include "wire/frame_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace harmonics::wire {
namespace {

// Numbers of a header take more bytes as they grow: as many more as this at most.
constexpr size_t kGrowth = 64;

size_t rounded(size_t bytes) { return (bytes + 7) / 8 * 8; }
size_t bytes_of(const TensorPart& part) { return static_cast<size_t>(part.sample.count()) * element_bytes(part.dtype); }

}  // namespace

FrameBuilder::FrameBuilder(FrameOrigin origin, uint64_t bytes) : origin_(std::move(origin)) {
  Frame hello;
  hello.kind = Kind::Hello;
  hello.stream = origin_.stream;
  hello.producer = origin_.producer;
  hello.epoch = origin_.epoch;
  hello.tensors = origin_.tensors;
  sample_bytes_ = wire::sample_bytes(hello);
  capacity_ = static_cast<uint32_t>(std::clamp<uint64_t>(bytes / std::max<uint64_t>(1, sample_bytes_), 1, 1u << 16));
  head_ = rounded(encode(hello).size() + kGrowth);
  size_ = head_;
  for (const TensorPart& part : origin_.tensors) {
    at_.push_back(size_);
    size_ = rounded(size_ + capacity_ * bytes_of(part));
  }
}

void FrameBuilder::append(std::span<const std::span<const std::byte>> tensors) {
  if (tensors.size() != at_.size())
    throw Error(ErrorKind::Shape, fmt::format("a sample of {} tensors, and '{}' sends {}", tensors.size(), origin_.producer, at_.size()));
  for (size_t i = 0; i < at_.size(); ++i)
    if (tensors[i].size() != bytes_of(origin_.tensors[i]))
      throw Error(ErrorKind::Shape, fmt::format("'{}' of {} bytes, and it has {}", origin_.tensors[i].name, tensors[i].size(), bytes_of(origin_.tensors[i])));
  if (!memory_) memory_.reset(new std::byte[size_]);
  for (size_t i = 0; i < at_.size(); ++i)
    if (!tensors[i].empty()) std::memcpy(memory_.get() + at_[i] + count_ * tensors[i].size(), tensors[i].data(), tensors[i].size());
  ++count_;
}

Batch FrameBuilder::take(uint64_t seq) {
  Frame frame;
  frame.stream = origin_.stream;
  frame.producer = origin_.producer;
  frame.epoch = origin_.epoch;
  frame.seq = seq;
  frame.count = count_;
  frame.tensors = origin_.tensors;
  size_t end = head_;
  for (size_t i = 0; i < at_.size(); ++i) {
    const size_t begin = rounded(end), bytes = count_ * bytes_of(frame.tensors[i]);
    std::memset(memory_.get() + end, 0, begin - end);
    if (begin != at_[i]) std::memmove(memory_.get() + begin, memory_.get() + at_[i], bytes);  // fewer samples than there was room for
    frame.tensors[i].bytes = {memory_.get() + begin, bytes};
    end = begin + bytes;
  }
  const Encoded encoded = encode(frame);
  Batch batch{seq, count_, count_ * sample_bytes_, {}};
  count_ = 0;
  // A frame may be kept for long: not in memory that is mostly empty.
  if (2 * encoded.size() < size_) {
    batch.frame = owned(encoded.bytes());
    return batch;
  }
  const auto head = encoded.pieces().front();
  std::byte* const first = memory_.get() + head_ - head.size();
  std::memcpy(first, head.data(), head.size());
  batch.frame = {std::move(memory_), {first, encoded.size()}};
  memory_.reset();
  return batch;
}

}  // namespace harmonics::wire
