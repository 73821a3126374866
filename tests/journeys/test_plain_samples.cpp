// Samples from programs without our libraries: JSON lines, CSV, MessagePack and NumPy arrays over pipes, sockets,
// ZeroMQ and HTTP.
#include "tests/journeys/background.hpp"
#include "tests/journeys/replies.hpp"
#include "tests/journeys/sending.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>
#include <vector>

using namespace journeys;

namespace {

const char* const kClassify =
    "harmonic events {\n  producer x {4};\n  producer y {3} 1/1 x;\n  layer hidden {8};\n  layer output;\n"
    "  cycle { x -(relu)-> hidden -> output; output <-(cross_entropy)- y; }\n}\n";
constexpr int kRows = 64, kBatch = 8;

float number_of(int row, int column) { return static_cast<float>((row * 7 + column * 3) % 23 - 11) / 4; }
int class_of(int row) { return (row * 5 + row / 3) % 3; }

std::string json_row(int row) {
  std::string s = "{\"x\": [";
  for (int c = 0; c < 4; ++c) s += (c ? ", " : "") + std::to_string(number_of(row, c));
  return s + "], \"y\": " + std::to_string(class_of(row)) + "}\n";
}
std::string json_rows(int first = 0, int last = kRows) {
  std::string s;
  for (int row = first; row < last; ++row) s += json_row(row);
  return s;
}
std::string csv_rows() {
  std::string s = "a,b,c,d,y\n";
  for (int row = 0; row < kRows; ++row) {
    for (int c = 0; c < 4; ++c) s += std::to_string(number_of(row, c)) + ",";
    s += std::to_string(class_of(row)) + "\n";
  }
  return s;
}
std::string bytes_of(float value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }
std::string raw_rows() {
  std::string s;
  for (int row = 0; row < kRows; ++row)
    for (int c = 0; c < 4; ++c) s += bytes_of(number_of(row, c));
  return s;
}
std::string msgpack_rows() {
  std::string s;
  for (int row = 0; row < kRows; ++row) {
    s += "\x82\xa1x\x94";
    for (int c = 0; c < 4; ++c) {
      std::string number = bytes_of(number_of(row, c));
      std::reverse(number.begin(), number.end());
      s += "\xca" + number;
    }
    s += "\xa1y" + std::string(1, static_cast<char>(class_of(row)));
  }
  return s;
}
std::string npy_rows() {
  std::string head = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(kRows) + ", 4), }";
  head.append(63 - (head.size() + 10) % 64, ' ');
  head += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(head.size()) + '\0' + head + raw_rows();
}

// Returns the greeting of a PUSH socket over TCP (ZMTP 3.0, without security).
std::string zmtp_greeting() {
  std::string s = "\xff" + std::string(8, '\0') + "\x7f\x03" + std::string(1, '\0') + "NULL";
  return s + std::string(64 - s.size(), '\0');
}
std::string zmtp_ready() { return std::string("\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH", 28); }
std::string zmtp_message(const std::string& body) {
  return std::string(1, '\0') + static_cast<char>(body.size()) + body;
}

// Returns the bytes of the tensors of a weights file, without the header.
std::string tensors_in(const std::string& path) {
  const std::string all = read(path);
  REQUIRE(all.size() > 8);
  uint64_t head = 0;
  std::memcpy(&head, all.data(), sizeof head);
  return all.substr(8 + head);
}

struct Learner {
  Folder f;
  std::string flow = f.write("events.hmx", kClassify), weights = f / "weights.safetensors";

