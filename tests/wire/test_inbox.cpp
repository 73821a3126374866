// An inbox and outboxes that exchange frames: positions, durability, fair windows, rejections.
#include <catch2/catch.hpp>

#include <thread>

#include "tests/message_of.hpp"
#include "tests/wire/raw_frame.hpp"
#include "wire/inbox.hpp"
#include "wire/outbox.hpp"

using namespace harmonics;
using namespace harmonics::wire;

namespace {

constexpr auto kWait = std::chrono::milliseconds(60000);

OutboxOptions outbox_options(const std::string& name, Acknowledgement ack = Acknowledgement::Received) {
  OutboxOptions options;
  options.where = "there";
  options.producer = name;
  options.tensors = {{"x", DType::I64, {}, {}}};
  options.acknowledgement = ack;
  options.patience = kWait;
  options.batch_bytes = 1;  // one sample per frame
  return options;
}
InboxOptions inbox_options() {
  InboxOptions options;
  options.where = "here";
  return options;
}

// Routes answers to their outboxes.
std::map<std::pair<const Inbox*, uint64_t>, Outbox*>& network() {
  static std::map<std::pair<const Inbox*, uint64_t>, Outbox*> routes;
  return routes;
}
// Carries frames between an inbox and an outbox until both are idle.
void carry(Inbox& inbox, Outbox& outbox, uint64_t peer) {
  network()[{&inbox, peer}] = &outbox;
  for (bool more = true; more;) {
    more = false;
    while (const OwnedBytes frame = outbox.poll()) inbox.arrived(peer, frame), more = true;
    while (const auto answer = inbox.poll()) {
      if (const auto to = network().find({&inbox, answer->peer}); to != network().end())
        to->second->receive(answer->frame);
      more = true;
    }
  }
}
// Carries frames between them until the condition holds.
bool soon(Inbox& inbox, const std::vector<std::pair<Outbox*, uint64_t>>& outboxes, const std::function<bool()>& holds) {
  for (const Time latest = now() + kWait; !holds() && now() < latest;
       std::this_thread::sleep_for(std::chrono::milliseconds(2)))
    for (const auto& [outbox, peer] : outboxes) carry(inbox, *outbox, peer);
  return holds();
}
struct Cleared {  // disconnected senders get no answers
  ~Cleared() { network().clear(); }
};
void push(Outbox& outbox, int64_t value) {
  const std::span<const std::byte> piece = std::as_bytes(std::span(&value, 1));
  outbox.push(std::span(&piece, 1));
}
int64_t value(const std::optional<Received>& sample) {
  if (!sample) return -1;
  int64_t v = 0;
  std::memcpy(&v, sample->bytes.bytes.data(), sizeof v);
  return v;
}

// A sender of numbers that can restart at any number.
struct Camera {
  explicit Camera(Inbox& to, uint64_t p, const std::string& name = "camera",
                  Acknowledgement ack = Acknowledgement::Durable, bool fresh = false)
      : inbox(to), peer(p), outbox(fresh ? outbox_options(name, ack) : with_source(outbox_options(name, ack))) {
    outbox.connected();
    carry(inbox, outbox, peer);
  }
  static OutboxOptions with_source(OutboxOptions options) {
    options.whole_source = true;
    return options;
  }
  void send(int64_t count) {
    for (int64_t i = 0; i < count; ++i) push(outbox, i), carry(inbox, outbox, peer);
  }
  Inbox& inbox;
  uint64_t peer;
  Outbox outbox;
};

}  // namespace

TEST_CASE("inbox: the number of classes is that which the sender announces") {
  for (const uint32_t classes : {0u, 10u}) {
    const Cleared cleared;
    Inbox inbox(inbox_options());
    const int reader = inbox.open("", kWait);
    OutboxOptions options = outbox_options("camera");
    options.tensors[0].classes = classes;
    Outbox outbox(options);
    outbox.connected();
    carry(inbox, outbox, 1);
    CHECK(inbox.announced(reader).classes == classes);
    Camera other(inbox, 2, "another");  // announces no classes, and is accepted
    CHECK(inbox.health().refused == 0);
  }
}

