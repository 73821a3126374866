#include "engine/serving/zmq_server.hpp"

#if __has_include(<zmq.h>)

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <fmt/core.h>
#include <zmq.h>

#include "engine/base/address.hpp"
#include "engine/serving/http_server.hpp"
#include "wire/keys.hpp"

namespace harmonics::engine {

namespace {

constexpr const char* kScheme = "zmq+rep:";
constexpr size_t kMostOpen = 1024;           // maximum number of requests without a sent reply
constexpr std::chrono::seconds kUnread{10};  // time for a peer to read its replies

// Functions of libzmq, looked up by name.
struct Zmq {
#define HM_ZMQ(name) decltype(&zmq_##name) name = find<decltype(&zmq_##name)>("zmq_" #name)
  HM_ZMQ(ctx_new);
  HM_ZMQ(ctx_term);
  HM_ZMQ(socket);
  HM_ZMQ(close);
  HM_ZMQ(bind);
  HM_ZMQ(setsockopt);
  HM_ZMQ(getsockopt);
  HM_ZMQ(msg_init);
  HM_ZMQ(msg_recv);
  HM_ZMQ(msg_data);
  HM_ZMQ(msg_size);
  HM_ZMQ(msg_more);
  HM_ZMQ(msg_close);
  HM_ZMQ(send);
  HM_ZMQ(poll);
  HM_ZMQ(strerror);
#undef HM_ZMQ
  decltype(&zmq_errno) last_error = find<decltype(&zmq_errno)>("zmq_errno");

  static const Zmq& get() {
    static const Zmq zmq;
    return zmq;
  }

 private:
  template <typename Function>
  static Function find(const char* name) {
    static void* const handle = ::dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
    void* const found = handle ? ::dlsym(handle, name) : nullptr;
    if (!found)
      throw Error(ErrorKind::Unavailable, "ZeroMQ is not available: libzmq.so.5 cannot be opened", {},
                  {"install it (libzmq5), or serve over HTTP"});
    return reinterpret_cast<Function>(found);
  }
};

// The address to listen on, and the clients that may connect.
struct Place {
  std::string endpoint;  // as written for libzmq
  bool beyond = false;   // other machines can reach it
  std::optional<wire::KeyPair> own;
  std::vector<wire::Key> allowed;
};

// Reads the key options, which are those of ZeroMQ producers.
void take_keys(const std::string& text, Address& address, Place& place) {
  const std::optional<std::string> curve = address.take("curve"), allow = address.take("allow");
  if (!curve && allow)
    throw Error(ErrorKind::Usage, text + ": peer keys are given without an own key pair", {},
                {"add ?curve=FILE, made with 'harmonics keys FILE'"});
  if (!curve) return;
  place.own = wire::read_key_pair(*curve);
  if (!allow)
    throw Error(ErrorKind::Usage, text + ": no client keys are allowed", {},
                {"add ?allow=FILE with the allowed public keys"});
  place.allowed = wire::read_allowed(*allow);
}

Place place_of(const std::string& text, bool insecure) {
  Address address = parse_address(text);
  Place place;
  take_keys(text, address, place);
  if (const auto option = address.take("insecure")) {
    if (*option != "true" && *option != "false")
      throw Error(ErrorKind::Usage, fmt::format("{}: insecure is true or false, not '{}'", text, *option));
    insecure = *option == "true";
  }
  if (!address.options.empty())
    throw Error(ErrorKind::Usage, fmt::format("{}: there is no option '{}'", text, address.options.front().key), {},
                {"options are curve, allow and insecure"});
  if (address.fragment)
    throw Error(ErrorKind::Usage,
                fmt::format("{}: '#' selects a tensor of a stream, but predictions have all tensors", text), {},
                {"leave it out"});
  if (address.path.starts_with("ipc:") && address.path.size() > 4) {
    place.endpoint = "ipc://" + address.path.substr(4);
    return place;
  }
  if (!address.path.starts_with("//"))
    throw Error(ErrorKind::Usage, fmt::format("'{}' is not an address to answer on", text), {},
                {"write zmq+rep://127.0.0.1:5556 or zmq+rep:ipc:/path"});
  const ListenAddress listen = parse_listen(address.path.substr(2));
  place.beyond = !listen.loopback;
  if (place.beyond && !place.own && !insecure)
    throw Error(ErrorKind::Denied,
                fmt::format("other machines can reach {}, and without keys the traffic is not encrypted", text), {},
                {"make keys with 'harmonics keys FILE' and add ?curve=FILE&allow=FILE_OF_PUBLIC_KEYS, listen on "
                 "127.0.0.1 and use a tunnel (ssh -L), or use --insecure if the address is protected otherwise"});
  place.endpoint = fmt::format(
      listen.host.find(':') == std::string::npos ? fmt::runtime("tcp://{}:{}") : fmt::runtime("tcp://[{}]:{}"),
      listen.host, listen.port == 0 ? "*" : std::to_string(listen.port));
  return place;
}

// Returns whether the body is a safetensors file: its eight-byte length contains a zero byte, unlike JSON text.
bool is_tensors(const std::string& body) { return body.size() > 8 && std::memchr(body.data(), 0, 8) != nullptr; }

using Parts = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

}  // namespace

bool is_zmq_address(const std::string& text) { return text.starts_with(kScheme); }

// One thread owns the socket. Answers are passed to this thread.
class ZmqServer::Running : public std::enable_shared_from_this<Running> {
 public:
  Running(Service& service, const std::string& address, bool insecure)
      : zmq_(Zmq::get()), service_(service), place_(place_of(address, insecure)) {
    const std::string& endpoint = place_.endpoint;
    context_ = zmq_.ctx_new();
    socket_ = zmq_.socket(context_, ZMQ_ROUTER);
    wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const int64_t largest = int64_t{8} << 20;
    zmq_.setsockopt(socket_, ZMQ_MAXMSGSIZE, &largest, sizeof largest);
    for (const auto& [option, value] : {std::pair{ZMQ_LINGER, 0},
                                        {ZMQ_RCVHWM, 64},
                                        {ZMQ_SNDHWM, 64},
                                        {ZMQ_ROUTER_MANDATORY, 1},
                                        {ZMQ_HANDSHAKE_IVL, 5000},
                                        {ZMQ_TCP_KEEPALIVE, 1},
                                        {ZMQ_TCP_KEEPALIVE_IDLE, 5},
                                        {ZMQ_IPV6, endpoint.starts_with("tcp://[")}})
      zmq_.setsockopt(socket_, option, &value, sizeof value);
    if (place_.own) guard();
    if (wake_ < 0 || zmq_.bind(socket_, endpoint.c_str()) != 0) {
      const std::string why = zmq_.strerror(zmq_.last_error());
      close();
      throw Error(ErrorKind::Unavailable, fmt::format("cannot listen on {}: {}", endpoint, why), {},
                  {"choose another address; port 0 takes a free one"});
    }
    char bound[256];
    size_t size = sizeof bound;
    zmq_.getsockopt(socket_, ZMQ_LAST_ENDPOINT, bound, &size);
    address_ = bound;
  }
  ~Running() { close(); }

