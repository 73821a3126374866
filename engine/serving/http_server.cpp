// HttpServer on Boost.Beast.
#include "engine/serving/http_server.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <malloc.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <fmt/core.h>

#include "engine/serving/event_feed.hpp"
#include "engine/serving/web_sockets.hpp"
#include "wire/freed_memory.hpp"

namespace harmonics::engine {

namespace {

using Reply = http::response<http::string_body>;

template <typename Message>
void set_head(Message& message, const ServiceReply& r, bool keep_alive) {
  message.result(static_cast<http::status>(r.status));
  if (!r.content_type.empty()) message.set(http::field::content_type, r.content_type);
  message.set(http::field::cache_control, "no-store");
  message.set("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : r.headers) message.set(name, value);
  message.keep_alive(keep_alive);
}

Reply http_reply(ServiceReply r, unsigned version, bool keep_alive, bool head) {
  Reply reply(http::status::ok, version);
  set_head(reply, r, keep_alive);
  const size_t bytes = r.body.size();
  if (!head) reply.body() = std::move(r.body);
  if (reply.result() != http::status::no_content) reply.content_length(bytes);
  return reply;
}

std::string text_of(beast::string_view v) { return {v.data(), v.size()}; }

}  // namespace

// Everything runs on one thread; answers of the service are posted to it. Every pending operation shares ownership of
// this object, so stopping closes all sockets and then runs until no operation is pending.
class HttpServer::Running : public std::enable_shared_from_this<Running> {
 public:
  Running(HttpHandler& handler, const HttpLimits& limits) : handler_(handler), limits_(limits), acceptor_(context_) {}

  void listen(const ListenAddress& address) {
    wire::limit_freed_memory();
    const tcp::endpoint endpoint(asio::ip::make_address(address.host), address.port);
    try {
      acceptor_.open(endpoint.protocol());
      acceptor_.set_option(asio::socket_base::reuse_address(true));
      acceptor_.bind(endpoint);
      acceptor_.listen();
    } catch (const boost::system::system_error& e) {
      throw Error(e.code() == asio::error::access_denied ? ErrorKind::Denied : ErrorKind::Unavailable,
                  fmt::format("cannot listen on {}:{}: {}", address.host, address.port, e.code().message()), {},
                  {"choose another port; 0 takes a free one"});
    }
    port_ = acceptor_.local_endpoint().port();
    url_ = fmt::format("http://{}:{}", endpoint.address().is_v6() ? "[" + address.host + "]" : address.host, port_);
  }

  void start() {
    has_thread_ = true;
    until_stopped_.emplace(context_.get_executor());
    accept();
    thread_ = std::thread([this] { context_.run(); });
  }
  void work(EventFeed::Clock::time_point now);
  void stop();
  bool finish(std::chrono::milliseconds most);
  void take(int socket);

  // A request is in progress from its end until its reply is sent.
  void begin_reply() {
    const std::lock_guard<std::mutex> lock(replying_);
    ++replies_;
  }
  void end_reply() {
    {
      const std::lock_guard<std::mutex> lock(replying_);
      --replies_;
    }
    replied_.notify_all();
  }

  HttpHandler& handler() { return handler_; }
  Service& service() { return *handler_.of_run(); }  // for WebSockets
  const HttpLimits& limits() const { return limits_; }
  asio::io_context& context() { return context_; }
  const std::string& url() const { return url_; }
  uint16_t port() const { return port_; }

  // Runs `work` on the server's thread. Returns false if the thread has ended.
  template <typename Work>
  bool post(Work&& work) {
    const std::lock_guard<std::mutex> lock(posting_);
    if (!stopped_) asio::post(context_, std::forward<Work>(work));
    return !stopped_;
  }
  void keep(std::weak_ptr<Client> client) {
    std::erase_if(clients_, [](const std::weak_ptr<Client>& c) { return c.expired(); });
    clients_.push_back(std::move(client));
  }
  EventFeed::Clock::time_point now() const { return has_thread_ ? EventFeed::Clock::now() : now_; }
  // Starts to send new messages to all listeners every EventFeed::kTick.
  void keep_telling();

  std::atomic<size_t> open{0}, listeners{0};
  // Called after a body of this size was read and answered. When no more large bodies arrive, returns the memory that
  // the heap keeps for them to the system.
  void gave_back(size_t bytes);

