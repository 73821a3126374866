// One request to a program on this machine or another, over plain HTTP/1.1.
#pragma once

#include <string>

namespace harmonics::cli {

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// `url`: http://HOST:PORT[/...], of which the path is left out. ErrorKind::Usage when it is none, Unavailable when the
// whole answer does not come within `seconds`, or is longer than kMostReplyBytes.
HttpAnswer http_request(const std::string& url, const std::string& method, const std::string& path,
                        const std::string& token, const std::string& body, double seconds);

}  // namespace harmonics::cli
