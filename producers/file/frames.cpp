#include "producers/file/frames.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include <harmonics/quantity.hpp>

#include "producers/file/part.hpp"
#include "wire/frame.hpp"

namespace harmonics {

namespace {

wire::Limits limits() {
  wire::Limits limits;
  limits.frame_bytes = uint64_t{1} << 30;
  return limits;
}

// A run of contiguous samples.
struct Run {
  uint64_t first;  // index in the file
  uint64_t count;
  size_t offset;
  SampleNumber number;  // of the first sample
};

struct Found {
  std::vector<Run> runs;
  std::optional<wire::TensorPart> tensor;
  uint64_t samples = 0, safe = 0;  // all samples, and those before the last barrier
  bool barriers = false;
  std::string damage;
};

const wire::TensorPart& chosen(const wire::Frame& frame, const std::optional<std::string>& tensor,
                               const std::string& name) {
  if (!tensor && frame.tensors.size() == 1) return frame.tensors[0];
  for (const wire::TensorPart& part : frame.tensors)
    if (tensor && part.name == *tensor) return part;
  const std::string held = "holds " + wire::described(frame.tensors);
  if (tensor) refuse_file(name, held + ", no '" + *tensor + "'", "name one of them after '#'");
  refuse_file(name, held, "say which: " + name + "#" + frame.tensors[0].name);
}

void add(Found& found, const wire::Frame& frame, const std::optional<std::string>& tensor, const FileBytes& file) {
  const wire::TensorPart& part = chosen(frame, tensor, file.name());
  if (!found.tensor) found.tensor = wire::TensorPart{part.name, part.dtype, part.sample, {}, part.classes};
  if (part.dtype != found.tensor->dtype || part.sample != found.tensor->sample)
    refuse_file(file.name(), "has " + wire::described({part}) + " behind " + wire::described({*found.tensor}),
                "samples of a stream have one type");
  const auto offset = static_cast<size_t>(reinterpret_cast<const uint8_t*>(part.bytes.data()) - file.data());
  found.runs.push_back({found.samples, frame.count, offset, frame.number_of(0)});
  found.samples += frame.count;
}

Found read_frames(const FileBytes& file, const std::optional<std::string>& tensor) {
  Found found;
  const std::span<const std::byte> all(reinterpret_cast<const std::byte*>(file.data()), file.size());
  size_t at = 0;
  while (at < all.size()) {
    wire::Frame frame;
    size_t size = 0;
    try {
      size = wire::read_prefix(all.subspan(at), limits()).frame_bytes();
      if (size > all.size() - at)
        throw Error(ErrorKind::Stream,
                    "a frame of " + quantity(size, "byte") + ", and " + std::to_string(all.size() - at) + " are left")
            .note("get the whole file");
      frame = wire::decode(all.subspan(at, size), limits());
    } catch (const Error& e) {
      found.damage = "frame at byte " + std::to_string(at) + ": " + e.what();
      break;
    }
    at += size;
    if (frame.kind == wire::Kind::Data) add(found, frame, tensor, file);
    if (frame.kind == wire::Kind::Barrier) found.barriers = true, found.safe = found.samples;
  }
  return found;
}

class FrameProducer final : public Producer {
 public:
  FrameProducer(FileBytesPtr file, Found found, uint64_t first, uint64_t last)
      : file_(std::move(file)), runs_(std::move(found.runs)), first_(first), last_(last), at_(first) {
    info_.dtype = found.tensor->dtype;
    info_.sample = found.tensor->sample;
    info_.classes = found.tensor->classes;
    info_.size = last - first;
    if (!found.damage.empty()) info_.notes = found.damage + "; data after the last barrier is ignored";
    bytes_ = info_.sample_bytes();
  }

  HTensor next() override {
    if (at_ == last_) return {};
    file_->check();
    HTensor sample(info_.dtype, info_.sample, place(at_++));
    file_->expect_whole();
    return sample;
  }
  std::size_t size() const override { return last_ - first_; }
  bool rewind() override { return at_ = first_, true; }
  bool seek(uint64_t, uint64_t index) override { return index <= size() && (at_ = first_ + index, true); }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override {
    file_->check();
    n = std::min(n, last_ - at_);
    auto* out = static_cast<uint8_t*>(to);
    for (uint64_t done = 0; done < n;) {
      const Run& run = run_with(at_);
      const uint64_t count = std::min(run.first + run.count - at_, n - done);
      std::memcpy(out + done * bytes_, place(at_), count * bytes_);
      done += count;
      at_ += count;
    }
    file_->expect_whole();
    return static_cast<int64_t>(n);
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    file_->check();
    for (uint64_t i = 0; i < n; ++i)
      std::memcpy(static_cast<uint8_t*>(to) + i * bytes_, place(first_ + numbers[i]), bytes_);
    file_->expect_whole();
    return true;
  }
  bool numbers(uint64_t n, SampleNumber* to) override {
    for (uint64_t at = at_ - n; at < at_; ++at) {
      const Run& run = run_with(at);
      *to++ = {run.number.number + (at - run.first), run.number.sender};
    }
    return true;
  }

 private:
  const Run& run_with(uint64_t sample) const {
    return *std::prev(
        std::upper_bound(runs_.begin(), runs_.end(), sample, [](uint64_t s, const Run& run) { return s < run.first; }));
  }
  const uint8_t* place(uint64_t sample) const {
    const Run& run = run_with(sample);
    return file_->data() + run.offset + (sample - run.first) * bytes_;
  }

  FileBytesPtr file_;
  std::vector<Run> runs_;
  StreamInfo info_;
  size_t bytes_;
  uint64_t first_, last_, at_;
};

}  // namespace

bool looks_like_frames(const uint8_t* data, size_t size) { return size >= 4 && std::memcmp(data, "HXS1", 4) == 0; }

std::shared_ptr<Producer> open_frames(const FileBytesPtr& file, const std::optional<std::string>& tensor,
                                      const std::string& part) {
  Found found = read_frames(*file, tensor);
  if (!found.damage.empty() && !found.barriers) refuse_file(file->name(), found.damage, "");
  const uint64_t count = found.barriers ? found.safe : found.samples;
  if (count == 0 && found.damage.empty() && found.barriers) return nullptr;
  if (count == 0) refuse_file(file->name(), "has no samples" + (found.damage.empty() ? "" : ": " + found.damage));
  const auto [first, last] = part_of(part, count, file->name());
  return std::make_shared<FrameProducer>(file, std::move(found), first, last);
}

}  // namespace harmonics
