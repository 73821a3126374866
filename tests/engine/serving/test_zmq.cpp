// Predictions over ZeroMQ.
#if __has_include(<zmq.h>)
#include "tests/engine/serving/served.hpp"

#include <unistd.h>

#include <boost/json.hpp>
#include <zmq.h>

#include "engine/model/safetensors.hpp"
#include "engine/serving/zmq_server.hpp"
#include "tests/message_of.hpp"
#include "wire/keys.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace json = boost::json;

namespace {

// A client's keys: its own pair, and the server's expected public key.
struct Keys {
  wire::KeyPair own;
  wire::Key server;
};

class Asking {
 public:
  Asking(const std::string& address, int kind = ZMQ_REQ, const Keys* keys = nullptr, int patience = 20000)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, kind)) {
    const int none = 0, one = 1;
    zmq_setsockopt(socket_, ZMQ_RCVHWM, &one, sizeof one);  // unread replies wait in the server
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &patience, sizeof patience);
    zmq_setsockopt(socket_, ZMQ_LINGER, &none, sizeof none);
    const auto set = [&](int option, const wire::Key& key) {
      REQUIRE(zmq_setsockopt(socket_, option, key.c_str(), key.size() + 1) == 0);
    };
    if (keys)
      set(ZMQ_CURVE_PUBLICKEY, keys->own.public_key), set(ZMQ_CURVE_SECRETKEY, keys->own.secret_key),
          set(ZMQ_CURVE_SERVERKEY, keys->server);
    REQUIRE(zmq_connect(socket_, address.c_str()) == 0);
  }
  ~Asking() { zmq_close(socket_), zmq_ctx_term(context_); }
  void say(const std::string& part, bool more = false) {
    REQUIRE(zmq_send(socket_, part.data(), part.size(), more ? ZMQ_SNDMORE : 0) >= 0);
  }
  std::string hear() {
    char bytes[65536];
    const int n = zmq_recv(socket_, bytes, sizeof bytes, 0);
    return n < 0 ? "" : std::string(bytes, static_cast<size_t>(n));
  }

 private:
  void *context_, *socket_;
};

wire::KeyPair new_keys() {
  char public_key[41], secret_key[41];
  REQUIRE(zmq_curve_keypair(public_key, secret_key) == 0);
  return {public_key, secret_key};
}

// A temporary file, removed at the end.
class Written {
 public:
  explicit Written(const std::string& text) {
    const int file = ::mkstemp(path_.data());
    REQUIRE(::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    ::close(file);
  }
  ~Written() { ::unlink(path_.c_str()); }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/harmonics-keys-XXXXXX";
};

const char* const kBody = R"({"inputs": {"x": [[1, 0, 0, 0]]}})";

}  // namespace

TEST_CASE("zmq: predictions equal those over HTTP") {
  Served run;
  run.start();
  run.control.pause();
  REQUIRE(await([&] { return run.snapshots->newest()->version().step == run.control.status().step; }));
  ZmqServer server(run.service, "zmq+rep://127.0.0.1:0", false);
  Asking client(server.address());
  client.say(kBody);
  CHECK(client.hear() == call(run.service, post("/v1/predict", kBody)).body);
  client.say("nonsense");
  CHECK_THAT(client.hear(), Catch::StartsWith("{\"error\":"));
  TensorFile file;
  file.tensors["x"] = HTensor::from({1, 4}, std::vector<float>{1, 0, 0, 0});
  client.say(write_safetensors(file));
  const std::string answer = client.hear();
  CHECK(read_safetensors(answer.data(), answer.size(), "answer").metadata.at("step") ==
        std::to_string(run.control.status().step));
  Asking many(server.address(), ZMQ_DEALER);
  for (int i = 0; i < 50; ++i) many.say(kBody);
  for (int i = 0; i < 50; ++i) CHECK_THAT(many.hear(), Catch::StartsWith("{\"outputs\":"));
  many.say("a", true), many.say("b", true), many.say("c");
  CHECK_THAT(many.hear(), Catch::StartsWith("{\"error\":\"the message has too many parts"));
  {
    Asking gone(server.address());
    gone.say(kBody);
  }
  client.say(kBody);
  CHECK_THAT(client.hear(), Catch::StartsWith("{\"outputs\":"));
}

TEST_CASE("zmq: a client that reads its replies late gets all of them") {
  Served run;
  run.start();
  const Written place("");  // bind replaces the file
  ZmqServer server(run.service, "zmq+rep:ipc:" + place.path(), false);
  Asking client(server.address(), ZMQ_DEALER), other(server.address());
  std::string many = R"({"inputs": {"x": [[1, 0, 0, 0])";
  for (int i = 1; i < 256; ++i) many += ", [1, 0, 0, 0]";
  many += "]}}";
  constexpr int kRequests = 300;  // their replies exceed the queue of the peer and the buffers of its socket
  for (int i = 0; i < kRequests; ++i) {
    client.say(many);
    REQUIRE(await([&] { return run.predictor.report().requests == static_cast<uint64_t>(i) + 1; }));
  }
  other.say(kBody);
  CHECK_THAT(other.hear(), Catch::StartsWith("{\"outputs\":"));
  int replies = 0;
  while (replies < kRequests && client.hear().starts_with("{\"outputs\":")) ++replies;
  CHECK(replies == kRequests);
}

