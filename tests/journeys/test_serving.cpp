// A run that trains and answers requests, from the command line: serve, ctl, HTTP.
#include "tests/journeys/background.hpp"
#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

using namespace journeys;

namespace {

const std::string kServedDigits =
    kSamples + "mnist.hmx --producer 'synth:digits?size=640' --producer 'synth:digits?size=640#label' ";

// Returns "http://127.0.0.1:40001" from the first output of a run.
std::string address_in(const std::string& errors) {
  const size_t at = errors.find("http://127.0.0.1:");
  if (at == std::string::npos) return "";
  const size_t end = errors.find_first_not_of("0123456789", at + 17);
  return end == std::string::npos ? "" : errors.substr(at, end - at);
}

// Returns a connection, whose receive buffer may be limited, or -1.
int socket_to(const std::string& address, int buffer = 0) {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (buffer > 0) ::setsockopt(s, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(17))));
  if (::connect(s, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0) return s;
  ::close(s);
  return -1;
}

struct Reply {
  int status = 0;
  std::string body;
};
Reply http(const std::string& address, const std::string& method, const std::string& path, const std::string& body = "",
           const std::string& headers = "") {
  const int s = socket_to(address);
  REQUIRE(s >= 0);
  const std::string request = method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" + headers +
                              "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  REQUIRE(::send(s, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
  std::string all;
  char piece[65536];
  for (pollfd ready{s, POLLIN, 0}; ::poll(&ready, 1, 30000) > 0;) {
    const ssize_t n = ::recv(s, piece, sizeof piece, 0);
    if (n <= 0) break;
    all.append(piece, static_cast<size_t>(n));
  }
  ::close(s);
  const size_t end = all.find("\r\n\r\n");
  REQUIRE(end != std::string::npos);
  return {std::stoi(all.substr(9)), all.substr(end + 4)};
}

bool refuses(const std::string& address) {
  const int s = socket_to(address);
  if (s >= 0) ::close(s);
  return s < 0;
}

// A client that reads its reply late.
class SlowReply {
 public:
  SlowReply(const std::string& address, const std::string& path, const std::string& body)
      : socket_(socket_to(address, 1 << 16)) {
    const std::string request = "POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" +
                                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    REQUIRE(::send(socket_, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
  }
  ~SlowReply() { ::close(socket_); }
  SlowReply(const SlowReply&) = delete;
  SlowReply& operator=(const SlowReply&) = delete;
  void await_first() {
    pollfd ready{socket_, POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 60000) > 0);
  }
  // Returns the received and the announced bytes of the body.
  std::pair<size_t, size_t> rest() {
    std::string all;
    size_t end = std::string::npos, announced = 0;
    char piece[65536];
    for (pollfd ready{socket_, POLLIN, 0}; ::poll(&ready, 1, 30000) > 0;) {
      const ssize_t n = ::recv(socket_, piece, sizeof piece, 0);
      if (n <= 0) break;
      all.append(piece, static_cast<size_t>(n));
      if (end == std::string::npos && (end = all.find("\r\n\r\n")) != std::string::npos)
        announced = std::stoul(all.substr(all.find("Content-Length: ") + 16));
      if (end != std::string::npos && all.size() >= end + 4 + announced) break;
    }
    return {end == std::string::npos ? 0 : all.size() - end - 4, announced};
  }

 private:
  int socket_;
};

// Sends a request, ends the server while the reply is in transit, and checks that the whole reply arrives.
void check_last_reply(Background& server, const std::string& path, const std::string& body) {
  const std::string address = address_in(server.errors());
  SlowReply reply(address, path, body);
  reply.await_first();
  server.signal(SIGTERM);
  REQUIRE(server.await([&] { return refuses(address); }));  // the end has begun
  const auto [received, announced] = reply.rest();
  CHECK(announced > 5'000'000);  // more than the buffers of a connection take
  CHECK(received == announced);
  CHECK(server.end().code == 143);
}

std::string picture() {
  std::string s = "[";
  for (int i = 0; i < 784; ++i) s += (i ? "," : "") + std::to_string(i % 256);
  return s + "]";
}

}  // namespace

