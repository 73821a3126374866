#include "engine/serving/page.hpp"

namespace harmonics::engine {

namespace {

// The page loads code, styles and data only from its own origin, and text is never executed.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'";

const char* type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

}  // namespace

void put_page(Service& service) {
  for (unsigned i = 0; i < kPageFileCount; ++i) {
    const std::string name = kPageFiles[i].name;
    const ServiceReply reply{200,
                             type_of(name),
                             kPageFiles[i].text,
                             {{"Content-Security-Policy", kPolicy},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cross-Origin-Opener-Policy", "same-origin"},
                              {"Cross-Origin-Resource-Policy", "same-origin"}}};
    service.put(name == "index.html" ? "/" : "/" + name, reply);
  }
}

}  // namespace harmonics::engine