TEST_CASE("zmq: a token for all requests comes before the body") {
  Served run({"secret-token", true, true});
  run.start();
  ZmqServer server(run.service, "zmq+rep://127.0.0.1:0", false);
  Asking client(server.address());
  client.say(kBody);
  CHECK_THAT(client.hear(), Catch::Contains("the token is missing"));
  client.say("secret-token", true);
  client.say(kBody);
  CHECK_THAT(client.hear(), Catch::StartsWith("{\"outputs\":"));
  CHECK_THAT(message_of([&] { ZmqServer(run.service, "zmq+rep://0.0.0.0:0", false); }),
             Catch::StartsWith("other machines can reach"));
  CHECK_THAT(message_of([&] { ZmqServer(run.service, "zmq+rep:nothing", false); }),
             Catch::Contains("is not an address to answer on"));
  CHECK_THAT(message_of([&] { ZmqServer(run.service, "zmq+rep://" + server.address().substr(6), false); }),
             Catch::StartsWith("cannot listen on"));
}

TEST_CASE("zmq: with keys, listed clients are answered and others are ignored") {
  Served run;
  run.start();
  const wire::KeyPair mine = new_keys(), good = new_keys(), bad = new_keys();
  const Written own("public = " + mine.public_key + "\nsecret = " + mine.secret_key + "\n"),
      allowed("# clients\n" + good.public_key + "\n");
  // Other machines can reach it: keys suffice, no token is needed.
  ZmqServer server(run.service, "zmq+rep://0.0.0.0:0?curve=" + own.path() + "&allow=" + allowed.path(), false);
  CHECK_FALSE(server.asks_for_token());
  const std::string address = "tcp://127.0.0.1" + server.address().substr(server.address().rfind(':'));
  const Keys right{good, mine.public_key}, not_listed{bad, mine.public_key}, other_server{good, bad.public_key};
  Asking client(address, ZMQ_REQ, &right);
  client.say(kBody);
  CHECK_THAT(client.hear(), Catch::StartsWith("{\"outputs\":"));
  constexpr int kShort = 700;  // ms
  for (const Keys* keys : {&not_listed, &other_server, static_cast<const Keys*>(nullptr)}) {
    Asking refused(address, ZMQ_REQ, keys, kShort);
    refused.say(kBody);
    CHECK(refused.hear().empty());
  }
  client.say(kBody);
  CHECK_THAT(client.hear(), Catch::StartsWith("{\"outputs\":"));
}

TEST_CASE("zmq: an address that other machines can reach needs the token without keys") {
  Served run;
  run.start();
  ZmqServer server(run.service, "zmq+rep://0.0.0.0:0?insecure=true", false);
  CHECK(server.asks_for_token());
  Asking client("tcp://127.0.0.1" + server.address().substr(server.address().rfind(':')));
  client.say(kBody);
  CHECK_THAT(client.hear(), Catch::Contains("the token is missing"));
  client.say("secret-token", true);
  client.say(kBody);
  CHECK_THAT(client.hear(), Catch::StartsWith("{\"outputs\":"));
}

TEST_CASE("zmq: invalid addresses with keys say what is missing") {
  Served run;
  const wire::KeyPair mine = new_keys();
  const Written own("public = " + mine.public_key + "\nsecret = " + mine.secret_key + "\n");
  const auto refused = [&](const std::string& options) {
    return message_of([&] { ZmqServer(run.service, "zmq+rep://127.0.0.1:0" + options, false); });
  };
  CHECK_THAT(refused("?curve=" + own.path()), Catch::Contains("no client keys are allowed\nadd ?allow=FILE"));
  CHECK_THAT(refused("?allow=" + own.path()), Catch::Contains("peer keys are given without an own key pair"));
  CHECK_THAT(refused("?curve=/nowhere&allow=/nowhere"), Catch::StartsWith("/nowhere: cannot be read"));
  CHECK_THAT(refused("?curve=" + own.path() + "&allow=" + own.path()),
             Catch::Contains("has a secret key where public ones are listed"));
  CHECK_THAT(refused("?server-key=x"),
             Catch::Contains("there is no option 'server-key'\noptions are curve, allow and insecure"));
  CHECK_THAT(refused("?insecure=maybe"), Catch::Contains("insecure is true or false"));
  CHECK_THAT(refused("#x"), Catch::Contains("leave it out"));
}

TEST_CASE("zmq: keys as text, and the clients they admit") {
  for (int i = 0; i < 20; ++i) {
    const wire::KeyPair pair = new_keys();
    unsigned char bytes[32];
    REQUIRE(zmq_z85_decode(bytes, pair.public_key.c_str()));
    CHECK(wire::key_of(bytes) == pair.public_key);
    CHECK(wire::read_public_key(pair.public_key) == pair.public_key);
    const std::string raw(reinterpret_cast<const char*>(bytes), 32);
    const std::vector<std::string> question{"1.0", "7", "harmonics", "127.0.0.1", "", "CURVE", raw};
    CHECK(wire::admission(question, {pair.public_key}) ==
          std::vector<std::string>{"1.0", "7", "200", "OK", pair.public_key, ""});
    CHECK(wire::admission(question, {pair.secret_key}).at(2) == "400");
  }
  CHECK(wire::admission({}, {"x"}).at(2) == "400");
  CHECK(wire::admission({"1.0", "7", "", "", "", "NULL"}, {""}).at(2) == "400");
  // Five of the largest digit exceed four bytes.
  CHECK_THAT(message_of([] { wire::read_public_key(std::string(40, '#')); }), Catch::Contains("cannot be read"));
}

#endif
