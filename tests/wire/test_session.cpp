// The protocol step by step: credit, rejections, deadlines.
#include <catch2/catch.hpp>

#include "tests/message_of.hpp"
#include "tests/wire/raw_frame.hpp"
#include "wire/receive_session.hpp"

using namespace harmonics;
using namespace harmonics::wire;
using namespace harmonics::wire::testing;

namespace {

constexpr Time kSecond = std::chrono::seconds(1);

struct Sent {
  std::vector<uint8_t> memory;
  Frame frame;
};
// `count` samples of `size` bytes each.
std::unique_ptr<Sent> samples(uint64_t seq, uint32_t count, int64_t size = 1, const char* name = "x") {
  auto sent = std::make_unique<Sent>();
  sent->memory.resize(count * static_cast<size_t>(size));
  sent->frame.stream = "s", sent->frame.producer = "p", sent->frame.epoch = 1, sent->frame.seq = seq,
  sent->frame.count = count;
  sent->frame.tensors = {{name, DType::U8, {size}, std::as_bytes(std::span(sent->memory))}};
  return sent;
}
Batch batch(uint64_t seq, uint32_t count, uint64_t bytes = 0) {
  return {seq, count, bytes ? bytes : count, owned(std::vector<std::byte>(100))};
}
Frame said(Kind kind, uint64_t seq = 0, uint64_t session = 1, uint64_t epoch = 1) {
  Frame frame;
  frame.kind = kind;
  frame.stream = "s", frame.producer = "p", frame.epoch = epoch, frame.session = session, frame.seq = seq;
  frame.acknowledgement = Acknowledgement::Durable;
  return frame;
}
Frame granted(Kind kind, uint64_t seq, uint64_t limit_seq, uint64_t limit_bytes, uint64_t received = 0,
              uint64_t durable = 0) {
  Frame frame = said(kind, seq);
  frame.limit_seq = limit_seq, frame.limit_bytes = limit_bytes, frame.received_seq = received,
  frame.durable_seq = durable;
  return frame;
}

SendOptions sending(std::optional<uint64_t> first = 0) {
  SendOptions options;
  options.stream = "s", options.producer = "p", options.first_seq = first;
  return options;
}
ReceiveOptions receiving() {
  ReceiveOptions options;
  options.stream = "s", options.producer = "p", options.window_samples = 10, options.window_bytes = 100;
  return options;
}

// Describes the session's next message: "HELLO", "DATA 0-5", or "".
std::string next(SendSession& sender, Time now) {
  const auto out = sender.poll(now);
  if (!out) return "";
  if (const auto* data = std::get_if<Batch>(&*out))
    return "DATA " + std::to_string(data->seq) + "-" + std::to_string(data->end());
  return std::string(kind_name(std::get<Frame>(*out).kind)) + " " + std::to_string(std::get<Frame>(*out).seq);
}
std::string next(ReceiveSession& receiver, Time now) {
  const auto out = receiver.poll(now);
  if (!out) return "";
  const std::string text = kind_name(out->kind);
  if (out->kind == Kind::Error || out->kind == Kind::Nack)
    return text + " " + std::to_string(static_cast<int>(out->code)) + " " + out->text;
  if (out->kind == Kind::Resume || out->kind == Kind::Bye) return text + " " + std::to_string(out->seq);
  return text + " " + std::to_string(out->limit_seq) + " " + std::to_string(out->limit_bytes) + " " +
         std::to_string(out->received_seq) + " " + std::to_string(out->durable_seq);
}
uint32_t taken(ReceiveSession& receiver, const std::unique_ptr<Sent>& sent, Time now = {}) {
  return receiver.receive(sent->frame, now).count;
}

ReceiveSession greeted(ReceiveOptions options = receiving()) {
  ReceiveSession receiver(options);
  receiver.receive(said(Kind::Hello), {});
  REQUIRE(next(receiver, {}) == "WELCOME 10 100 0 0");
  return receiver;
}

}  // namespace

