// Spooled streams: samples acknowledged as durable survive a power failure at any call, once and in order.
#include <catch2/catch.hpp>

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <random>
#include <thread>

#include "engine/spool/spool.hpp"
#include "tests/engine/spool/numbered.hpp"
#include "tests/engine/spool/spooled_files.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using namespace std::chrono_literals;

namespace {

bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 20000 && !holds(); ++i) std::this_thread::sleep_for(5ms);
  return holds();
}

SpoolOptions options(FilesInMemory& files, uint64_t most = uint64_t{64} << 20,
                     std::vector<std::string>* notes = nullptr) {
  SpoolOptions o;
  if (notes) o.on_note = [notes](const std::string& note) { notes->push_back(note); };
  o.directory = "spool";
  o.most_bytes = most;
  o.calls = &files;
  return o;
}

// Reads n samples and compares them with the sender's.
void expect_samples(Producer& producer, uint64_t from, uint64_t n, int64_t scale) {
  std::vector<int64_t> got(2 * n);
  const int64_t count = producer.read(n, got.data());
  REQUIRE(count == static_cast<int64_t>(n));
  for (uint64_t i = 0; i < n; ++i) {
    const auto value = static_cast<int64_t>(from + i) * scale;
    REQUIRE((got[2 * i] == value && got[2 * i + 1] == value + 1));
  }
}

}  // namespace

TEST_CASE("spool: delivers samples in order and acknowledges them to the sender", "[spool]") {
  FilesInMemory files;
  NumberedSender sender(500);
  Spool spool(options(files));
  const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
  CHECK(x->describe()->live);
  expect_samples(*x, 0, 300, 1);
  expect_samples(*x, 300, 200, 1);
  CHECK(soon([&] { return sender.durable_until() == 500; }));
  auto waiting = std::async(std::launch::async, [&] { return static_cast<bool>(x->next()); });
  CHECK(waiting.wait_for(50ms) == std::future_status::timeout);
  sender.arrive(501);
  REQUIRE(waiting.wait_for(100s) == std::future_status::ready);
  CHECK(waiting.get());
  auto cancelled = std::async(std::launch::async, [&] { return static_cast<bool>(x->next()); });
  x->cancel();
  REQUIRE(cancelled.wait_for(100s) == std::future_status::ready);
  CHECK_FALSE(cancelled.get());
}

TEST_CASE("spool: reopened, it continues at its end and repeats requested samples", "[spool]") {
  FilesInMemory files;
  NumberedSender sender(100);
  {
    Spool spool(options(files));
    const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
    expect_samples(*x, 0, 100, 1);
  }
  sender.arrive(180);
  sender.over = true;
  std::vector<std::string> notes;
  Spool spool(options(files, uint64_t{64} << 20, &notes));
  const auto upstream = std::make_shared<Numbered>(sender, 1);
  const auto x = spool.add("x", "a:", upstream);
  REQUIRE(x->restore(40, x->position(40)));
  CHECK(upstream->restored == 100);
  expect_samples(*x, 40, 140, 1);
  CHECK_FALSE(x->next());
  CHECK(notes.empty());
}

TEST_CASE("spool: knows the type of its samples without the source", "[spool]") {
  FilesInMemory files;
  NumberedSender sender(5);
  CHECK(!Spool(options(files)).type_of("x"));
  for (int twice = 0; twice < 2; ++twice) {
    Spool spool(options(files));
    const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
    expect_samples(*x, 0, 5, 1);
    REQUIRE(spool.type_of("x"));
    CHECK(spool.type_of("x")->dtype == DType::I64);
    CHECK(spool.type_of("x")->sample == Shape{2});
    CHECK(spool.type_of("x")->classes == Numbered::kClasses);
    CHECK(!spool.type_of("y"));
  }
}