 private:
  bool make_room();
  void accept();
  void begin(tcp::socket socket);
  void tell();
  void tick(EventFeed::Clock::time_point now);

  HttpHandler& handler_;
  const HttpLimits limits_;
  asio::io_context context_;
  // Keeps the thread running while replies without pending operations wait for their text.
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> until_stopped_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_{context_};  // delay before accepting again
  asio::steady_timer telling_{context_};
  asio::steady_timer trimming_{context_};
  bool tells_ = false;
  EventFeed::Clock::time_point now_{};  // as passed to work()
  std::string url_;
  uint16_t port_ = 0;
  std::vector<std::weak_ptr<Client>> clients_;
  std::mutex replying_;
  std::condition_variable replied_;
  size_t replies_ = 0;  // requests in progress
  std::mutex posting_;
  bool stopped_ = false, has_thread_ = false;
  std::thread thread_;
};

namespace {

// One connection, which processes one request at a time.
template <typename Server>
class Connection : public Client, public std::enable_shared_from_this<Connection<Server>> {
 public:
  Connection(std::shared_ptr<Server> server, tcp::socket socket)
      : server_(std::move(server)), stream_(std::move(socket)), buffer_(server_->limits().header + 4096) {
    ++server_->open;
  }
  ~Connection() override {
    if (!handed_on_) --server_->open;
    end_reply();
    if (large_) server_->gave_back(large_);
  }
  void close() override {
    room_ = Room::none;
    source_.reset();
    if (!handed_on_) stream_.close();
  }
  Room room() const override { return room_; }

  void start(bool welcome) {
    if (!welcome) return refuse(503, "too many connections", "try again later");
    wait();
  }

 private:
  void end_reply() {
    if (std::exchange(replies_, false)) server_->end_reply();
  }

  // Waits for the beginning of the next request.
  void wait() {
    end_reply();
    if (large_) server_->gave_back(std::exchange(large_, 0));
    reply_ = {};
    room_ = asked_ ? Room::between : Room::silent;
    origin_.clear();
    parser_.emplace();
    parser_->header_limit(server_->limits().header);
    parser_->body_limit(server_->limits().body);
    if (buffer_.size() > 0) return read();
    stream_.expires_after(server_->limits().idle);
    stream_.async_read_some(buffer_.prepare(4096), [self = this->shared_from_this()](error_code failed, size_t n) {
      if (failed) return;
      self->buffer_.commit(n);
      self->read();
    });
  }

  void read() {
    stream_.expires_after(server_->limits().request);
    http::async_read_header(stream_, buffer_, *parser_, [self = this->shared_from_this()](error_code failed, size_t) {
      self->room_ = Room::none;
      self->asked_ = true;
      if (failed) return self->wrong(failed);
      if (beast::iequals(self->parser_->get()[http::field::expect], "100-continue"))
        self->tell_to_go_on();
      else
        self->read_body();
    });
  }

  void tell_to_go_on() {
    continue_ = Reply(http::status::continue_, 11);
    http::async_write(stream_, continue_, [self = this->shared_from_this()](error_code failed, size_t) {
      if (!failed) self->read_body();
    });
  }

  void read_body() {
    http::async_read(stream_, buffer_, *parser_, [self = this->shared_from_this()](error_code failed, size_t) {
      if (failed) return self->wrong(failed);
      self->act();
    });
  }

  void wrong(error_code failed) {
    if (failed == http::error::end_of_stream || failed == asio::error::connection_reset ||
        failed == asio::error::operation_aborted)
      return;
    origin_ = text_of(parser_->get()[http::field::origin]);
    if (failed == http::error::body_limit)
      return refuse(413, fmt::format("the body is larger than {} bytes", server_->limits().body),
                    "send less per request");
    if (failed == http::error::header_limit || failed == http::error::buffer_overflow)
      return refuse(431, fmt::format("the header is larger than {} bytes", server_->limits().header),
                    "send fewer header fields");
    if (failed.category() == make_error_code(http::error::bad_method).category())
      return refuse(400, "this is not an HTTP request: " + failed.message(), server_->handler().known_paths());
  }

