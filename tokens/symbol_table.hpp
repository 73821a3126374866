// Hash tables for the symbols and merges of a vocabulary, without an allocation per entry: a vocabulary has about
// 150,000 of each, and every start of the program builds the tables.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace harmonics::tokens {

constexpr size_t kAhead = 16;  // entries between the prefetch of a slot and its use

// Maps numbers (0, 1, 2 …) to texts and back. Duplicates of a text have the number of the first one.
class SymbolTable {
 public:
  void reserve(size_t texts, size_t bytes) {
    begins_.reserve(texts + 1);
    known_.reserve(texts);
    bytes_.reserve(bytes);
    if (2 * texts > slots_.size()) spread(std::bit_ceil(2 * texts));
  }
  size_t size() const { return begins_.size() - 1; }
  std::string_view operator[](int32_t number) const {
    const size_t begin = begins_[static_cast<size_t>(number)];
    return std::string_view(bytes_).substr(begin, begins_[static_cast<size_t>(number) + 1] - begin);
  }
  // Appends a text with the next number. find() does not return it until know().
  void append(std::string_view text) {
    bytes_ += text;
    begins_.push_back(bytes_.size());
    known_.push_back(false);
  }
  // Makes numbers findable by their texts, unless an equal text already is.
  void know(const std::vector<int32_t>& numbers) {
    std::array<uint32_t, kAhead> hashes{};
    for (size_t i = 0; i < numbers.size() + kAhead; ++i) {
      uint32_t& hash = hashes[i % kAhead];
      if (i >= kAhead && i - kAhead < numbers.size()) {
        const int32_t number = numbers[i - kAhead];
        if (Slot& slot = slot_of((*this)[number], hash); slot.number < 0) insert(slot, {hash, number});
      }
      if (i < numbers.size()) prefetch(hash = hash_of((*this)[numbers[i]]));
    }
  }
  // Returns the number of a text; -1: unknown.
  int32_t find(std::string_view text) const { return slot_of(text, hash_of(text)).number; }
  // Returns whether find() returns the number for this text.
  bool finds(int32_t number, std::string_view text) const {
    return number >= 0 && static_cast<size_t>(number) < size() && known_[static_cast<size_t>(number)] &&
           (*this)[number] == text;
  }
  // Returns the number of a text, and appends an unknown text. `hash`: hash_of(text).
  int32_t number_of(std::string_view text, uint32_t hash) {
    Slot& slot = slot_of(text, hash);
    if (slot.number >= 0) return slot.number;
    append(text);
    const auto number = static_cast<int32_t>(size() - 1);
    insert(slot, {hash, number});
    return number;
  }
  int32_t number_of(std::string_view text) { return number_of(text, hash_of(text)); }

  static uint32_t hash_of(std::string_view text) {
    const size_t size = text.size();
    const char* const at = text.data();
    uint64_t hash = size;
    const auto mix = [&](uint64_t word) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15;
      hash ^= hash >> 32;
    };
    if (size >= 8) {
      for (size_t i = 0; i + 8 < size; i += 8) mix(load<uint64_t>(at + i));
      mix(load<uint64_t>(at + size - 8));
    } else if (size >= 4) {
      mix(load<uint32_t>(at) | static_cast<uint64_t>(load<uint32_t>(at + size - 4)) << 32);
    } else if (size > 0) {
      const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<unsigned char>(at[i])); };
      mix(byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16);
    }
    return static_cast<uint32_t>(hash);
  }
  // Fetches the slot of a text that is looked up soon: the table exceeds the second-level cache.
  void prefetch(uint32_t hash) const { __builtin_prefetch(&slots_[hash & (slots_.size() - 1)], 1); }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t number = -1;
  };
  template <typename T>
  static T load(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  // Returns the slot of the text, or the empty slot for it.
  const Slot& slot_of(std::string_view text, uint32_t hash) const {
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      const Slot& slot = slots_[at];
      if (slot.number < 0 || (slot.hash == hash && (*this)[slot.number] == text)) return slot;
    }
  }
  Slot& slot_of(std::string_view text, uint32_t hash) {
    return const_cast<Slot&>(std::as_const(*this).slot_of(text, hash));
  }
  void insert(Slot& empty, Slot slot) {
    known_[static_cast<size_t>(slot.number)] = true;
    empty = slot;
    if (2 * ++used_ > slots_.size()) spread(2 * slots_.size());
  }
  void spread(size_t slots) {
    std::vector<Slot> before(slots);
    before.swap(slots_);
    for (const Slot& slot : before)
      if (slot.number >= 0) {
        size_t at = slot.hash & (slots - 1);
        while (slots_[at].number >= 0) at = (at + 1) & (slots - 1);
        slots_[at] = slot;
      }
  }

  std::string bytes_;
  std::vector<size_t> begins_{0};
  std::vector<bool> known_;                         // whether find() returns the number
  std::vector<Slot> slots_ = std::vector<Slot>(2);  // size is a power of two, at most half are used
  size_t used_ = 0;
};

// Maps a pair of symbol numbers to the merged symbol and its rank.
class MergeTable {
 public:
  struct Found {
    int32_t place = -1;  // rank; -1: no merge
    int32_t joined = -1;
  };
  explicit MergeTable(size_t merges = 0) : slots_(std::bit_ceil(merges + merges / 4 + 1)) {}
  // Call at most as often as announced to the constructor. Of duplicate pairs, the first is kept.
  void add(int32_t left, int32_t right, Found found) {
    Slot& slot = slots_[place_of(left, right)];
    if (slot.found.place < 0) slot = {left, right, found};
  }
  void prefetch(int32_t left, int32_t right) const { __builtin_prefetch(&slots_[home_of(left, right)], 1); }
  Found find(int32_t left, int32_t right) const { return slots_[place_of(left, right)].found; }

 private:
  struct Slot {
    int32_t left = -1, right = -1;
    Found found;
  };
  size_t home_of(int32_t left, int32_t right) const {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    return static_cast<size_t>(key * 0x9E3779B97F4A7C15 >> 32) & (slots_.size() - 1);
  }
  size_t place_of(int32_t left, int32_t right) const {
    const size_t mask = slots_.size() - 1;
    size_t at = home_of(left, right);
    while (slots_[at].found.place >= 0 && (slots_[at].left != left || slots_[at].right != right)) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;  // size is a power of two; at least one is empty
};

}  // namespace harmonics::tokens