TEST_CASE("serving: a run answers while it learns, and is paused, stepped, saved and stopped") {
  Folder f;
  const std::string socket = f / "run.sock";
  Background run(f, "run " + kServedDigits + "--epochs 1000000 --for 100s --threads 1 --serve 127.0.0.1:0 --control " +
                        socket + " --checkpoint " + (f / "kept") + " --save " + (f / "w.safetensors"));
  REQUIRE(run.await([&] { return has(harmonics("ctl " + socket + " status").out, "running"); }));
  const std::string address = address_in(run.errors());
  REQUIRE(!address.empty());
  const size_t at = run.errors().find("token ");
  REQUIRE(at != std::string::npos);
  const std::string token = run.errors().substr(at + 6, 32);

  const Reply predicted =
      http(address, "POST", "/v1/predict", R"({"inputs": {"mnist_training_data": [)" + picture() + "]}}");
  CHECK(predicted.status == 200);
  CHECK(json::parse(predicted.body).at("outputs").at("output").at(0).as_array().size() == 10);
  CHECK(http(address, "POST", "/v1/control", R"({"do": "pause"})").status == 401);
  CHECK(harmonics("ctl " + address + " pause").code == 1);
  CHECK(has(harmonics("ctl " + address + " pause --token " + token).out, "paused"));
  const Result rate = harmonics_in("HARMONICS_TOKEN=" + token, "ctl " + address + " lr 0.01");
  CHECK(rate.code == 0);
  CHECK(has(rate.out, "paused"));
  CHECK(has(rate.out, ", lr 0.01\n"));  // for the next step, while paused

  const Result status = harmonics("ctl " + socket + " status --json");
  const json::value paused = last_line(status.out);
  CHECK(SchemaCheck::run(schema("status"), paused) == std::vector<std::string>{});
  CHECK(paused.at("state") == "paused");
  const Result stepped = harmonics("ctl " + socket + " step 3 --json");
  CHECK(SchemaCheck::run(schema("ctl"), last_line(stepped.out)) == std::vector<std::string>{});
  const int64_t step = paused.at("step").to_number<int64_t>() + 3;
  CHECK(last_line(stepped.out).at("status").at("step") == step);
  CHECK(last_line(stepped.out).at("status").at("learning_rate") == 0.01);
  const Reply again =
      http(address, "POST", "/v1/predict", R"({"inputs": {"mnist_training_data": [)" + picture() + "]}}");
  CHECK(json::parse(again.body).at("version").at("step") == step);

  CHECK(harmonics("ctl " + socket + " checkpoint").code == 0);
  const json::value kept = last_line(harmonics("ctl " + socket + " status --json").out).at("checkpoint");
  CHECK(kept.at("step") == step);
  CHECK(harmonics("ckpt verify " + std::string(kept.at("path").as_string())).code == 0);

  const Reply layers = http(address, "GET", "/v1/layers");
  REQUIRE(layers.status == 200);
  CHECK(json::parse(layers.body).at("layers").at(1).at("name") == "hidden");
  CHECK(json::parse(layers.body).at("layers").at(1).at("gradient_norm").is_number());
  CHECK(json::parse(http(address, "GET", "/v1/tap?edge=output&samples=2").body).at("samples").as_array().size() == 2);
  CHECK(json::parse(http(address, "GET", "/v1/graph").body).at("nodes").as_array().size() == 5);
  CHECK(http(address, "GET", "/healthz").status == 200);
  const Reply unknown = http(address, "GET", "/");
  CHECK(unknown.status == 404);
  CHECK(has(unknown.body, "POST /v1/predict"));
  CHECK(has(harmonics("ctl " + socket + " status --json").out, "\"learning_rate\":0.01"));
  CHECK(has(http(address, "GET", "/metrics").body, "harmonics_paused 1\n"));

  CHECK(has(harmonics("ctl " + socket + " resume").out, "running"));
  CHECK(harmonics("ctl " + socket + " step").code == 1);
  CHECK(harmonics("ctl " + socket + " stop").code == 0);
  const Result end = run.end();
  CHECK(end.code == 0);
  CHECK(has(end.err, "; interrupted)"));
  CHECK_FALSE(fs::exists(socket));
  CHECK(fs::exists(f / "w.safetensors"));
  CHECK(harmonics("ctl " + socket + " status").code == 69);
}