  void act() {
    http::request<http::string_body> got = parser_->release();
    ServiceRequest request;
    request.method = text_of(got.method_string());
    request.host = text_of(got[http::field::host]);
    request.origin = origin_ = text_of(got[http::field::origin]);
    request.authorization = text_of(got[http::field::authorization]);
    request.content_type = text_of(got[http::field::content_type]);
    const std::string target = text_of(got.target());
    version_ = got.version();
    keep_alive_ = got.keep_alive();
    head_ = got.method() == http::verb::head;
    if (!parse_target(target, request)) return refuse(400, "the path is malformed", server_->handler().known_paths());
    if (const std::string coding = text_of(got[http::field::content_encoding]);
        !coding.empty() && !beast::iequals(coding, "identity"))
      return refuse(415, fmt::format("a body with the content encoding '{}' cannot be read", coding),
                    "send it without Content-Encoding");
    if (request.host.empty() && version_ >= 11) return refuse(400, "the request names no host", "send a Host field");
    if (websocket::is_upgrade(got) && server_->handler().of_run()) {
      if (Service::sends_events(request.path)) return open_events(request, got);
      if (Service::takes_samples(request.path)) return open_samples(std::move(request), got);
    }
    large_ = got.body().size();
    request.body = std::move(got.body());
    stream_.expires_never();  // the service has its own deadlines
    request.gone = gone_ = std::make_shared<std::atomic<bool>>(false);
    watch();
    replies_ = true;
    server_->begin_reply();
    // The answering thread passes its reference to the server's thread, where the connection is then closed and freed.
    server_->handler().handle(std::move(request), [self = this->shared_from_this()](ServiceReply reply) mutable {
      const std::shared_ptr<Server> server = self->server_;
      server->post([self = std::move(self), reply = std::move(reply)]() mutable { self->write(std::move(reply)); });
    });
  }

  // Detects that the client disconnects while it waits for its reply. Does not keep the connection alive.
  void watch() {
    if (std::exchange(watching_, true)) return;
    stream_.socket().async_wait(tcp::socket::wait_read, [weak = this->weak_from_this()](error_code failed) {
      const auto self = weak.lock();
      if (!self || self->handed_on_) return;
      self->watching_ = false;
      if (!failed && self->replies_) self->look();
    });
  }

  // Keeps what the client sends for its next request, behind which its end would not be seen.
  void look() {
    const size_t room = std::min<size_t>(4096, buffer_.max_size() - buffer_.size());
    if (room == 0) return;
    const ssize_t n = ::recv(stream_.socket().native_handle(), buffer_.prepare(room).data(), room, MSG_DONTWAIT);
    if (n > 0) buffer_.commit(static_cast<size_t>(n));
    // An aborted connection (RST) is an error, not an end.
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return watch();
    *gone_ = true;
    source_.reset();  // while it waits for more, it owns this connection
  }

  void open_events(const ServiceRequest& request, const http::request<http::string_body>& got) {
    if (auto refused = server_->service().refuse(request, false)) return write(std::move(*refused));
    // Frames sent before the answer would be discarded with the buffer, and later bytes would be misinterpreted.
    if (buffer_.size() > 0)
      return refuse(400, "data follows an upgrade request that was not answered yet", "send nothing before the answer");
    if (server_->listeners >= server_->limits().listeners)
      return write(Service::refusal(503, "too many event subscribers", "try again later"));
    try {
      EventFeed feed(server_->service(), request.query);
      handed_on_ = true;
      const auto listener = std::make_shared<Listener<Server>>(server_, std::move(stream_), std::move(feed));
      server_->keep(listener);
      listener->start(got);
    } catch (const Error& e) {
      write(Service::refusal(400, e.what(), e.notes().empty() ? "" : e.notes().front()));
    }
  }

  void open_samples(ServiceRequest request, const http::request<http::string_body>& got) {
    if (auto refused = server_->service().refuse(request, true)) return write(std::move(*refused));
    if (buffer_.size() > 0)
      return refuse(400, "data follows an upgrade request that was not answered yet", "send nothing before the answer");
    handed_on_ = true;
    const auto socket = std::make_shared<SampleSocket<Server>>(server_, std::move(stream_), std::move(request));
    server_->keep(socket);
    socket->start(got);
  }

