// Tests of ZeroMQ only: addresses, keys, foreign messages, peers that do not speak ZeroMQ.
#include "tests/transports/checks.hpp"

#ifdef HARMONICS_WITH_ZMQ

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <fstream>

#include "plugins/zmq/connections.hpp"
#include "plugins/zmq/receiver.hpp"
#include "plugins/zmq/sender.hpp"
#include "plugins/zmq/socket.hpp"
#include "tests/message_of.hpp"

using namespace transports;
using namespace harmonics::zmq;

namespace {

KeyPair new_keys() {
  char public_key[41], secret_key[41];
  REQUIRE(zmq_curve_keypair(public_key, secret_key) == 0);
  return {public_key, secret_key};
}
Address loopback(Pattern pattern, uint16_t port, const Security& security = {}) {
  Address address = parse_address(pattern, "127.0.0.1:" + std::to_string(port));
  address.security = security;
  return address;
}
// Writes a file that is deleted at the program's end.
std::string written(const std::string& text, mode_t mode = 0600) {
  static struct Files {
    std::vector<std::string> paths;
    ~Files() {
      for (const std::string& path : paths) unlink(path.c_str());
    }
  } files;
  const std::string path = "/tmp/harmonics_keys_" + std::to_string(getpid()) + "_" + std::to_string(files.paths.size());
  files.paths.push_back(path);
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
  return path;
}

// A socket without our code.
struct Raw {
  Raw(int type, uint16_t port) : context(zmq_ctx_new()), socket(zmq_socket(context, type)) {
    const int none = 0, wait = 60000;
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait, sizeof wait);
    REQUIRE(zmq_connect(socket, ("tcp://127.0.0.1:" + std::to_string(port)).c_str()) == 0);
  }
  ~Raw() { zmq_close(socket), zmq_ctx_term(context); }
  void send(const std::string& bytes, bool more = false) {
    REQUIRE(zmq_send(socket, bytes.data(), bytes.size(), more ? ZMQ_SNDMORE : 0) >= 0);
  }
  wire::Frame answer() {
    std::vector<std::byte> bytes(1u << 16);
    const int size = zmq_recv(socket, bytes.data(), bytes.size(), 0);
    REQUIRE(size > 0);
    return wire::decode(std::span(bytes).first(static_cast<size_t>(size)));
  }
  void* context;
  void* socket;
};

}  // namespace