TEST_CASE("spool: acknowledges the end to the sender before it reports the end to the reader", "[spool]") {
  FilesInMemory files;
  NumberedSender sender(20);
  for (int twice = 0; twice < 2; ++twice) {  // the second time, the end is in the spool on disk
    Spool spool(options(files));
    const auto upstream = std::make_shared<Numbered>(sender, 1);
    const auto x = spool.add("x", "a:", upstream), y = spool.add("y", "a:", std::make_shared<Numbered>(sender, 3));
    expect_samples(*x, 0, 20, 1);
    expect_samples(*y, 0, 20, 3);
    CHECK(soon([&] { return sender.durable_until() == 20; }));
    CHECK(upstream->restored == (twice ? 20 : 0));
    {
      const std::lock_guard<std::mutex> lock(sender.mutex);
      sender.over = true;  // after the last sample was committed
      sender.changed.notify_all();
    }
    CHECK_FALSE(x->next());
    {
      const std::lock_guard<std::mutex> lock(sender.mutex);
      CHECK(sender.end_durable);
    }
    CHECK_FALSE(y->next());
  }
}

TEST_CASE("spool: acknowledges the end to a sender whose stream goes on", "[spool]") {
  FilesInMemory files;
  NumberedSender sender(20);
  sender.goes_on = true;
  Spool spool(options(files));
  const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1)),
             y = spool.add("y", "a:", std::make_shared<Numbered>(sender, 3));
  expect_samples(*x, 0, 20, 1);
  expect_samples(*y, 0, 20, 3);
  CHECK(soon([&] { return sender.durable_until() == 20; }));
  const auto set_over = [&](bool over) {
    const std::lock_guard<std::mutex> lock(sender.mutex);
    sender.over = over;
  };
  set_over(true);  // after the last sample was committed
  CHECK(soon([&] {
    const std::lock_guard<std::mutex> lock(sender.mutex);
    return sender.end_durable;
  }));
  set_over(false);
  sender.arrive(25);  // of another sender
  expect_samples(*x, 20, 5, 1);
  expect_samples(*y, 20, 5, 3);
}

TEST_CASE("spool: a reader does not wait for samples that the other stream of the source will never have", "[spool]") {
  FilesInMemory files;
  NumberedSender sender(50);
  Spool spool(options(files));
  const auto a = std::make_shared<Numbered>(sender, 1), b = std::make_shared<Numbered>(sender, 3);
  b->fails_at = 20;
  const bool both_fail = GENERATE(true, false);
  if (both_fail)
    a->fails_at = 30;
  else
    sender.over = true;
  const auto x = spool.add("x", "a:", a), y = spool.add("y", "a:", b);
  expect_samples(*x, 0, 20, 1);
  auto further = std::async(std::launch::async, [&] {
    bool more = false;
    const std::string message = message_of([&] { more = static_cast<bool>(x->next()); });
    return more ? "a sample" : message;
  });
  const bool ends = further.wait_for(20s) == std::future_status::ready;
  if (!ends) x->cancel();
  const std::string message = further.get();
  REQUIRE(ends);
  CHECK(message == (both_fail ? "the sender is gone" : "no error"));
  expect_samples(*y, 0, 20, 3);
  CHECK(message_of([&] { y->next(); }) == "the sender is gone");
}

TEST_CASE("spool: reopened many times, it keeps its samples", "[spool]") {
  FilesInMemory files;
  NumberedSender sender(0);
  for (uint64_t n = 10; n <= 50; n += 10)
    for (int twice = 0; twice < 2; ++twice) {
      sender.arrive(n);
      std::vector<std::string> notes;
      Spool spool(options(files, uint64_t{64} << 20, &notes));
      const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
      REQUIRE(x->restore(n - 10, "spool"));
      expect_samples(*x, n - 10, 10, 1);
      CHECK(notes.empty());
    }
  Spool spool(options(files));
  const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
  expect_samples(*x, 0, 50, 1);
}

