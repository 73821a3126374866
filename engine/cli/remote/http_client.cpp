#include "engine/cli/remote/http_client.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/serving/control_socket.hpp"

namespace harmonics::engine::cli {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

struct HttpAddress {
  std::string host, port;

  std::string authority() const { return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port; }
};

HttpAddress address_of(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const size_t end = std::min(url.find('/', kScheme.size()), url.size());
  const std::string authority = url.substr(std::min(kScheme.size(), url.size()), end - std::min(kScheme.size(), end));
  const size_t colon = authority.rfind(':');
  if (!url.starts_with(kScheme) || colon == std::string::npos || colon == 0 || colon + 1 == authority.size())
    throw Error(ErrorKind::Usage, fmt::format("'{}' is not the address of a run", url), {},
                {"write http://127.0.0.1:8080, or the path of its control socket"});
  std::string host = authority.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, authority.substr(colon + 1)};
}

// A request and its answer, with one deadline for both.
class Exchange {
 public:
  Exchange(const std::string& url, HttpAddress address, double seconds)
      : url_(url), address_(std::move(address)), resolver_(io_), stream_(io_) {
    stream_.expires_after(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds)));
    parser_.body_limit(kMostReplyBytes);
    parser_.header_limit(kMostHeaderBytes);
  }

  HttpAnswer run(http::request<http::string_body> request) {
    request_ = std::move(request);
    request_.set(http::field::host, address_.authority());
    request_.prepare_payload();
    error_code failed;
    const auto found = resolver_.resolve(address_.host, address_.port, failed);
    if (failed)
      throw Error(ErrorKind::Unavailable, fmt::format("'{}' is not known: {}", address_.host, failed.message()));
    stream_.async_connect(found, [this](error_code e, const tcp::endpoint&) { connected(e); });
    io_.run();
    return {parser_.get().result_int(), std::move(parser_.get().body())};
  }

 private:
  static constexpr uint32_t kMostHeaderBytes = 64 << 10;

  void connected(error_code e) {
    if (e && e != beast::error::timeout)
      throw Error(ErrorKind::Unavailable, fmt::format("no run answers on {}: {}", url_, e.message()), {},
                  {"a run answers there when it is started with --serve"});
    expect(e);
    http::async_write(stream_, request_, [this](error_code failed, size_t) { sent(failed); });
  }
  void sent(error_code e) {
    expect(e);
    http::async_read(stream_, buffer_, parser_, [this](error_code failed, size_t) { expect(failed); });
  }

  void expect(error_code e) const {
    if (!e) return;
    if (e == beast::error::timeout)
      throw Error(ErrorKind::Unavailable, fmt::format("{} does not answer", url_), {},
                  {"it may be writing a checkpoint; try again"});
    if (e == http::error::body_limit || e == http::error::header_limit)
      throw Error(ErrorKind::Unavailable,
                  e == http::error::body_limit
                      ? fmt::format("{} answers with more than {} MiB", url_, kMostReplyBytes >> 20)
                      : fmt::format("{} answers with a header of more than {} KiB", url_, kMostHeaderBytes >> 10),
                  {}, {"it is not a harmonics run, or the reply is too large: request less"});
    const bool closed = e == http::error::partial_message || e == asio::error::eof ||
                        e == asio::error::connection_reset || e == asio::error::broken_pipe;
    throw Error(ErrorKind::Unavailable, closed ? fmt::format("{} closed the connection", url_)
                                               : fmt::format("the server at {} is not a harmonics run", url_));
  }

  const std::string& url_;
  const HttpAddress address_;
  asio::io_context io_{1};
  tcp::resolver resolver_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
};

}  // namespace

HttpAnswer http_request(const std::string& url, const std::string& method, const std::string& path,
                        const std::string& token, const std::string& body, double seconds) {
  http::request<http::string_body> request;
  request.version(11);
  request.method_string(method);
  request.target(path);
  request.keep_alive(false);
  request.set(http::field::content_type, "application/json");
  if (!token.empty()) request.set(http::field::authorization, "Bearer " + token);
  request.body() = body;
  return Exchange(url, address_of(url), seconds).run(std::move(request));
}

}  // namespace harmonics::engine::cli