TEST_CASE("zmq: addresses are parsed and checked") {
  CHECK(parse_address(Pattern::Router, "//127.0.0.1:5555").str() == "zmq+router://127.0.0.1:5555");
  CHECK(parse_address(Pattern::Dealer, "localhost:5555").endpoint() == "tcp://127.0.0.1:5555");
  CHECK(parse_address(Pattern::Pub, "[::1]:0").endpoint() == "tcp://[::1]:*");
  for (const char* bad :
       {"", ":", "//", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:999999999999", ":5"})
    CHECK(message_of([&] { parse_address(Pattern::Router, bad); }).find("write zmq+router://127.0.0.1:5555") !=
          std::string::npos);
  const Address far = parse_address(Pattern::Router, "//0.0.0.0:5555");
  CHECK(message_of([&] { check_security(far, false); }) ==
        "zmq+router://0.0.0.0:5555 is not local, and without keys the traffic can be read and forged\n"
        "make keys with 'harmonics keys FILE' and add ?curve=FILE&allow=FILE_OF_PUBLIC_KEYS, or use ?insecure=true "
        "(--insecure) if the address is protected otherwise");
  check_security(far, true);
  Address keyed = far;
  keyed.security.own = new_keys();
  check_security(keyed, false);
}

TEST_CASE("zmq: key files are read and checked") {
  const KeyPair keys = new_keys(), other = new_keys();
  const std::string pair = written("# ours\npublic = " + keys.public_key + "\nsecret = " + keys.secret_key + "\n");
  CHECK(read_key_pair(pair).secret_key == keys.secret_key);
  CHECK(read_public_key(keys.public_key) == keys.public_key);
  CHECK(read_public_key(written("public = " + other.public_key + "\n", 0644)) == other.public_key);
  CHECK(read_allowed(written(keys.public_key + " # camera\n\npublic = " + other.public_key + "\n")) ==
        std::vector<Key>{keys.public_key, other.public_key});
  CHECK(message_of([&] { read_key_pair(written("", 0640)); }).find("other users can read this secret key") !=
        std::string::npos);
  CHECK(message_of([&] { read_key_pair(written("public = " + keys.public_key)); }).find("has no line 'secret = KEY'") !=
        std::string::npos);
  CHECK(message_of([&] { read_allowed(written("# no keys\n")); }).find("no sender would be accepted") !=
        std::string::npos);
  CHECK(message_of([&] { read_allowed(pair); }).find("has a secret key where public ones are listed") !=
        std::string::npos);
  CHECK(message_of([&] { read_allowed(written("public = short\n")); }).find("line 1 has no key of 40 characters") !=
        std::string::npos);
  CHECK(message_of([&] { read_public_key("/nowhere/at/all"); }).find("cannot be read") != std::string::npos);
}

TEST_CASE("zmq: with keys only allowed senders are accepted, others get the reason") {
  const Deadline deadline;
  const KeyPair server = new_keys(), good = new_keys(), bad = new_keys();
  Receiver receiver(loopback(Pattern::Router, 0, {server, {good.public_key}, {}}));
  wire::Inbox& inbox = receiver.inbox();
  const int labels = inbox.open("label", kPatience);
  const auto send_with = [&](const Security& security, const std::string& name, std::chrono::milliseconds patience) {
    wire::OutboxOptions options = pictures(name);
    options.patience = patience;
    Sender sender(loopback(Pattern::Dealer, receiver.port(), security), options);
    push_pictures(sender.outbox(), 0, 500);
    sender.outbox().finish();
  };
  Worker sender([&] { send_with({good, {}, server.public_key}, "good", kPatience); });
  for (int64_t i = 0; i < 500; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(sender.end() == "");
  CHECK(message_of([&] {
          send_with({bad, {}, server.public_key}, "bad", kPatience);
        }).find("the receiver does not allow this key") != std::string::npos);
  CHECK(message_of([&] {
          send_with({good, {}, bad.public_key}, "mistaken", std::chrono::seconds(1));
        }).find("no receiver answered") != std::string::npos);
  CHECK(message_of([&] { send_with({}, "open", std::chrono::seconds(1)); }).find("no receiver answered") !=
        std::string::npos);
  CHECK(inbox.health().samples == 500);
  CHECK(inbox.health().senders == 1);
  CHECK(inbox.health().refused >= 3);  // rejected peers are counted, and good samples continue
  Worker again([&] { send_with({good, {}, server.public_key}, "good", kPatience); });
  for (int64_t i = 0; i < 500; ++i) REQUIRE(next_number_of_any(inbox, labels) == i);
  CHECK(again.end() == "");
}

TEST_CASE("zmq: a name bound to a key is refused to others") {
  const Deadline deadline;
  const KeyPair server = new_keys(), mine = new_keys(), theirs = new_keys();
  const std::string allowed = written(mine.public_key + " as camera 1\npublic = " + theirs.public_key + "\n");
  CHECK(read_allowed(allowed) == std::vector<Key>{mine.public_key, theirs.public_key});
  Security security{server, read_allowed(allowed), {}};
  security.names = wire::read_bound_names(allowed);
  CHECK(security.names == wire::BoundNames{{"camera 1", mine.public_key}});
  CHECK(message_of([&] {
          read_allowed(written(mine.public_key + " as\n"));
        }).find("line 1 has no name: write KEY as NAME") != std::string::npos);
  Receiver receiver(loopback(Pattern::Router, 0, security));
  wire::Inbox& inbox = receiver.inbox();
  const int labels = inbox.open("label", kPatience);
  const auto send_as = [&](const KeyPair& keys, const std::string& name) {
    Sender sender(loopback(Pattern::Dealer, receiver.port(), {keys, {}, server.public_key}), pictures(name));
    push_pictures(sender.outbox(), 0, 20);
    sender.outbox().finish();
  };
  Worker good([&] { send_as(mine, "camera 1"); });
  for (int64_t i = 0; i < 20; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(good.end() == "");
  CHECK(message_of([&] { send_as(theirs, "camera 1"); }).find("its key may not send as 'camera 1'") !=
        std::string::npos);
  CHECK(message_of([&] { send_as(mine, "camera 2"); }).find("its key may not send as 'camera 2'") != std::string::npos);
  Worker other([&] { send_as(theirs, "camera 2"); });
  for (int64_t i = 0; i < 20; ++i) REQUIRE(next_number_of_any(inbox, labels) == i);
  CHECK(other.end() == "");
}

TEST_CASE("zmq: silent connections are closed first, and their number is limited") {
  const auto at = [](int seconds) { return wire::Time(std::chrono::seconds(seconds)); };
  Connections few(3);
  CHECK(!few.accepted(10, at(1)));
  CHECK(!few.accepted(11, at(2)));
  few.heard(10, at(3));
  CHECK(!few.accepted(12, at(4)));
  CHECK(!few.has_room());
  CHECK(few.accepted(13, at(5)) == 11);  // the first silent one
  few.gone(11);
  few.heard(12, at(6)), few.heard(13, at(6));
  CHECK(few.accepted(14, at(7)) == 14);  // all others have sent something
  few.gone(14);
  CHECK(few.silent(at(8), at(5), at(15)).empty());
  CHECK(few.silent(at(20), at(5), at(15)) == std::vector<int>{10});
  CHECK(few.silent(at(20), at(5), at(15)).empty());  // each is returned once
  Connections many(500);
  std::optional<int> victim;
  int n = 0;
  for (; !victim && n < 500; ++n) victim = many.accepted(n, at(n));
  CHECK(n == 65);
  CHECK(victim == 0);
  CHECK(many.silent(at(100), at(50), at(15)).size() == 49);
}

TEST_CASE("zmq: silent connections are closed while good senders continue") {
  const Deadline deadline;
  Receiver receiver(loopback(Pattern::Router, 0));
  wire::Inbox& inbox = receiver.inbox();
  const auto sender = send("zmq+router", "127.0.0.1:" + std::to_string(receiver.port()), pictures("camera"));
  const int labels = inbox.open("label", kPatience);
  push_pictures(sender->outbox(), 0, 10);
  for (int64_t i = 0; i < 10; ++i) REQUIRE(next_number(inbox, labels) == i);
  Raw silent(ZMQ_DEALER, receiver.port());
  void* const monitor = zmq_socket(silent.context, ZMQ_PAIR);
  REQUIRE(zmq_socket_monitor(silent.socket, "inproc://silent", ZMQ_EVENT_DISCONNECTED) == 0);
  REQUIRE(zmq_connect(monitor, "inproc://silent") == 0);
  const int wait = 60000;
  zmq_setsockopt(monitor, ZMQ_RCVTIMEO, &wait, sizeof wait);
  char event[64];
  CHECK(zmq_recv(monitor, event, sizeof event, 0) > 0);
  zmq_close(monitor);
  push_pictures(sender->outbox(), 10, 10);
  for (int64_t i = 10; i < 20; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(sender->outbox().counts().sessions == 1);
}

TEST_CASE("zmq: messages that are not frames are answered while good senders continue") {
  const Deadline deadline;
  Receiver receiver(loopback(Pattern::Router, 0));
  wire::Inbox& inbox = receiver.inbox();
  const int labels = inbox.open("label", kPatience);
  const auto sender = sending("zmq+router", "127.0.0.1:" + std::to_string(receiver.port()), "camera", 0, 3000);
  REQUIRE(next_number(inbox, labels) == 0);
  Raw dealer(ZMQ_DEALER, receiver.port());
  dealer.send("good morning");
  CHECK(dealer.answer().text.find("the end, but a frame begins with 24 bytes") != std::string::npos);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  dealer.send("", true);
  dealer.send("as REQ does");
  const wire::Frame answer = dealer.answer();
  CHECK(answer.kind == wire::Kind::Error);
  CHECK(answer.code == wire::Code::Malformed);
  CHECK(answer.text == "a message of 2 parts instead of one frame");
  Raw flood(ZMQ_DEALER, receiver.port());
  for (int i = 0; i < 2000; ++i) flood.send("HXS1" + std::string(static_cast<size_t>(i), 'x'));
  for (int64_t i = 1; i < 3000; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(next_number(inbox, labels) == -1);
  CHECK(sender->end() == "");
  CHECK(inbox.health().refused >= 2);
  CHECK(inbox.health().lost == 0);
}

TEST_CASE("zmq: a sender that leaves while its samples wait for room does no harm") {
  const Deadline deadline;
  wire::InboxOptions options;
  options.window_samples = 64;
  Receiver receiver(loopback(Pattern::Pull, 0), options);
  wire::Inbox& inbox = receiver.inbox();
  const int reader = inbox.open("", kPatience);
  {
    Raw sender(ZMQ_PUSH, receiver.port());
    for (int64_t i = 0; i < 5000; ++i) {
      wire::Frame frame;
      frame.stream = "samples", frame.producer = "camera", frame.epoch = 1, frame.seq = static_cast<uint64_t>(i),
      frame.count = 1;
      frame.tensors = {{"x", DType::I64, {}, std::as_bytes(std::span(&i, 1))}};
      const std::vector<std::byte> bytes = wire::encode(frame).bytes();
      sender.send({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    for (int i = 0; i < 6000 && inbox.health().queued_samples < 64; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  for (int64_t i = 0; i < 1000; ++i) REQUIRE(next_number(inbox, reader) == i);  // the samples that had arrived before
}

TEST_CASE("zmq: a sender that met a non-ZeroMQ peer finds its receiver afterwards") {
  const Deadline deadline;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof place;
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&place), size) == 0);
  REQUIRE(listen(listener, 8) == 0);
  REQUIRE(getsockname(listener, reinterpret_cast<sockaddr*>(&place), &size) == 0);
  const uint16_t port = ntohs(place.sin_port);
  const auto sender = sending("zmq+router", "127.0.0.1:" + std::to_string(port), "camera", 0, 100);
  // A valid greeting with an unknown mechanism.
  std::string greeting("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NOTHING", 19);
  greeting.resize(64);
  const int met = accept(listener, nullptr, nullptr);
  REQUIRE(met >= 0);
  REQUIRE(::send(met, greeting.data(), greeting.size(), MSG_NOSIGNAL) == 64);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ::close(listener), ::close(met);
  Receiver receiver(loopback(Pattern::Router, port));
  wire::Inbox& inbox = receiver.inbox();
  const int labels = inbox.open("label", kPatience);
  REQUIRE(next_number(inbox, labels) == 0);
  for (int64_t i = 1; i < 100; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(sender->end() == "");
}

TEST_CASE("zmq: peers that do not speak ZeroMQ do not disturb a good sender") {
  const Deadline deadline;
  Receiver receiver(loopback(Pattern::Router, 0));
  wire::Inbox& inbox = receiver.inbox();
  std::vector<int> peers;
  // A greeting of ZMTP 3 and then a frame of 8 GiB; noise; nothing.
  std::string greeting("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL", 16);
  greeting.resize(64);
  const std::string ready = std::string("\x04\x19\x05READY\x0bSocket-Type\0\0\0\x06", 24) + "DEALER";
  const std::string huge("\x02\0\0\0\x02\0\0\0\0", 9);
  for (int i = 0; i < 12; ++i) {
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(receiver.port());
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(s, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0);
    const std::string bytes = i % 3 == 0   ? greeting + ready + huge
                              : i % 3 == 1 ? std::string(300, static_cast<char>(17 * i))
                                           : "";
    if (!bytes.empty()) REQUIRE(::send(s, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0);
    peers.push_back(s);
  }
  const auto sender = sending("zmq+router", "127.0.0.1:" + std::to_string(receiver.port()), "camera", 0, 3000);
  const int labels = inbox.open("label", kPatience);
  for (int64_t i = 0; i < 3000; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(next_number(inbox, labels) == -1);
  CHECK(sender->end() == "");
  for (const int s : peers) ::close(s);
}

TEST_CASE("zmq: messages that arrived before their sender left are read afterwards") {
  const Deadline deadline;
  for (const auto& [to, from] : {std::pair{Pattern::Pull, Pattern::Push}, std::pair{Pattern::Sub, Pattern::Pub}}) {
    INFO(scheme_of(to));
    Address there = loopback(from, 0), here = loopback(to, 0);
    there.binds = true, here.binds = false;
    auto sender = std::make_unique<Socket>(there, "", wire::Limits{}, 1000);
    const std::string endpoint = sender->last_endpoint();
    here.port = static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
    Socket receiver(here, "", wire::Limits{}, 1000);
    Socket::Part part;
    const auto wait_for = [&](Event::Kind kind) {
      for (Event event = receiver.event(); event.kind != kind; event = receiver.event())
        receiver.wait(std::chrono::milliseconds(5), true, false);
    };
    wait_for(Event::Connected);
    const auto bytes = [](int i) { return wire::owned(std::vector<std::byte>(1000, static_cast<std::byte>(i))); };
    // A publisher drops messages until it knows the subscription.
    while (from == Pattern::Pub && !sender->receive(part)) {
      receiver.wait(std::chrono::milliseconds(5), true, false);
      sender->wait(std::chrono::milliseconds(5), true, false);
    }
    for (int i = 0; i < 10; ++i)
      while (sender->send(bytes(i)) != Socket::Sent::Yes) sender->wait(std::chrono::milliseconds(5), false, true);
    sender->linger(kPatience);
    sender.reset();
    wait_for(Event::Disconnected);
    receiver.wait(std::chrono::milliseconds(5), true, false);
    for (int i = 0; i < 10; ++i) {
      REQUIRE(receiver.receive(part));
      CHECK(part.bytes.bytes[0] == static_cast<std::byte>(i));
    }
    CHECK(!receiver.receive(part));
  }
}

TEST_CASE("zmq: no wake-up is lost, at any time") {
  Socket socket(loopback(Pattern::Router, 0), "", harmonics::wire::Limits{}, 4);
  constexpr int kCalls = 10000;
  std::atomic<int> called{0}, heard{0};
  std::thread caller([&] {
    for (int i = 1; i <= kCalls; ++i) {
      for (int pause = i * 37 % 1500; pause > 0; --pause)
        std::atomic_signal_fence(std::memory_order_seq_cst);  // at any instant of the other thread's loop
      called = i;
      socket.wake();
      while (i % 3 == 0 && heard < i) std::this_thread::yield();
    }
  });
  double longest = 0;
  while (heard < kCalls) {
    const auto begin = std::chrono::steady_clock::now();
    socket.wait(std::chrono::seconds(100), false, false);
    longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    heard = called.load();
  }
  caller.join();
  CHECK(longest < 90);  // no thread waited for its timeout despite a wake-up
}

TEST_CASE("zmq: a sender without descriptors keeps its socket until it may open another one") {
  const Deadline deadline;
  const int reserved = ::socket(AF_INET, SOCK_STREAM, 0);  // reserves a port without a listener
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof place;
  REQUIRE(::bind(reserved, reinterpret_cast<sockaddr*>(&place), size) == 0);
  REQUIRE(::getsockname(reserved, reinterpret_cast<sockaddr*>(&place), &size) == 0);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(place.sin_port));
  wire::OutboxOptions options = pictures("late");
  options.patience = kPatience;
  const auto sending = send("zmq+router", address, options);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit few{4, before.rlim_max};  // as many as poll() may look at
  ::setrlimit(RLIMIT_NOFILE, &few);
  std::this_thread::sleep_for(std::chrono::seconds(4));  // without a peer it takes another socket after three
  ::setrlimit(RLIMIT_NOFILE, &before);
  ::close(reserved);
  const auto there = receive("zmq+router", address);
  const int reader = there->inbox().open("label", kPatience);
  Worker worker([&] {
    push_pictures(sending->outbox(), 0, 3);
    sending->outbox().finish();
  });
  for (int64_t i = 0; i < 3; ++i) CHECK(next_number(there->inbox(), reader) == i);
  CHECK(next_number(there->inbox(), reader) == -1);
  CHECK(worker.end() == "");
}

#endif