TEST_CASE("inbox: senders that come before the host has begun wait and get keep-alives") {
  const Cleared cleared;
  Inbox inbox(inbox_options());
  const int reader = inbox.open("", kWait);
  Outbox outbox(outbox_options("camera"));
  outbox.connected();
  carry(inbox, outbox, 1);
  CHECK(outbox.counts().sessions == 1);
  CHECK(inbox.announced(reader).dtype == DType::I64);
  push(outbox, 7);
  CHECK(!outbox.poll());  // not yet accepted
  std::thread host([&] { CHECK(value(inbox.next(reader)) == 7); });
  for (int i = 0; i < 100000 && inbox.health().samples == 0; ++i)
    carry(inbox, outbox, 1), std::this_thread::sleep_for(std::chrono::milliseconds(1));
  host.join();
}

TEST_CASE("inbox: a stream that is known from before is described without a sender, and refuses another type") {
  const Cleared cleared;
  for (const std::string name : {"", "x"}) {
    Inbox inbox(inbox_options());
    const int reader = inbox.open(name, std::chrono::milliseconds(0));
    inbox.expect(reader, {DType::I64, {}, 7});
    CHECK(inbox.announced(reader).dtype == DType::I64);
    CHECK(inbox.announced(reader).classes == 7);
    REQUIRE(inbox.restore(reader, 0, ""));
    OutboxOptions other = outbox_options("other");
    other.tensors[0].dtype = DType::F64;
    Outbox wrong(other);
    wrong.connected();
    carry(inbox, wrong, 1);
    const std::string was = name.empty() ? "the stream was  i64 []" : "the stream was x i64 []";
    CHECK(message_of([&] { wrong.next_seq(); }).find(was + ", not x f64 []") != std::string::npos);
    Camera camera(inbox, 2);
    camera.send(2);
    CHECK(value(inbox.next(reader)) == 0);
    network().clear();
  }
  Inbox inbox(inbox_options());
  const int reader = inbox.open("x", kWait);
  inbox.expect(reader, {DType::F32, {3}, 0});
  CHECK(message_of([&] {
          inbox.restore(reader, 1, "hxs1 ; tensor x 7 0 ; sender s p 1 1 1");
        }).find("here: its position is of x i64 [], but the stream was x f32 [3]") == 0);
}

TEST_CASE("inbox: a host without durability rejects senders that ask for it") {
  const Cleared cleared;
  Inbox inbox(inbox_options());
  const int reader = inbox.open("", kWait);
  Outbox patient(outbox_options("patient"));
  patient.connected();
  carry(inbox, patient, 1);
  push(patient, 1);
  std::thread host([&] { CHECK(value(inbox.next(reader)) == 1); });  // starts without using positions
  for (int i = 0; i < 100000 && inbox.health().samples == 0; ++i)
    carry(inbox, patient, 1), std::this_thread::sleep_for(std::chrono::milliseconds(1));
  host.join();
  Outbox demanding(outbox_options("demanding", Acknowledgement::Durable));
  demanding.connected();
  carry(inbox, demanding, 2);
  CHECK(message_of([&] {
          demanding.next_seq();
        }).find("refuses 'demanding': the receiver writes nothing to disk: use ack=received") != std::string::npos);
  CHECK(inbox.health().last_error.find("'demanding' is refused: the receiver writes nothing to disk") == 0);
  CHECK(inbox.position(reader, 0) == "");
}

