// tcp:HOST:PORT and unix:PATH: a producer listens there, a consumer connects to it.
#include "listener.hpp"
#include "sender.hpp"
#include "wire/plain/plain_streams.hpp"

HARMONICS_PLUGIN("harmonics.sockets", "0.2.0", "Apache-2.0", "Harmonics");

namespace harmonics::sockets {
namespace {

std::shared_ptr<Producer> listen(const Endpoint& endpoint, const Arguments& options) {
  const std::string where = endpoint.str();
  const auto format = plain::format_named(options.text("format", "hxs"));
  const auto listener = wire::Shared<Listener>::at(where, [&] {
    if (format) return std::make_shared<Listener>(endpoint, plain::feed_options(where, *format, options));
    plain::expect_options(where, false, options);
    wire::InboxOptions inbox;
    inbox.endless = options.text("end", "auto") == "never";
    return std::make_shared<Listener>(endpoint, inbox);
  });
  plain::expect_one_format(where, format, listener->is_plain() ? &listener->feed() : nullptr);
  if (!format) return std::make_shared<wire::LiveProducer<Listener>>(listener, options);
  return std::make_shared<plain::PlainProducer<Listener>>(listener, options, plain::at_most_once(where));
}

std::shared_ptr<Consumer> send(const Endpoint& endpoint, const Arguments& options) {
  const auto make = [endpoint](wire::OutboxOptions outbox) {
    return std::make_unique<Sender>(endpoint, std::move(outbox));
  };
  return wire::open_live_consumer<Sender>(endpoint.str(), options, wire::outbox_options(endpoint.str(), options), make);
}

// Port 0 would be any free port, which the other end cannot know.
Endpoint known_tcp_endpoint(const std::string& path, const Arguments& options) {
  Endpoint endpoint = tcp_endpoint(path, options.flag("insecure"));
  if (endpoint.port == 0)
    throw Error(ErrorKind::Usage, endpoint.str() + ": port 0 names no port").note("write a port from 1 to 65535");
  return endpoint;
}

std::shared_ptr<Producer> open_tcp_producer(const std::string& path, const Arguments& options) {
  return listen(known_tcp_endpoint(path, options), options);
}
std::shared_ptr<Consumer> open_tcp_consumer(const std::string& path, const Arguments& options) {
  return send(known_tcp_endpoint(path, options), options);
}
std::shared_ptr<Producer> open_unix_producer(const std::string& path, const Arguments& options) {
  return listen(unix_endpoint(path), options);
}
std::shared_ptr<Consumer> open_unix_consumer(const std::string& path, const Arguments& options) {
  return send(unix_endpoint(path), options);
}

}  // namespace
}  // namespace harmonics::sockets

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  using namespace harmonics;
  using namespace harmonics::sockets;
  const Argument insecure =
      Argument::flag("insecure", false, "allow addresses beyond this machine, without encryption");
  registry.register_producer("tcp", open_tcp_producer,
                             "receives samples sent to tcp:127.0.0.1:PORT; #NAME selects one of several tensors",
                             plain::plain_options("hxs", plain::kSentFormats, {insecure}));
  registry.register_consumer("tcp", open_tcp_consumer,
                             "sends samples to the receiver listening at tcp:127.0.0.1:PORT, named value or #NAME",
                             wire::live_consumer_options({insecure}));
  registry.register_producer("unix", open_unix_producer,
                             "receives samples sent to the Unix socket unix:PATH; #NAME selects one of several tensors",
                             plain::plain_options("hxs", plain::kSentFormats));
  registry.register_consumer("unix", open_unix_consumer,
                             "sends samples to the receiver listening at unix:PATH, named value or #NAME",
                             wire::live_consumer_options());
}