  std::string arguments(const std::string& producers, const std::string& more = "--epochs 1") const {
    return "run " + flow + " " + producers + " --seed 3 --batch " + std::to_string(kBatch) + " --threads 1 --save " +
           weights + " " + more;
  }
  // Runs with these bytes on standard input.
  Result piped(const std::string& bytes, const std::string& producers, const std::string& more = "--epochs 1") const {
    f.write("in", bytes);
    const std::string command = "cat '" + (f / "in") + "' | timeout 60 '" + kProgram + "' " +
                                arguments(producers, more) + " >'" + (f / "out") + "' 2>'" + (f / "err") + "'";
    const int status = std::system(command.c_str());
    Result r{WIFEXITED(status) ? WEXITSTATUS(status) : 128, read(f / "out"), read(f / "err")};
    UNSCOPED_INFO(command << "\nexit " << r.code << "\n" << r.out.substr(0, 2000) << r.err.substr(0, 3000));
    return r;
  }
};

// Returns the weights trained on the same samples from files.
std::string weights_of_files() {
  static std::string known;
  if (!known.empty()) return known;
  const Learner l;
  const std::string file = l.f.write("rows.jsonl", json_rows());
  REQUIRE(harmonics(l.arguments("--producer 'x=" + file + "?shuffle=0#x' --producer 'y=x#y'")).code == 0);
  return known = tensors_in(l.weights);
}

}  // namespace

TEST_CASE("plain samples: every pipe and format gives the weights of files, bit for bit") {
  const std::string wanted = weights_of_files();
  const Learner l;
  const std::string fields = "--producer 'x=stdin:#x' --producer 'y=x#y'",
                    labels = "--producer 'y=" + l.f.write("rows.csv", csv_rows()) + "#y'";
  const auto gives = [&](const std::string& bytes, const std::string& producers,
                         const std::string& more = "--epochs 1") {
    fs::remove(l.weights);
    CHECK(l.piped(bytes, producers, more).code == 0);
    CHECK(tensors_in(l.weights) == wanted);
  };
  SECTION("JSON lines") { gives(json_rows(), fields); }
  SECTION("JSON lines by way of a spool") { gives(json_rows(), fields, "--epochs 1 --spool " + (l.f / "spool")); }
  SECTION("CSV") { gives(csv_rows(), "--producer 'x=stdin:#a,b,c,d' --producer 'y=stdin:#4'"); }
  SECTION("MessagePack") { gives(msgpack_rows(), fields); }
  SECTION("NumPy arrays") { gives(npy_rows(), "--producer 'x=stdin:?rows=true' " + labels); }
  SECTION("bare numbers") { gives(raw_rows(), "--producer 'x=stdin:?format=raw&type=f32:4' " + labels); }
  SECTION("bare numbers of the shape that the flow declares") {
    gives(raw_rows(), "--producer 'x=stdin:?format=raw' " + labels);
  }
  SECTION("the device of standard input") { gives(json_rows(), "--producer 'x=/dev/stdin#x' --producer 'y=x#y'"); }
  SECTION("frames of HXS/1") {
    const std::string file = l.f.write("rows.jsonl", json_rows());
    const std::string send = "'" + kProgram + "' send 'stdout:?format=hxs' --quiet --from 'x=" + file +
                             "#x' --from 'y=" + file + "#y' > '" + (l.f / "frames") + "'";
    REQUIRE(std::system(send.c_str()) == 0);
    gives(read(l.f / "frames"), fields);
  }
}

