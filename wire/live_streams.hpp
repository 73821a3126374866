// Library streams over an inbox or an outbox, registered by the plugins of all transports. Header only, because the
// including plugin owns the contract's interface.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <mutex>

#include <harmonics/announced.hpp>
#include <harmonics/plugin.hpp>

#include "wire/inbox.hpp"
#include "wire/outbox.hpp"

namespace harmonics::wire {

// Returns the one object of a type and name in this process; several streams of a flow share it.
template <typename End>
class Shared {
 public:
  template <typename Make>
  static std::shared_ptr<End> at(const std::string& name, Make make) {
    static std::mutex mutex;
    static auto* const all =
        new std::map<std::string, std::weak_ptr<End>>;  // never destroyed: threads may still use it
    const std::lock_guard<std::mutex> lock(mutex);
    std::weak_ptr<End>& known = (*all)[name];
    if (auto end = known.lock()) return end;
    const std::shared_ptr<End> end = make();
    known = end;
    return end;
  }
};

// Reads one tensor of the samples that arrive at `End`, which has an inbox().
template <typename End>
class LiveProducer : public Producer {
 public:
  // `notes` are shown to the user when the stream is opened.
  LiveProducer(std::shared_ptr<End> end, const Arguments& options, std::string notes = "")
      : end_(std::move(end)),
        notes_(std::move(notes)),
        reader_(inbox().open(options.has("#") ? options.text("#") : "",
                             std::chrono::seconds(options.integer("wait", 60)))) {
    const std::string type = options.text("type", "");
    const std::optional<StreamInfo> info = read_announced(type);
    if (!type.empty() && !info)
      throw Error(ErrorKind::Usage, inbox().where() + ": '" + type + "' is not a sample type")
          .note("write type=u8:28x28, type=f32, or with classes type=i64<10");
    if (const std::string name = options.text("forget", ""); !name.empty()) inbox().forget_incarnation(name);
    if (info) inbox().expect(reader_, {info->dtype, info->sample, classes_told(info->dtype, info->classes)});
  }
  // Reads the given tensor, whatever the address selects.
  LiveProducer(std::shared_ptr<End> end, const std::string& tensor, std::chrono::milliseconds wait)
      : end_(std::move(end)), reader_(inbox().open(tensor, wait)) {}
  ~LiveProducer() override { inbox().close(reader_); }

  HTensor next() override {
    numbers_.resize(numbered_ ? 1 : 0);
    const std::optional<Received> sample = inbox().next(reader_, numbered_ ? numbers_.data() : nullptr);
    return sample ? HTensor(sample->dtype, sample->shape, sample->bytes.bytes.data()) : HTensor();
  }
  std::size_t size() const override { return 0; }
  int64_t read(uint64_t n, void* to) override {
    if (numbered_) numbers_.resize(n);
    const uint64_t got = inbox().read(reader_, n, static_cast<std::byte*>(to), numbered_ ? numbers_.data() : nullptr);
    if (numbered_) numbers_.resize(got);
    return static_cast<int64_t>(got);
  }
  std::optional<StreamInfo> describe() override {
    const Inbox::Announced announced = inbox().announced(reader_);
    StreamInfo info;
    info.dtype = announced.dtype;
    info.sample = announced.sample;
    info.classes = announced.classes;
    info.live = true;
    info.notes = notes_;
    return info;
  }
  bool restore(uint64_t index, const std::string& position) override {
    return inbox().restore(reader_, index, position);
  }
  std::string position(uint64_t index) override { return inbox().position(reader_, index); }
  void durable(uint64_t index) override { inbox().durable(reader_, index); }
  bool cancel() override { return inbox().cancel(reader_), true; }
  bool numbers(uint64_t n, SampleNumber* to) override {
    numbered_ = true;  // n = 0 announces later requests
    std::copy(numbers_.end() - static_cast<std::ptrdiff_t>(n), numbers_.end(), to);
    return true;
  }
  std::optional<StreamHealth> health() override {
    const InboxHealth is = inbox().health();
    StreamHealth health;
    health.state = static_cast<StreamHealth::State>(is.state);
    health.senders = is.senders;
    health.connected = is.connected;
    health.wants_durable = is.wants_durable;
    health.at_most_once = inbox().is_one_way();
    health.samples = is.samples;
    health.bytes = is.bytes;
    health.queued_samples = is.queued_samples;
    health.queued_bytes = is.queued_bytes;
    health.window_bytes = is.window_bytes;
    health.lost = is.lost;
    health.duplicates = is.duplicates;
    health.refused = is.refused;
    health.resent = is.resent;
    health.idle_seconds = is.idle_seconds;
    health.last_error = is.last_error;
    return health;
  }

