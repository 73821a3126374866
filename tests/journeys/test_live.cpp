// Samples sent from one process of the program to another.
#include <optional>

#include "tests/journeys/background.hpp"
#include "tests/journeys/sending.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

using namespace journeys;

namespace {

// Returns a port that is unused at this moment.
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

const char* const kTakeFlow = "harmonic take {\n  producer x;\n  layer out 1/2 x;\n  cycle { x -(relu)-> out; }\n}\n";

}  // namespace

TEST_CASE("live: samples from another process train like a file of them") {
  Folder f;
  const std::string flow = f.write("take.hmx", kTakeFlow), port = free_port();
  const bool zmq = has(harmonics("list producers").out, "zmq+router");
  const std::string scheme = GENERATE("tcp", "unix", "zmq");
  if (scheme == "zmq" && !zmq) return;
  const std::string address = scheme == "tcp"    ? "tcp:127.0.0.1:" + port
                              : scheme == "unix" ? "unix:" + (f / "socket")
                                                 : "zmq+router://127.0.0.1:" + port;
  const std::string to = scheme == "tcp"    ? "tcp://127.0.0.1:" + port
                         : scheme == "unix" ? "unix://" + (f / "socket")
                                            : "zmq+dealer:127.0.0.1:" + port;
  INFO(address);
  Background receiver(f, "infer --untrained " + flow + " --seed 3 --producer " + address +
                             " --consumer 'file:" + (f / "live.npy") + "'");
  const std::string send = "infer --untrained " + kSamples +
                           "mnist.hmx --seed 5 --producer mnist_training_data=synth:digits?size=300 --consumer ";
  REQUIRE(harmonics(send + to).code == 0);
  REQUIRE(receiver.end().code == 0);
  REQUIRE(harmonics(send + "'file:" + (f / "sent.npy") + "'").code == 0);
  REQUIRE(harmonics("infer --untrained " + flow + " --seed 3 --producer 'file:" + (f / "sent.npy") +
                    "' --consumer 'file:" + (f / "still.npy") + "'")
              .code == 0);
  CHECK(read(f / "live.npy").size() > 300 * 4);
  CHECK(read(f / "live.npy") == read(f / "still.npy"));
}

TEST_CASE("live: a receiver without a sender, and a receiver beyond this machine") {
  Folder f;
  const std::string flow = f.write("take.hmx", kTakeFlow);
  const Result alone =
      harmonics("infer --untrained " + flow + " --producer 'tcp:127.0.0.1:" + free_port() + "?wait=1'");
  CHECK(alone.code == 69);
  CHECK(has(alone.err, "no sender started within 1 s"));
  CHECK(has(alone.err, "start the sender"));
  const Result far = harmonics("infer --untrained " + flow + " --producer tcp:0.0.0.0:5555");
  CHECK(far.code == 77);
  CHECK(has(far.err, "is not local"));
}

TEST_CASE("live: send and receive transfer images with their labels, as lines and as files") {
  Folder f;
  const std::string address = "unix:" + (f / "socket");
  const std::string from =
      " --from 'image=synth:digits?size=500&seed=4' --from 'label=synth:digits?size=500&seed=4#label'";
  {
    Background receiver(f, "receive '" + address + "#label,image' --to label=file:" + (f / "l.npy") +
                               " --to image=file:" + (f / "i.npy") + " --json");
    const Result sent = harmonics("send " + address + from + " --json");
    INFO(sent.err);
    REQUIRE(sent.code == 0);
    CHECK(has(sent.out, "\"samples\":500"));
    CHECK(has(sent.err, "sent 500 samples in "));
    REQUIRE(receiver.end().code == 0);
  }
  REQUIRE(harmonics("send file:" + (f / "image.npy") + " --from 'synth:digits?size=500&seed=4'").code == 0);
  CHECK(read(f / "i.npy") == read(f / "image.npy"));
  Background receiver(f, "receive '" + address + "#label,image'");
  REQUIRE(harmonics("send " + address + from + " --count 2 --rate 100").code == 0);
  const Result lines = receiver.end();
  REQUIRE(lines.code == 0);
  CHECK(std::count(lines.out.begin(), lines.out.end(), '\n') == 2);
  CHECK(lines.out.starts_with("{\"label\":"));
  CHECK(has(lines.out, ",\"image\":[[0,"));
  CHECK(has(harmonics("send " + address + " --from synth:digits --from synth:digits").err,
            "write --from NAME=synth:digits"));
  CHECK(has(harmonics("send file:x.csv --from synth:digits --ack durable").err, "file: has no acknowledgements"));
  CHECK(has(harmonics("receive tcp:0.0.0.0:1").err, "is not local"));
}