TEST_CASE("spool: a power failure at any disk call loses no durable sample", "[spool]") {
  std::mt19937 random(7);
  for (size_t call = 0;; ++call) {
    FilesInMemory files;
    NumberedSender sender(0);
    files.fail_at(call, FilesInMemory::Fault::PowerCut);
    try {
      Spool spool(options(files, uint64_t{1} << 20));
      const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
      const auto y = spool.add("y", "a:", std::make_shared<Numbered>(sender, 3));
      x->restore(0, "");
      y->restore(0, "");
      for (uint64_t n = 5; n <= 40; n += 5) {
        sender.arrive(n);
        expect_samples(*x, n - 5, 5, 1);
        expect_samples(*y, n - 5, 5, 3);
      }
    } catch (const Error&) {
    }
    const bool struck = files.failed();
    const uint64_t durable = sender.durable_until();
    for (int image = 0; image < 4; ++image) {
      INFO("call " << call << ", image " << image << ", durable " << durable);
      const auto disk = files.after_power_cut(image ? &random : nullptr);
      NumberedSender again(60);
      again.durable = durable;
      Spool spool(options(*disk, uint64_t{1} << 20));
      const auto a = std::make_shared<Numbered>(again, 1), b = std::make_shared<Numbered>(again, 3);
      const auto x = spool.add("x", "a:", a), y = spool.add("y", "a:", b);
      x->restore(0, "");
      y->restore(0, "");
      CHECK(a->restored >= durable);
      CHECK(a->restored == b->restored);
      expect_samples(*x, 0, 60, 1);
      expect_samples(*y, 0, 60, 3);
    }
    if (!struck) {
      CHECK(call > 30);
      break;
    }
  }
}

TEST_CASE("spool: a disk error at any call ends the stream with its reason, without a false acknowledgement",
          "[spool]") {
  for (size_t call = 0;; ++call) {
    FilesInMemory files;
    NumberedSender sender(30);
    sender.over = true;
    files.fail_at(call, call % 2 ? FilesInMemory::Fault::Error : FilesInMemory::Fault::ShortThenError, ENOSPC);
    std::string message;
    uint64_t got = 0;
    try {
      Spool spool(options(files));
      const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
      while (x->next()) ++got;
    } catch (const Error& e) {
      message = e.what();
    }
    INFO("call " << call << ": " << message);
    if (!files.failed()) {
      CHECK(got == 30);
      break;
    }
    if (message.empty())
      CHECK(got == 30);  // closed during the failure
    else
      CHECK(message.find("spool") != std::string::npos);
    files.work();
    const uint64_t durable = sender.durable_until();
    Spool again(options(files));
    const auto upstream = std::make_shared<Numbered>(sender, 1);
    const auto x = again.add("x", "a:", upstream);
    expect_samples(*x, 0, 30, 1);
    CHECK(upstream->restored >= durable);
  }
}

TEST_CASE("spool: a torn tail is cut, reported and requested again", "[spool]") {
  FilesInMemory files;
  NumberedSender sender(10);
  {
    Spool spool(options(files));
    const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
    expect_samples(*x, 0, 10, 1);
  }
  const std::string name = "spool/x/" + spool::segment_name(0), bytes = files.get(name);
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    auto disk = files.after_power_cut(nullptr);
    std::string damaged = bytes;
    if (i % 2)
      damaged.resize(random() % bytes.size());
    else
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    disk->put(name, damaged);
    NumberedSender again(10);  // none is durable: it still has all of them
    std::vector<std::string> notes;
    Spool spool(options(*disk, uint64_t{64} << 20, &notes));
    const auto upstream = std::make_shared<Numbered>(again, 1);
    const auto x = spool.add("x", "a:", upstream);
    std::string refusal;
    try {
      expect_samples(*x, 0, 10, 1);
    } catch (const Error& e) {
      refusal = e.what();
    }
    if (i % 2) {
      CHECK(refusal.empty());
      CHECK(upstream->restored < 10);  // the last barrier is damaged
      continue;
    }
    INFO(refusal);
    REQUIRE(notes.size() == 1);
    if (upstream->restored == 10) {  // whole frames follow the damage
      CHECK(disk->get(name) == damaged);
      CHECK((refusal.empty() || refusal.find("the spool of 'x' is damaged: 'spool/x/") == 0));
    } else {
      CHECK(refusal.empty());
      if (notes[0].find(" ends within a frame, at byte ") == std::string::npos)
        CHECK(disk->get("spool/damaged/x-" + spool::segment_name(0)) == damaged);
    }
  }
}