  void refuse(int status, std::string error, std::string note) {
    keep_alive_ = false;
    ServiceReply reply = Service::refusal(status, std::move(error), std::move(note));
    server_->handler().admit(reply, origin_);
    write(std::move(reply));
  }

  // Sends a reply whose body is produced while it is sent: in chunks, or delimited by the end of the connection.
  void begin_stream(ServiceReply reply) {
    source_ = std::move(reply.stream);
    chunked_ = version_ >= 11;
    if (!chunked_) keep_alive_ = false;
    head_reply_.emplace(http::status::ok, version_);
    set_head(*head_reply_, reply, keep_alive_);
    if (chunked_) head_reply_->chunked(true);
    head_serializer_.emplace(*head_reply_);
    stream_.expires_after(server_->limits().write);
    http::async_write_header(stream_, *head_serializer_, [self = this->shared_from_this()](error_code failed, size_t) {
      self->go_on(failed, false);
    });
  }

  void go_on(error_code failed, bool last) {
    if (failed || !source_ || *gone_) return source_.reset();
    if (last) {
      source_.reset();
      return keep_alive_ ? wait() : hang_up();
    }
    stream_.expires_never();  // the handler has its own deadlines
    source_->next([self = this->shared_from_this()](std::string more, bool end) mutable {
      const std::shared_ptr<Server> server = self->server_;
      server->post([self = std::move(self), more = std::move(more), end]() mutable { self->write_more(more, end); });
    });
  }

  void write_more(std::string& more, bool last) {
    if (!source_) return;
    more_ = std::move(more);
    stream_.expires_after(server_->limits().write);
    const auto written = [self = this->shared_from_this(), last](error_code failed, size_t) {
      self->go_on(failed, last);
    };
    const auto end = [self = this->shared_from_this(), written](error_code failed, size_t bytes) {
      if (failed) return written(failed, bytes);
      asio::async_write(self->stream_, http::make_chunk_last(), written);
    };
    if (!chunked_)
      asio::async_write(stream_, asio::buffer(more_), written);
    else if (more_.empty() && last)
      end({}, 0);
    else if (last)
      asio::async_write(stream_, http::make_chunk(asio::buffer(more_)), end);
    else
      asio::async_write(stream_, http::make_chunk(asio::buffer(more_)), written);
  }

  void write(ServiceReply reply) {
    if (reply.stream && !head_) return begin_stream(std::move(reply));
    large_ = std::max(large_, reply.body.size());
    reply_ = http_reply(std::move(reply), version_, keep_alive_, head_);
    stream_.expires_after(server_->limits().write);
    const auto written = [self = this->shared_from_this()](error_code failed, size_t) {
      if (failed) return;
      if (self->keep_alive_)
        self->wait();
      else
        self->hang_up();
    };
    if (head_) {
      serializer_.emplace(reply_);
      http::async_write_header(stream_, *serializer_, written);
    } else {
      http::async_write(stream_, reply_, written);
    }
  }

  // Reads and discards input for a short time before closing, because an immediate close could lose the reply.
  void hang_up() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    end_reply();
    stream_.expires_after(std::chrono::seconds(1));
    read_over(64);
  }
  void read_over(int times) {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(4096), [self = this->shared_from_this(), times](error_code failed, size_t) {
      if (!failed && times > 0) self->read_over(times - 1);
    });
  }

  std::shared_ptr<Server> server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  Reply reply_, continue_;
  std::shared_ptr<ReplyStream> source_;  // of the body being sent
  std::optional<http::response<http::empty_body>> head_reply_;
  std::optional<http::response_serializer<http::empty_body>> head_serializer_;
  std::string more_, origin_;  // origin_: of the current request, as far as it is known
  bool chunked_ = false;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  unsigned version_ = 11;
  bool keep_alive_ = false, head_ = false, handed_on_ = false, asked_ = false;
  std::shared_ptr<std::atomic<bool>> gone_;  // of the current request
  bool watching_ = false, replies_ = false;  // replies_: counted as a request in progress
  Room room_ = Room::none;
  size_t large_ = 0;  // bytes of the request and the reply
};

}  // namespace

void HttpServer::Running::begin(tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const bool welcome = open < limits_.connections || make_room();
  if (open >= 2 * limits_.connections) return;
  const auto connection = std::make_shared<Connection<Running>>(shared_from_this(), std::move(socket));
  keep(connection);
  connection->start(welcome);
}

