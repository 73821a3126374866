#include "tests/transports/chaos_proxy.hpp"

#include <boost/asio.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "wire/frame.hpp"

namespace transports {

namespace asio = boost::asio;
using asio::ip::tcp;
using Code = boost::system::error_code;
using Clock = std::chrono::steady_clock;
using When = Clock::time_point;
using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kTick{5}, kCut{50}, kGoodbye{2000};
constexpr size_t kMostQueued = 256u << 10, kMostWrite = 64u << 10;
constexpr size_t kGreeting = 64;  // of ZMTP

// One direction of a connection.
struct Way {
  int bit = 0;
  tcp::socket *from = nullptr, *to = nullptr;
  std::mt19937_64 random;
  std::array<std::byte, 16384> piece;
  Bytes in, out, writing;            // incomplete frame; bytes to write, in order; bytes being written
  std::multimap<When, Bytes> queue;  // by time of delivery
  size_t queued = 0;
  size_t greeted = 0;  // ZMTP: bytes of the greeting that have passed; it is sent in pieces
  bool reading = false, ended = false, shut = false, dead = false;
  When last_due{}, next_byte{}, paid{};
};

struct Link {
  explicit Link(asio::io_context& io) : client(io), server(io) {}
  tcp::socket client, server;
  Way ways[2];
  std::optional<size_t> cut_after;  // bytes to the receiver
  bool resets = false, closing = false;
  When cut_by{}, closed_at{};
};
using LinkPtr = std::shared_ptr<Link>;

struct Size {
  size_t bytes = 0;      // bytes of the first frame; 0: incomplete
  bool movable = false;  // it may be reordered
};
Size first_of(const Way& way, Framing framing) {
  const Bytes& in = way.in;
  const auto byte = [&](size_t at) { return std::to_integer<uint64_t>(in[at]); };
  uint64_t size = in.size();
  bool movable = true;
  if (framing == Framing::Hxs) {
    if (in.size() < harmonics::wire::kPrefixBytes) return {};
    size = harmonics::wire::read_prefix(in).frame_bytes();
  } else if (way.greeted < kGreeting) {
    size = std::min(in.size(), kGreeting - way.greeted), movable = false;
  } else {
    const bool is_long = in.size() > 0 && (byte(0) & 2) != 0;
    if (in.size() < (is_long ? 9u : 2u)) return {};
    movable = (byte(0) & 5) == 0;  // a single part with samples, not a command
    size = is_long ? 0 : byte(1) + 2;
    for (size_t i = 1; is_long && i < 9; ++i) size = size << 8 | byte(i);
    if (is_long) size += 9;
  }
  if (in.size() < size) return {};
  return {static_cast<size_t>(size), movable};
}

uint64_t mixed(uint64_t seed, uint64_t number) {  // SplitMix64
  uint64_t z = seed + (number + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

}  // namespace

// Runs on the thread of `io`.
struct ChaosProxy::Body {
  explicit Body(Options o)
      : options(std::move(o)), acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), options.port)), timer(io) {
    port = acceptor.local_endpoint().port();
    until = Clock::now() + (options.storms.empty() ? milliseconds(0) : options.storms[0].calm);
    change(Clock::now());
    accept();
    tick();
    thread = std::thread([this] { io.run(); });
  }
  ~Body() {
    asio::post(io, [this] { io.stop(); });
    thread.join();
  }

  bool rages(Fault fault, int bit) const {
    return std::any_of(raging.begin(), raging.end(),
                       [&](const Storm::Part& part) { return part.fault == fault && (part.ways & bit) != 0; });
  }
  void count(uint64_t ChaosCounts::*what, uint64_t n = 1) {
    const std::lock_guard<std::mutex> lock(mutex);
    counted.*what += n;
  }

  void accept() {
    acceptor.async_accept([this](const Code& code, tcp::socket socket) {
      if (code) return;
      admit(std::move(socket));
      accept();
    });
  }
  void admit(tcp::socket client) {
    const uint64_t number = links_made++;
    const LinkPtr link = std::make_shared<Link>(io);
    link->client = std::move(client);
    Code failed;
    const bool closed = rages(Fault::Cut, Storm::kBoth) || rages(Fault::Reset, Storm::kBoth);
    if (!closed) link->server.connect(tcp::endpoint(asio::ip::address_v4::loopback(), options.target), failed);
    if (closed || failed) return end(*link, rages(Fault::Reset, Storm::kBoth));
    count(&ChaosCounts::connections);
    for (int w = 0; w < 2; ++w) {
      Way& way = link->ways[w];
      way.bit = w + 1;
      way.from = w == 0 ? &link->client : &link->server;
      way.to = w == 0 ? &link->server : &link->client;
      way.to->set_option(tcp::no_delay(true), failed);
      way.random.seed(mixed(options.seed, 2 * number + static_cast<uint64_t>(w)));
      way.dead = rages(Fault::HalfOpen, way.bit);
    }
    links.push_back(link);
    pump(link);
  }

  // ---- Faults over time.

  void tick() {
    timer.expires_after(kTick);
    timer.async_wait([this](const Code& code) {
      if (code) return;
      change(Clock::now());
      for (const LinkPtr& link : std::vector<LinkPtr>(links)) pump(link);
      tick();
    });
  }
  void change(When now) {
    if (storm == options.storms.size() || now < until) return;
    if (healing) {
      if (options.on_heal && !has_resumed) return;
      healing = has_resumed = false;
      if (++storm == options.storms.size()) over = true;
      until = now + (over ? milliseconds(0) : options.storms[storm].calm);
    } else if (raging.empty()) {
      raging = options.storms[storm].parts;
      until = now + options.storms[storm].lasts;
      strike();
    } else {
      raging.clear();
      healing = true;
      if (options.on_heal) options.on_heal(options.storms[storm]);
    }
  }
  // Applies a new storm to the existing connections. Cuts come after some more bytes, in the middle of a frame.
  void strike() {
    for (const LinkPtr& link : links) {
      for (Way& way : link->ways)
        if (rages(Fault::HalfOpen, way.bit) && !std::exchange(way.dead, true)) count(&ChaosCounts::dead);
      if (!rages(Fault::Reset, Storm::kBoth) && !rages(Fault::Cut, Storm::kBoth)) continue;
      link->resets = rages(Fault::Reset, Storm::kBoth);
      link->cut_after = 1 + link->ways[0].random() % 3000;
      link->cut_by = Clock::now() + kCut;
    }
  }
  void cut(const LinkPtr& link) {
    link->cut_after.reset();
    count(&ChaosCounts::cut);
    if (!link->resets) return shut_down(*link);
    end(*link, true);
    std::erase(links, link);
  }
  void shut_down(Link& link) {
    Code ignored;
    link.closing = true;
    link.closed_at = Clock::now();
    for (Way& way : link.ways) way.to->shutdown(tcp::socket::shutdown_send, ignored);
  }
  static void end(Link& link, bool reset) {
    Code ignored;
    for (tcp::socket* socket : {&link.client, &link.server}) {
      if (reset) socket->set_option(asio::socket_base::linger(true, 0), ignored);
      socket->close(ignored);
    }
  }

  // ---- Forwarding.

  void pump(const LinkPtr& link) {
    if (link->cut_after && Clock::now() > link->cut_by) cut(link);
    if (link->closing && Clock::now() - link->closed_at > kGoodbye) end(*link, false);
    bool all_shut = true;
    for (Way& way : link->ways) {
      read(link, way);
      if (!link->closing) write(link, way);
      all_shut &= link->closing ? way.ended : way.shut;
    }
    if (all_shut) end(*link, false);
    if (!link->client.is_open()) std::erase(links, link);
  }
  void read(const LinkPtr& link, Way& way) {
    const bool silent = way.dead || rages(Fault::Still, way.bit);
    if (way.reading || way.ended || !way.from->is_open() ||
        (!link->closing && (silent || way.queued + way.out.size() > kMostQueued)))
      return;
    way.reading = true;
    way.from->async_read_some(asio::buffer(way.piece), [this, link, &way](const Code& code, size_t n) {
      way.reading = false;
      if (code) {
        way.ended = true;
        if (code != asio::error::eof && !link->closing) return end(*link, true), void(std::erase(links, link));
        way.out.insert(way.out.end(), way.in.begin(), way.in.end());
      } else if (!link->closing) {
        take(way, n);
      }
      pump(link);
    });
  }
  void take(Way& way, size_t n) {
    count(&ChaosCounts::bytes, n);
    way.in.insert(way.in.end(), way.piece.begin(), way.piece.begin() + static_cast<std::ptrdiff_t>(n));
    for (Size size; (size = first_of(way, options.framing)).bytes > 0;) {
      way.greeted += size.bytes;
      const auto end = way.in.begin() + static_cast<std::ptrdiff_t>(size.bytes);
      put(way, Bytes(way.in.begin(), end), size.movable);
      way.in.erase(way.in.begin(), end);
    }
  }
  void put(Way& way, Bytes frame, bool movable) {
    const When now = Clock::now();
    When due = std::max(now, way.last_due);
    if (rages(Fault::Corrupt, way.bit) && way.random() % 4 == 0) damage(way, frame);
    if (rages(Fault::Delay, way.bit))
      due = std::max(due, now + milliseconds(way.random() % 400)), count(&ChaosCounts::delayed);
    if (movable && rages(Fault::Reorder, way.bit) && way.random() % 3 == 0) {
      due += milliseconds(1 + way.random() % 150);
      count(&ChaosCounts::held_back);
    } else {
      way.last_due = due;
    }
    way.queued += frame.size();
    way.queue.emplace(due, std::move(frame));
  }
  // In one of four cases near the start, which contains the lengths.
  void damage(Way& way, Bytes& frame) {
    const size_t within = way.random() % 4 == 0 ? std::min<size_t>(frame.size(), 32) : frame.size();
    for (uint64_t bits = 1 + way.random() % 3; bits > 0; --bits)
      frame[way.random() % within] ^= static_cast<std::byte>(1u << way.random() % 8);
    count(&ChaosCounts::damaged);
    if (way.bit == Storm::kToReceiver) count(&ChaosCounts::damaged_to_receiver);
  }
  void write(const LinkPtr& link, Way& way) {
    const When now = Clock::now();
    if (way.dead || way.shut || !way.writing.empty() || rages(Fault::Still, way.bit)) return;
    while (!way.queue.empty() && way.queue.begin()->first <= now && way.out.size() < kMostWrite) {
      const Bytes frame = std::move(way.queue.extract(way.queue.begin()).mapped());
      way.queued -= frame.size();
      way.out.insert(way.out.end(), frame.begin(), frame.end());
    }
    size_t n = std::min(way.out.size(), allowed(way, now));
    if (link->cut_after && way.bit == Storm::kToReceiver) *link->cut_after -= n = std::min(n, *link->cut_after);
    if (n > 0) {
      way.writing.assign(way.out.begin(), way.out.begin() + static_cast<std::ptrdiff_t>(n));
      way.out.erase(way.out.begin(), way.out.begin() + static_cast<std::ptrdiff_t>(n));
      asio::async_write(*way.to, asio::buffer(way.writing), [this, link, &way](const Code& code, size_t) {
        way.writing.clear();
        if (code && !link->closing) return end(*link, true), void(std::erase(links, link));
        if (link->cut_after == size_t{0}) cut(link);
        pump(link);
      });
    } else if (way.ended && way.queue.empty() && way.out.empty()) {
      Code ignored;
      way.to->shutdown(tcp::socket::shutdown_send, ignored);
      way.shut = true;
    }
  }
  size_t allowed(Way& way, When now) {
    if (rages(Fault::Trickle, way.bit)) {
      if (now < way.next_byte || way.out.empty()) return 0;
      way.next_byte = now + std::chrono::seconds(1);
      return 1;
    }
    if (!rages(Fault::Slow, way.bit)) return kMostWrite;
    const When earliest = std::max(way.paid, now - milliseconds(50));
    const auto n =
        static_cast<size_t>(std::chrono::duration<double>(now - earliest).count() * static_cast<double>(options.slow));
    if (n < 100 && n < way.out.size()) return 0;
    way.paid = now;
    return n;
  }

  const Options options;
  mutable std::mutex mutex;
  ChaosCounts counted;
  asio::io_context io;
  tcp::acceptor acceptor;
  asio::steady_timer timer;
  std::vector<LinkPtr> links;
  uint64_t links_made = 0;
  uint16_t port = 0;
  size_t storm = 0;
  std::vector<Storm::Part> raging;
  bool healing = false;
  std::atomic<bool> has_resumed{false}, over{false};
  When until{};
  std::thread thread;
};

