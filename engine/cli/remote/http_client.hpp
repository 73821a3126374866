// Sends requests over plain HTTP/1.1.
#pragma once

#include <string>

namespace harmonics::engine::cli {

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
};

// Sends a request and returns the answer. `url` is http://HOST:PORT[/...], whose path is ignored. Throws
// ErrorKind::Usage for other text, and Unavailable if the whole answer does not arrive within `seconds` or exceeds
// kMostReplyBytes.
HttpAnswer http_request(const std::string& url, const std::string& method, const std::string& path,
                        const std::string& token, const std::string& body, double seconds);

}  // namespace harmonics::engine::cli