// Closes the oldest idle client to make room for a new one.
bool HttpServer::Running::make_room() {
  for (const Client::Room room : {Client::Room::silent, Client::Room::between})
    for (const std::weak_ptr<Client>& c : clients_)
      if (const auto client = c.lock(); client && client->room() == room) return client->close(), true;
  return false;
}

void HttpServer::Running::gave_back(size_t bytes) {
  constexpr size_t kLarge = size_t{1} << 20;
  if (bytes < kLarge || !acceptor_.is_open()) return;
  trimming_.expires_after(std::chrono::milliseconds(500));  // restarts with every large body
  trimming_.async_wait([self = shared_from_this()](error_code failed) {
    if (!failed) ::malloc_trim(0);
  });
}

void HttpServer::Running::take(int socket) {
  const bool posted = post([self = shared_from_this(), socket] {
    tcp::socket taken(self->context_);
    error_code failed;
    taken.assign(tcp::v4(), socket, failed);
    if (failed)
      ::close(socket);
    else
      self->begin(std::move(taken));
  });
  if (!posted) ::close(socket);
}

void HttpServer::Running::accept() {
  acceptor_.async_accept([self = shared_from_this()](error_code failed, tcp::socket socket) {
    if (!self->acceptor_.is_open()) return;
    if (!failed) {
      self->begin(std::move(socket));
      return self->accept();
    }
    // Either no file descriptor is available, or the client disconnected before it was accepted.
    self->pause_.expires_after(std::chrono::milliseconds(100));
    self->pause_.async_wait([self](error_code) {
      if (self->acceptor_.is_open()) self->accept();
    });
  });
}

void HttpServer::Running::keep_telling() {
  if (tells_ || !has_thread_) return;
  tells_ = true;
  tell();
}

void HttpServer::Running::tell() {
  telling_.expires_after(EventFeed::kTick);
  telling_.async_wait([self = shared_from_this()](error_code failed) {
    self->tells_ = !failed && self->listeners > 0;
    if (!self->tells_) return;
    self->tick(EventFeed::Clock::now());
    self->tell();
  });
}

void HttpServer::Running::tick(EventFeed::Clock::time_point now) {
  for (const std::weak_ptr<Client>& c : clients_)
    if (const auto client = c.lock()) client->tick(now);
}

void HttpServer::Running::work(EventFeed::Clock::time_point now) {
  context_.restart();
  context_.poll();
  if (now > now_) {
    now_ = now;
    tick(now);
    context_.restart();
    context_.poll();
  }
}

bool HttpServer::Running::finish(std::chrono::milliseconds most) {
  post([this] {
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
  });
  std::unique_lock<std::mutex> lock(replying_);
  return replied_.wait_for(lock, most, [this] { return replies_ == 0; });
}

void HttpServer::Running::stop() {
  asio::post(context_, [this] {
    error_code ignored;
    until_stopped_.reset();
    acceptor_.close(ignored);
    pause_.cancel();
    telling_.cancel();
    trimming_.cancel();
    for (const std::weak_ptr<Client>& c : clients_)
      if (const auto client = c.lock()) client->close();
  });
  {
    const std::lock_guard<std::mutex> lock(posting_);
    stopped_ = true;
  }
  if (has_thread_) return thread_.join();
  context_.restart();
  context_.run();
}

HttpServer::HttpServer(HttpHandler& handler, const ListenAddress& address, const HttpLimits& limits)
    : running_(std::make_shared<Running>(handler, limits)) {
  running_->listen(address);
  running_->start();
}

HttpServer::HttpServer(HttpHandler& handler, const HttpLimits& limits)
    : running_(std::make_shared<Running>(handler, limits)) {}

HttpServer::~HttpServer() { running_->stop(); }

bool HttpServer::finish(std::chrono::milliseconds most) { return running_->finish(most); }

void HttpServer::take(int socket) { running_->take(socket); }

void HttpServer::work(std::chrono::steady_clock::time_point now) { running_->work(now); }

std::string HttpServer::url() const { return running_->url(); }
uint16_t HttpServer::port() const { return running_->port(); }

}  // namespace harmonics::engine