TEST_CASE("plain samples: sockets, a named pipe, ZeroMQ and HTTP give the weights of files, bit for bit") {
  const std::string wanted = weights_of_files(), port = unused_port();
  const std::string way = GENERATE("tcp", "unix", "pipe", "zmq", "http");
  if (way == "zmq" && !has(harmonics("list producers").out, "zmq+pull")) return;
  INFO(way);
  const Learner l;
  std::string address = "tcp:127.0.0.1:" + port + "?format=jsonl", more = "--epochs 1";
  if (way == "unix") address = "unix:" + (l.f / "socket") + "?format=jsonl";
  if (way == "pipe") address = l.f / "pipe";
  if (way == "zmq") address = "zmq+pull://127.0.0.1:" + port + "?format=json";
  if (way == "http") address = "http:", more = "--steps 8 --serve 127.0.0.1:" + port + " --token secret-of-test";
  if (way == "pipe") REQUIRE(::mkfifo(address.c_str(), 0600) == 0);
  Background run(l.f, l.arguments("--producer 'x=" + address + "#x' --producer 'y=x#y'", more));
  if (way == "http") {
    // Samples are refused until the producers are bound.
    CHECK(run.await([&] { return has(posted(port, "/v1/samples", "image/png", "secret-of-test", "x"), " 415 "); }));
    CHECK(has(posted(port, "/v1/samples", "application/x-ndjson", "secret-of-test", json_rows(0, 10)), "200 OK"));
    const std::string answer =
        posted(port, "/v1/samples", "application/json", "secret-of-test", json_rows(10, kRows) + "{\"x\": 3}\n");
    CHECK(has(answer, "\"accepted\":54,\"refused\":1,\"first_refusal\":\"line 55"));
  } else if (way == "pipe") {
    std::ofstream(address) << json_rows();
  } else {
    const Connected to(way == "unix" ? l.f / "socket" : port);
    if (way == "zmq") {
      to.send(zmtp_greeting() + zmtp_ready());
      to.receive_until("PULL");  // of the answer
    }
    for (int row = 0; row < kRows; ++row) to.send(way == "zmq" ? zmtp_message(json_row(row)) : json_row(row));
    if (way == "zmq") {
      to.send(zmtp_message(""));  // ends the stream
      CHECK(run.end().code == 0);
    }
  }
  if (way != "zmq") CHECK(run.end().code == 0);
  CHECK(tensors_in(l.weights) == wanted);
}

TEST_CASE("plain samples: a refused line is reported with its number, counted in the summary, and ends nothing") {
  const Learner l;
  const std::string producers = "--producer 'x=stdin:#x' --producer 'y=x#y'";
  const std::string rows = json_rows(0, 16) + "{\"x\": [1, 2], \"y\": 1}\nnot json\n" + json_rows(16, 32);
  const Result run = l.piped(rows, producers, "--epochs 1 --json");
  CHECK(run.code == 0);
  CHECK(number(run.out, "samples") == 32);
  const json::object report = last_line(run.out);
  CHECK(report.at("refused").at("x").as_int64() == 2);
  CHECK(has(run.err, "line 17: 'x' of shape [2], a sample has the shape [4]"));
  CHECK(has(run.err, "line 18 is not JSON"));
  CHECK(has(run.err, "refused: 2 samples of 'x'; "));
  CHECK(has(run.err, "at most once"));
  const Result strict = l.piped(rows, "--producer 'x=stdin:?strict=true#x' --producer 'y=x#y'");
  CHECK(strict.code == 65);
  CHECK(has(strict.err, "line 17: 'x' of shape [2]"));
}

TEST_CASE("plain samples: a class that the flow does not have is refused and ends nothing") {
  const std::string rows =
      json_rows(0, 8) + "{\"x\": [1, 2, 3, 4], \"y\": 3}\n{\"x\": [1, 2, 3, 4], \"y\": -1}\n" + json_rows(8, 16);
  const char* const kProducers = "--producer 'x=stdin:#x' --producer 'y=x#y'";
  const std::string flow = kClassify;
  const std::string declares[][2] = {{"producer y {3} 1/1 x", "layer output"},
                                     {"producer y 1/1 x", "layer output {3}"},
                                     {"producer y {1} 1/1 x", "layer output {3}"}};
  for (const auto& [producer, layer] : declares) {
    INFO(producer << ", " << layer);
    const Learner l;
    std::string text = flow;
    text.replace(text.find("producer y {3} 1/1 x"), 20, producer);
    text.replace(text.find("layer output"), 12, layer);
    l.f.write("events.hmx", text);
    const Result run = l.piped(rows, kProducers, "--json");
    CHECK(run.code == 0);
    CHECK(number(run.out, "samples") == 16);
    CHECK(has(run.err, "line 9: 'y' has 3, which is not a class below 3"));
    CHECK(has(run.err, "line 10: 'y' has -1"));
  }
  const Learner l;
  std::string text = flow;
  text.replace(text.find("(cross_entropy)"), 15, "(cross_entropy(ignore_index=-1))");
  l.f.write("events.hmx", text);
  const Result ignored = l.piped(json_rows(0, 8) + "{\"x\": [1, 2, 3, 4], \"y\": -1}\n", kProducers, "--json");
  CHECK(ignored.code == 0);
  CHECK(number(ignored.out, "samples") == 9);
}