  void start() {
    thread_ = std::thread([this] { run(); });
  }
  void stop() {
    over_ = true;
    wake();
    thread_.join();
  }
  const std::string& address() const { return address_; }
  bool asks_for_token() const { return place_.beyond && !place_.own; }

 private:
  // Admits only clients whose key is listed. libzmq sends authentication requests to a socket with this name (ZAP,
  // RFC 27).
  void guard() {
    const int server = 1;
    gate_ = zmq_.socket(context_, ZMQ_REP);
    if (zmq_.setsockopt(socket_, ZMQ_CURVE_SERVER, &server, sizeof server) == 0 &&
        zmq_.setsockopt(socket_, ZMQ_CURVE_SECRETKEY, place_.own->secret_key.c_str(),
                        place_.own->secret_key.size() + 1) == 0 &&
        zmq_.setsockopt(socket_, ZMQ_CURVE_PUBLICKEY, place_.own->public_key.c_str(),
                        place_.own->public_key.size() + 1) == 0 &&
        zmq_.setsockopt(socket_, ZMQ_ZAP_DOMAIN, "harmonics", 9) == 0 &&
        zmq_.bind(gate_, "inproc://zeromq.zap.01") == 0)
      return;
    const std::string why = zmq_.strerror(zmq_.last_error());
    close();
    throw Error(ErrorKind::Unavailable, fmt::format("{} cannot use CURVE keys: {}", place_.endpoint, why), {},
                {"this libzmq may have been built without CURVE"});
  }

