#include "listener.hpp"

#include <boost/asio.hpp>

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include <harmonics/error.hpp>

#include "wire/frame_reader.hpp"

namespace harmonics::sockets {

namespace asio = boost::asio;
using asio::generic::stream_protocol;
using Code = boost::system::error_code;
using wire::Time;

namespace {

constexpr size_t kMostLinks = 256, kMostUnwritten = 1u << 20;
constexpr Time kSilence = std::chrono::seconds(15);  // senders send at least every second
constexpr Time kFirst = std::chrono::seconds(5);     // time for the first frame
constexpr Time kWhole = std::chrono::seconds(30);    // time for a frame that has begun
constexpr Time kAlive = std::chrono::seconds(1);     // interval of keep-alives while a frame arrives
constexpr Time kGoodbye = std::chrono::seconds(1);
constexpr Time kPause =
    std::chrono::milliseconds(100);  // pause without accepting when the system has no descriptor left
// Limits of incomplete frames: of a connection before its HELLO, and of all connections.
constexpr size_t kPiece = 64u << 10;
constexpr size_t kMostUngreeted = 64u << 10, kMostBegun = 128u << 20;

stream_protocol::endpoint place_of(const Endpoint& e) {
  if (e.is_unix()) return asio::local::stream_protocol::endpoint(e.path);
  return asio::ip::tcp::endpoint(asio::ip::make_address(e.host), e.port);
}

bool is_socket(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
}

// Removes a stale socket file, on which no process listens.
void remove_stale(const std::string& path) {
  if (!is_socket(path)) return;
  asio::io_context io;
  asio::local::stream_protocol::socket socket(io);
  Code code;
  socket.connect(asio::local::stream_protocol::endpoint(path), code);
  if (code == asio::error::connection_refused) unlink(path.c_str());
}

struct Link {
  Link(uint64_t n, stream_protocol::socket s, wire::Limits limits)
      : peer(n), socket(std::move(s)), reader(ungreeted(limits)) {}
  static wire::Limits ungreeted(wire::Limits limits) {
    limits.frame_bytes = std::min<uint64_t>(limits.frame_bytes, kMostUngreeted);
    return limits;
  }
  uint64_t peer;
  stream_protocol::socket socket;
  wire::FrameReader reader;
  std::vector<std::byte> out, writing;  // queued; in transfer
  bool known = false, closing = false;  // a frame has arrived; close when everything is written
  bool greeted = false;                 // HELLO was received on this connection
  Time heard = wire::now(), whole = heard, told = heard;
  std::vector<std::byte> piece = {};  // buffer for plain formats
  size_t held = 0;                    // plain formats: bytes of incomplete samples
};
using LinkPtr = std::shared_ptr<Link>;

}  // namespace

// Runs on the thread of `io`, except for other threads' calls to the inbox.
struct Listener::Body {
  Body(const Endpoint& e, wire::InboxOptions options)
      : endpoint(e),
        limits(options.limits),
        inbox(with_address(e, std::move(options))),
        acceptor(io),
        timer(io),
        resting(io) {
    listen();
    accept();
    tick();
    inbox.wake_by([this] {
      if (!woken.exchange(true)) asio::post(io, [this] { woken = false, flush(); });
    });
    thread = std::thread([this] { io.run(); });
  }
  Body(const Endpoint& e, plain::FeedOptions options)
      : endpoint(e),
        inbox({}),
        feed(std::make_unique<plain::SampleFeed>(std::move(options))),
        acceptor(io),
        timer(io),
        resting(io) {
    listen();
    accept();
    tick();
    feed->wake_by([this] {
      if (!woken.exchange(true)) asio::post(io, [this] { woken = false, go_on(); });
    });
    thread = std::thread([this] { io.run(); });
  }
  ~Body() {
    inbox.wake_by({});
    if (feed) feed->wake_by({});
    asio::post(io, [this] {
      if (feed) return io.stop();
      leave(wire::now() + kGoodbye);
    });
    thread.join();
    if (endpoint.is_unix()) unlink(endpoint.path.c_str());
  }
  static wire::InboxOptions with_address(const Endpoint& e, wire::InboxOptions options) {
    if (options.where.empty()) options.where = e.str();
    return options;
  }