TEST_CASE("inbox: a restarted receiver resumes at its position and acknowledges durable samples") {
  const Cleared cleared;
  std::string position;
  uint64_t given = 0;
  {
    Inbox inbox(inbox_options());
    const int reader = inbox.open("", kWait);
    REQUIRE(inbox.restore(reader, 0, ""));
    Camera a(inbox, 1, "a"), b(inbox, 2, "b");
    a.send(5);
    b.send(3);
    a.send(0);
    for (; given < 6; ++given) REQUIRE(inbox.next(reader));
    position = inbox.position(reader, 6);
    CHECK(a.outbox.counts().acknowledged == 0);
    inbox.durable(reader, 6);
    carry(inbox, a.outbox, 1), carry(inbox, b.outbox, 2);
    CHECK(a.outbox.counts().acknowledged == 5);
    CHECK(b.outbox.counts().acknowledged == 1);
    CHECK(inbox.position(reader, 6) == position);
    CHECK(inbox.position(reader, 8) != position);
    CHECK(message_of([&] {
            inbox.position(reader, 5);
          }).find("the position before sample 5 is requested, but only those from 6 to 8 are known") == 0);
  }
  network().clear();
  Inbox inbox(inbox_options());
  const int reader = inbox.open("", kWait);
  REQUIRE(inbox.restore(reader, 6, position));
  CHECK(inbox.announced(reader).dtype == DType::I64);  // before any sender has come
  Camera a(inbox, 1, "a"), b(inbox, 2, "b");
  a.send(7);
  CHECK(a.outbox.counts().skipped == 5);
  b.send(3);
  CHECK(b.outbox.counts().skipped == 1);
  std::vector<int64_t> rest;
  for (int i = 0; i < 4; ++i) rest.push_back(value(inbox.next(reader)));
  CHECK(rest == std::vector<int64_t>{5, 6, 1, 2});
  CHECK(inbox.health().lost == 0);
}

TEST_CASE("inbox: the end is acknowledged when a checkpoint contains it") {
  const Cleared cleared;
  std::string position;
  {
    Inbox inbox(inbox_options());
    const int reader = inbox.open("", kWait);
    inbox.restore(reader, 0, "");
    Camera camera(inbox, 1);
    camera.send(2);
    REQUIRE((inbox.next(reader) && inbox.next(reader)));
    const std::string before = inbox.position(reader, 2);
    std::thread end([&] { camera.outbox.finish(); });
    while (inbox.health().state != InboxHealth::Ended)
      carry(inbox, camera.outbox, 1), std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(!inbox.next(reader));
    inbox.durable(reader, 2);  // the previous checkpoint, which lacks the end
    carry(inbox, camera.outbox, 1);
    CHECK(camera.outbox.counts().acknowledged == 2);
    CHECK(!camera.outbox.poll());
    position = inbox.position(reader, 2);
    CHECK(position != before);
    inbox.durable(reader, 2);
    carry(inbox, camera.outbox, 1);
    end.join();
  }
  network().clear();
  Inbox inbox(inbox_options());
  const int reader = inbox.open("", kWait);
  inbox.restore(reader, 2, position);
  CHECK(!inbox.next(reader));
}

TEST_CASE("inbox: an end that came between the positions of two readers is known after a restart") {
  std::string before, after;
  {
    const Cleared cleared;
    Inbox inbox(inbox_options());
    const int one = inbox.open("", kWait), two = inbox.open("", kWait);
    inbox.restore(one, 0, ""), inbox.restore(two, 0, "");
    Camera camera(inbox, 1);
    camera.send(2);
    for (const int reader : {one, two}) REQUIRE((inbox.next(reader) && inbox.next(reader)));
    before = inbox.position(one, 2);
    std::thread end([&] { camera.outbox.finish(); });
    while (inbox.health().state != InboxHealth::Ended)
      carry(inbox, camera.outbox, 1), std::this_thread::sleep_for(std::chrono::milliseconds(1));
    after = inbox.position(two, 2);
    CHECK(before != after);
    inbox.durable(one, 2), inbox.durable(two, 2);
    carry(inbox, camera.outbox, 1);  // the sender learns that its end is durable, and is gone for good
    end.join();
  }
  for (const bool earlier_first : {true, false}) {
    const Cleared cleared;
    Inbox inbox(inbox_options());
    const int one = inbox.open("", kWait), two = inbox.open("", kWait);
    REQUIRE(inbox.restore(one, 2, earlier_first ? before : after));
    REQUIRE(inbox.restore(two, 2, earlier_first ? after : before));
    CHECK(inbox.health().state == InboxHealth::Ended);
    CHECK(!inbox.next(one));
    CHECK(!inbox.next(two));
    // A new incarnation may send more.
    Camera camera(inbox, 1);
    camera.send(3);
    CHECK(value(inbox.next(one)) == 2);
  }
}

