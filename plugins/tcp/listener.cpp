#include "listener.hpp"

#include <boost/asio.hpp>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <harmonics/error.hpp>

#include "wire/frame_reader.hpp"
#include "wire/receive_session.hpp"

namespace harmonics::tcp {

namespace asio = boost::asio;
using asio::ip::tcp;
using Code = boost::system::error_code;

namespace {

constexpr size_t kMostSenders = 256;
constexpr auto kTick = std::chrono::milliseconds(20);
constexpr auto kSilence = std::chrono::seconds(15);

wire::Time now() { return std::chrono::steady_clock::now().time_since_epoch(); }

struct Sender {
  wire::ReceiveSession session;
  std::vector<wire::TensorPart> tensors;  // as HELLO described them
  bool came = false, ended = false;  // its HELLO was taken; it has said that no sample follows, and was told that this is known
};

struct Sample {
  std::shared_ptr<const std::vector<std::byte>> bytes;
  std::shared_ptr<const wire::Frame> frame;
  uint32_t index = 0;
  Sender* sender = nullptr;
};

struct Link {
  explicit Link(tcp::socket s) : socket(std::move(s)) {}
  tcp::socket socket;
  wire::FrameReader reader;
  std::set<Sender*> senders;  // that have spoken here last
  std::vector<std::byte> out;
  std::vector<Sender*> leaving;  // who is told BYE in `out`
  bool writing = false;
  wire::Time heard = now();
};
using LinkPtr = std::shared_ptr<Link>;

const wire::TensorPart& tensor_of(const std::vector<wire::TensorPart>& tensors, const std::string& name, const std::string& where) {
  if (name.empty() && tensors.size() == 1) return tensors[0];
  for (const wire::TensorPart& part : tensors)
    if (part.name == name) return part;
  throw Error(ErrorKind::Name, where + ": senders send " + wire::described(tensors) + (name.empty() ? "" : ", no '" + name + "'"))
      .note("name the tensor behind the address: " + where + "#NAME");
}

}  // namespace

// One mutex for all below: handlers run on the thread of `io`, readers on theirs.
struct Listener::Body {
  explicit Body(const Endpoint& e) : endpoint(e), acceptor(io), timer(io) {
    try {
      const tcp::endpoint place(asio::ip::make_address(e.host), e.port);
      acceptor.open(place.protocol());
      acceptor.set_option(tcp::acceptor::reuse_address(true));
      acceptor.bind(place);
      acceptor.listen();
    } catch (const boost::system::system_error& error) {
      throw Error(ErrorKind::Stream, e.str() + " cannot be listened on: " + error.code().message()).note("choose another port, or end who has it");
    }
    accept();
    tick();
    thread = std::thread([this] { io.run(); });
  }
  ~Body() {
    io.stop();
    thread.join();
  }

  void accept() {
    acceptor.async_accept([this](const Code& code, tcp::socket socket) {
      if (code == asio::error::operation_aborted) return;
      if (!code && links.size() < kMostSenders) {
        Code ignored;
        socket.set_option(tcp::no_delay(true), ignored);
        read(*links.insert(std::make_shared<Link>(std::move(socket))).first);
      }
      accept();
    });
  }

  void tick() {
    timer.expires_after(kTick);
    timer.async_wait([this](const Code& code) {
      if (code) return;
      std::vector<LinkPtr> silent;
      for (const LinkPtr& link : links) {
        if (now() - link->heard > kSilence) silent.push_back(link);
        flush(link);
      }
      for (const LinkPtr& link : silent) drop(link);
      tick();
    });
  }

  void drop(const LinkPtr& link) {
    Code ignored;
    link->socket.close(ignored);
    links.erase(link);
  }

  void read(const LinkPtr& link) {
    const auto room = link->reader.room();
    link->socket.async_read_some(asio::buffer(room.data(), room.size()), [this, link](const Code& code, size_t bytes) {
      if (code) return drop(link);
      link->reader.arrived(bytes);
      link->heard = now();
      try {
        while (const auto frame = link->reader.next()) take(link, frame);
      } catch (const Error&) {
        return drop(link);  // where the next frame begins is not known any more; the sender connects again and goes on
      }
      flush(link);
      read(link);
    });
  }

  void take(const LinkPtr& link, const std::shared_ptr<const std::vector<std::byte>>& bytes) {
    auto frame = std::make_shared<const wire::Frame>(wire::decode(*bytes));
    const std::lock_guard<std::mutex> lock(mutex);
    Sender& sender = sender_of(*frame);
    for (const LinkPtr& other : links) other->senders.erase(&sender);
    link->senders.insert(&sender);
    const uint64_t refused = sender.session.counts().refused;
    const wire::ReceiveSession::Taken taken = sender.session.receive(*frame, now());
    if (frame->kind == wire::Kind::Hello && sender.session.counts().refused == refused) {
      sender.tensors = frame->tensors;
      sender.came = came = true;
      sender.ended = false;
    }
    for (uint32_t i = 0; i < taken.count; ++i) samples.push_back({bytes, frame, taken.first + i, &sender});
    changed.notify_all();
  }

