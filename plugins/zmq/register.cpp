// Registers the producer zmq+router://HOST:PORT and the consumer zmq+dealer://, which are lossless, and pull and push,
// sub and pub, which deliver at most once.
#include "receiver.hpp"
#include "sender.hpp"
#include "wire/plain/plain_streams.hpp"

HARMONICS_PLUGIN("harmonics.zmq", "0.1.0", "Apache-2.0", "Harmonics");

namespace harmonics::zmq {
namespace {

Address address_of(Pattern pattern, const std::string& path, const Arguments& options) {
  Address address = parse_address(pattern, path);
  if (address.port == 0)  // any free port, which the other end cannot know
    throw Error(ErrorKind::Usage, address.str() + ": port 0 names no port").note("write a port from 1 to 65535");
  if (options.has("bind")) address.binds = options.flag("bind", address.binds);
  const std::string curve = options.text("curve", ""), allow = options.text("allow", ""),
                    server = options.text("server-key", "");
  if (!curve.empty()) {
    address.security.own = read_key_pair(curve);
    if (address.binds ? allow.empty() : server.empty())
      throw Error(ErrorKind::Usage, address.str() + (address.binds ? ": no client keys are allowed"
                                                                   : ": the server's public key is missing"))
          .note(address.binds ? "add ?allow=FILE with the allowed public keys"
                              : "add ?server-key=KEY, or the file that 'harmonics keys' wrote for it");
    if (address.binds)
      address.security.allowed = read_allowed(allow), address.security.names = wire::read_bound_names(allow);
    else
      address.security.server = read_public_key(server);
  } else if (!allow.empty() || !server.empty()) {
    throw Error(ErrorKind::Usage, address.str() + ": peer keys are given without an own key pair")
        .note("add ?curve=FILE, made with 'harmonics keys FILE'");
  }
  check_security(address, options.flag("insecure"));
  return address;
}

std::shared_ptr<Producer> open_plain(const Address& address, plain::Format format,
                                     const std::shared_ptr<Receiver>& receiver, const Arguments& options) {
  plain::expect_one_format(address.str(), format, receiver->is_plain() ? &receiver->feed() : nullptr);
  return std::make_shared<plain::PlainProducer<Receiver>>(receiver, options, plain::at_most_once(address.str()));
}

template <Pattern pattern>
std::shared_ptr<Producer> open_producer(const std::string& path, const Arguments& options) {
  const Address address = address_of(pattern, path, options);
  const auto format = plain::format_named(options.text("format", "hxs"));
  const auto receiver = wire::Shared<Receiver>::at(address.str(), [&] {
    if (format) {
      if (!address.security.names.empty())
        throw Error(ErrorKind::Usage,
                    address.str() + ": names are bound to keys, and samples in plain formats have no names")
            .note("list the keys alone, or leave format= out");
      plain::FeedOptions feed = plain::feed_options(address.str(), *format, options);
      feed.messages = true;
      return std::make_shared<Receiver>(address, std::move(feed));
    }
    wire::InboxOptions inbox;
    inbox.endless = options.text("end", "auto") == "never";
    return std::make_shared<Receiver>(address, std::move(inbox));
  });
  if (format) return open_plain(address, *format, receiver, options);
  plain::expect_one_format(address.str(), format, receiver->is_plain() ? &receiver->feed() : nullptr);
  plain::expect_options(address.str(), false, options);
  const std::string notes =
      address.is_one_way()
          ? address.str() +
                " delivers at most once: samples lost in transit are counted, not resent; zmq+router loses none"
          : "";
  return std::make_shared<wire::LiveProducer<Receiver>>(receiver, options, notes);
}

template <Pattern pattern>
std::shared_ptr<Consumer> open_consumer(const std::string& path, const Arguments& options) {
  const Address address = address_of(pattern, path, options);
  const auto make = [address](wire::OutboxOptions outbox) {
    return std::make_unique<Sender>(address, std::move(outbox));
  };
  return wire::open_live_consumer<Sender>(address.str(), options, wire::outbox_options(address.str(), options), make);
}

// `binds`: which end binds by default.
std::vector<Argument> options(bool binds, bool choice) {
  std::vector<Argument> all = {
      Argument::flag("insecure", false, "allow addresses beyond this machine without keys"),
      Argument::text("curve", "", "file with the key pair of this end, made with 'harmonics keys'"),
      Argument::text("allow", "",
                     "file with the allowed public keys, if this end binds; a line 'KEY as NAME' binds a sender's name "
                     "to its key"),
      Argument::text("server-key", "", "public key of the other end, or the file with it, if this end connects")};
  if (choice) all.push_back(Argument::flag("bind", binds, "this end binds the address; otherwise the other one does"));
  return all;
}

// Lossless transports accept frames only.
std::vector<Argument> with_end(std::vector<Argument> more) {
  more.push_back(
      Argument::text("end", "auto", "never: the stream stays open after all senders have ended").in("auto|never"));
  return wire::live_producer_options(std::move(more));
}

}  // namespace
}  // namespace harmonics::zmq

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  using namespace harmonics;
  using namespace harmonics::zmq;
  registry.register_producer("zmq+router", open_producer<Pattern::Router>,
                             "receives samples from zmq+dealer, without loss; #NAME selects one of several tensors",
                             with_end(options(true, false)));
  registry.register_consumer("zmq+dealer", open_consumer<Pattern::Dealer>,
                             "sends samples to a zmq+router, without loss; named value or #NAME",
                             wire::live_consumer_options(options(false, false)));
  registry.register_producer(
      "zmq+pull", open_producer<Pattern::Pull>,
      "receives samples from zmq+push, or JSON, CSV, MessagePack and NumPy arrays from any PUSH socket, at most once",
      plain::plain_options("hxs", plain::kSentFormats, options(true, true)));
  registry.register_consumer("zmq+push", open_consumer<Pattern::Push>,
                             "sends each sample to one zmq+pull, at most once",
                             wire::one_way_consumer_options(options(false, true)));
  registry.register_producer("zmq+sub", open_producer<Pattern::Sub>,
                             "receives samples from zmq+pub, or in plain formats from any PUB socket, at most once",
                             plain::plain_options("hxs", plain::kSentFormats, options(false, true)));
  registry.register_consumer("zmq+pub", open_consumer<Pattern::Pub>,
                             "sends samples to every zmq+sub that keeps up, at most once",
                             wire::one_way_consumer_options(options(true, true)));
}