TEST_CASE("serving: weights are served without training, and answer as infer does") {
  Folder f;
  const std::string flow = f.write(
      "g.hmx",
      "harmonic g {\n  producer x {3}; producer y {2};\n  layer o {2};\n  cycle { x -> o; o <-(mse)- y; }\n}\n");
  const std::string x = f.write("x.csv", "0.5,-1,2\n0.25,0,1\n"), y = f.write("y.csv", "1,2\n3,4\n"),
                    weights = f / "w.safetensors";
  REQUIRE(
      harmonics("run " + flow + " --producer x=" + x + " --producer y=" + y + " --steps 20 --quiet --save " + weights)
          .code == 0);
  REQUIRE(harmonics("infer " + flow + " --weights " + weights + " --producer x=" + x +
                    " --consumer 'file:" + (f / "out.csv") + "'")
              .code == 0);
  Background server(f, "serve " + flow + " --weights " + weights + " --listen 127.0.0.1:0 --latency 0 --json");
  REQUIRE(server.await([&] {
    return !address_in(server.errors()).empty() && http(address_in(server.errors()), "GET", "/v1/model").status == 200;
  }));
  const std::string address = address_in(server.errors());
  const Reply reply = http(address, "POST", "/v1/predict", R"({"inputs": {"x": [[0.5, -1, 2], [0.25, 0, 1]]}})");
  REQUIRE(reply.status == 200);
  CHECK(json::parse(reply.body).at("version") == json::parse(R"({"cycle": 1, "step": 20})"));
  const Result shown = harmonics("inspect " + weights);
  CHECK(has(shown.out, "  harmonics.cycle = 1\n"));
  CHECK(has(shown.out, "  harmonics.step = 20\n"));
  const json::array outputs = json::parse(reply.body).at("outputs").at("o").at(1).as_array();
  const std::string table = read(f / "out.csv");
  std::stringstream expected(table.substr(table.rfind('\n', table.size() - 2) + 1));
  REQUIRE(outputs.size() == 2);
  for (const json::value& v : outputs) {
    std::string number;
    REQUIRE(std::getline(expected, number, ','));
    CHECK(v.to_number<double>() == Approx(std::stod(number)).margin(1e-5));
  }
  CHECK(json::parse(http(address, "GET", "/v1/status").body).at("state") == "serving");
  CHECK(http(address, "POST", "/v1/predict", R"({"inputs": {"z": []}})").status == 400);
  server.signal(SIGTERM);
  const Result end = server.end();
  CHECK(end.code == 143);
  CHECK(SchemaCheck::run(schema("serve"), last_line(end.out)) == std::vector<std::string>{});
  CHECK(number(end.out, "requests") == 1);
}

TEST_CASE("serving: a reply in transit is sent whole when the server ends") {
  Folder f;
  const std::string flow = f.write("g.hmx",
                                   "harmonic g {\n  producer x {3}; producer y {2000};\n  layer o {2000};\n"
                                   "  cycle { x -> o; o <-(mse)- y; }\n}\n"),
                    x = f.write("x.csv", "0.5,-1,2\n"), weights = f / "w.safetensors";
  std::string row = "0";
  for (int i = 1; i < 2000; ++i) row += ",0";
  REQUIRE(harmonics("run " + flow + " --producer x=" + x + " --producer y=" + f.write("y.csv", row + "\n") +
                    " --steps 1 --quiet --save " + weights)
              .code == 0);
  Background server(f, "serve " + flow + " --weights " + weights + " --listen 127.0.0.1:0 --latency 0");
  REQUIRE(server.await([&] {
    return !address_in(server.errors()).empty() && http(address_in(server.errors()), "GET", "/v1/model").status == 200;
  }));
  std::string body = R"({"inputs": {"x": [[1, 2, 3])";
  for (int i = 1; i < 256; ++i) body += ", [0.123, " + std::to_string(i) + ", 3]";
  check_last_reply(server, "/v1/predict", body + "]}}");
}

TEST_CASE("serving: embeddings in transit are sent whole when the server ends") {
  if (!has(harmonics("list importers").out, "huggingface")) return;
  Folder f;
  const std::string model = f.write(
      "enc.ndsl",
      "extends: BERT\nname: Enc\nconfig: {vocab_size: 149, hidden_size: 512, num_layers: 1, num_query_heads: 4, "
      "num_kv_heads: 4, intermediate_size: 8, max_position_embeddings: 16}\n");
  const std::string flow = f.write("enc.hmx",
                                   "harmonic e { producer tokens {1}; producer y {512}; layer o; cycle {\n"
                                   "  tokens -(model(\"enc.ndsl\", output=\"hidden\"))-> o; o <-(mse)- y; } }\n"),
                    weights = f / "w.safetensors";
  std::string row = "1";
  for (int i = 0; i < 512; ++i) row += ",0";
  const std::string table = f.write("t.csv", row + "\n");
  REQUIRE(harmonics("run " + flow + " --producer 'tokens=" + table + "?as=number&dtype=i32#0' --producer 'y=" + table +
                    "#1-512' --steps 1 --quiet --save " + weights)
              .code == 0);
  REQUIRE(harmonics("export " + model + " " + (f / "enc-v1.5/") + " --weights " + weights + " --tokenizer " +
                    HARMONICS_SOURCE_DIR + "/tests/parity/golden/folders/tokenizers/word_pieces.json")
              .code == 0);
  Background server(f, "serve " + (f / "enc-v1.5") + " --listen 127.0.0.1:0");
  REQUIRE(server.await([&] { return !address_in(server.errors()).empty(); }));
  CHECK(http(address_in(server.errors()), "GET", "/v1/models").body.find("\"id\":\"enc-v1.5\"") != std::string::npos);
  std::string body = R"({"input": ["a")";
  for (int i = 1; i < 2048; ++i) body += ", \"" + std::to_string(i) + "\"";
  check_last_reply(server, "/v1/embeddings", body + "]}");
}

