// Predictions over ZeroMQ.
#if __has_include(<zmq.h>)
#include "tests/engine/serving/served.hpp"

#include <boost/json.hpp>
#include <zmq.h>

#include "engine/model/safetensors.hpp"
#include "engine/serving/zmq_server.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::testing;
namespace json = boost::json;

namespace {

class Asking {
 public:
  Asking(const std::string& address, int kind = ZMQ_REQ) : context_(zmq_ctx_new()), socket_(zmq_socket(context_, kind)) {
    const int time = 20000, none = 0;
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &time, sizeof time);
    zmq_setsockopt(socket_, ZMQ_LINGER, &none, sizeof none);
    REQUIRE(zmq_connect(socket_, address.c_str()) == 0);
  }
  ~Asking() { zmq_close(socket_), zmq_ctx_term(context_); }
  void say(const std::string& part, bool more = false) { REQUIRE(zmq_send(socket_, part.data(), part.size(), more ? ZMQ_SNDMORE : 0) >= 0); }
  std::string hear() {
    char bytes[65536];
    const int n = zmq_recv(socket_, bytes, sizeof bytes, 0);
    return n < 0 ? "" : std::string(bytes, static_cast<size_t>(n));
  }

 private:
  void *context_, *socket_;
};

const char* const kBody = R"({"inputs": {"x": [[1, 0, 0, 0]]}})";

}  // namespace

TEST_CASE("predictions over ZeroMQ are those of HTTP") {
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
  CHECK(read_safetensors(answer.data(), answer.size(), "answer").metadata.at("step") == std::to_string(run.control.status().step));
  Asking many(server.address(), ZMQ_DEALER);
  for (int i = 0; i < 50; ++i) many.say(kBody);
  for (int i = 0; i < 50; ++i) CHECK_THAT(many.hear(), Catch::StartsWith("{\"outputs\":"));
  many.say("a", true), many.say("b", true), many.say("c");
  CHECK_THAT(many.hear(), Catch::StartsWith("{\"error\":\"a message of so many parts"));
  { Asking gone(server.address()); gone.say(kBody); }
  client.say(kBody);
  CHECK_THAT(client.hear(), Catch::StartsWith("{\"outputs\":"));
}

TEST_CASE("a token that all must show goes before the body over ZeroMQ") {
  Served run({"secret-token", true, true});
  run.start();
  ZmqServer server(run.service, "zmq+rep://127.0.0.1:0", false);
  Asking client(server.address());
  client.say(kBody);
  CHECK_THAT(client.hear(), Catch::Contains("the token is missing"));
  client.say("secret-token", true);
  client.say(kBody);
  CHECK_THAT(client.hear(), Catch::StartsWith("{\"outputs\":"));
  CHECK_THAT(message_of([&] { ZmqServer(run.service, "zmq+rep://0.0.0.0:0", false); }), Catch::StartsWith("other machines reach"));
  CHECK_THAT(message_of([&] { ZmqServer(run.service, "zmq+rep:nothing", false); }), Catch::Contains("is no address to answer on"));
  CHECK_THAT(message_of([&] { ZmqServer(run.service, "zmq+rep://" + server.address().substr(6), false); }), Catch::StartsWith("cannot listen on"));
}

#endif
