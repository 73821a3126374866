// UTF-8 text as symbols: windows of characters, each the index of its place in the vocabulary.
#pragma once

#include <string>
#include <vector>

#include <harmonics/stream.hpp>

#include "producers/file/bytes.hpp"

namespace harmonics {

struct TextOptions {
  std::string vocabulary;  // its characters in order; empty: the text's own, sorted by code point
  uint64_t window = 0;     // characters in a sample; 0: one character, without sequence axis
  uint64_t shift = 0;      // from one sample's beginning to the next one's; 0: window
  std::string part;        // see part.hpp; the vocabulary is always the whole text's
};

class TextProducer final : public Producer {
 public:
  TextProducer(const FileBytesPtr& file, const TextOptions& options);
  HTensor next() override;
  std::size_t size() const override { return info_.size; }
  bool rewind() override { return at_ = 0, true; }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override;
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override;

 private:
  void make_vocabulary(const FileBytes& file, const std::string& given);
  void encode(const FileBytes& file);
  void count_samples(const FileBytes& file, const TextOptions& options);
  void copy(uint64_t sample, int32_t* to) const;

  std::vector<char32_t> vocabulary_;
  std::vector<uint8_t> narrow_;  // one index per character, while 256 symbols are enough,
  std::vector<uint32_t> wide_;   // else here
  uint64_t first_ = 0, length_ = 0, window_ = 1, shift_ = 1, at_ = 0;
  StreamInfo info_;
};

}  // namespace harmonics