TEST_CASE("plain samples: mistakes give a remedy") {
  const Learner l;
  const auto says = [&](const std::string& bytes, const std::string& producers, int code, const std::string& text) {
    const Result r = l.piped(bytes, producers);
    CHECK(r.code == code);
    CHECK(has(r.err, text));
  };
  says("word\n", "--producer 'x=stdin:#x' --producer 'y=x#y'", 65, "add ?format=jsonl, csv, msgpack, npy or raw");
  says(json_row(0), "--producer 'x=stdin:#z' --producer 'y=x#y'", 78, "line 1 has no field 'z'; its fields are: x, y");
  says("", "--producer 'x=stdin:#x' --producer 'y=x#y'", 65, "stdin:: it ends without a sample");
  says(raw_rows(), "--producer 'x=stdin:?format=raw' --producer 'y=x#y'", 2, "bare numbers have no field 'y'");
  says(csv_rows(), "--producer 'x=stdin:?missing=mean#0-3' --producer 'y=x#4'", 2,
       "give the value itself; harmonics inspect 'file:OLD.csv?missing=mean'");
  says(raw_rows(), "--producer 'x=stdin:?format=raw&missing=0'", 2, "arrays and bare numbers lack no value");
  says(json_row(0), "--producer 'x=stdin:?format=hxs&symbols=a#x' --producer 'y=x#y'", 2,
       "symbols= is for samples in plain formats");
  CHECK(harmonics(l.arguments("--producer 'x=tcp:0.0.0.0:5555?format=jsonl#x' --producer 'y=x#y'")).code == 77);
  const Result followed =
      harmonics(l.arguments("--producer 'x=" + (l.f / "none.jsonl") + "?follow=true#x' --producer 'y=x#y'"));
  CHECK(followed.code == 66);
  CHECK(has(followed.err, "does not exist, and cannot be followed"));
}

TEST_CASE("plain samples: refused samples are kept with the reason where --dead-letters says, and can be sent again") {
  const Learner l;
  const std::string dead = l.f / "dead", producers = "--producer 'x=stdin:#x' --producer 'y=x#y'";
  const std::string wrong = "{\"x\": [1, 2], \"y\": 1}\nnot json\n", rows = json_rows(0, 16) + wrong;
  const Result without = l.piped(rows, producers);
  CHECK(without.code == 0);
  CHECK(!has(without.err + without.out, "kept: 2"));
  CHECK(!fs::exists(dead));
  const Result run = l.piped(rows, producers, "--epochs 1 --dead-letters " + dead);
  CHECK(run.code == 0);
  CHECK(has(run.err, "kept: 2 refused samples of 'x' in " + dead + "/x.reasons.jsonl, " + dead + "/x.refused.jsonl"));
  CHECK(read(dead + "/x.refused.jsonl") == wrong);
  const std::string reasons = read(dead + "/x.reasons.jsonl");
  const json::object first = json::parse(reasons.substr(0, reasons.find('\n'))).as_object();
  CHECK(first.at("address").as_string() == "stdin:");
  CHECK(first.at("number").as_int64() == 17);
  CHECK(has(std::string(first.at("reason").as_string()), "line 17: 'x' of shape [2]"));
  CHECK(first.at("line").as_int64() == 1);
  // Corrected samples are ordinary samples. The summary counts those of one run.
  const std::string mended = json_row(16) + json_row(17);
  const Result again = l.piped(mended + "{}\n", producers, "--epochs 1 --json --dead-letters " + dead);
  CHECK(again.code == 0);
  CHECK(number(again.out, "samples") == 2);
  const json::object report = last_line(again.out);
  REQUIRE(report.at("dead_letters").as_array().size() == 1);
  const json::object kept = report.at("dead_letters").as_array()[0].as_object();
  CHECK(kept.at("producer").as_string() == "x");
  CHECK(kept.at("why").as_string() == "refused");
  CHECK(kept.at("samples").as_int64() == 1);
}