TEST_CASE("live: a receiver whose first samples are unreadable says so while it waits") {
  Folder f;
  const std::string address = "unix:" + (f / "socket") + "?format=jsonl";
  Background receiver(f, "receive '" + address + "#x'");
  std::optional<Connected> sender(f / "socket");
  sender->send("junk\n{\"x\": [1\n");
  CHECK(receiver.await(
      [&] { return has(receiver.errors(), "no readable sample of 'x' yet; refused: 2 samples: line 1"); }));
  sender->send("{\"x\": [1, 2]}\n");
  sender.reset();
  const Result end = receiver.end();
  CHECK(end.code == 0);
  CHECK(end.out == "{\"x\":[1, 2]}\n");
  CHECK(has(end.err, "note: waiting for samples of unix:"));
}

TEST_CASE("live: an address that cannot be listened on is not announced") {
  Folder f;
  const std::string flow = f.write("take.hmx", kTakeFlow), address = "unix:" + (f / "missing/socket");
  for (const std::string& verb :
       {"receive " + address, "infer --untrained " + flow + " --producer " + address, "inspect " + address}) {
    const Result r = harmonics(verb);
    CHECK(r.code != 0);
    CHECK(has(r.err, "cannot be listened on"));
    CHECK_FALSE(has(r.err, "waiting for samples"));
  }
}

TEST_CASE("live: a receiver reports refused samples with the last reason") {
  Folder f;
  const std::string socket = f / "socket";
  Background receiver(f, "receive 'unix:" + socket + "?format=jsonl#x' --json");
  std::optional<Connected> sender(socket);
  sender->send("{\"x\": [1, 2]}\n{\"x\": [1, 2, 3]}\n{\"x\": [1\n");
  // Reported at once, while the stream is silent.
  CHECK(receiver.await([&] { return has(receiver.errors(), "note: refused: 2 samples of 'x': "); }));
  sender->send("{\"x\": [3, 4]}\n{\"y\": 5}\n");
  sender.reset();
  const Result end = receiver.end();
  CHECK(end.code == 0);
  CHECK(has(end.out, "{\"x\":[1, 2]}\n{\"x\":[3, 4]}\n"));
  CHECK(has(end.err, "note: refused: 3 samples of 'x': "));
  CHECK(number(end.out, "refused") == 3);
  CHECK(number(end.out, "samples") == 2);
}

TEST_CASE("live: integers beyond the largest number of classes are sent as numbers") {
  Folder f;
  const std::string values = f.write("x.csv", "v\n16777215\n16777216\n9007199254740993\n");
  const std::string socket = f / "socket";
  Background receiver(f, "receive 'unix:" + socket + "#v'");
  REQUIRE(harmonics("send 'unix:" + socket + "?patience=60' --from 'v=" + values + "'").code == 0);
  const Result end = receiver.end();
  CHECK(end.code == 0);
  CHECK(end.out == "{\"v\":16777215}\n{\"v\":16777216}\n{\"v\":9007199254740993}\n");
}

TEST_CASE("live: send reports samples that it could not read from a socket") {
  Folder f;
  const std::string socket = f / "socket";
  Background passing(f, "send 'file:" + (f / "x.csv") + "' --from 'v=unix:" + socket + "?format=jsonl#v' --json");
  std::optional<Connected> sender(socket);
  sender->send("{\"v\": 1}\n{\"v\": \"word\"}\n{\"v\": 3}\n");
  sender.reset();
  const Result sent = passing.end();
  CHECK(sent.code == 0);
  CHECK(read(f / "x.csv") == "1\n3\n");
  CHECK(has(sent.err, "note: refused: 1 sample of 'v': line 2: 'v' is the word 'word'"));
  CHECK(number(sent.out, "refused") == 1);
}