 private:
  Inbox& inbox() const { return end_->inbox(); }
  std::shared_ptr<End> end_;
  std::string notes_;
  int reader_;
  bool numbered_ = false;
  std::vector<SampleNumber> numbers_;  // of the samples returned last
};

// Joins the tensors that several consumers of one address receive into samples; together they are one sender at
// `End`, which has an outbox().
template <typename End>
class Joined {
 public:
  using Make = std::function<std::unique_ptr<End>(OutboxOptions)>;
  Joined(OutboxOptions options, Make make) : options_(std::move(options)), make_(std::move(make)) {}

  // `classes`: the tensor's integers are below this; 0: unknown.
  size_t open(const std::string& name, uint32_t classes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (end_)
      throw Error(ErrorKind::Stream, options_.where + ": samples were sent before '" + name + "' was opened")
          .note("bind all streams of an address together");
    for (const Part& part : parts_)
      if (part.name == name)
        throw Error(ErrorKind::Stream, options_.where + ": '" + name + "' is sent already")
            .note("give the tensors different names: " + options_.where + "#NAME");
    parts_.push_back({name, std::nullopt, {}, 0, false, classes});
    return parts_.size() - 1;
  }

  void push(size_t index, const HTensor& sample) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Part& part = parts_.at(index);
    const DType dtype = sample.dtype();
    const Shape shape = sample.shape();
    if (!part.tensor) {
      if (part.classes > 0 && !is_integer(dtype))
        throw Error(ErrorKind::Usage,
                    options_.where + ": classes are whole numbers, but '" + part.name + "' has other numbers")
            .note("leave classes= out");
      part.tensor = TensorPart{part.name, dtype, shape, {}, part.classes};
    }
    if (part.tensor->dtype != dtype || part.tensor->sample != shape)
      throw Error(ErrorKind::Shape, options_.where + ": '" + part.name + "' is a sample of shape " + shape.str() +
                                        " after samples of shape " + part.tensor->sample.str());
    const size_t size = tensor_bytes(dtype, shape);
    const auto* const first = static_cast<const std::byte*>(sample.bytes());
    ++part.pushed;
    if (parts_.size() == 1) {
      const std::span<const std::byte> piece(first, size);
      return ready().push(std::span(&piece, 1));
    }
    part.waiting.emplace_back(first, first + size);
    if (part.waiting.size() > kMostAhead)
      throw Error(ErrorKind::Stream, options_.where + ": '" + part.name + "' is " + std::to_string(kMostAhead) +
                                         " samples ahead of the others")
          .note("send streams that have one rate");
    while (send_one()) {
    }
  }

  void finish(size_t index) {
    const std::lock_guard<std::mutex> lock(mutex_);
    parts_.at(index).finished = true;
    for (const Part& part : parts_)
      if (!part.finished) return;
    for (const Part& part : parts_)
      if (part.pushed != parts_[0].pushed)
        throw Error(ErrorKind::Stream, options_.where + ": '" + parts_[0].name + "' has " +
                                           std::to_string(parts_[0].pushed) + " samples, '" + part.name + "' has " +
                                           std::to_string(part.pushed));
    if (end_) end_->outbox().finish();
  }