  Sender& sender_of(const wire::Frame& frame) {
    const std::pair<std::string, std::string> name{frame.stream, frame.producer};
    if (const auto known = senders.find(name); known != senders.end()) return *known->second;
    if (frame.kind != wire::Kind::Hello || senders.size() >= kMostSenders)
      throw Error(ErrorKind::Stream, endpoint.str() + ": '" + frame.producer + "' does not say hello, or there are too many senders");
    wire::ReceiveOptions options;
    options.stream = frame.stream;
    options.producer = frame.producer;
    options.durable = false;
    options.tensors = wanted();
    return *(senders[name] = std::make_unique<Sender>(Sender{wire::ReceiveSession(options), {}, false, false}));
  }
  // What the first sender said is what all send.
  std::vector<wire::TensorPart> wanted() const {
    for (const auto& [name, sender] : senders)
      if (!sender->tensors.empty()) return sender->tensors;
    return {};
  }

  void flush(const LinkPtr& link) {
    if (link->writing) return;
    link->out.clear();
    link->leaving.clear();
    {
      const std::lock_guard<std::mutex> lock(mutex);
      for (Sender* sender : link->senders)
        while (const auto frame = sender->session.poll(now())) {
          const auto bytes = wire::encode(*frame).bytes();
          link->out.insert(link->out.end(), bytes.begin(), bytes.end());
          if (frame->kind == wire::Kind::Bye) link->leaving.push_back(sender);
        }
    }
    if (link->out.empty()) return;
    link->writing = true;
    asio::async_write(link->socket, asio::buffer(link->out.data(), link->out.size()), [this, link](const Code& code, size_t) {
      link->writing = false;
      if (code) return drop(link);
      {
        const std::lock_guard<std::mutex> lock(mutex);
        for (Sender* sender : link->leaving) sender->ended = true;
        changed.notify_all();
      }
      flush(link);
    });
  }

  bool is_over() const {
    for (const auto& [name, sender] : senders)
      if (sender->came && !sender->ended) return false;
    return came;
  }
  // Forgets what every reader has had, so that as much more may come.
  void forget() {
    uint64_t least = first + samples.size();
    for (const auto& [id, reader] : readers) least = std::min(least, reader.at);
    for (; first < least; ++first) {
      const Sample& sample = samples.front();
      sample.sender->session.consumed(1, wire::sample_bytes(*sample.frame));
      samples.pop_front();
    }
  }

  struct Reader {
    std::string tensor;
    uint64_t at = 0;
  };
  Endpoint endpoint;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Sender>> senders;
  std::deque<Sample> samples;
  uint64_t first = 0;  // the number of the first of them
  std::map<int, Reader> readers;
  int next_reader = 0;
  bool came = false;  // a sender has said hello

  asio::io_context io;
  tcp::acceptor acceptor;
  asio::steady_timer timer;
  std::set<LinkPtr> links;
  std::thread thread;
};

std::shared_ptr<Listener> Listener::at(const Endpoint& endpoint) {
  static std::mutex mutex;
  static auto* const all = new std::map<std::string, std::weak_ptr<Listener>>;  // never destroyed: threads may still listen
  const std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<Listener>& known = (*all)[endpoint.str()];
  if (auto listener = known.lock()) return listener;
  std::shared_ptr<Listener> listener(new Listener(endpoint));
  known = listener;
  return listener;
}

Listener::Listener(const Endpoint& endpoint) : body_(std::make_unique<Body>(endpoint)) {}
Listener::~Listener() = default;

uint16_t Listener::port() const { return body_->acceptor.local_endpoint().port(); }

int Listener::open(const std::string& tensor, std::chrono::milliseconds wait) {
  std::unique_lock<std::mutex> lock(body_->mutex);
  if (body_->first > 0)
    throw Error(ErrorKind::Stream, body_->endpoint.str() + ": samples were read before this stream was opened").note("bind all streams of an address together");
  const int reader = body_->next_reader++;
  body_->readers[reader] = {tensor, 0};
  if (!body_->changed.wait_for(lock, wait, [this] { return body_->came; })) {
    body_->readers.erase(reader);
    throw Error(ErrorKind::Unavailable, body_->endpoint.str() + ": nobody has begun to send in " + std::to_string(wait.count() / 1000) + " s")
        .note("start the sender, or wait longer with ?wait=SECONDS");
  }
  return reader;
}

void Listener::close(int reader) {
  const std::lock_guard<std::mutex> lock(body_->mutex);
  body_->readers.erase(reader);
  if (!body_->readers.empty()) body_->forget();
}

Announced Listener::announced(int reader) const {
  const std::lock_guard<std::mutex> lock(body_->mutex);
  const std::vector<wire::TensorPart> tensors = body_->wanted();
  const wire::TensorPart& part = tensor_of(tensors, body_->readers.at(reader).tensor, body_->endpoint.str());
  return {part.dtype, part.sample};
}

std::optional<Received> Listener::next(int reader) {
  std::unique_lock<std::mutex> lock(body_->mutex);
  Body::Reader& mine = body_->readers.at(reader);
  body_->changed.wait(lock, [&] { return mine.at < body_->first + body_->samples.size() || body_->is_over(); });
  if (mine.at >= body_->first + body_->samples.size()) return std::nullopt;
  const Sample sample = body_->samples[mine.at - body_->first];
  ++mine.at;
  body_->forget();
  const wire::TensorPart& part = tensor_of(sample.frame->tensors, mine.tensor, body_->endpoint.str());
  const size_t one = part.bytes.size() / sample.frame->count;
  return Received{sample.bytes, part.dtype, part.sample, part.bytes.subspan(sample.index * one, one)};
}

}  // namespace harmonics::tcp
