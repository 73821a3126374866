// tcp:HOST:PORT as a producer listens there, as a consumer sends there.
#include <harmonics/plugin.hpp>

#include <unistd.h>

#include "listener.hpp"
#include "sender.hpp"

HARMONICS_PLUGIN("harmonics.tcp", "0.1.0", "Apache-2.0", "Harmonics");

namespace harmonics::tcp {
namespace {

class TcpProducer final : public Producer {
 public:
  TcpProducer(std::shared_ptr<Listener> listener, int reader) : listener_(std::move(listener)), reader_(reader) {}
  ~TcpProducer() override { listener_->close(reader_); }

  HTensor next() override {
    const std::optional<Received> sample = listener_->next(reader_);
    return sample ? HTensor(sample->dtype, sample->shape, sample->bytes.data()) : HTensor();
  }
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    const Announced announced = listener_->announced(reader_);
    StreamInfo info;
    info.dtype = announced.dtype;
    info.sample = announced.sample;
    info.live = true;
    return info;
  }

 private:
  std::shared_ptr<Listener> listener_;
  int reader_;
};

class TcpConsumer final : public Consumer {
 public:
  TcpConsumer(Endpoint endpoint, SenderOptions options, std::string tensor)
      : endpoint_(std::move(endpoint)), options_(std::move(options)), tensor_(std::move(tensor)) {}

  void push(const HTensor& sample) override {
    const DType dtype = sample.dtype();
    const Shape shape = sample.shape();
    if (!sender_) {
      options_.tensors = {{tensor_, dtype, shape, {}}};
      sender_ = std::make_unique<Sender>(endpoint_, options_);
    }
    const wire::TensorPart& sent = options_.tensors[0];
    if (sent.dtype != dtype || sent.sample != shape)
      throw Error(ErrorKind::Shape, endpoint_.str() + ": a sample of shape " + shape.str() + " after samples of shape " + sent.sample.str());
    const size_t size = static_cast<size_t>(shape.count()) * element_bytes(dtype);
    sender_->push({{static_cast<const std::byte*>(sample.bytes()), size}});
  }
  void finish() override {
    if (sender_) sender_->finish();
  }

 private:
  Endpoint endpoint_;
  SenderOptions options_;
  std::string tensor_;
  std::unique_ptr<Sender> sender_;
};

std::shared_ptr<Producer> open_producer(const std::string& path, const Arguments& options) {
  const Endpoint endpoint = parse_endpoint(path);
  const int64_t wait = options.integer("wait", 60);
  if (wait < 1 || wait > 86400) throw Error(ErrorKind::Usage, endpoint.str() + ": wait=" + std::to_string(wait) + " is not from 1 to 86400 seconds");
  const std::shared_ptr<Listener> listener = Listener::at(endpoint);
  const int reader = listener->open(options.has("#") ? options.text("#") : "", std::chrono::seconds(wait));
  return std::make_shared<TcpProducer>(listener, reader);
}

std::shared_ptr<Consumer> open_consumer(const std::string& path, const Arguments& options) {
  const Endpoint endpoint = parse_endpoint(path);
  SenderOptions sending;
  sending.producer = options.text("name", "");
  if (sending.producer.empty()) sending.producer = "process " + std::to_string(getpid());
  return std::make_shared<TcpConsumer>(endpoint, sending, options.has("#") ? options.text("#") : "value");
}

}  // namespace
}  // namespace harmonics::tcp

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  using harmonics::Argument;
  registry.register_producer("tcp", harmonics::tcp::open_producer, "samples that are sent to tcp:127.0.0.1:PORT; one of several tensors: #NAME",
                             {Argument::integer("wait", 60, "seconds for the first sender to come")});
  registry.register_consumer("tcp", harmonics::tcp::open_consumer, "sends samples to who listens at tcp:127.0.0.1:PORT, named value or #NAME",
                             {Argument::text("name", "", "of this sender; without it the number of the process")});
}