TEST_CASE("serving: a run that waits for its streams reports that it will write checkpoints") {
  Folder f;
  const std::string flow =
      f.write("g.hmx", "harmonic g { producer x; producer y; layer o; cycle { x -(affine)-> o; o <-(mse)- y; } }\n");
  const std::string at = "unix:" + (f / "rows"), socket = f / "run.sock";
  Background run(f, "run " + flow + " --producer x=" + at + "#x --producer y=" + at + "#y --checkpoint " +
                        (f / "runs") + " --control " + socket);
  REQUIRE(run.await([&] { return fs::exists(socket); }));
  const auto status = [&] { return last_line(harmonics("ctl " + socket + " status --json").out); };
  REQUIRE(run.await([&] { return !status().at("streams").as_array().empty(); }));  // streams appear after the socket
  CHECK(status().at("state") == "starting");
  CHECK(status().at("checkpointing") == true);
}

TEST_CASE("serving: a run with silent streams opens its listeners at once") {
  Folder f;
  const std::string flow = f.write("g.hmx",
                                   "harmonic g {\n  producer image; producer label;\n  layer hidden {16}; layer o;\n  "
                                   "cycle { image -(relu)-> hidden -> o; o <-(cross_entropy)- label; }\n}\n");
  const std::string at = "unix:" + (f / "digits"), socket = f / "run.sock";
  Background run(f, "run " + flow + " --producer image=" + at + "#image --producer label=" + at +
                        "#label --threads 1 --serve 127.0.0.1:0 --control " + socket);
  REQUIRE(run.await([&] { return fs::exists(socket); }));
  const std::string address = address_in(run.errors());
  REQUIRE(!address.empty());
  const Reply health = http(address, "GET", "/healthz");
  CHECK(health.status == 200);
  CHECK(json::parse(health.body).at("state") == "starting");
  CHECK(json::parse(health.body).at("streams").at("image").at("state") == "waiting");
  const json::value status = last_line(harmonics("ctl " + socket + " status --json").out);
  CHECK(SchemaCheck::run(schema("status"), status) == std::vector<std::string>{});
  CHECK(status.at("state") == "starting");
  CHECK(status.at("streams").at(1).at("name") == "label");
  const Reply early = http(address, "POST", "/v1/predict", R"({"inputs": {}})");
  CHECK(early.status == 503);
  CHECK(has(early.body, "the run is starting"));
  const json::value graph = json::parse(http(address, "GET", "/v1/graph").body);
  REQUIRE(graph.at("nodes").as_array().size() == 4);
  CHECK(graph.at("nodes").at(0).at("shape").is_null());
  CHECK(graph.at("edges").as_array().size() == 3);
  CHECK(harmonics("ctl " + socket + " pause").code == 1);
  CHECK(has(harmonics("top " + socket + " --once").out, "waiting"));

  const Folder own;
  Background sender(
      own, "send " + at +
               " --from 'image=synth:digits?size=100000' --from 'label=synth:digits?size=100000#label' --rate 2000");
  REQUIRE(run.await([&] { return has(harmonics("ctl " + socket + " status").out, "running"); }));
  const Reply predicted = http(address, "POST", "/v1/predict", R"({"inputs": {"image": [)" + picture() + "]}}");
  CHECK(predicted.status == 200);
  CHECK(json::parse(http(address, "GET", "/v1/graph").body).at("nodes").at(0).at("shape").as_array().size() == 2);
  CHECK(json::parse(http(address, "GET", "/healthz").body).at("streams").at("image").at("state") == "receiving");
  CHECK(harmonics("ctl " + socket + " stop").code == 0);
  CHECK(run.end().code == 0);
}

TEST_CASE("serving: an impossible service is reported before the run") {
  const Result far = harmonics("run " + kServedDigits + "--steps 1 --serve 0.0.0.0:0");
  CHECK(far.code == 77);
  CHECK(has(far.err, "other machines can reach 0.0.0.0:0"));
  CHECK(harmonics("run " + kServedDigits + "--steps 1 --quiet --serve 0.0.0.0:0 --insecure").code == 0);
  CHECK(harmonics("run " + kServedDigits + "--steps 1 --serve nowhere").code == 2);
  CHECK(has(harmonics("run " + kServedDigits + "--steps 1 --serve 127.0.0.1:0 --token abc").err,
            "a token of 3 characters is too short"));
  CHECK(harmonics("serve " + kSamples + "mnist.hmx").code == 2);
  CHECK(harmonics("ctl nowhere.sock status").code == 69);
  CHECK(harmonics("ctl http://127.0.0.1:1 status").code == 69);
  CHECK(harmonics("ctl nowhere.sock lr fast").code == 2);
  Folder f;
  f.write("file", "mine");
  CHECK(harmonics("run " + kServedDigits + "--steps 1 --control " + (f / "file")).code == 73);
}
