#include "producers/file/windows.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "producers/file/part.hpp"

namespace harmonics {

static_assert(std::endian::native == std::endian::little,
              "symbols are read from little-endian files without conversion");

namespace {

// Widens N symbols. Returns a non-zero value if one of them is outside [0, limit). A constant N allows vector
// instructions.
template <typename T, uint64_t N>
int32_t widen_block(const uint8_t* from, int32_t* to, int32_t limit) {
  T symbols[N];
  std::memcpy(symbols, from, sizeof symbols);
  int32_t outside = 0;
  for (uint64_t i = 0; i < N; ++i) {
    const auto symbol = static_cast<int32_t>(symbols[i]);
    outside |= -static_cast<int32_t>(symbol >= limit) | symbol >> 31;
    to[i] = symbol;
  }
  return outside;
}

// Returns whether all n symbols are in [0, limit).
template <typename T>
bool widen(const uint8_t* from, uint64_t n, int32_t* to, int32_t limit) {
  constexpr uint64_t block = 16;
  int32_t outside = 0;
  uint64_t i = 0;
  for (; i + block <= n; i += block) outside |= widen_block<T, block>(from + i * sizeof(T), to + i, limit);
  for (; i < n; ++i) outside |= widen_block<T, 1>(from + i * sizeof(T), to + i, limit);
  return outside == 0;
}

bool look_up(const SymbolRow::Table& table, const uint8_t* from, uint64_t n, int32_t* to, int32_t limit) {
  int32_t most = 0;
  for (uint64_t i = 0; i < n; ++i) {
    to[i] = table[from[i]];
    most = std::max(most, to[i]);
  }
  return most < limit;
}

// Returns whether all n symbols are in [0, limit).
bool read_symbols(const SymbolRow& row, uint64_t first, uint64_t n, int32_t* to, int32_t limit) {
  const uint8_t* from = row.bytes->data() + row.offset + first * row.width;
  if (row.table) return look_up(*row.table, from, n, to, limit);
  if (row.width == 1) return widen<uint8_t>(from, n, to, limit);
  return row.width == 2 ? widen<uint16_t>(from, n, to, limit) : widen<uint32_t>(from, n, to, limit);
}

}  // namespace

uint32_t SymbolRow::at(uint64_t i) const {
  int32_t symbol = 0;
  read_symbols(*this, i, 1, &symbol, 0);
  return static_cast<uint32_t>(symbol);
}

WindowProducer::WindowProducer(SymbolRow symbols, const WindowOptions& options, const std::string& what,
                               int64_t classes, std::vector<std::string> names)
    : symbols_(std::move(symbols)) {
  const std::string& file = symbols_.bytes->name();
  const auto [first, last] = part_of(options.part, symbols_.count(), file);
  first_ = first;
  window_ = std::max<uint64_t>(options.window, 1);
  shift_ = options.shift ? options.shift : window_;
  if (window_ > last - first)
    refuse_file(file,
                "has " + std::to_string(last - first) + " " + what +
                    (options.part.empty() ? "" : " in part=" + options.part) + ", fewer than the window of " +
                    std::to_string(window_),
                "give a smaller window=");
  info_.dtype = DType::I32;
  if (options.window) {
    info_.sample = Shape{static_cast<int64_t>(window_)};
    info_.position_axes = 1;
  }
  info_.size = (last - first - window_) / shift_ + 1;
  info_.classes = classes;
  info_.symbols = std::move(names);
}

void WindowProducer::copy(uint64_t sample, int32_t* to) const {
  const uint64_t begin = first_ + sample * shift_;
  const auto limit = static_cast<int32_t>(info_.classes);  // at most 2^31 - 1
  if (read_symbols(symbols_, begin, window_, to, limit) || limit == 0) return;
  uint64_t bad = 0;
  while (symbols_.at(begin + bad) < static_cast<uint64_t>(info_.classes)) ++bad;
  refuse_file(symbols_.bytes->name(),
              "holds the symbol " + std::to_string(symbols_.at(begin + bad)) + " at place " +
                  std::to_string(begin + bad) + "; with a vocabulary of " + std::to_string(info_.classes) +
                  " the largest is " + std::to_string(info_.classes - 1),
              "give the right vocab= and dtype=");
}

HTensor WindowProducer::next() {
  if (at_ == info_.size) return {};
  symbols_.bytes->check();
  HTensor sample(DType::I32, info_.sample);
  return read_whole(*symbols_.bytes, [&] {
    copy(at_, sample.mutable_data<int32_t>());
    ++at_;
    return sample;
  });
}

bool WindowProducer::read_at(const uint64_t* numbers, uint64_t n, void* to) {
  if (n) symbols_.bytes->check();
  return read_whole(*symbols_.bytes, [&] {
    for (uint64_t i = 0; i < n; ++i) copy(numbers[i], static_cast<int32_t*>(to) + i * window_);
    return true;
  });
}

int64_t WindowProducer::read(uint64_t n, void* to) {
  n = std::min(n, info_.size - at_);
  if (n) symbols_.bytes->check();
  return read_whole(*symbols_.bytes, [&] {
    for (uint64_t i = 0; i < n; ++i) copy(at_++, static_cast<int32_t*>(to) + i * window_);
    return static_cast<int64_t>(n);
  });
}

}  // namespace harmonics