TEST_CASE("live: an interrupted receiver keeps its samples") {
  Folder f;
  const std::string address = "unix:" + (f / "socket"), got = f / "got.csv";
  Background receiver(f, "receive '" + address + "#image' --to file:" + got);
  const Folder own;
  Background sender(own, "send " + address + " --from 'image=synth:digits?size=1000000' --rate 200");
  const auto is_written = [&] {  // written to a temporary file until it is complete
    for (const auto& entry : fs::directory_iterator(f / ""))
      if (entry.path().string().starts_with(got + ".") && fs::file_size(entry.path()) > 20000) return true;
    return false;
  };
  REQUIRE(receiver.await(is_written));
  receiver.signal(SIGINT);
  const Result end = receiver.end();
  CHECK(end.code == 130);
  CHECK(has(end.err, "received "));
  CHECK(read(got).size() > 20000);
}

TEST_CASE("live: a restarted sender continues where its receiver is") {
  Folder f;
  const std::string address = "tcp:127.0.0.1:" + free_port();
  const std::string from = " --from 'x=synth:digits?size=900#label'";
  Background receiver(f, "receive " + address + "#x --count 900 --to file:" + (f / "got.npy"));
  {
    const Folder own;
    Background first(own, "send " + address + from + " --rate 20");  // longer than any test lasts
    std::this_thread::sleep_for(std::chrono::milliseconds(500));     // it has sent some by then
    first.signal(SIGKILL);
    first.end();
  }
  REQUIRE(harmonics("send " + address + from).code == 0);
  REQUIRE(receiver.end().code == 0);
  REQUIRE(harmonics("send file:" + (f / "all.npy") + from).code == 0);
  CHECK(read(f / "got.npy") == read(f / "all.npy"));
}

TEST_CASE("live: keys admit senders from anywhere, and refuse all others") {
  if (!has(harmonics("list producers").out, "zmq+router")) return;
  Folder f;
  for (const char* who : {"server", "camera", "unlisted"}) REQUIRE(harmonics("keys " + (f / who)).code == 0);
  CHECK(harmonics("keys " + (f / "server")).code == 73);
  f.write("allowed", read(f / "camera.pub"));
  const std::string port = free_port();
  CHECK(harmonics("receive zmq+router://0.0.0.0:" + port).code == 77);
  Background receiver(f, "receive 'zmq+router://0.0.0.0:" + port + "?curve=" + (f / "server") +
                             "&allow=" + (f / "allowed") + "' --to file:" + (f / "got.csv"));
  const auto send = [&](const std::string& who) {
    return harmonics("send 'zmq+dealer://127.0.0.1:" + port + "?curve=" + (f / who) +
                     "&server-key=" + (f / "server.pub") + "' --from 'synth:digits?size=9#label'");
  };
  const Result unlisted = send("unlisted");
  CHECK(unlisted.code == 65);
  CHECK(has(unlisted.err, "the receiver does not allow this key"));
  CHECK(send("camera").code == 0);
  REQUIRE(receiver.end().code == 0);
  CHECK(read(f / "got.csv").size() == 18);
}

TEST_CASE("live: frames through a pipe, and a truncated one") {
  Folder f;
  const std::string
      harmonics_program = "'" + kProgram + "' ",
      from = " --from 'image=synth:digits?size=300&seed=4' --from 'label=synth:digits?size=300&seed=4#label' --quiet";
  const auto run = [&](const std::string& line) { return std::system((line + " 2>'" + (f / "err") + "'").c_str()); };
  REQUIRE(run(harmonics_program + "send 'stdout:?format=hxs'" + from + " | " + harmonics_program +
              "receive 'stdin:#image,label' --to image=file:" + (f / "i.npy") + " --to label=file:" + (f / "l.npy")) ==
          0);
  REQUIRE(harmonics("send file:" + (f / "image.npy") + " --from 'synth:digits?size=300&seed=4'").code == 0);
  CHECK(read(f / "i.npy") == read(f / "image.npy"));
  REQUIRE(run(harmonics_program + "send 'stdout:?format=hxs'" + from + " > '" + (f / "frames") + "'") == 0);
  const std::string frames = read(f / "frames");
  CHECK(frames.substr(0, 4) == "HXS1");
  for (const auto& [bytes, why] : std::vector<std::pair<size_t, std::string>>{
           {frames.size() - 5, "it ends within a frame"},
           {0, "it ends without a sample"},
           {frames.rfind("HXS1"), "it ends without the END frame of its sender"}}) {
    f.write("cut", frames.substr(0, bytes));
    CHECK(run(harmonics_program + "receive 'stdin:?format=hxs#label' < '" + (f / "cut") + "' > /dev/null") != 0);
    CHECK(has(read(f / "err"), why));
  }
}