ChaosProxy::ChaosProxy(Options options) : body_(std::make_unique<Body>(std::move(options))) {}
ChaosProxy::~ChaosProxy() = default;
uint16_t ChaosProxy::port() const { return body_->port; }
void ChaosProxy::resumed() { body_->has_resumed = true; }
bool ChaosProxy::is_over() const { return body_->over || body_->options.storms.empty(); }
ChaosCounts ChaosProxy::counts() const {
  const std::lock_guard<std::mutex> lock(body_->mutex);
  return body_->counted;
}

const char* name_of(Fault fault) {
  switch (fault) {
    case Fault::Cut:
      return "cut";
    case Fault::Reset:
      return "reset";
    case Fault::Still:
      return "still";
    case Fault::HalfOpen:
      return "half-open";
    case Fault::Delay:
      return "delay";
    case Fault::Reorder:
      return "reorder";
    case Fault::Corrupt:
      return "corrupt";
    case Fault::Trickle:
      return "a byte a second";
    case Fault::Slow:
      return "slow";
  }
  return "?";
}
const std::vector<Fault>& all_faults() {
  static const std::vector<Fault> all = {Fault::Cut,     Fault::Reset,   Fault::Still,   Fault::HalfOpen, Fault::Delay,
                                         Fault::Reorder, Fault::Corrupt, Fault::Trickle, Fault::Slow};
  return all;
}