 private:
  static constexpr size_t kMostAhead = 1u << 16;
  struct Part {
    std::string name;
    std::optional<TensorPart> tensor;
    std::deque<std::vector<std::byte>> waiting;
    uint64_t pushed;
    bool finished;
    uint32_t classes;
  };

  Outbox& ready() {
    if (!end_) {
      for (const Part& part : parts_) options_.tensors.push_back(*part.tensor);
      end_ = make_(options_);
    }
    return end_->outbox();
  }
  bool send_one() {
    std::vector<std::span<const std::byte>> sample;
    for (const Part& part : parts_) {
      if (part.waiting.empty()) return false;
      sample.emplace_back(part.waiting.front());
    }
    ready().push(sample);
    for (Part& part : parts_) part.waiting.pop_front();
    return true;
  }

  std::mutex mutex_;
  OutboxOptions options_;
  Make make_;
  std::vector<Part> parts_;
  std::unique_ptr<End> end_;
};

template <typename End>
class LiveConsumer final : public Consumer {
 public:
  LiveConsumer(std::shared_ptr<Joined<End>> joined, const std::string& tensor, uint32_t classes = 0)
      : joined_(std::move(joined)), index_(joined_->open(tensor, classes)) {}

  void push(const HTensor& sample) override { joined_->push(index_, sample); }
  void finish() override { joined_->finish(index_); }

 private:
  std::shared_ptr<Joined<End>> joined_;
  size_t index_;
};

// Options of every live producer and consumer, with their help texts.
inline std::vector<Argument> live_producer_options(std::vector<Argument> more = {}) {
  more.insert(more.begin(),
              {Argument::integer("wait", 60, "seconds to wait for the first sender").in("1..86400"),
               Argument::text("type", "",
                              "sample type, e.g. u8:28x28 or i64<10 (10 classes): the run does not wait for the first "
                              "sender, and other types are refused; a resumed run knows the type"),
               Argument::text("forget", "",
                              "name of a sender whose stored epoch is discarded on resume; use it if the clock was set "
                              "back or another sender used the name")});
  return more;
}
inline std::vector<Argument> one_way_consumer_options(std::vector<Argument> more = {}) {
  more.insert(more.begin(),
              {Argument::text("name", "", "name of this sender; default: the process ID"),
               Argument::integer("patience", 10, "seconds to wait for a receiver").in("1..86400"),
               Argument::integer("classes", 0, "announces integers as class labels below this number; 0 announces none")
                   .in("0..16777216")});
  return more;
}
inline std::vector<Argument> live_consumer_options(std::vector<Argument> more = {}) {
  more.insert(
      more.begin(),
      {Argument::text("ack", "received",
                      "when a sample may be dropped: once it is received, or durable on the receiver's disk")
           .in("received|durable"),
       Argument::flag("resume", false,
                      "the samples are those of a complete source: samples that the receiver has are not sent again")});
  return one_way_consumer_options(std::move(more));
}
inline OutboxOptions outbox_options(const std::string& where, const Arguments& options) {
  OutboxOptions outbox;
  outbox.where = where;
  outbox.producer = options.text("name", "");
  if (outbox.producer.empty()) outbox.producer = "process " + std::to_string(getpid());
  outbox.acknowledgement =
      options.text("ack", "received") == "durable" ? Acknowledgement::Durable : Acknowledgement::Received;
  outbox.patience = std::chrono::seconds(options.integer("patience", 10));
  outbox.whole_source = options.flag("resume", false);
  return outbox;
}

// Sends one of the tensors of an address.
template <typename End>
std::shared_ptr<Consumer> open_live_consumer(const std::string& where, const Arguments& options,
                                             const OutboxOptions& outbox, typename Joined<End>::Make make) {
  const auto joined = Shared<Joined<End>>::at(where + '\n' + outbox.producer,
                                              [&] { return std::make_shared<Joined<End>>(outbox, std::move(make)); });
  return std::make_shared<LiveConsumer<End>>(joined, options.has("#") ? options.text("#") : "value",
                                             static_cast<uint32_t>(options.integer("classes", 0)));
}

}  // namespace harmonics::wire
