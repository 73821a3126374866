#include "sender.hpp"

#include <boost/asio.hpp>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include <harmonics/error.hpp>

#include "wire/frame_reader.hpp"
#include "wire/send_session.hpp"

namespace harmonics::tcp {

namespace asio = boost::asio;
using asio::ip::tcp;
using Code = boost::system::error_code;

namespace {

constexpr auto kTick = std::chrono::milliseconds(20);
constexpr size_t kMostFrameBytes = 64u << 10;  // samples are put together up to there
constexpr size_t kMostWrite = 256u << 10;

wire::Time now() { return std::chrono::steady_clock::now().time_since_epoch(); }

wire::SendOptions session_options(const SenderOptions& options) {
  wire::SendOptions session;
  session.stream = options.stream;
  session.producer = options.producer;
  session.tensors = options.tensors;
  session.epoch = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  session.acknowledgement = wire::Acknowledgement::Received;
  return session;
}

}  // namespace

// One mutex for the session; handlers run on the thread of `io`.
struct Sender::Body {
  Body(const Endpoint& e, const SenderOptions& o)
      : endpoint(e), options(o), session(session_options(o)), pending(o.tensors.size()), reached(now()), socket(io), timer(io) {
    connect();
    tick();
    thread = std::thread([this] { io.run(); });
  }
  ~Body() {
    io.stop();
    thread.join();
  }

  void connect() {
    ++attempt;
    connecting = true;
    reader = std::make_unique<wire::FrameReader>();
    socket = tcp::socket(io);
    socket.async_connect({asio::ip::make_address(endpoint.host), endpoint.port}, [this, mine = attempt](const Code& code) {
      if (mine != attempt) return;
      connecting = false;
      if (code) return lost();
      Code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      connected = true;
      reached = now();
      {
        const std::lock_guard<std::mutex> lock(mutex);
        session.connected(now());
      }
      read();
      flush();
    });
  }
  // The next tick but a few connects again.
  void lost() {
    Code ignored;
    socket.close(ignored);
    ++attempt;
    connected = connecting = writing = false;
    retry_at = now() + std::chrono::milliseconds(100);
    const std::lock_guard<std::mutex> lock(mutex);
    session.disconnected();
  }
  void fail(std::exception_ptr error) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!failure) failure = std::move(error);
    changed.notify_all();
  }

  void tick() {
    timer.expires_after(kTick);
    timer.async_wait([this](const Code& code) {
      if (code) return;
      bool silent = false;
      {
        const std::lock_guard<std::mutex> lock(mutex);
        silent = session.is_out_of_touch(now());
        changed.notify_all();  // who waits looks at the time
      }
      if (connected && silent) lost();
      if (!connected && !connecting && now() >= retry_at) connect();
      flush();
      tick();
    });
  }

  void read() {
    const auto room = reader->room();
    socket.async_read_some(asio::buffer(room.data(), room.size()), [this, mine = attempt, kept = reader.get()](const Code& code, size_t bytes) {
      if (mine != attempt) return;
      if (code) return lost();
      kept->arrived(bytes);
      reached = now();
      try {
        take();
      } catch (const Error&) {
        return fail(std::current_exception());
      }
      flush();
      read();
    });
  }
  void take() {
    while (const auto frame = reader->next()) {
      const std::lock_guard<std::mutex> lock(mutex);
      session.receive(wire::decode(*frame), now());
      changed.notify_all();
    }
  }

  void flush() {
    if (!connected || writing) return;
    out.clear();
    {
      const std::lock_guard<std::mutex> lock(mutex);
      put_together();
      while (out.size() < kMostWrite) {
        const auto next = session.poll(now());
        if (!next) break;
        const auto* batch = std::get_if<wire::Batch>(&*next);
        const auto bytes = batch ? *batch->frame : wire::encode(std::get<wire::Frame>(*next)).bytes();
        out.insert(out.end(), bytes.begin(), bytes.end());
      }
      changed.notify_all();
    }
    if (out.empty()) return;
    writing = true;
    asio::async_write(socket, asio::buffer(out.data(), out.size()), [this, mine = attempt](const Code& code, size_t) {
      if (mine != attempt) return;
      writing = false;
      if (code) return lost();
      flush();
    });
  }

  // The samples that were pushed since become a frame: under load many, otherwise one.
  void put_together() {
    const auto seq = session.next_seq();
    if (pending_count == 0 || !seq) return;
    wire::Frame frame;
    frame.stream = options.stream;
    frame.producer = options.producer;
    frame.epoch = session_epoch;
    frame.seq = *seq;
    frame.count = pending_count;
    frame.tensors = options.tensors;
    for (size_t i = 0; i < pending.size(); ++i) frame.tensors[i].bytes = pending[i];
    wire::Batch batch{*seq, pending_count, pending_bytes, std::make_shared<const std::vector<std::byte>>(wire::encode(frame).bytes())};
    if (!session.offer(std::move(batch))) return;
    for (auto& bytes : pending) bytes.clear();
    pending_count = 0;
    pending_bytes = 0;
  }

  // Until `done`, a refusal, or nobody for too long.
  template <typename Done> void wait(std::unique_lock<std::mutex>& lock, Done done) {
    while (!done()) {
      if (failure) std::rethrow_exception(failure);
      if (now() - reached.load() > options.patience)
        throw Error(ErrorKind::Unavailable, endpoint.str() + ": nobody listens there, for " + std::to_string(options.patience.count() / 1000) + " s")
            .note("start the receiver: harmonics run FLOW --producer " + endpoint.str());
      changed.wait_for(lock, std::chrono::milliseconds(100));
    }
    if (failure) std::rethrow_exception(failure);
  }

  Endpoint endpoint;
  SenderOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  wire::SendSession session;
  uint64_t session_epoch = session.epoch();
  std::vector<std::vector<std::byte>> pending;  // by tensor
  uint32_t pending_count = 0;
  uint64_t pending_bytes = 0;
  std::exception_ptr failure;
  std::atomic<wire::Time> reached;  // something was heard

  // Of the thread of `io` alone.
  uint64_t attempt = 0;
  bool connecting = false, connected = false, writing = false;
  wire::Time retry_at{};
  std::unique_ptr<wire::FrameReader> reader;
  std::vector<std::byte> out;
  asio::io_context io;
  tcp::socket socket;
  asio::steady_timer timer;
  std::thread thread;
};

Sender::Sender(const Endpoint& endpoint, const SenderOptions& options) : body_(std::make_unique<Body>(endpoint, options)) {}
Sender::~Sender() = default;

void Sender::push(const std::vector<std::span<const std::byte>>& tensors) {
  std::unique_lock<std::mutex> lock(body_->mutex);
  body_->wait(lock, [this] { return body_->pending_bytes < kMostFrameBytes; });
  for (size_t i = 0; i < tensors.size(); ++i) {
    body_->pending[i].insert(body_->pending[i].end(), tensors[i].begin(), tensors[i].end());
    body_->pending_bytes += tensors[i].size();
  }
  if (++body_->pending_count > 1) return;
  lock.unlock();
  asio::post(body_->io, [body = body_.get()] { body->flush(); });
}

void Sender::finish() {
  std::unique_lock<std::mutex> lock(body_->mutex);
  body_->wait(lock, [this] { return body_->pending_count == 0 && body_->session.next_seq(); });
  body_->session.finish();
  lock.unlock();
  asio::post(body_->io, [body = body_.get()] { body->flush(); });
  lock.lock();
  body_->wait(lock, [this] { return body_->session.is_done(); });
}

}  // namespace harmonics::tcp