std::string Storm::str() const {
  std::string text;
  for (const Part& part : parts)
    text += std::string(text.empty() ? "" : " and ") + name_of(part.fault) +
            (part.ways == kToReceiver ? " to the receiver"
             : part.ways == kToSender ? " to the sender"
                                      : "");
  return text;
}

namespace {
Storm storm_of(std::mt19937_64& random, const std::vector<Fault>& faults) {
  Storm storm;
  for (const Fault fault : faults) {
    const bool both = fault == Fault::Cut || fault == Fault::Reset;
    storm.parts.push_back({fault, both ? Storm::kBoth : 1 + static_cast<int>(random() % 3)});
    if (fault == Fault::Trickle || fault == Fault::Slow) storm.lasts = milliseconds(1500);
  }
  storm.calm = milliseconds(50 + random() % 400);
  storm.lasts += milliseconds(100 + random() % 1200);
  return storm;
}
}  // namespace

std::vector<Storm> single_storms(uint64_t seed, std::vector<Fault> faults) {
  std::mt19937_64 random(mixed(seed, 0));
  std::shuffle(faults.begin(), faults.end(), random);
  std::vector<Storm> storms;
  for (const Fault fault : faults) storms.push_back(storm_of(random, {fault}));
  return storms;
}
std::vector<Storm> mixed_storms(uint64_t seed, const std::vector<Fault>& faults, int count) {
  std::mt19937_64 random(mixed(seed, 1));
  std::vector<Storm> storms;
  for (int i = 0; i < count; ++i) {
    const size_t a = random() % faults.size(), b = (a + 1 + random() % (faults.size() - 1)) % faults.size();
    storms.push_back(storm_of(random, {faults[a], faults[b]}));
  }
  return storms;
}

std::vector<Storm> storms_for(uint64_t seed, std::chrono::seconds time) {
  std::vector<Storm> storms;
  milliseconds until{0};
  for (uint64_t round = 0; until < time; ++round) {
    std::vector<Storm> some = single_storms(mixed(seed, round), all_faults());
    for (Storm& storm : mixed_storms(mixed(seed, round), all_faults(), 5)) some.push_back(std::move(storm));
    for (Storm& storm : some)
      if (until < time) until += storm.calm + storm.lasts, storms.push_back(std::move(storm));
  }
  return storms;
}

std::vector<Storm> cuts_for(uint64_t seed, std::chrono::seconds time) {
  std::mt19937_64 random(mixed(seed, 2));
  std::vector<Storm> storms;
  for (milliseconds until{0}; until < time; until += storms.back().calm + storms.back().lasts)
    storms.push_back({{{random() % 2 ? Fault::Cut : Fault::Reset, Storm::kBoth}},
                      milliseconds(2000 + random() % 10000),
                      milliseconds(10 + random() % 200)});
  return storms;
}

}  // namespace transports