TEST_CASE("session: a sender says HELLO and sends only what was granted") {
  SendSession sender(sending());
  for (uint64_t seq = 0; seq < 50; seq += 5) REQUIRE(sender.offer(batch(seq, 5)));
  CHECK(next(sender, {}).empty());  // not connected
  sender.connected({});
  CHECK(next(sender, {}) == "HELLO 0");
  CHECK(next(sender, {}).empty());
  CHECK(next(sender, kSecond) == "HELLO 0");  // no answer arrived
  sender.receive(granted(Kind::Welcome, 0, 7, 11), kSecond);
  CHECK(next(sender, kSecond) == "DATA 0-5");
  CHECK(next(sender, kSecond) == "DATA 5-10");  // begun before the limit
  CHECK(next(sender, kSecond).empty());
  sender.receive(granted(Kind::Grant, 0, 100, 12, 5), kSecond);  // bytes are limited too
  CHECK(next(sender, kSecond) == "DATA 10-15");
  CHECK(next(sender, kSecond).empty());
  sender.receive(granted(Kind::Grant, 0, 3, 3), kSecond);  // a late grant revokes nothing
  sender.receive(granted(Kind::Grant, 0, 100, 16), kSecond);
  CHECK(next(sender, kSecond) == "DATA 15-20");
  CHECK(sender.acknowledged() == 0);  // received is not durable
  sender.receive(granted(Kind::Grant, 0, 100, 16, 20, 12), kSecond);
  CHECK(sender.acknowledged() == 12);
  sender.receive(said(Kind::Resume, 11), kSecond);  // the sample has arrived since
  CHECK(next(sender, kSecond).empty());
}

TEST_CASE("session: a sender repeats missing samples") {
  SendSession sender(sending());
  sender.connected({});
  next(sender, {});
  sender.receive(granted(Kind::Welcome, 0, 100, 1000), {});
  for (uint64_t seq = 0; seq < 15; seq += 5) REQUIRE(sender.offer(batch(seq, 5)));
  for (const char* what : {"DATA 0-5", "DATA 5-10", "DATA 10-15"}) CHECK(next(sender, {}) == what);
  sender.receive(said(Kind::Resume, 7), {});
  CHECK(next(sender, {}) == "DATA 5-10");
  CHECK(next(sender, {}) == "DATA 10-15");
  CHECK(sender.counts().resent == 10);
  sender.finish();
  CHECK(next(sender, {}) == "END 15");
  sender.receive(said(Kind::Bye, 15), {});
  CHECK(!sender.is_done());  // received, but not durable
  sender.receive(granted(Kind::Grant, 0, 100, 1000, 15, 15), {});
  CHECK(sender.is_done());
}

TEST_CASE("session: a restarted source keeps the samples that the receiver might lose") {
  // 100 samples of an earlier incarnation were received, 40 of them are durable.
  SendOptions options = sending(std::nullopt);
  options.behind_durable = true;
  SendSession sender(options);
  sender.connected({});
  CHECK(std::get<Frame>(*sender.poll({})).fresh);
  sender.receive(granted(Kind::Welcome, 100, 1000, 1000, 100, 40), {});
  CHECK(sender.next_seq() == 40);
  for (uint64_t seq = 40; seq < 130; seq += 30) REQUIRE(sender.offer(batch(seq, 30)));
  CHECK(next(sender, {}) == "DATA 100-130");  // the receiver has the earlier ones
  CHECK(next(sender, {}).empty());
  // The receiver is killed, and restarts after its durable samples.
  sender.disconnected();
  sender.connected({});
  CHECK(next(sender, {}) == "HELLO 40");
  Frame again = granted(Kind::Welcome, 40, 1000, 1000, 40, 40);
  again.session = 2;
  sender.receive(again, {});
  for (const char* what : {"DATA 40-70", "DATA 70-100", "DATA 100-130"}) CHECK(next(sender, {}) == what);
  CHECK(next(sender, {}).empty());
  Frame safe = granted(Kind::Grant, 0, 1000, 1000, 130, 130);
  safe.session = 2;
  sender.receive(safe, {});
  CHECK(sender.acknowledged() == 130);
}

TEST_CASE("session: frames of another session or incarnation are ignored") {
  SendSession sender(sending());
  sender.connected({});
  sender.connected({});
  next(sender, {});
  Frame old = granted(Kind::Welcome, 0, 100, 100);  // of session 1
  sender.receive(old, {});
  REQUIRE(sender.offer(batch(0, 1)));
  CHECK(next(sender, {}).empty());
  old.session = 2, old.epoch = 2;
  sender.receive(old, {});
  CHECK(next(sender, {}).empty());
  old.epoch = 1;
  sender.receive(old, {});
  CHECK(next(sender, {}) == "DATA 0-1");
}

TEST_CASE("session: a sender keeps a limited amount and reports that it is blocked") {
  SendOptions options = sending();
  options.keep_bytes = 250;
  SendSession sender(options);
  sender.connected({});
  next(sender, {});
  sender.receive(granted(Kind::Welcome, 0, 100, 1000), {});
  CHECK(sender.offer(batch(0, 1)));
  CHECK(sender.offer(batch(1, 1)));
  CHECK(!sender.offer(batch(2, 1)));
  while (!next(sender, {}).empty()) {
  }
  const auto ping = sender.poll(kSecond);
  REQUIRE(ping);
  CHECK(std::get<Frame>(*ping).kind == Kind::Ping);
  CHECK(std::get<Frame>(*ping).blocked);
  CHECK(std::get<Frame>(*ping).seq == 2);
  sender.receive(granted(Kind::Pong, 0, 100, 1000, 2, 1), kSecond);
  CHECK(sender.offer(batch(2, 1)));
  CHECK(message_of([&] { sender.offer(batch(7, 1)); }) == "samples 7 to 8 are offered, sample 3 is next");
}

