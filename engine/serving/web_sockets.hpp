// WebSockets of HttpServer. Includes Boost.Beast, so only http_server.cpp includes this file.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>

#include "engine/serving/event_feed.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using tcp = asio::ip::tcp;
using boost::system::error_code;

// Base of the objects that own a client socket.
class Client {
 public:
  virtual ~Client() = default;
  virtual void close() = 0;
  virtual void tick(EventFeed::Clock::time_point) {}  // sends new messages to a listener
  // Whether the client may be closed to make room for a new connection. Clients that never sent a request (`silent`)
  // are closed before those that are idle between requests.
  enum class Room { none, between, silent };
  virtual Room room() const { return Room::none; }
};

// A client of /v1/events.
template <typename Server>
class Listener : public Client, public std::enable_shared_from_this<Listener<Server>> {
 public:
  Listener(std::shared_ptr<Server> server, beast::tcp_stream stream, EventFeed feed)
      : server_(std::move(server)), socket_(std::move(stream)), feed_(std::move(feed)) {
    ++server_->listeners;
  }
  ~Listener() override { --server_->listeners, --server_->open; }

  void close() override {
    open_ = false;
    beast::get_lowest_layer(socket_).close();
  }

  void tick(EventFeed::Clock::time_point now) override {
    if (!open_) return;
    const bool can_take = messages_.empty();
    for (std::string& message : feed_.tick(now, can_take)) messages_.push_back(std::move(message));
    if (can_take && !messages_.empty()) write();
  }

  void start(const http::request<http::string_body>& request) {
    beast::get_lowest_layer(socket_).expires_never();
    websocket::stream_base::timeout timeouts = websocket::stream_base::timeout::suggested(beast::role_type::server);
    timeouts.idle_timeout = server_->limits().idle;
    timeouts.keep_alive_pings = true;
    socket_.set_option(timeouts);
    socket_.read_message_max(server_->limits().message);
    socket_.text(true);
    socket_.async_accept(request, [self = this->shared_from_this()](error_code failed) {
      if (failed) return;
      self->open_ = true;
      self->read();
      self->tick(self->server_->now());
      self->server_->keep_telling();
    });
  }

 private:
  // Reads and ignores messages of the client, in order to detect its disconnection.
  void read() {
    socket_.async_read(said_, [self = this->shared_from_this()](error_code failed, size_t) {
      if (failed) return self->close();
      // Boost.Beast does not validate the end of a text whose last fragment is empty.
      if (self->socket_.got_text() && find_invalid_utf8(beast::buffers_to_string(self->said_.cdata())))
        return self->hang_up(websocket::close_code::bad_payload);
      self->said_.clear();
      self->read();
    });
  }

  void hang_up(websocket::close_code why) {
    socket_.async_close(why, [self = this->shared_from_this()](error_code) { self->close(); });
  }

  void write() {
    socket_.async_write(asio::buffer(messages_.front()), [self = this->shared_from_this()](error_code failed, size_t) {
      if (failed) return self->close();
      self->messages_.pop_front();
      if (!self->messages_.empty()) self->write();
    });
  }

  std::shared_ptr<Server> server_;
  websocket::stream<beast::tcp_stream, false> socket_;
  EventFeed feed_;
  beast::flat_buffer said_;
  std::deque<std::string> messages_;  // messages of one tick
  bool open_ = false;
};

// A client that sends samples. Each message is treated as the body of a POST request to the path of the socket, and
// answered before the next one is read.
template <typename Server>
class SampleSocket : public Client, public std::enable_shared_from_this<SampleSocket<Server>> {
 public:
  SampleSocket(std::shared_ptr<Server> server, beast::tcp_stream stream, ServiceRequest like)
      : server_(std::move(server)), socket_(std::move(stream)), like_(std::move(like)) {
    like_.method = "POST";
  }
  ~SampleSocket() override { --server_->open; }
  void close() override { beast::get_lowest_layer(socket_).close(); }

  void start(const http::request<http::string_body>& request) {
    beast::get_lowest_layer(socket_).expires_never();
    websocket::stream_base::timeout timeouts = websocket::stream_base::timeout::suggested(beast::role_type::server);
    timeouts.idle_timeout = server_->limits().idle;
    timeouts.keep_alive_pings = true;
    socket_.set_option(timeouts);
    socket_.read_message_max(server_->limits().body);
    socket_.text(true);
    socket_.async_accept(request, [self = this->shared_from_this()](error_code failed) {
      if (!failed) self->read();
    });
  }

 private:
  void read() {
    socket_.async_read(said_, [self = this->shared_from_this()](error_code failed, size_t) {
      if (failed) return self->close();
      ServiceRequest request = self->like_;
      request.content_type = self->socket_.got_text() ? "application/json" : "application/octet-stream";
      request.body = beast::buffers_to_string(self->said_.cdata());
      self->said_.clear();
      self->server_->handler().handle(std::move(request), [self](ServiceReply reply) {
        self->server_->post([self, reply = std::move(reply)]() mutable { self->write(std::move(reply.body)); });
      });
    });
  }
  void write(std::string answer) {
    answer_ = std::move(answer);
    socket_.async_write(asio::buffer(answer_), [self = this->shared_from_this()](error_code failed, size_t) {
      if (failed) return self->close();
      self->read();
    });
  }

  std::shared_ptr<Server> server_;
  websocket::stream<beast::tcp_stream, false> socket_;
  ServiceRequest like_;
  beast::flat_buffer said_;
  std::string answer_;
};

}  // namespace

}  // namespace harmonics::engine