TEST_CASE("inbox: the slower of two readers decides what is durable, and both resume together") {
  const Cleared cleared;
  Inbox inbox(inbox_options());
  const int one = inbox.open("x", kWait), two = inbox.open("x", kWait);
  inbox.restore(one, 0, "");
  inbox.restore(two, 0, "");
  CHECK(message_of([&] { inbox.restore(two, 3, ""); }).find("here: one stream resumes at sample 3, another at 0") == 0);
  Camera camera(inbox, 1);
  camera.send(4);
  for (int i = 0; i < 4; ++i) REQUIRE(inbox.next(one));
  REQUIRE(inbox.next(two));
  inbox.durable(one, 4);
  carry(inbox, camera.outbox, 1);
  CHECK(camera.outbox.counts().acknowledged == 0);
  inbox.durable(two, 1);
  carry(inbox, camera.outbox, 1);
  CHECK(camera.outbox.counts().acknowledged == 1);
}

TEST_CASE("inbox: senders share one window") {
  const Cleared cleared;
  InboxOptions options = inbox_options();
  options.window_samples = 64;
  Inbox inbox(options);
  const int reader = inbox.open("", kWait);
  inbox.restore(reader, 0, "");
  std::vector<std::unique_ptr<Camera>> cameras;
  for (uint64_t i = 1; i <= 4; ++i)
    cameras.push_back(std::make_unique<Camera>(inbox, i, "s" + std::to_string(i), Acknowledgement::Received));
  // Each sender offers more than fits. Later ones get a share immediately, and all get equal shares after a while.
  std::vector<int64_t> next(5, 0);
  double fullest = 0;  // as a fraction of the window, here a sample count
  for (int round = 0; round < 400; ++round) {
    for (auto& camera : cameras) {
      for (int i = 0; i < 8 && camera->outbox.counts().pushed < 100000; ++i) {
        if (camera->outbox.counts().pushed - camera->outbox.counts().acknowledged > 48) break;
        push(camera->outbox, next[camera->peer]++);
        carry(inbox, camera->outbox, camera->peer);
      }
      carry(inbox, camera->outbox, camera->peer);
    }
    REQUIRE(inbox.health().queued_samples <= (round < 40 ? 64 + 32 + 21 + 16 + 4 : 64 + 4));
    const InboxHealth health = inbox.health();
    fullest = std::max(fullest, static_cast<double>(health.queued_bytes) / static_cast<double>(health.window_bytes));
    for (int i = 0; i < 16 && inbox.health().queued_samples > 0; ++i) inbox.next(reader);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(fullest > 0.9);
  for (auto& camera : cameras) CHECK(camera->outbox.counts().acknowledged > inbox.health().samples / 8);
}

TEST_CASE("inbox: invalid frames are answered and surplus senders wait for a slot") {
  const Cleared cleared;
  InboxOptions options = inbox_options();
  options.most_senders = 2;
  Inbox inbox(options);
  const int reader = inbox.open("", kWait);
  inbox.restore(reader, 0, "");
  CHECK(!inbox.arrived(9, owned(std::vector<std::byte>(100))));
  auto answer = inbox.poll();
  REQUIRE(answer);
  CHECK(answer->peer == 9);
  CHECK(decode(answer->frame).kind == Kind::Error);
  CHECK(decode(answer->frame).text.find("0x00000000, but a frame begins with 0x31535848") != std::string::npos);
  CHECK(!inbox.arrived(9, owned(std::vector<std::byte>(100))));
  CHECK(!inbox.poll());  // at a limited rate
  Frame hello;
  hello.kind = Kind::Hello, hello.stream = "s", hello.producer = "p", hello.session = 1;
  inbox.arrived(8, owned(encode(hello).bytes()));
  answer = inbox.poll();
  REQUIRE(answer);
  CHECK(decode(answer->frame).text == "HELLO announces no tensors: give their names, types and shapes");
  Camera a(inbox, 1, "a"), b(inbox, 2, "b"), c(inbox, 3, "c", Acknowledgement::Durable, true);
  push(c.outbox, 7);
  carry(inbox, c.outbox, 3);
  a.send(1);
  CHECK(value(inbox.next(reader)) == 0);
  CHECK(inbox.health().refused == 3);
  CHECK(inbox.health().samples == 1);
  inbox.left(1);
  REQUIRE(soon(inbox, {{&b.outbox, 2}, {&c.outbox, 3}}, [&] { return inbox.health().samples == 2; }));
  CHECK(value(inbox.next(reader)) == 7);
}

namespace {

Frame hello_of(const std::string& name, uint64_t epoch, uint64_t seq = 0) {
  Frame hello;
  hello.kind = Kind::Hello;
  hello.stream = "samples", hello.producer = name, hello.epoch = epoch, hello.session = 1, hello.seq = seq;
  hello.tensors = outbox_options("").tensors;
  return hello;
}
void say(Inbox& inbox, uint64_t peer, const Frame& frame) { inbox.arrived(peer, owned(encode(frame).bytes())); }
std::vector<Frame> answers_of(Inbox& inbox) {
  std::vector<Frame> answers;
  while (const auto answer = inbox.poll()) answers.push_back(decode(answer->frame));
  return answers;
}
uint64_t hours_ahead(int hours) {
  return static_cast<uint64_t>(
      (std::chrono::system_clock::now() + std::chrono::hours(hours)).time_since_epoch().count());
}

}  // namespace

TEST_CASE("inbox: a connection that only says HELLO does not keep its slot") {
  const Cleared cleared;
  Inbox inbox(inbox_options());
  const int reader = inbox.open("", kWait);
  REQUIRE(inbox.restore(reader, 0, ""));
  for (uint64_t peer = 100; peer < 104; ++peer) {
    for (int i = 0; i < 1000; ++i)
      say(inbox, peer, hello_of("ghost " + std::to_string(peer) + " " + std::to_string(i), 1));
    for (const Frame& answer : answers_of(inbox)) {
      if (answer.kind != Kind::Error) continue;
      CHECK(answer.text == "16 senders of this connection have not sent a sample yet");
      break;
    }
  }
  CHECK(inbox.health().senders == 64);
  Camera camera(inbox, 1);
  camera.send(3);
  CHECK(inbox.health().samples == 3);
  for (uint64_t peer = 100; peer < 104; ++peer) inbox.left(peer);
  for (int64_t i = 0; i < 3; ++i) CHECK(value(inbox.next(reader)) == i);
  inbox.durable(reader, 3);
  std::thread end([&] { camera.outbox.finish(); });
  // The stream ends although they never sent an END.
  CHECK(soon(inbox, {{&camera.outbox, 1}}, [&] { return inbox.health().state == InboxHealth::Ended; }));
  CHECK(!inbox.next(reader));
  CHECK(inbox.position(reader, 3).find("ghost") == std::string::npos);
  inbox.durable(reader, 3);
  carry(inbox, camera.outbox, 1);
  end.join();
}

TEST_CASE("inbox: a sender that gives nothing loses its slot to waiting ones") {
  const Cleared cleared;
  InboxOptions options = inbox_options();
  options.most_senders = 2;
  Inbox inbox(options);
  const int reader = inbox.open("", kWait);
  REQUIRE(inbox.restore(reader, 0, ""));
  say(inbox, 8, hello_of("one", 1));
  say(inbox, 9, hello_of("two", 1));
  Camera camera(inbox, 1, "camera", Acknowledgement::Durable, true);
  push(camera.outbox, 5);
  CHECK(inbox.health().samples == 0);
  CHECK(soon(inbox, {{&camera.outbox, 1}}, [&] { return inbox.health().samples == 1; }));
}

TEST_CASE("inbox: an epoch ahead of any clock is rejected, and one without samples is forgotten") {
  const Cleared cleared;
  Inbox inbox(inbox_options());
  const int reader = inbox.open("", kWait);
  REQUIRE(inbox.restore(reader, 0, ""));
  say(inbox, 9, hello_of("camera", uint64_t{1} << 62));
  const auto answers = answers_of(inbox);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].kind == Kind::Error);
  CHECK(answers[0].text ==
        "its epoch 4611686018427387904 is more than a day ahead of the receiver's clock: correct the sender's clock, "
        "or use other epochs");
  for (const bool has_given : {false, true}) {
    INFO(has_given);
    say(inbox, 9, hello_of("camera", hours_ahead(20), 1u << 30));
    Camera camera(inbox, has_given ? 3 : 2, "camera", Acknowledgement::Durable, true);
    push(camera.outbox, 0);
    carry(inbox, camera.outbox, camera.peer);
    CHECK(inbox.health().samples == (has_given ? 1 : 0));  // it waits until it is clear which incarnation continues
    inbox.left(9);
    CHECK(inbox.position(reader, inbox.health().samples).find("1073741824") == std::string::npos);
    const uint64_t wanted = has_given ? 2 : 1;
    CHECK(soon(inbox, {{&camera.outbox, camera.peer}}, [&] { return inbox.health().samples >= wanted; }));
    CHECK(inbox.health().lost == 0);
    inbox.left(camera.peer);
    network().clear();
  }
}

