#include "producers/file/chain.hpp"

#include <algorithm>

namespace harmonics {
namespace {

class ChainProducer final : public Producer {
 public:
  ChainProducer(std::vector<std::shared_ptr<Producer>> parts, StreamInfo info)
      : parts_(std::move(parts)), info_(std::move(info)), bytes_(info_.sample_bytes()) {
    for (const auto& part : parts_) begins_.push_back(info_.size), info_.size += part->size();
  }
  HTensor next() override {
    for (; at_ < parts_.size(); enter(at_ + 1))
      if (HTensor sample = parts_[at_]->next()) {
        gather(0, 1);
        return sample;
      }
    return {};
  }
  std::size_t size() const override { return info_.size; }
  bool rewind() override { return enter(0), true; }
  bool seek(uint64_t epoch, uint64_t index) override {
    if (index > info_.size) return false;
    enter(index < info_.size ? part_with(index) : parts_.size());
    return index == info_.size || parts_[at_]->seek(epoch, index - begins_[at_]);
  }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override {
    uint64_t got = 0;
    while (got < n && at_ < parts_.size()) {
      const uint64_t wanted = n - got;
      const auto more = static_cast<uint64_t>(parts_[at_]->read(wanted, static_cast<uint8_t*>(to) + got * bytes_));
      gather(got, more);
      got += more;
      if (more < wanted) enter(at_ + 1);
    }
    return static_cast<int64_t>(got);
  }
  bool numbers(uint64_t n, SampleNumber* to) override {
    if (n == 0)
      return numbered_ =
                 std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) { return part->numbers(0, to); });
    std::copy(numbers_.end() - static_cast<std::ptrdiff_t>(n), numbers_.end(), to);
    return true;
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    for (uint64_t i = 0; i < n; ++i) {
      const size_t part = part_with(numbers[i]);
      const uint64_t inside = numbers[i] - begins_[part];
      parts_[part]->read_at(&inside, 1, static_cast<uint8_t*>(to) + i * bytes_);
    }
    return true;
  }

 private:
  // Collects the numbers of the samples this part returned last, after those of `before` earlier parts.
  void gather(uint64_t before, uint64_t n) {
    if (!numbered_) return;
    numbers_.resize(before + n);
    if (n > 0) parts_[at_]->numbers(n, numbers_.data() + before);
  }
  size_t part_with(uint64_t number) const {
    return static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), number) - begins_.begin()) - 1;
  }
  void enter(size_t part) {
    at_ = part;
    if (at_ < parts_.size()) parts_[at_]->rewind();
  }

  std::vector<std::shared_ptr<Producer>> parts_;
  std::vector<uint64_t> begins_;
  StreamInfo info_;
  size_t bytes_, at_ = 0;
  bool numbered_ = false;
  std::vector<SampleNumber> numbers_;
};

const char* dtype_text(DType dtype) {
  static const char* const names[] = {"bool", "u8",  "i8",  "i16",  "u16", "i32", "u32",
                                      "i64",  "u64", "f16", "bf16", "f32", "f64"};
  return names[static_cast<uint32_t>(dtype)];
}

std::string type_text(const StreamInfo& info) {
  return dtype_text(info.dtype) + (info.sample.rank() ? info.sample.str() : "");
}

}  // namespace

std::shared_ptr<Producer> chained(std::vector<std::shared_ptr<Producer>> parts, const std::vector<std::string>& names) {
  if (parts.size() == 1) return parts[0];
  StreamInfo info = *parts[0]->describe();
  for (size_t i = 1; i < parts.size(); ++i) {
    const StreamInfo other = *parts[i]->describe();
    if (other.dtype != info.dtype || other.sample != info.sample)
      throw Error(ErrorKind::Stream, "'" + names[i] + "' has samples of " + type_text(other) + ", '" + names[0] +
                                         "' of " + type_text(info) +
                                         "; files read as one must hold one type of sample");
    if (other.symbols != info.symbols)
      throw Error(ErrorKind::Internal, "'" + names[i] + "' and '" + names[0] + "' have different symbols");
    if (!other.notes.empty()) info.notes += (info.notes.empty() ? "" : "\n") + other.notes;
    info.classes = info.classes && other.classes ? std::max(info.classes, other.classes) : 0;
  }
  info.size = 0;
  return std::make_shared<ChainProducer>(std::move(parts), std::move(info));
}

}  // namespace harmonics
