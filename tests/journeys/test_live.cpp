// Samples from one process of the program to another.
#include "tests/journeys/background.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

using namespace journeys;

namespace {

// A port that nobody has at this moment.
std::string free_port() {
  const int s = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof place;
  REQUIRE(::bind(s, reinterpret_cast<sockaddr*>(&place), size) == 0);
  REQUIRE(::getsockname(s, reinterpret_cast<sockaddr*>(&place), &size) == 0);
  ::close(s);
  return std::to_string(ntohs(place.sin_port));
}

const char* const kFlow = "harmonic take {\n  producer x;\n  layer out 1/2 x;\n  cycle { x -(relu)-> out; }\n}\n";

}  // namespace

TEST_CASE("samples of another process give what a file of them gives") {
  Folder f;
  const std::string flow = f.write("take.hmx", kFlow), port = free_port();
  const bool zmq = has(harmonics("list producers").out, "zmq+router");
  const std::string scheme = GENERATE("tcp", "unix", "zmq");
  if (scheme == "zmq" && !zmq) return;
  const std::string address = scheme == "tcp" ? "tcp:127.0.0.1:" + port : scheme == "unix" ? "unix:" + (f / "socket") : "zmq+router://127.0.0.1:" + port;
  const std::string to = scheme == "tcp" ? "tcp://127.0.0.1:" + port : scheme == "unix" ? "unix://" + (f / "socket") : "zmq+dealer:127.0.0.1:" + port;
  INFO(address);
  Background receiver(f, "infer " + flow + " --seed 3 --producer " + address + " --consumer 'file:" + (f / "live.npy") + "'");
  const std::string send = "infer " + kSamples + "mnist.hmx --seed 5 --producer mnist_training_data=synth:digits?size=300 --consumer ";
  REQUIRE(harmonics(send + to).code == 0);
  REQUIRE(receiver.end().code == 0);
  REQUIRE(harmonics(send + "'file:" + (f / "sent.npy") + "'").code == 0);
  REQUIRE(harmonics("infer " + flow + " --seed 3 --producer 'file:" + (f / "sent.npy") + "' --consumer 'file:" + (f / "still.npy") + "'").code == 0);
  CHECK(read(f / "live.npy").size() > 300 * 4);
  CHECK(read(f / "live.npy") == read(f / "still.npy"));
}

TEST_CASE("a receiver that nobody sends to, and one beyond this machine") {
  Folder f;
  const std::string flow = f.write("take.hmx", kFlow);
  const Result alone = harmonics("infer " + flow + " --producer 'tcp:127.0.0.1:" + free_port() + "?wait=1'");
  CHECK(alone.code == 69);
  CHECK(has(alone.err, "nobody has begun to send in 1 s"));
  CHECK(has(alone.err, "start the sender"));
  const Result far = harmonics("infer " + flow + " --producer tcp:0.0.0.0:5555");
  CHECK(far.code == 77);
  CHECK(has(far.err, "lies beyond this machine"));
}