TEST_CASE("session: a sender detects silence and final rejection") {
  SendSession sender(sending());
  sender.connected({});
  CHECK(!sender.is_out_of_touch(4 * kSecond));
  CHECK(sender.is_out_of_touch(5 * kSecond));
  Frame error = said(Kind::Error);
  error.code = Code::Stale;
  error.text = "a newer session of 'p' is connected";
  CHECK(message_of([&] { sender.receive(error, {}); }) ==
        "the receiver of 's' refuses 'p': a newer session of 'p' is connected");
  Frame welcome = granted(Kind::Welcome, 0, 1, 1);
  welcome.acknowledgement = Acknowledgement::Received;
  CHECK(message_of([&] {
          sender.receive(welcome, {});
        }).find("does not offer the acknowledgement that 'p' requests\nrun the receiver with --checkpoint") !=
        std::string::npos);
  SendSession late(sending(9));
  late.connected({});
  CHECK(message_of([&] { late.receive(granted(Kind::Welcome, 3, 10, 10), {}); }) ==
        "the receiver of 's' requests sample 3, but 'p' has samples only from 9\n"
        "restart the receiver with its previous checkpoint or spool");
  Frame nack = said(Kind::Nack);
  nack.code = Code::Malformed, nack.text = "byte 20";
  SendSession wrong(sending());
  wrong.connected({});
  for (int i = 0; i < 16; ++i) wrong.receive(nack, {});
  CHECK(message_of([&] { wrong.receive(nack, {}); }) == "the receiver of 's' refuses 'p': byte 20");
}

TEST_CASE("session: a receiver takes each sample once, in order") {
  ReceiveSession receiver = greeted();
  CHECK(taken(receiver, samples(0, 3)) == 3);
  CHECK(taken(receiver, samples(0, 3)) == 0);
  const ReceiveSession::Taken rest = receiver.receive(samples(1, 4)->frame, {});
  CHECK(rest.first == 2);
  CHECK(rest.count == 2);
  CHECK(taken(receiver, samples(6, 1)) == 0);
  CHECK(receiver.position().seq == 5);
  CHECK(next(receiver, {}) == "GRANT 10 100 5 0");  // more than an eighth of a window has arrived
  CHECK(next(receiver, {}) == "RESUME 5");
  CHECK(taken(receiver, samples(7, 1)) == 0);
  CHECK(next(receiver, {}).empty());  // already asked
  CHECK(taken(receiver, samples(7, 1), kSecond) == 0);
  CHECK(next(receiver, kSecond) == "RESUME 5");
  CHECK(receiver.counts().duplicates == 5);
  CHECK(receiver.counts().gaps == 3);
  receiver.receive(said(Kind::Ping, 9), 2 * kSecond);
  CHECK(next(receiver, 2 * kSecond) == "PONG 10 100 5 0");
  CHECK(next(receiver, 2 * kSecond) == "RESUME 5");
}

TEST_CASE("session: a flooded receiver takes its grant and one more frame") {
  ReceiveSession receiver = greeted();
  uint64_t held = 0;
  for (uint64_t seq = 0; seq < 1000; seq += 4) held += taken(receiver, samples(seq, 4));
  CHECK(held == 12);
  CHECK(receiver.counts().over_credit > 0);
  CHECK(next(receiver, {}) == "GRANT 10 100 12 0");
  CHECK(next(receiver, {}) == "NACK 2 sample 12 exceeds the granted credit");
  receiver.consumed(4, 4);
  CHECK(next(receiver, kSecond) == "GRANT 14 104 12 0");
  CHECK(taken(receiver, samples(12, 4)) == 4);
  ReceiveSession bytes = greeted();
  CHECK(taken(bytes, samples(0, 1, 99)) == 1);
  CHECK(taken(bytes, samples(1, 1, 99)) == 1);
  CHECK(taken(bytes, samples(2, 1, 99)) == 0);
  CHECK(message_of([&] { bytes.consumed(3, 1); }) ==
        "cannot consume 3 samples (1 byte): only 2 samples (198 bytes) held");
}

TEST_CASE("session: samples granted by an earlier session may arrive in the next") {
  ReceiveSession receiver = greeted();
  receiver.receive(said(Kind::Hello, 0, 2), {});
  CHECK(taken(receiver, samples(0, 3)) == 3);
  const auto welcome = receiver.poll({});
  REQUIRE(welcome);
  CHECK(welcome->seq == 0);  // bytes are counted from the session's start
  CHECK(welcome->received_seq == 3);
  CHECK(welcome->limit_bytes == 100);
}

