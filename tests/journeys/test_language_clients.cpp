// The clients that users have, against `serve` with the checkpoint of llama2.c: the packages `openai` and `ollama` of
// Python, and `openai` of npm. HARMONICS_CLIENT_PYTHON names a python that has them, HARMONICS_CLIENT_MODULES a folder
// with node_modules.
#include "tests/journeys/background.hpp"

using namespace journeys;

namespace {

std::string environment_or(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value ? value : otherwise;
}

bool succeeds(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// The server's address, when the server has printed it; "" without the data.
std::string served_stories(const Folder& f, std::unique_ptr<Background>& server) {
  const std::string data = data_folder();
  if (data.empty() || !fs::exists(fs::path(data) / "llama2c")) return "";
  server = std::make_unique<Background>(f, "serve " + data + "/llama2c/stories260K.bin --tokenizer " + data +
                                               "/llama2c/tok512.bin --listen 127.0.0.1:0 --token secret-key");
  const auto address = [&] {
    const std::string text = server->errors();
    const size_t at = text.find("http://127.0.0.1:");
    const size_t end = at == std::string::npos ? at : text.find_first_not_of("0123456789", at + 17);
    return end == std::string::npos ? "" : text.substr(at, end - at);
  };
  REQUIRE(server->await([&] { return !address().empty(); }));
  return address();
}

void check_clients(const std::string& client) {
  const Folder f;
  std::unique_ptr<Background> server;
  const std::string address = served_stories(f, server);
  if (address.empty()) return;
  const std::string out = f / "client.out";
  const int status = std::system(("timeout 100 " + client + " " + address + " secret-key >'" + out + "' 2>&1").c_str());
  INFO(read(out));
  CHECK(status == 0);
}

const std::string kClients = std::string(HARMONICS_SOURCE_DIR) + "/tests/journeys/language_clients";

}  // namespace

TEST_CASE("clients: the python packages of OpenAI and Ollama are answered") {
  const std::string python = environment_or("HARMONICS_CLIENT_PYTHON", "python3");
  if (!succeeds("'" + python + "' -c 'import openai, ollama'")) {
    WARN("skipped: " << python << " lacks openai and ollama (pip install openai ollama; set HARMONICS_CLIENT_PYTHON)");
    return;
  }
  check_clients("'" + python + "' '" + kClients + ".py'");
}

TEST_CASE("clients: the npm package of OpenAI is answered") {
  const Folder f;
  const std::string modules = environment_or("HARMONICS_CLIENT_MODULES", ".");
  std::error_code failed;
  if (!fs::exists(fs::path(modules) / "node_modules" / "openai", failed) || !succeeds("node --version")) {
    WARN("skipped: no node, or no openai in " << modules
                                              << "/node_modules (npm install openai; set HARMONICS_CLIENT_MODULES)");
    return;
  }
  // Modules are looked for beside the script.
  fs::copy_file(kClients + ".mjs", f / "client.mjs");
  fs::create_directory_symlink(fs::absolute(fs::path(modules) / "node_modules"), f / "node_modules");
  check_clients("node '" + (f / "client.mjs") + "'");
}