TEST_CASE("plain samples: refused samples of a socket are kept, bytes as base64") {
  const Learner l;
  const std::string port = unused_port(), dead = l.f / "dead";
  Background run(l.f, l.arguments("--producer 'x=tcp:127.0.0.1:" + port + "?format=msgpack#x' --producer 'y=x#y'",
                                  "--epochs 1 --dead-letters " + dead));
  Connected(port).send(msgpack_rows() + "\x81\xa1y\x01");
  const Result end = run.end();
  CHECK(end.code == 0);
  CHECK(has(end.err, "kept: 1 refused sample of 'x' in " + dead + "/x.reasons.jsonl"));
  const json::object one = json::parse(read(dead + "/x.reasons.jsonl")).as_object();
  CHECK(one.at("base64").as_string() == "gaF5AQ==");
  CHECK(one.at("address").as_string() == "tcp:127.0.0.1:" + port);
  CHECK(tensors_in(l.weights) == weights_of_files());
}

TEST_CASE("plain samples: missing= fills what is missing as for files, bit for bit") {
  const Learner l;
  const bool csv = GENERATE(false, true);
  std::string rows = csv ? csv_rows() : json_rows(0, 8);
  rows += csv ? ",1,NA,2,0\n3,,,,1\n" : "{\"x\": [1, null, 2, null], \"y\": 1}\n{\"y\": 2}\n{\"x\": null, \"y\": 0}\n";
  const std::string file = l.f.write(csv ? "rows.csv" : "rows.jsonl", rows), columns = csv ? "#a,b,c,d" : "#x";
  REQUIRE(harmonics(l.arguments("--producer 'x=" + file + "?shuffle=0&missing=-2.5" + columns + "' --producer 'y=x#y'"))
              .code == 0);
  const std::string wanted = tensors_in(l.weights);
  fs::remove(l.weights);
  const Result run = l.piped(rows, "--producer 'x=stdin:?missing=-2.5" + columns + "' --producer 'y=x#y'");
  CHECK(run.code == 0);
  CHECK(!has(run.err, "refused"));
  CHECK(tensors_in(l.weights) == wanted);
  const Result without = l.piped(rows, "--producer 'x=stdin:" + columns + "' --producer 'y=x#y'");
  CHECK(has(without.err, csv ? "refused: 2 samples of 'x'" : "refused: 3 samples of 'x'"));
}

TEST_CASE("plain samples: bare numbers need no type where the flow says shape and classes") {
  const Learner l;
  std::string labels;
  const bool bytes = GENERATE(false, true);
  for (int row = 0; row < kRows; ++row)
    labels += std::string(1, static_cast<char>(class_of(row))) + std::string(bytes ? 0 : 7, '\0');
  const std::string pipe = l.f / "labels";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(pipe, std::ios::binary) << labels; });
  const Result run = l.piped(raw_rows(), "--producer 'x=stdin:?format=raw' --producer 'y=" + pipe + "?format=raw" +
                                             (bytes ? "&type=u8" : "") + "'");
  const int late = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);  // the writer must not block
  writer.join();
  ::close(late);
  CHECK(run.code == 0);
  CHECK(tensors_in(l.weights) == weights_of_files());
  const std::string open =
      l.f.write("open.hmx", "harmonic open { producer x; layer o {2}; consumer c; cycle { x -> o -> c; } }");
  const Result none = harmonics("infer --untrained " + open + " --producer 'x=stdin:?format=raw' </dev/null");
  CHECK(none.code == 2);
  CHECK(has(none.err, "format=raw needs the shape of a sample, and the flow declares none"));
  CHECK(has(none.err, "producer x {28, 28};"));
}

