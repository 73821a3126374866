// Windows over a sequence of symbols: the common part of text and token files.
#pragma once

#include <array>

#include <harmonics/stream.hpp>

#include "producers/file/bytes.hpp"

namespace harmonics {

struct WindowOptions {
  uint64_t window = 0;  // symbols per sample; 0: one symbol, without sequence axis
  uint64_t shift = 0;   // distance between the starts of samples; 0: window
  std::string part;     // see part.hpp
};

// Symbols as unsigned little-endian integers of `width` bytes, from `offset` to the end.
struct SymbolRow {
  FileBytesPtr bytes;
  size_t offset = 0;
  size_t width = 1;  // 1, 2, 4
  using Table = std::array<uint8_t, 256>;
  static constexpr uint8_t no_symbol = 255;
  std::shared_ptr<Table> table;  // for width 1: the symbol of each byte; null: the byte itself
  uint64_t count() const { return (bytes->size() - offset) / width; }
  uint32_t at(uint64_t i) const;
};

class WindowProducer final : public Producer {
 public:
  // `what` names symbols in errors: "characters". Symbols from `classes` on are rejected when they are read (0: no
  // limit).
  WindowProducer(SymbolRow symbols, const WindowOptions& options, const std::string& what, int64_t classes,
                 std::vector<std::string> names);
  HTensor next() override;
  std::size_t size() const override { return info_.size; }
  bool rewind() override { return at_ = 0, true; }
  bool seek(uint64_t, uint64_t index) override { return index <= size() && (at_ = index, true); }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override;
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override;

 private:
  void copy(uint64_t sample, int32_t* to) const;

  SymbolRow symbols_;
  uint64_t first_ = 0, window_ = 1, shift_ = 1, at_ = 0;
  StreamInfo info_;
};

}  // namespace harmonics