  void listen() {
    try {
      if (endpoint.is_unix()) remove_stale(endpoint.path);
      const stream_protocol::endpoint place = place_of(endpoint);
      acceptor.open(place.protocol());
      if (endpoint.is_unix())
        fchmod(acceptor.native_handle(), 0600);  // bind creates the file with the socket's mode
      else
        acceptor.set_option(asio::socket_base::reuse_address(true));
      acceptor.bind(place);
      acceptor.listen();
    } catch (const boost::system::system_error& error) {
      const bool taken = error.code() == asio::error::address_in_use;
      const bool denied = error.code() == asio::error::access_denied;
      const bool no_folder = error.code() == boost::system::errc::no_such_file_or_directory;
      throw Error(taken       ? ErrorKind::Unavailable
                  : denied    ? ErrorKind::Denied
                  : no_folder ? ErrorKind::Output
                              : ErrorKind::Stream,
                  endpoint.str() + " cannot be listened on: " + error.code().message())
          .note(no_folder             ? "make its folder first, or choose another path"
                : !endpoint.is_unix() ? (taken ? "choose another port, or stop the process that has it"
                                               : "choose another port or address")
                : taken ? (is_socket(endpoint.path) ? "choose another path, or stop the process that listens there"
                                                    : "it is a file, not a socket; choose another path")
                        : "choose another path");
    }
  }

  void accept() {
    acceptor.async_accept([this](const Code& code, stream_protocol::socket socket) {
      if (code == asio::error::operation_aborted) return;
      if (code) return pause();
      if (links.size() >= kMostLinks) make_room();
      if (links.size() < kMostLinks) {
        if (!endpoint.is_unix()) send_at_once(socket.native_handle());
        const uint64_t peer = ++last_peer;
        const LinkPtr link = links[peer] = std::make_shared<Link>(peer, std::move(socket), limits);
        if (feed)
          read_plain(link);
        else
          read(link);
      } else if (feed) {
        feed->refused(std::to_string(kMostLinks) + " connections are open, the limit");
      }
      accept();
    });
  }

  // Pauses accepting, because the next attempt would fail immediately.
  void pause() {
    resting.expires_after(kPause);
    resting.async_wait([this](const Code& code) {
      if (!code) accept();
    });
  }

  // Drops the connection that has been silent longest since it was accepted.
  void make_room() {
    for (const auto& [peer, link] : links)
      if (!link->known) return drop(LinkPtr(link));
  }

  void tick() {
    timer.expires_after(wire::Inbox::kTick);
    timer.async_wait([this](const Code& code) {
      if (code) return;
      if (feed) return go_on(), tick();
      const Time t = wire::now();
      std::vector<LinkPtr> useless;
      for (const auto& [peer, link] : links)
        if (t - link->heard > (link->known ? kSilence : kFirst) ||
            (link->reader.begun() > 0 && t - link->whole > kWhole) || link->out.size() > kMostUnwritten)
          useless.push_back(link);
      for (const LinkPtr& link : useless) drop(link);
      flush();
      tick();
    });
  }

  void drop(const LinkPtr& link) {
    Code ignored;
    link->socket.close(ignored);
    if (links.erase(link->peer) == 0) return;
    begun -= feed ? link->held : link->reader.begun();
    if (feed)
      feed->left(link->peer);
    else
      inbox.left(link->peer);
  }

  // Reads plain formats when there is room. Their senders may be silent for long.
  void read_plain(const LinkPtr& link) {
    if (feed->is_full()) return waiting.push_back(link);
    link->piece.resize(kPiece);
    link->socket.async_read_some(asio::buffer(link->piece), [this, link](const Code& code, size_t bytes) {
      if (code || !links.count(link->peer)) return drop(link);
      if (!std::exchange(link->known, true)) feed->came(link->peer);
      const plain::Outcome outcome = feed->arrived(link->peer, {link->piece.data(), bytes});
      begun -= link->held;
      begun += link->held = feed->held(link->peer);
      if (outcome.broken) return drop(link);
      if (begun > kMostBegun && !make_memory_for(link)) return;
      read_plain(link);
    });
  }
  void go_on() {
    if (feed->is_full()) return;
    for (const LinkPtr& link : std::exchange(waiting, {}))
      if (links.count(link->peer)) read_plain(link);
  }
  // Drops the connection with the most bytes of an incomplete sample. Returns false if that is `reading`.
  bool make_memory_for(const LinkPtr& reading) {
    LinkPtr most = reading;
    for (const auto& [peer, link] : links)
      if (link->held > most->held) most = link;
    feed->refused("more than " + std::to_string(kMostBegun) +
                  " bytes of unfinished samples are buffered: the largest is dropped with its connection");
    drop(most);
    return most != reading;
  }