TEST_CASE("inbox: a name whose epoch was ahead can be released on request") {
  const std::string position =
      "hxs1 ; tensor x 7 0 ; sender samples camera " + std::to_string(hours_ahead(20)) + " 5 0";
  const auto inbox_at = [](Inbox& inbox, const std::string& at) {
    REQUIRE(inbox.restore(inbox.open("", kWait), 5, at));
  };
  {
    const Cleared cleared;
    Inbox inbox(inbox_options());
    inbox_at(inbox, position);
    Camera camera(inbox, 1);
    CHECK(message_of([&] { camera.send(1); }).find("a newer session of 'camera' is connected") != std::string::npos);
  }
  for (const bool years : {false, true}) {  // epochs years ahead are ignored
    const Cleared cleared;
    Inbox inbox(inbox_options());
    if (!years) inbox.forget_incarnation("camera");
    inbox_at(inbox, years ? "hxs1 ; tensor x 7 0 ; sender samples camera 4611686018427387904 5 0" : position);
    Camera camera(inbox, 1);
    camera.send(7);
    CHECK(camera.outbox.counts().skipped == 5);
    CHECK(inbox.health().samples == 2);
  }
}

TEST_CASE("inbox: a name bound to a key cannot be used with others") {
  const Cleared cleared;
  InboxOptions options = inbox_options();
  options.may_use = [](uint64_t peer, const std::string& name) { return peer == 1 || name != "camera"; };
  Inbox inbox(options);
  const int reader = inbox.open("", kWait);
  REQUIRE(inbox.restore(reader, 0, ""));
  Camera camera(inbox, 1), thief(inbox, 2), other(inbox, 3, "other");
  CHECK(message_of([&] { thief.send(1); }).find("its key may not send as 'camera'") != std::string::npos);
  camera.send(2), other.send(1);
  CHECK(inbox.health().samples == 3);
}

