#include "engine/serving/page.hpp"

namespace harmonics::engine {

namespace {

// Content security policy: code, styles and data are loaded only from the page's origin, and text is never executed.
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

namespace {

// `path`: URL path of the file, as used by the page.
template <typename Server>
void put_file(Server& service, const std::string& path, const PageFile& file) {
  service.put(path, {200,
                     type_of(file.name),
                     file.text,
                     {{"Content-Security-Policy", kPolicy},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"}}});
}

template <typename Server>
void put_files(Server& service, const char* first_page, bool (*is_wanted)(std::string_view name)) {
  for (unsigned i = 0; i < kPageFileCount; ++i) {
    const std::string name = kPageFiles[i].name;
    if (!is_wanted(name)) continue;
    put_file(service, name == first_page ? "/" : name == "docs.html" ? "/docs" : "/" + name, kPageFiles[i]);
  }
}

bool is_of_docs(std::string_view name) {
  return name == "docs.html" || name == "docs.js" || name == "page.css" || name == "icon.svg";
}

}  // namespace

void put_page(Service& service) {
  put_files(service, "index.html", [](std::string_view name) { return !name.starts_with("chat"); });
}

void put_docs(Service& service) { put_files(service, "index.html", is_of_docs); }
void put_docs(EmbeddingService& service) { put_files(service, "index.html", is_of_docs); }

void put_chat_page(LanguageService& service) {
  put_files(service, "chat.html", [](std::string_view name) { return name.starts_with("chat") || is_of_docs(name); });
}

}  // namespace harmonics::engine
