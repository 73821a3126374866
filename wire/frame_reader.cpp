#include "wire/frame_reader.hpp"

#include <algorithm>
#include <cstring>

namespace harmonics::wire {

namespace {
constexpr size_t kLeast = 64u << 10, kMostAhead = 1u << 20;
}

std::span<std::byte> FrameReader::room() {
  if (size_ - end_ < kLeast / 4) {
    const size_t have = end_ - begin_, size = std::max({kLeast, 4 * have, ahead_});
    std::shared_ptr<std::byte[]> chunk(new std::byte[size]);  // uninitialised: written before it is read
    if (have > 0) std::memcpy(chunk.get(), chunk_.get() + begin_, have);
    chunk_ = std::move(chunk);
    size_ = size;
    begin_ = 0;
    end_ = have;
  }
  return {chunk_.get() + end_, size_ - end_};
}

OwnedBytes FrameReader::next() {
  const std::span<const std::byte> have(chunk_.get() + begin_, end_ - begin_);
  if (have.size() < kPrefixBytes) return {};
  const uint64_t size = read_prefix(have, limits_).frame_bytes();
  if (have.size() < size) return {};
  begin_ += size;
  ahead_ = std::min<size_t>(kMostAhead, 4 * size);  // a chunk then holds several frames of similar size
  return {chunk_, have.first(size)};
}

}  // namespace harmonics::wire
