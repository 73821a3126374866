// Real clients against `serve` with the llama2.c checkpoint: the packages `openai` and `ollama` for Python and npm.
// HARMONICS_CLIENT_PYTHON names a Python that has them, HARMONICS_CLIENT_MODULES a folder with node_modules.
// language_clients.sh fetches both and runs these tests.
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/journeys/background.hpp"

using namespace journeys;

namespace {

std::string environment_or(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value ? value : otherwise;
}

bool succeeds(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// Returns the server's address, when the server has printed it; "" without the data.
std::string served_stories(const Folder& f, std::unique_ptr<Background>& server, const std::string& flags) {
  const std::string data = data_folder();
  if (data.empty() || !fs::exists(fs::path(data) / "llama2c")) return "";
  server = std::make_unique<Background>(f, "serve " + data + "/llama2c/stories260K.bin --tokenizer " + data +
                                               "/llama2c/tok512.bin --listen 127.0.0.1:0 " + flags);
  const auto address = [&] {
    const std::string text = server->errors();
    const size_t at = text.find("http://127.0.0.1:");
    const size_t end = at == std::string::npos ? at : text.find_first_not_of("0123456789", at + 17);
    return end == std::string::npos ? "" : text.substr(at, end - at);
  };
  REQUIRE(server->await([&] { return !address().empty(); }));
  return address();
}

// Runs a client with the server's address and an argument.
void check_client(const Folder& f, const std::string& client, const std::string& argument, const std::string& flags) {
  std::unique_ptr<Background> server;
  const std::string address = served_stories(f, server, flags);
  if (address.empty()) return;
  const std::string out = f / "client.out";
  const int status =
      std::system(("timeout 150 " + client + " " + address + " '" + argument + "' >'" + out + "' 2>&1").c_str());
  INFO(read(out));
  CHECK(status == 0);
}

const std::string kScripts = std::string(HARMONICS_SOURCE_DIR) + "/tests/journeys/";

// A connection whose request has begun, so that the server does not close it for another one.
class Begun {
 public:
  explicit Begun(const std::string& address) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    const std::string head =
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";
    REQUIRE(::send(socket_, head.data(), head.size(), 0) == static_cast<ssize_t>(head.size()));
  }
  ~Begun() { ::close(socket_); }
  Begun(const Begun&) = delete;
  Begun& operator=(const Begun&) = delete;
  // The status of the answer: 100 if the server waits for the body.
  std::string status() const {
    char answer[12];
    return ::recv(socket_, answer, sizeof answer, MSG_WAITALL) == sizeof answer ? std::string(answer + 9, 3) : "";
  }

 private:
  int socket_;
};

// Copies the script beside the modules, where node looks for them. Returns false if some are missing.
bool take_script(const Folder& f, const std::string& name, const std::vector<std::string>& packages) {
  const fs::path modules = fs::path(environment_or("HARMONICS_CLIENT_MODULES", ".")) / "node_modules";
  std::error_code failed;
  for (const std::string& package : packages)
    if (!fs::exists(modules / package, failed) || !succeeds("node --version")) {
      WARN("skipped: no node, or no " << package << " in " << modules << " (npm install " << package
                                      << "; set HARMONICS_CLIENT_MODULES)");
      return false;
    }
  fs::copy_file(kScripts + name, f / name);
  fs::create_directory_symlink(fs::absolute(modules), f / "node_modules");
  return true;
}

}  // namespace

TEST_CASE("language clients: every request that the queue has room for gets a connection") {
  const Folder f;
  std::unique_ptr<Background> server;
  const std::string address = served_stories(f, server, "--context 2048 --sequences 2 --queue 100");
  if (address.empty()) return;
  std::vector<std::unique_ptr<Begun>> all;
  for (int i = 0; i < 102; ++i) {
    all.push_back(std::make_unique<Begun>(address));
    CHECK(all.back()->status() == "100");
  }
}

TEST_CASE("clients: the python packages of OpenAI and Ollama are answered") {
  const std::string python = environment_or("HARMONICS_CLIENT_PYTHON", "python3");
  if (!succeeds("'" + python + "' -c 'import openai, ollama'")) {
    WARN("skipped: " << python << " lacks openai and ollama (pip install openai ollama; set HARMONICS_CLIENT_PYTHON)");
    return;
  }
  check_client(Folder(), "'" + python + "' '" + kScripts + "language_clients.py'", "secret-key",
               "--context 2048 --token secret-key");
}

TEST_CASE("clients: the npm packages of OpenAI and Ollama are answered") {
  const Folder f;
  if (!take_script(f, "language_clients.mjs", {"openai", "ollama"})) return;
  check_client(f, "node '" + (f / "language_clients.mjs") + "'", "secret-key", "--context 2048 --token secret-key");
}

TEST_CASE("clients: the chat page works in Chromium, wide and narrow") {
  const Folder f;
  if (!take_script(f, "chat_page.mjs", {"playwright-core"})) return;
  if (!succeeds("command -v \"${CHROMIUM:-chromium}\"")) {
    WARN("skipped: there is no chromium (CHROMIUM names another one)");
    return;
  }
  check_client(f, "node '" + (f / "chat_page.mjs") + "'", f / "pictures", "--context 512");
}
