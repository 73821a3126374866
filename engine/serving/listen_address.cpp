// Parses listen addresses: HOST:PORT.
#include <algorithm>

#include <boost/asio/ip/address.hpp>
#include <fmt/core.h>

#include "engine/serving/http_server.hpp"

namespace harmonics::engine {

ListenAddress parse_listen(const std::string& text) {
  const auto wrong = [&](const std::string& what) {
    return Error(ErrorKind::Usage, fmt::format("'{}' is not an address to listen on: {}", text, what), {},
                 {"write 127.0.0.1:8080, [::1]:8080, or port 0 for a free one"});
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw wrong("there is no port");
  const std::string digits = text.substr(colon + 1);
  if (digits.empty() || digits.size() > 5 ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }) ||
      std::stoul(digits) > 65535)
    throw wrong(fmt::format("'{}' is not a port", digits));
  ListenAddress address{text.substr(0, colon), static_cast<uint16_t>(std::stoul(digits)), true};
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']')
    address.host = address.host.substr(1, address.host.size() - 2);
  if (address.host == "localhost") address.host = "127.0.0.1";
  boost::system::error_code failed;
  const boost::asio::ip::address parsed = boost::asio::ip::make_address(address.host, failed);
  if (failed) throw wrong(fmt::format("'{}' is not a numeric IP address", address.host));
  address.loopback = parsed.is_loopback();
  return address;
}

}  // namespace harmonics::engine