namespace {

struct SpooledFrames {
  explicit SpooledFrames(FilesInMemory& files) {
    NumberedSender sender(0);
    Spool spool(options(files));
    const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
    for (uint64_t n = 10; n <= 100; n += 10) {
      sender.arrive(n);
      expect_samples(*x, n - 10, 10, 1);
    }
    bytes = files.get(name);
    spool::SegmentReader reader(name, files);
    for (uint64_t at = 0; const auto entry = reader.next(reader.size()); at = reader.at())
      if (entry->frame.kind == wire::Kind::Data)
        frames.push_back({at, entry->bytes.bytes.size(), entry->frame.seq, entry->frame.seq + entry->frame.count});
  }
  struct Place {
    uint64_t at, size, first, end;
  };
  const std::string name = "spool/x/" + spool::segment_name(0);
  std::string bytes;
  std::vector<Place> frames;  // frames of samples
};

}  // namespace

TEST_CASE("spool: a flipped bit before the requested sample loses nothing after it", "[spool]") {
  FilesInMemory files;
  const SpooledFrames spooled(files);
  REQUIRE(spooled.frames.size() >= 10);
  const auto& frame = spooled.frames[2];
  for (uint64_t byte = frame.at; byte < frame.at + frame.size; ++byte) {
    for (const int bit : {0, 7}) {
      INFO("byte " << byte - frame.at << " of a frame, bit " << bit);
      const auto disk = files.after_power_cut(nullptr);
      std::string damaged = spooled.bytes;
      damaged[byte] ^= static_cast<char>(1 << bit);
      disk->put(spooled.name, damaged);
      NumberedSender sender(130);
      sender.durable = 100;  // it no longer has the earlier ones
      std::vector<std::string> notes;
      Spool spool(options(*disk, uint64_t{64} << 20, &notes));
      const auto upstream = std::make_shared<Numbered>(sender, 1);
      const auto x = spool.add("x", "a:", upstream);
      REQUIRE(x->restore(60, "spool"));
      CHECK(upstream->restored == 100);
      expect_samples(*x, 60, 70, 1);
      CHECK(disk->get(spooled.name) == damaged);
      REQUIRE(notes.size() == 1);
      CHECK(notes[0].find("'spool/x/00000000000000000000.hxs', frame at byte " + std::to_string(frame.at)) == 0);
      CHECK(notes[0].find("; samples " + std::to_string(frame.first) + " to " + std::to_string(frame.end - 1) +
                          " are lost; data after it is intact") != std::string::npos);
    }
  }
}

TEST_CASE("spool: a flipped bit in needed samples is refused with its location and changes no file", "[spool]") {
  FilesInMemory files;
  const SpooledFrames spooled(files);
  const auto& frame = spooled.frames[7];
  std::string damaged = spooled.bytes;
  damaged[frame.at + frame.size - 3] ^= 4;
  files.put(spooled.name, damaged);
  for (int twice = 0; twice < 2; ++twice) {
    NumberedSender sender(100);  // no new samples, which would begin another file
    sender.durable = 100;
    Spool spool(options(files));
    const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
    const std::string message = message_of([&] { x->restore(frame.first - 3, "spool"); });
    INFO(message);
    CHECK(message.find("the spool of 'x' is damaged: 'spool/x/00000000000000000000.hxs', frame at byte " +
                       std::to_string(frame.at)) == 0);
    CHECK(message.find("samples " + std::to_string(frame.first) + " to " + std::to_string(frame.end - 1) +
                       " are lost, but the run needs samples from " + std::to_string(frame.first - 3) + " on") !=
          std::string::npos);
    CHECK(message.find("restore an intact copy of the file") != std::string::npos);
    CHECK(files.get(spooled.name) == damaged);
  }
  NumberedSender sender(130);
  sender.durable = 100;
  Spool spool(options(files));
  const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
  REQUIRE(x->restore(frame.end, "spool"));
  expect_samples(*x, frame.end, 130 - frame.end, 1);
}