  void read(const LinkPtr& link) {
    const auto room = link->reader.room();
    link->socket.async_read_some(asio::buffer(room.data(), room.size()), [this, link](const Code& code, size_t bytes) {
      if (code || !links.count(link->peer)) return drop(link);
      const size_t before = link->reader.begun();
      link->reader.arrived(bytes);
      link->heard = wire::now();
      link->closing = !take(*link);
      begun = begun + link->reader.begun() - before;
      if (begun > kMostBegun && !make_memory(link)) return;
      flush();
      if (!link->closing) return read(link);
      if (link->writing.empty()) drop(link);  // the sender reconnects and resumes
    });
  }
  // Drops the connection whose frame arrives most slowly; its sender reconnects and resumes. Returns false if that is
  // `reading`.
  bool make_memory(const LinkPtr& reading) {
    const auto pace = [](const Link& link) {
      const double seconds = std::chrono::duration<double>(wire::now() - link.whole).count();
      return static_cast<double>(link.reader.begun()) / std::max(seconds, 1e-3);
    };
    LinkPtr slowest = reading;
    for (const auto& [peer, link] : links)
      if (link->reader.begun() > kMostUngreeted && pace(*link) < pace(*slowest)) slowest = link;
    inbox.turned_away("more than " + std::to_string(kMostBegun) +
                      " bytes of unfinished frames are buffered: the slowest of their senders must start again");
    drop(slowest);
    return slowest != reading;
  }
  // Returns false if the start of the next frame is unknown.
  bool take(Link& link) {
    try {
      while (const wire::OwnedBytes frame = link.reader.next()) {
        if (!inbox.arrived(link.peer, frame)) return false;
        link.known = true;
        if (!link.greeted && inbox.is_greeted(link.peer)) link.greeted = true, link.reader.limit(limits);
        link.whole = link.heard;
      }
      if (link.reader.begun() == 0) link.whole = link.heard;
      if (link.heard - std::max(link.whole, link.told) >= kAlive) {
        link.told = link.heard;
        inbox.arriving(link.peer);
      }
      return true;
    } catch (const Error& e) {
      inbox.damaged(link.peer, e.what());
      return false;
    }
  }

  void flush() {
    while (auto answer = inbox.poll()) {
      const auto link = links.find(answer->peer);
      if (link != links.end())
        link->second->out.insert(link->second->out.end(), answer->frame.begin(), answer->frame.end());
    }
    for (const auto& [peer, link] : links) write(link);
  }
  void write(const LinkPtr& link) {
    if (link->out.empty() || !link->writing.empty()) return;
    std::swap(link->out, link->writing);
    asio::async_write(link->socket, asio::buffer(link->writing), [this, link](const Code& code, size_t) {
      link->writing.clear();
      if (code || (link->closing && link->out.empty())) return drop(link);
      write(link);
    });
  }

  // Runs until all senders have been told, but not beyond this time.
  void leave(Time latest) {
    Code ignored;
    resting.cancel();
    acceptor.close(ignored);
    flush();
    const bool told = inbox.say_goodbye();
    flush();
    bool written = true;
    for (const auto& [peer, link] : links) written &= link->writing.empty() && link->out.empty();
    if ((told && written) || wire::now() > latest) return io.stop();
    timer.expires_after(std::chrono::milliseconds(2));
    timer.async_wait([this, latest](const Code&) { leave(latest); });
  }

  Endpoint endpoint;
  wire::Limits limits;
  wire::Inbox inbox;
  std::unique_ptr<plain::SampleFeed> feed;  // of plain formats, instead of the inbox
  std::vector<LinkPtr> waiting;             // connections waiting for room
  std::atomic<bool> woken{false};
  asio::io_context io;
  asio::basic_socket_acceptor<stream_protocol> acceptor;
  asio::steady_timer timer, resting;
  std::map<uint64_t, LinkPtr> links;
  uint64_t last_peer = 0;
  size_t begun = 0;  // bytes of incomplete frames, over all connections
  std::thread thread;
};

Listener::Listener(const Endpoint& endpoint, wire::InboxOptions options)
    : body_(std::make_unique<Body>(endpoint, std::move(options))) {}
Listener::Listener(const Endpoint& endpoint, plain::FeedOptions options)
    : body_(std::make_unique<Body>(endpoint, std::move(options))) {}
Listener::~Listener() = default;
wire::Inbox& Listener::inbox() { return body_->feed ? body_->feed->inbox() : body_->inbox; }
bool Listener::is_plain() const { return body_->feed != nullptr; }
plain::SampleFeed& Listener::feed() { return *body_->feed; }

uint16_t Listener::port() const {
  const auto place = body_->acceptor.local_endpoint();
  asio::ip::tcp::endpoint tcp;
  if (place.size() > tcp.capacity()) return 0;
  std::memcpy(tcp.data(), place.data(), place.size());
  return tcp.port();
}

}  // namespace harmonics::sockets