TEST_CASE("plain samples: a growing file is followed, through truncation and replacement") {
  const Learner l;
  const std::string log = l.f.write("events.jsonl", json_rows(0, 8));
  Background run(l.f, l.arguments("--producer 'x=" + log + "?follow=true#x' --producer 'y=x#y'",
                                  "--steps 8 --log-every 1 --log " + (l.f / "log.jsonl")));
  const auto learned = [&](int steps) {
    return run.await([&] {
      const std::string lines = read(l.f / "log.jsonl");
      return std::count(lines.begin(), lines.end(), '\n') >= steps;
    });
  };
  REQUIRE(learned(1));
  std::ofstream(log, std::ios::app) << json_rows(8, 24);
  REQUIRE(learned(3));
  l.f.write("events.jsonl", json_rows(24, 32));  // truncated to a shorter length
  REQUIRE(learned(4));
  std::ofstream(log, std::ios::app) << json_rows(32, 40);
  REQUIRE(learned(5));
  fs::rename(l.f.write("next", json_rows(40, 56)), log);
  REQUIRE(learned(7));
  std::ofstream(log, std::ios::app) << json_rows(56, kRows);
  const Result end = run.end();
  CHECK(end.code == 0);
  CHECK(has(end.err, "was truncated: read from its beginning"));
  CHECK(has(end.err, "was replaced: read from its beginning"));
  CHECK(tensors_in(l.weights) == weights_of_files());
}

TEST_CASE("plain samples: a stream with end=never outlives its senders in every format") {
  const std::string format = GENERATE("jsonl", "hxs"), port = unused_port();
  const Learner l;
  const std::string address = "tcp:127.0.0.1:" + port;
  Background run(l.f, l.arguments("--producer 'x=" + address + "?end=never&format=" + format + "#x' --producer 'y=x#y'",
                                  "--steps 8 --epochs 1"));
  for (int part = 0; part < 2; ++part) {
    const std::string rows = json_rows(part * kRows / 2, (part + 1) * kRows / 2);
    if (format == "jsonl") {
      Connected(port).send(rows);
      continue;
    }
    const std::string file =
        l.f.write("part" + std::to_string(part) + ".jsonl", rows);  // a different sender for each part
    REQUIRE(harmonics("send " + address + "?patience=30 --from 'x=" + file + "#x' --from 'y=" + file + "#y'").code ==
            0);
  }
  CHECK(run.end().code == 0);
  CHECK(tensors_in(l.weights) == weights_of_files());
}

TEST_CASE("plain samples: a killed run resumes from its spool with the weights of an undisturbed run") {
  const Learner l;
  const std::string port = unused_port(), log = l.f / "log.jsonl";
  const std::string arguments = l.arguments(
      "--producer 'x=tcp:127.0.0.1:" + port + "?end=never&format=jsonl#x' --producer 'y=x#y'",
      "--steps 8 --checkpoint " + (l.f / "kept") + " --spool " + (l.f / "spool") + " --log-every 1 --log " + log);
  {
    const Folder own;
    Background run(own, arguments);
    const Connected to(port);
    to.send(json_rows(0, 40));
    REQUIRE(run.await([&] {
      const std::string lines = read(log);
      return std::count(lines.begin(), lines.end(), '\n') >= 5;
    }));
    run.signal(SIGKILL);
    run.end();
  }
  const Folder own;
  Background run(own, arguments + " --resume");
  Connected(port).send(json_rows(40, kRows));
  CHECK(run.end().code == 0);
  CHECK(tensors_in(l.weights) == weights_of_files());
}