  void close() {
    if (gate_) zmq_.close(gate_);
    if (socket_) zmq_.close(socket_);
    if (context_) zmq_.ctx_term(context_);
    if (wake_ >= 0) ::close(wake_);
    socket_ = context_ = gate_ = nullptr;
    wake_ = -1;
  }

  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);  // if full, the thread is already awake
  }

  void run() {
    while (!over_) {
      zmq_pollitem_t items[] = {
          {socket_, 0, ZMQ_POLLIN, 0}, {nullptr, wake_, ZMQ_POLLIN, 0}, {gate_, 0, ZMQ_POLLIN, 0}};
      if (zmq_.poll(items, gate_ ? 3 : 2, unsent_.empty() ? 1000 : 5) < 0) continue;
      if (gate_ && items[2].revents) admit();
      uint64_t count = 0;
      while (::read(wake_, &count, sizeof count) > 0) {
      }
      send_late();
      answer();
      for (int i = 0; i < 64 && items[0].revents && !over_; ++i)
        if (!hear()) break;
    }
  }

  // Receives the parts of the next message. Returns false if there is none.
  bool take(void* socket, Parts& parts) {
    for (bool more = true; more;) {
      zmq_msg_t message;
      zmq_.msg_init(&message);
      if (zmq_.msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
        zmq_.msg_close(&message);
        return false;
      }
      if (parts.size() < 8)
        parts.emplace_back(static_cast<const char*>(zmq_.msg_data(&message)), zmq_.msg_size(&message));
      more = zmq_.msg_more(&message);
      zmq_.msg_close(&message);
    }
    return true;
  }

  void admit() {
    for (Parts question; take(gate_, question); question.clear()) {
      const Parts answer = wire::admission(question, place_.allowed);
      for (size_t i = 0; i < answer.size(); ++i)
        zmq_.send(gate_, answer[i].data(), answer[i].size(), i + 1 < answer.size() ? ZMQ_SNDMORE : 0);
    }
  }

  // Handles a message: the peer's identity, the empty part added by REQ sockets, an optional token, the body.
  bool hear() {
    Parts parts;
    if (!take(socket_, parts)) return false;
    Parts envelope{std::move(parts.front())};
    size_t at = 1;
    if (parts.size() > 1 && parts[1].empty()) envelope.emplace_back(), at = 2;
    ServiceRequest request;
    request.method = "POST";
    request.trusted = place_.own.has_value();  // authenticated by its key
    request.beyond = place_.beyond;
    request.path = "/v1/predict";
    if (parts.size() == at + 2) request.authorization = "Bearer " + parts[at++];
    if (open_ >= kMostOpen) {
      send(envelope, Service::refusal(503, "too many requests", "try again later").body);  // dropped if unread
      return true;
    }
    ++open_;
    if (parts.size() != at + 1) {
      deliver({envelope,
               Service::refusal(400, "the message has too many parts", "send one part, or the token and then the body")
                   .body});
      return true;
    }
    request.body = std::move(parts[at]);
    request.content_type = is_tensors(request.body) ? "application/x-safetensors" : "application/json";
    service_.handle(std::move(request),
                    [self = shared_from_this(), envelope = std::move(envelope)](ServiceReply reply) {
                      {
                        const std::lock_guard<std::mutex> lock(self->mutex_);
                        self->answers_.push_back({envelope, std::move(reply.body)});
                      }
                      if (!self->over_) self->wake();
                    });
    return true;
  }

  struct Reply {
    Parts envelope;  // the peer's identity comes first
    std::string body;
    Clock::time_point until = Clock::now() + kUnread;
  };

  void answer() {
    std::deque<Reply> ready;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ready.swap(answers_);
    }
    for (Reply& reply : ready) deliver(std::move(reply));
  }

  // Sends a reply, later if the queue of its peer is full.
  void deliver(Reply reply) {
    const auto is_of_peer = [&](const Reply& r) { return r.envelope.front() == reply.envelope.front(); };
    if (std::any_of(unsent_.begin(), unsent_.end(), is_of_peer) || !send(reply.envelope, reply.body))
      unsent_.push_back(std::move(reply));
    else
      --open_;
  }

  void send_late() {
    std::set<std::string> full;  // peers
    const Clock::time_point now = Clock::now();
    std::erase_if(unsent_, [&](const Reply& reply) {
      const std::string& peer = reply.envelope.front();
      if (reply.until > now && (full.contains(peer) || !send(reply.envelope, reply.body))) {
        full.insert(peer);
        return false;
      }
      --open_;
      return true;
    });
  }

  // Sends a reply, or drops it if the peer is gone. Returns false if the peer's queue is full.
  bool send(const Parts& envelope, const std::string& body) {
    for (const std::string& part : envelope)
      if (zmq_.send(socket_, part.data(), part.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
        return zmq_.last_error() != EAGAIN;
    zmq_.send(socket_, body.data(), body.size(), ZMQ_DONTWAIT);
    return true;
  }

  const Zmq& zmq_;
  Service& service_;
  const Place place_;
  void *context_ = nullptr, *socket_ = nullptr, *gate_ = nullptr;
  int wake_ = -1;
  std::string address_;
  std::mutex mutex_;
  std::deque<Reply> answers_;
  std::deque<Reply> unsent_;  // replies whose peers do not read them yet
  size_t open_ = 0;           // requests without a sent reply
  std::atomic<bool> over_{false};
  std::thread thread_;
};

ZmqServer::ZmqServer(Service& service, const std::string& address, bool insecure)
    : running_(std::make_shared<Running>(service, address, insecure)) {
  running_->start();
}

ZmqServer::~ZmqServer() { running_->stop(); }

std::string ZmqServer::address() const { return running_->address(); }
bool ZmqServer::asks_for_token() const { return running_->asks_for_token(); }

}  // namespace harmonics::engine

#else

namespace harmonics::engine {

bool is_zmq_address(const std::string& text) { return text.starts_with("zmq+rep:"); }

class ZmqServer::Running {};

ZmqServer::ZmqServer(Service&, const std::string&, bool) {
  throw Error(ErrorKind::Unavailable, "this program was built without ZeroMQ", {},
              {"build it where libzmq3-dev is installed, or serve over HTTP"});
}
ZmqServer::~ZmqServer() = default;
std::string ZmqServer::address() const { return ""; }
bool ZmqServer::asks_for_token() const { return false; }

}  // namespace harmonics::engine

#endif
