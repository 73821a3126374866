#include "wire/frame_reader.hpp"

#include <algorithm>
#include <cstring>

namespace harmonics::wire {

namespace {
constexpr size_t kLeast = 64u << 10;
}

std::span<std::byte> FrameReader::room() {
  if (begin_ > 0) {
    std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (bytes_.size() - end_ < kLeast / 2) bytes_.resize(std::max(kLeast, 2 * end_));
  return std::span(bytes_).subspan(end_);
}

std::shared_ptr<const std::vector<std::byte>> FrameReader::next() {
  const std::span<const std::byte> have(bytes_.data() + begin_, end_ - begin_);
  if (have.size() < kPrefixBytes) return nullptr;
  const uint64_t size = read_prefix(have, limits_).frame_bytes();
  if (have.size() < size) return nullptr;
  begin_ += size;
  return std::make_shared<const std::vector<std::byte>>(have.begin(), have.begin() + static_cast<std::ptrdiff_t>(size));
}

}  // namespace harmonics::wire