TEST_CASE("plain samples: HTTP requires the token and reports the result of a body") {
  const Learner l;
  const std::string port = unused_port(), token = "secret-of-test";
  Background run(l.f, l.arguments("--producer 'x=http:events#x' --producer 'y=x#y'",
                                  "--steps 3 --serve 127.0.0.1:" + port + " --token " + token));
  CHECK(has(posted(port, "/v1/samples/events", "application/json", "", json_row(0)), " 401 "));
  CHECK(has(posted(port, "/v1/samples/events", "application/json", "wrong", json_row(0)), " 401 "));
  CHECK(run.await([&] { return has(posted(port, "/v1/samples/events", "image/png", token, "x"), " 415 "); }));  // bound
  CHECK(has(posted(port, "/v1/samples", "application/json", token, json_row(0)), " 404 "));
  CHECK(has(posted(port, "/v1/samples/events", "image/png", token, "x"), " 415 "));
  const std::string batch = "[" + json_row(0) + "," + json_row(1) + "]", curl = json_rows(2, 8);
  CHECK(has(posted(port, "/v1/samples/events", "application/json", token, batch),
            "\"accepted\":2,\"refused\":0,\"first_refusal\":null"));
  CHECK(has(posted(port, "/v1/samples/events", "application/x-www-form-urlencoded", token, curl),
            "\"accepted\":6,\"refused\":0"));
  const std::string none = posted(port, "/v1/samples/events", "application/json", token, "{\"x\": [1]}");
  CHECK(has(none, " 400 "));
  CHECK(has(none, "\"refused\":1"));
  CHECK(has(posted(port, "/v1/samples/events", "application/msgpack", token, msgpack_rows().substr(0, 8 * 27)),
            "\"accepted\":8,\"refused\":0"));
  const Connected socket(port);
  socket.send("GET /v1/samples/events?token=" + token +
              " HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
              "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n");
  CHECK(has(socket.receive_until("\r\n\r\n"), " 101 "));
  for (int part = 0; part < 2; ++part) {
    socket.send(websocket_text(json_rows(4 * part, 4 * part + 4)));
    CHECK(has(socket.receive_until("}\n"), "\"accepted\":4,\"refused\":0"));
  }
  const Result end = run.end();
  CHECK(end.code == 0);
  CHECK(has(end.err, "trained "));
  CHECK(has(end.err, " on 24 samples"));
}

TEST_CASE("plain samples: bodies that a run cannot take yet are held, and excess ones are refused") {
  const Learner l;
  const std::string port = unused_port(), token = "secret-of-test";
  Background run(l.f, l.arguments("--producer x=http:a#x --producer y=http:b#y",
                                  "--steps 1 --serve 127.0.0.1:" + port + " --token " + token));
  CHECK(run.await([&] { return has(posted(port, "/v1/samples/a", "image/png", token, "x"), " 415 "); }));
  const std::string held = posted(port, "/v1/samples/a", "application/json", token, json_rows(0, kBatch));
  CHECK(has(held, " 202 "));
  CHECK(has(held, "the run waits for its other streams"));
  std::vector<std::thread> senders;
  std::vector<std::string> answers(40);
  for (std::string& answer : answers)
    senders.emplace_back([&] {
      answer = posted(port, "/v1/samples/a", "application/json", token, std::string(1u << 20, ' ') + json_row(1));
    });
  for (std::thread& sender : senders) sender.join();
  for (const std::string& answer : answers) CHECK((has(answer, " 503 ") && has(answer, "Retry-After: ")));
  CHECK(has(posted(port, "/v1/samples/b", "application/json", token, json_rows(0, kBatch)),
            "\"accepted\":8,\"refused\":0"));
  CHECK(run.end().code == 0);
}