TEST_CASE("session: a receiver distinguishes unknown and earlier incarnations from its session") {
  ReceiveSession receiver(receiving());
  CHECK(taken(receiver, samples(0, 1)) == 0);
  CHECK(next(receiver, {}) == "NACK 3 unknown session");
  CHECK(taken(receiver, samples(1, 1)) == 0);
  CHECK(next(receiver, {}).empty());  // already said
  receiver.receive(said(Kind::Hello, 0, 4, 7), {});
  CHECK(next(receiver, {}) == "WELCOME 10 100 0 0");
  CHECK(taken(receiver, samples(0, 1)) == 0);  // of incarnation 1
  receiver.receive(said(Kind::Hello, 0, 9, 6), {});
  CHECK(next(receiver, {}) == "ERROR 4 a newer session of 'p' is connected");
  receiver.receive(said(Kind::Hello, 0, 3, 7), {});
  CHECK(next(receiver, {}).empty());
  receiver.receive(said(Kind::Hello, 40, 1, 8), {});  // samples 0 to 39 are lost
  CHECK(next(receiver, {}) == "WELCOME 50 100 40 0");
  CHECK(receiver.counts().lost == 40);
}

TEST_CASE("session: a receiver sends keep-alives while a long frame arrives") {
  ReceiveSession receiver(receiving());
  receiver.arriving(kSecond);  // no sender is known yet
  CHECK(!receiver.poll(kSecond));
  receiver.receive(said(Kind::Hello), kSecond);
  CHECK(receiver.poll(kSecond)->kind == Kind::Welcome);
  receiver.arriving(kSecond * 3 / 2);
  CHECK(!receiver.poll(kSecond * 3 / 2));
  receiver.arriving(2 * kSecond);
  CHECK(receiver.poll(2 * kSecond)->kind == Kind::Grant);
  CHECK(!receiver.poll(2 * kSecond));
}

TEST_CASE("session: a receiver rejects durability it lacks and unexpected tensors") {
  ReceiveOptions options = receiving();
  options.durable = false;
  options.tensors = {{"x", DType::U8, {1}, {}}};
  ReceiveSession receiver(options);
  receiver.receive(said(Kind::Hello), {});
  CHECK(next(receiver, {}).find("ERROR 5 the receiver writes nothing to disk") == 0);
  Frame hello = said(Kind::Hello);
  hello.acknowledgement = Acknowledgement::Received;
  hello.tensors = {{"x", DType::F32, {1}, {}}, {"y", DType::I64, {}, {}}};
  receiver.receive(hello, {});
  CHECK(next(receiver, {}) == "ERROR 6 expected x u8 [1], got x f32 [1], y i64 []");
  hello.tensors.clear();
  receiver.receive(hello, {});
  CHECK(next(receiver, {}) == "WELCOME 10 100 0 0");
  CHECK(taken(receiver, samples(0, 1)) == 1);
  CHECK(taken(receiver, samples(1, 1, 1, "z")) == 0);
  CHECK(next(receiver, {}) == "ERROR 6 expected x u8 [1], got z u8 [1]");
  CHECK(receiver.counts().refused == 3);
}

TEST_CASE("session: only declared samples and the end are durable") {
  ReceiveSession receiver = greeted();
  CHECK(taken(receiver, samples(0, 3)) == 3);
  CHECK(message_of([&] {
          receiver.durable({1, 4, false});
        }) == "samples before 4 are durable, those before 3 were received");
  receiver.receive(said(Kind::End, 3), {});
  CHECK(next(receiver, {}) == "GRANT 10 100 3 0");
  CHECK(next(receiver, {}).empty());
  CHECK(receiver.position().ended);
  receiver.durable(receiver.position());
  CHECK(next(receiver, {}) == "GRANT 10 100 3 3");
  CHECK(next(receiver, {}) == "BYE 3");
  ReceiveSession again(receiving());
  again.restore(receiver.position());
  again.receive(said(Kind::Hello, 3, 2), {});
  CHECK(next(again, {}) == "WELCOME 13 100 3 3");
  again.receive(said(Kind::End, 3, 2), {});
  CHECK(next(again, {}) == "GRANT 13 100 3 3");
  CHECK(next(again, {}) == "BYE 3");
}

TEST_CASE("session: an unreadable frame is requested again") {
  ReceiveSession receiver = greeted();
  receiver.damaged("byte 20 of the frame: damaged", {});
  CHECK(next(receiver, {}) == "NACK 1 byte 20 of the frame: damaged");
  receiver.damaged("and again", {});
  CHECK(next(receiver, {}).empty());
}