TEST_CASE("inbox: answers stay with the greeted peer when others use its name") {
  const Cleared cleared;
  Inbox inbox(inbox_options());
  const int reader = inbox.open("", kWait);
  REQUIRE(inbox.restore(reader, 0, ""));
  Camera camera(inbox, 1, "camera", Acknowledgement::Received);
  camera.send(3);
  const auto answer_to = [&](Kind kind) {
    Frame frame;
    frame.kind = kind;
    frame.stream = "samples", frame.producer = "camera", frame.epoch = 1, frame.session = 1;
    if (kind == Kind::Hello) frame.tensors = outbox_options("camera").tensors;
    inbox.arrived(2, owned(encode(frame).bytes()));
    std::vector<Frame> answers;
    while (const auto answer = inbox.poll())
      if (answer->peer == 2) answers.push_back(decode(answer->frame));
    REQUIRE(answers.size() == 1);
    return answers[0];
  };
  CHECK(answer_to(Kind::Ping).code == Code::NoSession);
  CHECK(answer_to(Kind::Hello).code == Code::Stale);
  CHECK(answer_to(Kind::End).code == Code::NoSession);
  camera.send(3);
  for (int64_t i = 0; i < 3; ++i) CHECK(value(inbox.next(reader)) == i);
  for (int64_t i = 0; i < 3; ++i) CHECK(value(inbox.next(reader)) == i);
  CHECK(camera.outbox.counts().sessions == 1);
  CHECK(inbox.health().refused == 1);
}

