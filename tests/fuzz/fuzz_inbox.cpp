// For any frames of senders, in any order and over any connections, an inbox answers with frames, stays within its
// limits, and returns each sender's samples in order and once, also across restarts. Its positions can be parsed.
#include <map>

#include "tests/fuzz/guarded_bytes.hpp"
#include "tests/wire/raw_frame.hpp"
#include "wire/inbox.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::wire;
using namespace harmonics::engine::testing;

namespace {

constexpr uint64_t kWindow = 16;
constexpr uint32_t kMostCount = 8;

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool is_empty() const { return bytes_.empty(); }
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  std::vector<std::byte> some(size_t most) {
    const size_t n = std::min<size_t>({byte(), most, bytes_.size()});
    const auto part = std::as_bytes(bytes_.first(n));
    bytes_ = bytes_.subspan(n);
    return {part.begin(), part.end()};
  }

 private:
  std::span<const uint8_t> bytes_;
};

// The samples taken from each sender, as in a checkpoint.
struct Model {
  std::map<std::string, uint64_t> next;
  uint64_t given = 0;
};

class World {
 public:
  explicit World(Input input) : input_(input) { restart(); }

  void run() {
    for (int steps = 0; !input_.is_empty() && steps < 400; ++steps) step();
  }

 private:
  void restart() {
    InboxOptions options;
    options.where = "fuzzed";
    options.window_samples = kWindow;
    options.most_senders = 3;
    inbox_ = std::make_unique<Inbox>(options);
    reader_ = inbox_->open("", std::chrono::milliseconds(0));
    model_ = saved_;
    if (keeps_) inbox_->restore(reader_, model_.given, position_);
  }
  void step() {
    switch (input_.byte() % 8) {
      case 0:
      case 1:
      case 2:
        return arrive(structured());
      case 3:
        return arrive(sealed());
      case 4:
        return talk();
      case 5:
        return take();
      case 6:
        return keep();
      default: {
        const uint8_t what = input_.byte();
        if (what % 8 == 0) return restart();
        return inbox_->left(1 + what % 4);
      }
    }
  }
  void arrive(std::vector<std::byte> bytes) {
    inbox_->arrived(1 + input_.byte() % 4, owned(std::move(bytes)));
    const InboxHealth health = inbox_->health();
    require(health.queued_samples < 3 * (kWindow + kMostCount), "more samples are held than may be");
  }
  std::vector<std::byte> structured() {
    static constexpr Kind kKinds[] = {Kind::Hello, Kind::Data, Kind::Data,    Kind::Ping,
                                      Kind::End,   Kind::Bye,  Kind::Welcome, Kind::Nack};
    Frame frame;
    frame.kind = kKinds[input_.byte() % 8];
    frame.stream = "s";
    frame.producer = std::string(1, static_cast<char>('a' + input_.byte() % 5));
    frame.epoch = 1 + input_.byte() % 3;
    frame.session = frame.kind == Kind::Data ? 0 : input_.byte() % 4;
    frame.seq = input_.byte();
    const uint8_t flags = input_.byte();
    frame.fresh = flags & 1, frame.blocked = flags & 2;
    frame.acknowledgement = flags & 4 ? Acknowledgement::Durable : Acknowledgement::Received;
    std::vector<uint64_t> numbers;
    if (frame.kind == Kind::Data) {
      frame.count = 1 + (flags >> 4) % kMostCount;
      for (uint32_t i = 0; i < frame.count; ++i)
        numbers.push_back(uint64_t{static_cast<uint8_t>(frame.producer[0])} << 32 | (frame.seq + i));
    }
    if (frame.kind == Kind::Data || frame.kind == Kind::Hello)
      frame.tensors = {{flags & 8 ? "y" : "x", DType::U64, {}, std::as_bytes(std::span(numbers))}};
    return encode(frame).bytes();
  }
  std::vector<std::byte> sealed() {
    std::vector<std::byte> bytes = input_.some(200);
    if (bytes.size() >= kPrefixBytes) wire::testing::seal(bytes);
    return bytes;
  }
  void talk() {
    int said = 0;
    while (const auto answer = inbox_->poll()) {
      require(++said < 5000, "an inbox that does not stop talking");
      decode(answer->frame);
    }
  }
  void take() {
    for (int n = input_.byte() % 16; n > 0 && inbox_->health().queued_samples > 0; --n) {
      const auto sample = inbox_->next(reader_);
      require(sample.has_value(), "samples that are held and not given");
      if (sample->bytes.size() == 8) check(sample->bytes);
      ++model_.given;
    }
  }
  void check(const OwnedBytes& bytes) {
    uint64_t number = 0;
    std::memcpy(&number, bytes.bytes.data(), sizeof number);
    if (number >> 32 < 'a' || number >> 32 > 'e') return;  // of a frame that this test did not build
    uint64_t& next = model_.next[std::string(1, static_cast<char>(number >> 32))];
    require(static_cast<uint32_t>(number) >= next, "a sample that was given before");
    next = static_cast<uint32_t>(number) + 1;
  }
  void keep() {
    if (!keeps_) {
      keeps_ = true;
      return restart();
    }
    if (inbox_->position(reader_, model_.given).empty()) return;
    position_ = inbox_->position(reader_, model_.given);
    require(positions_text(read_positions(position_)) == position_, "a position that reads otherwise");
    saved_ = model_;
    inbox_->durable(reader_, model_.given);
  }

  Input input_;
  std::unique_ptr<Inbox> inbox_;
  int reader_ = 0;
  bool keeps_ = false;
  Model model_, saved_;
  std::string position_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  World(Input({data, size})).run();
  std::string text(reinterpret_cast<const char*>(data), size);
  return refusing([&] {
    require(
        positions_text(read_positions(positions_text(read_positions(text)))) == positions_text(read_positions(text)),
        "a position that reads otherwise");
  });
}
