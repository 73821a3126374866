// Hash tables for the symbols and merges of a vocabulary, without an allocation per entry: a vocabulary has about
// 150,000 of each, and every start of the program builds the tables.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::tokens {

// Maps numbers (0, 1, 2 …) to texts and back. Duplicates of a text have the number of the first one.
class SymbolTable {
 public:
  void reserve(size_t texts, size_t bytes) {
    begins_.reserve(texts + 1);
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
  }
  // Makes a number findable by its text, unless an equal text already is.
  void know(int32_t number) {
    const std::string_view text = (*this)[number];
    const uint32_t hash = hash_of(text);
    if (slot_of(text, hash).number < 0) insert({hash, number});
  }
  // Returns the number of a text; -1: unknown.
  int32_t find(std::string_view text) const { return slot_of(text, hash_of(text)).number; }
  // Returns the number of a text, and appends an unknown text.
  int32_t number_of(std::string_view text) {
    const uint32_t hash = hash_of(text);
    if (const int32_t known = slot_of(text, hash).number; known >= 0) return known;
    append(text);
    insert({hash, static_cast<int32_t>(size() - 1)});
    return static_cast<int32_t>(size() - 1);
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t number = -1;
  };
  static uint32_t hash_of(std::string_view text) {
    uint64_t hash = text.size();
    for (size_t at = 0; at < text.size(); at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min<size_t>(8, text.size() - at));
      hash = (hash ^ word) * 0x9E3779B97F4A7C15;
      hash ^= hash >> 32;
    }
    return static_cast<uint32_t>(hash);
  }
  // Returns the slot of the text, or the empty slot for it.
  const Slot& slot_of(std::string_view text, uint32_t hash) const {
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      const Slot& slot = slots_[at];
      if (slot.number < 0 || (slot.hash == hash && (*this)[slot.number] == text)) return slot;
    }
  }
  void insert(Slot slot) {
    if (2 * ++known_ > slots_.size()) spread(2 * slots_.size());
    const size_t mask = slots_.size() - 1;
    size_t at = slot.hash & mask;
    while (slots_[at].number >= 0) at = (at + 1) & mask;
    slots_[at] = slot;
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
  std::vector<Slot> slots_ = std::vector<Slot>(2);  // size is a power of two, at most half are used
  size_t known_ = 0;
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
  Found find(int32_t left, int32_t right) const { return slots_[place_of(left, right)].found; }

 private:
  struct Slot {
    int32_t left = -1, right = -1;
    Found found;
  };
  size_t place_of(int32_t left, int32_t right) const {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    const size_t mask = slots_.size() - 1;
    size_t at = static_cast<size_t>(key * 0x9E3779B97F4A7C15 >> 32) & mask;
    while (slots_[at].found.place >= 0 && (slots_[at].left != left || slots_[at].right != right)) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;  // size is a power of two; at least one is empty
};

}  // namespace harmonics::tokens
