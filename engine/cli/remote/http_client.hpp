// Sends one request over plain HTTP/1.1.
#pragma once

#include <string>

namespace harmonics::engine::cli {

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
};

// `url`: http://HOST:PORT[/...]; the path is ignored. Throws ErrorKind::Usage for other text, and Unavailable when the
// whole answer does not arrive within `seconds` or is longer than kMostReplyBytes.
HttpAnswer http_request(const std::string& url, const std::string& method, const std::string& path,
                        const std::string& token, const std::string& body, double seconds);

}  // namespace harmonics::engine::cli