TEST_CASE("inbox: one way counts missing samples and drops duplicates") {
  const Cleared cleared;
  InboxOptions options = inbox_options();
  options.one_way = true;
  Inbox inbox(options);
  const int reader = inbox.open("", kWait);
  CHECK(!inbox.restore(reader, 0, ""));
  OutboxOptions out = outbox_options("camera");
  out.one_way = true;
  Outbox outbox(out);
  std::vector<OwnedBytes> frames;
  for (int64_t i = 0; i < 10; ++i) {
    push(outbox, i);
    while (const OwnedBytes frame = outbox.poll()) frames.push_back(frame), outbox.sent();
  }
  std::thread end([&] { outbox.finish(); });
  while (frames.size() < 11) {
    if (const OwnedBytes frame = outbox.poll()) frames.push_back(frame), outbox.sent();
  }
  end.join();
  for (const size_t i : {2, 3, 3, 6, 5, 8, 10}) REQUIRE(inbox.arrived(1, frames[i]));
  std::vector<int64_t> values;
  while (const auto sample = inbox.next(reader)) values.push_back(value(sample));
  CHECK(values == std::vector<int64_t>{2, 3, 6, 8});
  CHECK(inbox.health().lost == 4);  // 4 and 5, 7, and 9 according to END
  CHECK(inbox.health().duplicates == 2);
  CHECK(inbox.health().state == InboxHealth::Ended);
}

TEST_CASE("positions: text survives writing and parsing") {
  Positions positions;
  positions.tensors = {{"image", DType::U8, {28, 28}, {}}, {"the label;", DType::I64, {}, {}}};
  positions.senders[{"samples", "camera 1"}] = {5, 300, false};
  positions.senders[{"samples", "ü%"}] = {1u << 30, kMostSeq, true};
  const std::string text = positions_text(positions);
  CHECK(text ==
        "hxs1 ; tensor image 1 2 28 28 ; tensor the%20label%3B 7 0 ; sender samples camera%201 5 300 0 ; sender "
        "samples %C3%BC%25 1073741824 4611686018427387904 1");
  const Positions back = read_positions(text);
  CHECK(positions_text(back) == text);
  CHECK(back.senders.at({"samples", "ü%"}).ended);
  CHECK(positions_text({}).empty());
  CHECK(read_positions("").senders.empty());
  for (size_t cut = 1; cut < text.size(); ++cut) {
    try {
      read_positions(text.substr(0, cut));
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::Stream);
    }
  }
  CHECK(message_of([] { read_positions("spool"); }) ==
        "position of a stream: expected 'hxs1', found 'spool'\ngive what this library wrote: the checkpoint may be "
        "damaged");
  CHECK(message_of([] {
          read_positions("hxs1 ; sender a b 1 4611686018427387905 0");
        }).find("expected a sample's number") != std::string::npos);
  CHECK(message_of([] { read_positions("hxs1 ; sender a b 1 1 0 ; sender a b 1 1 0"); }).find("found the same again") !=
        std::string::npos);
  CHECK(message_of([] { read_positions("hxs1 ; tensor a 99 0"); }).find("expected an element type") !=
        std::string::npos);
  CHECK(message_of([] { read_positions("hxs1 ; tensor a 1 9"); }).find("expected a number of dimensions") !=
        std::string::npos);
}