TEST_CASE("spool: damage in an older file is refused when it is reached", "[spool]") {
  FilesInMemory files;
  NumberedSender sender(0);
  {
    Spool spool(options(files, uint64_t{4} << 20));
    const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
    for (uint64_t from = 0; from < 60'000; from += 10'000) {
      sender.arrive(from + 10'000);
      expect_samples(*x, from, 10'000, 1);
      REQUIRE(soon([&] { return sender.durable_until() == from + 10'000; }));  // else one commit may fill one file
    }
  }
  const auto names = files_of(files, "spool/x/");
  REQUIRE(names.size() > 1);
  std::vector<uint64_t> last_bytes;  // last byte of each frame
  std::vector<size_t> of_samples;    // indices of sample frames; losing a barrier loses no sample
  {
    spool::SegmentReader reader(names[0], files);
    while (const auto entry = reader.next(reader.size())) {
      if (entry->frame.kind == wire::Kind::Data) of_samples.push_back(last_bytes.size());
      last_bytes.push_back(reader.at() - 1);
    }
  }
  REQUIRE(!of_samples.empty());
  const bool in_the_end = GENERATE(false, true);  // no whole frame follows it in the file
  std::string damaged = files.get(names[0]);
  if (in_the_end)
    for (size_t i = of_samples.back(); i < last_bytes.size(); ++i) damaged[last_bytes[i]] ^= 1;
  else
    damaged[last_bytes[of_samples[of_samples.size() / 2]]] ^= 1;
  files.put(names[0], damaged);
  Spool spool(options(files, uint64_t{4} << 20));
  const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
  REQUIRE(x->restore(0, "spool"));
  std::vector<int64_t> rows(2 * 60'000);
  const std::string message = message_of([&] { x->read(60'000, rows.data()); });
  INFO(message);
  CHECK(message.find("the spool of 'x' is damaged: '" + names[0] + "'") == 0);
  CHECK(message.find(" are lost, but the run needs samples from ") != std::string::npos);
  CHECK(files.get(names[0]) == damaged);
}

TEST_CASE("spool: unreadable files are moved aside", "[spool]") {
  FilesInMemory files;
  const SpooledFrames spooled(files);
  files.put(spooled.name, std::string(5000, 'x'));
  for (int twice = 0; twice < 2; ++twice) {
    NumberedSender sender(10);
    std::vector<std::string> notes;
    Spool spool(options(files, uint64_t{64} << 20, &notes));
    const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
    expect_samples(*x, 0, 10, 1);
    if (twice == 0)
      CHECK((notes.size() == 1 &&
             notes[0].find("the file is kept as 'spool/damaged/x-00000000000000000000.hxs'") != std::string::npos));
  }
  CHECK(files.get("spool/damaged/x-" + spool::segment_name(0)) == std::string(5000, 'x'));
}

TEST_CASE("spool: a checkpoint releases covered samples, and a full spool waits for it", "[spool]") {
  FilesInMemory files;
  NumberedSender sender(400'000);  // 6.4 MB
  Spool spool(options(files, uint64_t{2} << 20));
  const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
  REQUIRE(x->restore(0, ""));
  std::atomic<uint64_t> used{0};
  std::atomic<uint64_t> most_held{0};
  std::jthread checkpoints([&](const std::stop_token& over) {
    for (; !over.stop_requested(); std::this_thread::sleep_for(1ms)) {
      if (!x->health()->wants_durable) continue;
      uint64_t held = 0;
      for (const std::string& file : files_of(files, "spool/x/")) held += files.size_of(file);
      most_held = std::max(most_held.load(), held);
      x->durable(used);
    }
  });
  for (uint64_t at = 0; at < 400'000; at += 1000) {
    expect_samples(*x, at, 1000, 1);
    used = at + 1000;
  }
  CHECK(soon([&] { return sender.durable_until() == 400'000; }));
  checkpoints = {};
  CHECK(most_held > 0);
  CHECK(most_held <= uint64_t{2} << 20);
  CHECK(files_of(files, "spool/x/").size() < 10);
}

TEST_CASE("spool: one that cannot be opened says why", "[spool]") {
  FilesInMemory files;
  NumberedSender sender(400'000);
  {
    Spool spool(options(files, uint64_t{2} << 20));
    const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
    const std::string full = message_of([&] {
      while (x->next()) {
      }
    });
    CHECK(full.find("the spool 'spool' is full: it holds 2097152 bytes\nfiles are removed once a checkpoint "
                    "covers them: add --checkpoint DIR") == 0);
  }
  {
    Spool spool(options(files, uint64_t{2} << 20));
    const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
    CHECK(message_of([&] { x->restore(1'000'000, "spool"); }).find("the spool of 'x' ends before sample ") == 0);
  }
  {
    NumberedSender other(10);
    Spool spool(options(files, uint64_t{2} << 20));
    const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1)),
               y = spool.add("y", "a:", std::make_shared<Numbered>(other, 1));
    CHECK(message_of([&] {
            x->next();
          }).find("for some streams of a: and none for others\nit belongs to another flow") != std::string::npos);
  }
  CHECK(message_of([&] { Spool(options(files, 999)); }) == "a spool of 999 bytes is too small; the minimum is 1048576");
  FilesInMemory fresh;
  NumberedSender failing(10);
  Spool spool(options(fresh));
  const auto upstream = std::make_shared<Numbered>(failing, 1);
  upstream->fails_at = 7;
  const auto x = spool.add("x", "a:", upstream);
  expect_samples(*x, 0, 7, 1);
  CHECK(message_of([&] { x->next(); }) == "the sender is gone");
}

TEST_CASE("spool: keeps the sender's numbers with the samples on request", "[spool]") {
  FilesInMemory files;
  NumberedSender sender(100);
  const auto expect_numbers = [](Producer& producer, uint64_t from, uint64_t n) {
    std::vector<int64_t> values(2 * n);
    std::vector<SampleNumber> numbers(n);
    REQUIRE(producer.read(n, values.data()) == static_cast<int64_t>(n));
    REQUIRE(producer.numbers(n, numbers.data()));
    for (uint64_t i = 0; i < n; ++i) {
      const SampleNumber wanted = Numbered::number_of(from + i);
      REQUIRE((numbers[i].number == wanted.number && numbers[i].sender == wanted.sender));
    }
  };
  {
    Spool spool(options(files));
    const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
    REQUIRE(x->numbers(0, nullptr));
    REQUIRE(x->restore(0, ""));
    expect_numbers(*x, 0, 30);
    expect_numbers(*x, 30, 31);
    CHECK(soon([&] { return sender.durable_until() == 100; }));
  }
  size_t frames = 0;
  for (const std::string& name : files.names()) {
    if (!name.ends_with(".hxs")) continue;
    spool::SegmentReader reader(name, files);
    while (const auto entry = reader.next(reader.size())) {
      if (entry->frame.kind != wire::Kind::Data) continue;
      ++frames;
      CHECK(entry->frame.tensors.at(0).classes == Numbered::kClasses);  // the file has the type
    }
  }
  CHECK(frames > 0);
  sender.arrive(110);
  Spool spool(options(files));
  const auto x = spool.add("x", "a:", std::make_shared<Numbered>(sender, 1));
  REQUIRE(x->numbers(0, nullptr));
  REQUIRE(x->restore(5, "spool"));
  expect_numbers(*x, 5, 105);
}
