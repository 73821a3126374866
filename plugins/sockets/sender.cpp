#include "sender.hpp"

#include <boost/asio.hpp>

#include <atomic>
#include <thread>

#include <harmonics/error.hpp>

#include "wire/frame_reader.hpp"
#include "wire/inbox.hpp"

namespace harmonics::sockets {

namespace asio = boost::asio;
using asio::generic::stream_protocol;
using Code = boost::system::error_code;
using wire::Time;

namespace {
constexpr size_t kMostWrite = 1u << 20;
constexpr Time kRetry = std::chrono::milliseconds(100), kFarewell = std::chrono::milliseconds(200);
constexpr Time kConnect = std::chrono::seconds(2);  // the system retries at growing intervals, for minutes
}  // namespace

// Runs on the thread of `io`.
struct Sender::Body {
  Body(const Endpoint& e, wire::OutboxOptions options)
      : endpoint(e), outbox(with_address(e, std::move(options))), socket(io), timer(io) {
    connect();
    tick();
    outbox.wake_by([this] {
      if (!woken.exchange(true)) asio::post(io, [this] { woken = false, flush(); });
    });
    thread = std::thread([this] { io.run(); });
  }
  ~Body() {
    outbox.wake_by({});
    asio::post(io, [this] { leave(wire::now() + kFarewell); });
    thread.join();
  }
  static wire::OutboxOptions with_address(const Endpoint& e, wire::OutboxOptions options) {
    if (options.where.empty()) options.where = e.str();
    return options;
  }

  void connect() {
    ++attempt;
    connecting = true;
    connect_until = wire::now() + kConnect;
    reader = std::make_shared<wire::FrameReader>();
    socket = stream_protocol::socket(io);
    Code code;
    const asio::ip::address address =
        endpoint.is_unix() ? asio::ip::address() : asio::ip::make_address(endpoint.host, code);
    if (code) return outbox.fail("'" + endpoint.host + "' is not an address of the form 192.0.2.1 or 2001:db8::1");
    const stream_protocol::endpoint place =
        endpoint.is_unix() ? stream_protocol::endpoint(asio::local::stream_protocol::endpoint(endpoint.path))
                           : stream_protocol::endpoint(asio::ip::tcp::endpoint(address, endpoint.port));
    socket.async_connect(place, [this, mine = attempt](const Code& failed) {
      if (mine != attempt) return;
      connecting = false;
      if (failed) return lost();
      if (!endpoint.is_unix()) send_at_once(socket.native_handle());
      connected = true;
      outbox.connected();
      read();
      flush();
    });
  }
  // Closes the connection. A later tick reconnects.
  void lost() {
    Code ignored;
    socket.close(ignored);
    ++attempt;
    connected = connecting = false;
    out.clear();
    retry_at = wire::now() + kRetry;
    outbox.disconnected();
  }

  void tick() {
    timer.expires_after(outbox.until_deadline());
    timer.async_wait([this](const Code& code) {
      if (code) return;
      if (connecting ? wire::now() >= connect_until : connected && outbox.is_out_of_touch()) lost();
      if (!connected && !connecting && wire::now() >= retry_at) connect();
      flush();
      tick();
    });
  }

  void read() {
    const auto room = reader->room();
    socket.async_read_some(asio::buffer(room.data(), room.size()),
                           [this, mine = attempt, kept = reader](const Code& code, size_t bytes) {
                             if (mine != attempt) return;
                             if (code) return lost();
                             kept->arrived(bytes);
                             try {
                               while (const wire::OwnedBytes frame = kept->next())
                                 if (!outbox.receive(frame.bytes)) return lost();
                             } catch (const Error&) {
                               return lost();  // not a frame
                             }
                             flush();
                             read();
                           });
  }

  void flush() {
    if (!connected || !out.empty()) return;
    size_t bytes = 0;
    std::vector<asio::const_buffer> pieces;
    while (bytes < kMostWrite) {
      wire::OwnedBytes frame = outbox.poll();
      if (!frame) break;
      bytes += frame.size();
      pieces.emplace_back(frame.bytes.data(), frame.size());
      out.push_back(std::move(frame));
    }
    if (out.empty()) {
      // Data queued just now is sent before the scheduled tick.
      if (outbox.until_deadline() < wire::Inbox::kTick) timer.cancel(), tick();
      return;
    }
    asio::async_write(socket, pieces, [this, mine = attempt](const Code& code, size_t) {
      if (mine != attempt) return;
      out.clear();
      if (code) return lost();
      flush();
    });
  }

  void leave(Time latest) {
    flush();
    if (!connected || (outbox.is_quiet() && out.empty()) || wire::now() > latest) return io.stop();
    timer.expires_after(std::chrono::milliseconds(2));
    timer.async_wait([this, latest](const Code&) { leave(latest); });
  }

  Endpoint endpoint;
  wire::Outbox outbox;
  std::atomic<bool> woken{false};
  uint64_t attempt = 0;
  bool connecting = false, connected = false;
  Time retry_at{}, connect_until{};
  std::shared_ptr<wire::FrameReader> reader;
  std::vector<wire::OwnedBytes> out;  // being written
  asio::io_context io;
  stream_protocol::socket socket;
  asio::steady_timer timer;
  std::thread thread;
};

Sender::Sender(const Endpoint& endpoint, wire::OutboxOptions options)
    : body_(std::make_unique<Body>(endpoint, std::move(options))) {}
Sender::~Sender() = default;
wire::Outbox& Sender::outbox() { return body_->outbox; }

}  // namespace harmonics::sockets
