// Samples in plain formats: the decoded result of a byte stream in arbitrary pieces, and rejections.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <cstdlib>
#include <fstream>

#include "wire/plain/sample_feed.hpp"

using namespace harmonics;
using namespace harmonics::plain;
using wire::Inbox;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

FeedOptions feed_of(Format format) {
  FeedOptions options;
  options.where = options.decoder.where = "test:";
  options.format = format;
  return options;
}

Asked asked(const std::string& selection, const std::string& type = "", const std::string& use = "") {
  Asked a;
  a.selection = selection;
  a.type = type;
  a.use = use;
  return a;
}

constexpr std::chrono::milliseconds kSoon{2000};

// One tensor of a feed, opened as by a run.
struct Opened {
  Opened(SampleFeed& f, const Asked& what) : feed(f), name(f.choose(what)), reader(f.inbox().open(name, kSoon)) {}
  wire::TensorPart part() { return feed.describe(name, kSoon); }
  template <typename T>
  std::vector<T> all() {
    feed.begin();
    std::vector<T> values;
    while (const auto sample = feed.inbox().next(reader)) {
      const size_t had = values.size();
      values.resize(had + sample->bytes.size() / sizeof(T));
      std::memcpy(values.data() + had, sample->bytes.bytes.data(), sample->bytes.size());
    }
    return values;
  }
  SampleFeed& feed;
  std::string name;
  int reader;
};

// Passes a whole text from one peer, in pieces of this size.
void give(SampleFeed& feed, const std::string& text, size_t piece = 7, uint64_t peer = 1) {
  feed.came(peer);
  for (size_t at = 0; at < text.size(); at += piece) feed.arrived(peer, bytes_of(text.substr(at, piece)));
  feed.left(peer);
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  std::string head = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  head.append(63 - (head.size() + 10) % 64, ' ');
  head += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(head.size()) + static_cast<char>(head.size() >> 8) +
         head + data;
}

}  // namespace

TEST_CASE("plain: the fields of JSON lines are streams of one source") {
  const size_t piece = GENERATE(1, 5, 1000);
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened x(feed, asked("x")), y(feed, asked("meta.label", "", "classes")), both(feed, asked("x,meta.size"));
  give(feed,
       "{\"x\": [1, 2.5], \"meta\": {\"label\": 3, \"size\": 7}}\n\n{\"meta\": {\"size\": 8, \"label\": 4}, \"x\": [3, "
       "-1e2]}",
       piece);
  feed.close_input();
  CHECK(x.part().dtype == DType::F32);
  CHECK(x.part().sample == Shape{2});
  CHECK((y.part().dtype == DType::I64 && y.part().sample.rank() == 0));
  CHECK(both.part().sample == Shape{3});
  CHECK(x.all<float>() == std::vector<float>{1, 2.5, 3, -100});
  CHECK(y.all<int64_t>() == std::vector<int64_t>{3, 4});
  CHECK(both.all<float>() == std::vector<float>{1, 2.5, 7, 3, -100, 8});
}

TEST_CASE("plain: unreadable lines are rejected with their number, counted, and do not end the stream") {
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened x(feed, asked("x"));
  give(feed,
       "{\"x\": [1, 2]}\n{\"x\": [1\n{\"x\": [1, 2, 3]}\n{\"y\": 1}\n\"word\"\n{\"x\": null}\n{\"x\": [1, "
       "\"w\"]}\n{\"x\": [3, 4]}\n");
  feed.close_input();
  CHECK(x.part().sample == Shape{2});
  CHECK(x.all<float>() == std::vector<float>{1, 2, 3, 4});
  CHECK(feed.inbox().health().refused == 6);
  CHECK(feed.inbox().health().samples == 2);
  CHECK(feed.last_error() == "line 7: 'x' is a string where a number is expected");
}

TEST_CASE("plain: a reader that gives up names what was refused") {
  SampleFeed feed(feed_of(Format::Jsonl));
  give(feed, "junk\n{\"x\": [1\n");
  CHECK_THROWS_WITH(feed.describe(feed.choose(asked("x")), {}), Catch::Contains("refused: 2 samples: line 1"));
}

TEST_CASE("plain: the reasons of the first rejections are listed together") {
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened x(feed, asked("x", "f32:1"));
  feed.begin();
  give(feed, "{\"x\": [1]}\n{\"x\": [1, 2]}\n{\"y\": 1}\n", 1000);
  CHECK(feed.last_error() == "line 2: 'x' of shape [2], a sample has the shape [1]; line 3 has no field 'x'");
}

TEST_CASE("plain: a strict stream ends with the first rejected record") {
  FeedOptions options = feed_of(Format::Jsonl);
  options.strict = true;
  SampleFeed feed(options);
  Opened x(feed, asked("x"));
  give(feed, "{\"x\": 1.5}\n{\"x\": {}}\n{\"x\": 2.5}\n", 1000);
  x.part();
  CHECK_THROWS_WITH(x.all<float>(), Catch::Contains("test:: line 2 "));
}

TEST_CASE("plain: an unknown field lists the existing ones") {
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened x(feed, asked("image"));
  give(feed, "{\"picture\": [1, 2], \"label\": 3}\n");
  CHECK_THROWS_WITH(x.part(), Catch::Contains("line 1 has no field 'image'; its fields are: picture, label"));
}

TEST_CASE("plain: columns of CSV by name and by number, over quotes and line ends") {
  const size_t piece = GENERATE(1, 4, 1000);
  SampleFeed feed(feed_of(Format::Csv));
  Opened ages(feed, asked("age")), both(feed, asked("fare,0")), range(feed, asked("2-3"));
  give(feed, "age,name,fare,kind\r\n22,\"a, \"\"b\"\"\nc\",7.25,1\r\n38,d,8,2\n1,2\n,e,1,1\n26,f,9.5,3", piece);
  feed.close_input();
  CHECK(ages.part().dtype == DType::I64);
  CHECK(both.part().sample == Shape{2});
  CHECK(range.part().sample == Shape{2});
  CHECK(ages.all<int64_t>() == std::vector<int64_t>{22, 38, 26});
  CHECK(both.all<float>() == std::vector<float>{7.25, 22, 8, 38, 9.5, 26});
  CHECK(range.all<float>() == std::vector<float>{7.25, 1, 8, 2, 9.5, 3});
  CHECK(feed.inbox().health().refused == 2);
  CHECK(feed.last_error() == "line 5 has 2 cells, line 1 has 4; line 6: 'age' has no value");
}

TEST_CASE("plain: a table of words only asks for header=") {
  SampleFeed feed(feed_of(Format::Csv));
  Opened x(feed, asked("a"));
  give(feed, "a,b\nc,d\n");
  feed.close_input();
  CHECK_THROWS_WITH(
      x.part(), Catch::Contains("line 1 may be a header or a row") && Catch::Contains("header=true or header=false"));
}

TEST_CASE("plain: words are classes where symbols= lists them") {
  SampleFeed feed(feed_of(Format::Csv));
  Asked what = asked("kind");
  what.symbols = {"setosa", "virginica"};
  Opened x(feed, what), y(feed, asked("size"));
  give(feed, "size,kind\n1.5,virginica\n2.5,setosa\n3.5,rose\n");
  feed.close_input();
  CHECK((x.part().dtype == DType::I64 && x.part().classes == 2));
  y.part();
  CHECK(x.all<int64_t>() == std::vector<int64_t>{1, 0});
  CHECK(y.all<float>() == std::vector<float>{1.5, 2.5});
  CHECK(feed.inbox().health().refused == 1);
}

namespace {

Asked learned(const std::string& field, std::vector<std::string> words, const std::string& type = "") {
  Asked what = asked(field);
  what.type = type;
  what.symbols = std::move(words);
  what.learned = true;
  return what;
}

}  // namespace

TEST_CASE("plain: words have the numbers that the weights learned, and an unknown one is refused by name") {
  const auto [format, text] = GENERATE(table<Format, std::string>(
      {{Format::Jsonl,
        "{\"kind\": \"virginica\"}\n{\"kind\": \"setosa\"}\n{\"kind\": \"rose\"}\n{\"kind\": 1}\n{\"kind\": 2}\n"},
       {Format::Csv, "kind\nvirginica\nsetosa\nrose\n1\n2\n"},
       {Format::Msgpack,
        "\x81\xa4kind\xa9virginica\x81\xa4kind\xa6setosa\x81\xa4kind\xa4rose\x81\xa4kind\x01\x81\xa4kind\x02"}}));
  const std::string type = GENERATE("", "i64<2");  // from the first record; from a checkpoint
  FeedOptions options = feed_of(format);
  options.decoder.header = "true";
  SampleFeed feed(options);
  Opened x(feed, learned("kind", {"setosa", "virginica"}, type));
  give(feed, text);
  feed.close_input();
  CHECK((x.part().dtype == DType::I64 && x.part().classes == 2 && x.part().sample == Shape{}));
  CHECK(feed.symbols("kind") == std::vector<std::string>{"setosa", "virginica"});
  CHECK(x.all<int64_t>() == std::vector<int64_t>{1, 0, 1});
  CHECK(feed.inbox().health().refused == 2);
  CHECK_THAT(
      feed.last_error(),
      Catch::Contains("'kind' is the word 'rose', which is unknown to the weights; they know setosa, virginica") &&
          Catch::Contains("'2', which is unknown to the weights"));
}

TEST_CASE("plain: learned words that are numbers are not class numbers") {
  const std::string text =
      GENERATE("{\"k\": 2}\n{\"k\": 3}\n{\"k\": 0}\n", "{\"k\": \"2\"}\n{\"k\": \"3\"}\n{\"k\": \"0\"}\n");
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened x(feed, learned("k", {"1", "2", "3"}));
  give(feed, text);
  feed.close_input();
  x.part();
  CHECK(x.all<int64_t>() == std::vector<int64_t>{1, 2});
  CHECK_THAT(feed.last_error(), Catch::Contains("the word '0', which is unknown to the weights; they know 1, 2, 3"));
}

TEST_CASE("plain: learned words give way to another type, and to records of other numbers") {
  {
    SampleFeed feed(feed_of(Format::Jsonl));
    Opened x(feed, learned("k", {"a", "b"})), y(feed, learned("one", {"a", "b"}));
    give(feed, "{\"k\": [0.5, 1], \"one\": 2.5}\n");
    feed.close_input();
    CHECK((x.part().dtype == DType::F32 && x.part().classes == 0 && x.part().sample == Shape{2}));
    CHECK(feed.symbols("k").empty());
    CHECK(y.part().dtype == DType::F32);
    CHECK(x.all<float>() == std::vector<float>{0.5, 1});
  }
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened x(feed, learned("k", {"a", "b"}, "u8:"));
  give(feed, "{\"k\": 7}\n");
  feed.close_input();
  CHECK((x.part().dtype == DType::U8 && x.part().classes == 0));
  CHECK(x.all<uint8_t>() == std::vector<uint8_t>{7});
}

TEST_CASE("plain: missing= may be a learned word, and no other one") {
  Asked what = learned("kind", {"rose", "other"});
  what.missing = "other";
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened kind(feed, what);
  give(feed, "{\"kind\": null}\n{\"kind\": \"rose\"}\n");
  feed.close_input();
  kind.part();
  CHECK(kind.all<int64_t>() == std::vector<int64_t>{1, 0});
  what.missing = "tulip";
  CHECK_THROWS_WITH(Selection(what, "test:"),
                    Catch::Contains("missing=tulip is not a word that the weights know: rose, other"));
}

TEST_CASE("plain: symbols= agree with the type of a checkpoint, and with no other type") {
  Asked what = asked("kind", "i64<2");
  what.symbols = {"rose", "tulip"};
  CHECK(Selection(what, "test:").part().classes == 2);
  what.type = "i64<3";
  CHECK_THROWS_WITH(Selection(what, "test:"), Catch::Contains("symbols= and type= both set the sample type"));
}

TEST_CASE("plain: learned= is a JSON array of texts") {
  CHECK(read_learned("[\"a,b\", \"\"]") == std::vector<std::string>{"a,b", ""});
  for (const char* wrong : {"a,b", "[1]", "{}", "[\"a\""})
    CHECK_THROWS_WITH(read_learned(wrong), Catch::Contains("is not a JSON array of strings; write symbols=a,b,c"));
}

TEST_CASE("plain: MessagePack, with arrays of msgpack-numpy and bytes") {
  const size_t piece = GENERATE(1, 3, 1000);
  const float numbers[] = {1, 2};
  const std::string nd = std::string(
                             "\x84\xc4\x02nd\xc3\xc4\x04type\xa3<f4\xc4\x05shape\x91\x02\xc4\x04"
                             "data\xc4\x08",
                             33) +
                         std::string(reinterpret_cast<const char*>(numbers), 8);
  const std::string sample = "\x83\xa1x" + nd + "\xa1y\x03" + std::string("\xa1z\xc4\x02\x07\x09", 6);
  SampleFeed feed(feed_of(Format::Msgpack));
  Opened x(feed, asked("x")), y(feed, asked("y")), z(feed, asked("z"));
  give(feed, sample + std::string("\xc0", 1) + sample, piece);
  feed.close_input();
  CHECK((x.part().dtype == DType::F32 && x.part().sample == Shape{2}));
  CHECK((z.part().dtype == DType::U8 && z.part().sample == Shape{2}));
  y.part();
  CHECK(x.all<float>() == std::vector<float>{1, 2, 1, 2});
  CHECK(y.all<int64_t>() == std::vector<int64_t>{3, 3});
  CHECK(z.all<uint8_t>() == std::vector<uint8_t>{7, 9, 7, 9});
  CHECK(feed.last_error() == "value 1 is nil; a sample is a map, an array of numbers or a number");
}

TEST_CASE("plain: NumPy arrays, each a sample or rows of samples") {
  const bool rows = GENERATE(false, true);
  FeedOptions options = feed_of(Format::Npy);
  options.decoder.rows = rows;
  SampleFeed feed(options);
  Opened x(feed, asked(""));
  give(feed, npy("|u1", "(2, 2)", std::string("\1\2\3\4", 4)) + npy("|u1", "(2, 2)", std::string("\5\6\7\x8", 4)));
  feed.close_input();
  CHECK((x.part().dtype == DType::U8 && x.part().sample == (rows ? Shape{2} : Shape{2, 2})));
  CHECK(x.all<uint8_t>() == std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(feed.inbox().health().samples == (rows ? 4 : 2));
}

TEST_CASE("plain: raw numbers, and a truncated one") {
  FeedOptions options = feed_of(Format::Raw);
  options.decoder.dtype = DType::U16;
  options.decoder.sample = Shape{2};
  SampleFeed feed(options);
  Opened x(feed, asked("", "u16:2"));
  x.part();
  give(feed, std::string("\1\0\2\0\3\0\4\0\5\0\6", 11));
  feed.close_input();
  CHECK(x.all<uint16_t>() == std::vector<uint16_t>{1, 2, 3, 4});
  CHECK(feed.last_error() == "sample 2 is truncated: it has 3 of 4 bytes");
}

TEST_CASE("plain: a requested type is used or rejected") {
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened bytes(feed, asked("x", "u8:2x2")), known(feed, asked("y", "i64<3")), floats(feed, asked("y", "", "numbers"));
  CHECK(bytes.part().sample == Shape{2, 2});  // before any data
  give(feed,
       "{\"x\": [1, 2, 3, 255], \"y\": 2}\n{\"x\": [1, 2, 3, 256], \"y\": 2}\n{\"x\": [1, 2, 3, 4], \"y\": 3}\n{\"x\": "
       "[1, 2, 3, 0.5], \"y\": 1}\n{\"x\": [9, 9, 9, 9], \"y\": 0}\n");
  feed.close_input();
  CHECK(floats.part().dtype == DType::F32);
  CHECK(known.part().classes == 3);
  CHECK(bytes.all<uint8_t>() == std::vector<uint8_t>{1, 2, 3, 255, 9, 9, 9, 9});
  CHECK(known.all<int64_t>() == std::vector<int64_t>{2, 0});
  CHECK(floats.all<float>() == std::vector<float>{2, 0});
  CHECK(feed.last_error() ==
        "line 2: 'x' has 256, which u8 cannot represent; line 3: 'y' has 3, which is not a class below 3; line 4: 'x' "
        "has 0.5, which u8 cannot represent");
}

TEST_CASE("plain: classes that the flow declares limit class numbers") {
  SampleFeed feed(feed_of(Format::Jsonl));
  Asked label = asked("y", "", "classes"), number = asked("z", "", "numbers"), row = asked("x", "", "classes");
  label.declared = number.declared = row.declared = "i64<3";
  Opened y(feed, label), z(feed, number), x(feed, row);
  give(feed,
       "{\"x\": [9, 8], \"y\": 2, \"z\": 5}\n{\"x\": [9, 8], \"y\": 3, \"z\": 5}\n"
       "{\"x\": [9, 8], \"y\": -1, \"z\": 5}\n{\"x\": [9, 8], \"y\": 0, \"z\": 5}\n");
  feed.close_input();
  CHECK(y.part().dtype == DType::I64);
  CHECK(y.part().classes == 3);
  CHECK(z.part().classes == 0);
  CHECK(x.part().classes == 0);
  CHECK(y.all<int64_t>() == std::vector<int64_t>{2, 0});
  CHECK(z.all<float>() == std::vector<float>{5, 5});
  CHECK(feed.last_error() ==
        "line 2: 'y' has 3, which is not a class below 3; line 3: 'y' has -1, which is not a class below 3");
}

TEST_CASE("plain: integers beyond a double's precision are rejected, not rounded") {
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened x(feed, asked("x", "i64:"));
  give(feed, "{\"x\": 9007199254740993}\n{\"x\": 9007199254740991}\n");
  feed.close_input();
  CHECK(x.all<int64_t>() == std::vector<int64_t>{9007199254740991});
}

TEST_CASE("plain: the stream ends when all senders have gone, unless it is endless") {
  FeedOptions options = feed_of(Format::Jsonl);
  options.endless = GENERATE(false, true);
  SampleFeed feed(options);
  Opened x(feed, asked(""));
  feed.came(1), feed.came(2);
  feed.arrived(1, bytes_of("[1.5]\n[2.5]\n[3"));
  x.part();
  feed.begin();
  feed.arrived(2, bytes_of("[4.5]\n"));
  feed.arrived(1, bytes_of(".5]\n"));
  feed.left(1);
  CHECK(feed.connected() == 1);
  feed.left(2);
  CHECK(feed.senders() == 2);
  std::vector<float> got;
  for (int i = 0; i < 4; ++i) {
    const auto sample = feed.inbox().next(x.reader);
    REQUIRE(sample);
    float value = 0;
    std::memcpy(&value, sample->bytes.bytes.data(), sizeof value);
    got.push_back(value);
  }
  CHECK(got == std::vector<float>{1.5, 2.5, 4.5, 3.5});
  if (!options.endless) {
    CHECK_FALSE(feed.inbox().next(x.reader));
    return;
  }
  CHECK(feed.inbox().health().state != wire::InboxHealth::Ended);
  feed.inbox().cancel(x.reader);
  CHECK_FALSE(feed.inbox().next(x.reader));
}

TEST_CASE("plain: held bytes stay bounded before and during reading") {
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened x(feed, asked("x"));
  const std::string line = "{\"x\": [0.5, 1.5, 2.5, 3.5]}\n";
  size_t given = 0;
  for (; !feed.is_full() && given < 1u << 20; given += line.size()) feed.arrived(1, bytes_of(line));
  CHECK(given < 300u << 10);
  x.part();
  feed.begin();
  uint64_t more = 0;
  for (; !feed.is_full() && more < 100000; ++more) feed.arrived(1, bytes_of(line));
  CHECK(feed.inbox().health().queued_samples < 16384);
}

TEST_CASE("plain: a message is one value over several lines, a batch, or a value per line") {
  FeedOptions options = feed_of(Format::Jsonl);
  options.messages = true;
  SampleFeed feed(options);
  Opened x(feed, asked("x"));
  CHECK(feed.message(1, bytes_of("{\n \"x\":\n 1.5}")).accepted == 0);  // no sample has been taken yet
  CHECK(feed.is_full());
  x.part();
  feed.begin();
  CHECK(feed.message(1, bytes_of("{\"x\": 2.5}")).accepted == 2);  // from this peer
  CHECK(feed.message(1, bytes_of("[{\"x\": 3.5}, {\"x\": \"w\"}, {\"x\": 4.5}]")).accepted == 4);
  const Outcome lines = feed.message(1, bytes_of("{\"x\": 5.5}\n{\"x\"\n{\"x\": 6.5}"));
  CHECK(lines.accepted == 6);
  CHECK(lines.refused == 2);
  CHECK(feed.left(1).accepted == 6);
  CHECK(x.all<float>() == std::vector<float>{1.5, 2.5, 3.5, 4.5, 5.5, 6.5});
}

TEST_CASE("plain: the first bytes show the format where possible") {
  const auto told = [](const std::string& text, bool ended = true) { return format_of_first(bytes_of(text), ended); };
  CHECK(told(" {\"x\"") == Format::Jsonl);
  CHECK(told("[1,2]") == Format::Jsonl);
  CHECK(told("\x93NUMPY\x01") == Format::Npy);
  CHECK(told("\x81\xa1x\x01") == Format::Msgpack);
  CHECK(told("a,b\n") == Format::Csv);
  CHECK_FALSE(told("a,b", false));
  CHECK_FALSE(told("word\n"));
  CHECK_FALSE(told(std::string("\0,\1", 3)));
}

TEST_CASE("plain: a schema declares the types of fields") {
  char name[] = "/tmp/harmonics-schema-XXXXXX";
  const int file = mkstemp(name);
  REQUIRE(file >= 0);
  std::ofstream(name)
      << R"({"image": "u8:28x28", "label": {"type": "i64", "classes": 10}, "x": {"type": "f32", "shape": [3]}, )"
         R"("y": {"type": "f32", "shape": []}})";
  CHECK(read_schema(name) ==
        std::map<std::string, std::string>{{"image", "u8:28x28"}, {"label", "i64<10"}, {"x", "f32:3"}, {"y", "f32:"}});
  std::ofstream(name) << R"({"image": 3})";
  CHECK_THROWS_WITH(read_schema(name), Catch::Contains("has no type for 'image'"));
  ::remove(name);
  CHECK_THROWS_WITH(read_schema(name), Catch::Contains("cannot read"));
}

TEST_CASE("plain: false lengths allocate no memory and are rejected") {
  SampleFeed msgpack(feed_of(Format::Msgpack));
  Opened x(msgpack, asked(""));
  const Outcome said = msgpack.arrived(1, bytes_of(std::string("\xdd\xff\xff\xff\xff", 5)));
  CHECK(said.broken);
  CHECK(said.first_refusal == "value 0 is longer than 16777216 bytes");
  SampleFeed arrays(feed_of(Format::Npy));
  Opened y(arrays, asked(""));
  CHECK(arrays.arrived(1, bytes_of(npy("<f8", "(1099511627776,)", ""))).broken);
  SampleFeed lines(feed_of(Format::Jsonl));
  Opened z(lines, asked(""));
  const std::string piece(1u << 20, '1');
  for (int i = 0; i < 40; ++i) lines.arrived(1, bytes_of(piece));
  CHECK(lines.held(1) <= 17u << 20);
  lines.arrived(1, bytes_of("\n[1.5]\n"));
  z.part();
  CHECK(lines.last_error().find("line 1 is longer than 16777216 bytes") != std::string::npos);
}

namespace {

Asked filled(const std::string& selection, const std::string& missing, const std::string& type = "",
             const std::string& use = "") {
  Asked what = asked(selection, type, use);
  what.missing = missing;
  return what;
}

}  // namespace

TEST_CASE("plain: missing= replaces empty cells") {
  SampleFeed feed(feed_of(Format::Csv));
  Opened both(feed, filled("age,fare", "-1.5")), ages(feed, filled("age", "0", "", "classes"));
  give(feed, "age,fare\n,7\n3,NA\n4,5\n");
  feed.close_input();
  CHECK(both.part().sample == Shape{2});
  CHECK(ages.part().dtype == DType::I64);
  CHECK(both.all<float>() == std::vector<float>{-1.5, 7, 3, -1.5, 4, 5});
  CHECK(ages.all<int64_t>() == std::vector<int64_t>{0, 3, 4});
  CHECK(feed.inbox().health().refused == 0);
}

TEST_CASE("plain: missing= replaces null, also within arrays, and for absent fields") {
  const size_t piece = GENERATE(3, 1000);
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened x(feed, filled("x", "9")), both(feed, filled("x,y", "-1"));
  give(feed,
       "{\"x\": [1, null], \"y\": 5}\n{\"x\": null, \"y\": 6}\n{\"y\": 7}\n{\"x\": [1, 2, 3]}\n{\"x\": [null, 4]}\n"
       "{\"x\": \"w\", \"y\": 8}\n7\n",
       piece);
  feed.close_input();
  x.part(), both.part();
  CHECK(x.all<float>() == std::vector<float>{1, 9, 9, 9, 9, 9, 9, 4});
  CHECK(both.all<float>() == std::vector<float>{1, -1, 5, -1, -1, 6, -1, -1, 7, -1, 4, -1});
  CHECK(feed.inbox().health().refused == 3);
  CHECK(feed.last_error() ==
        "line 4: 'x' of shape [3], a sample has the shape [2]; line 6: 'x' of one number, a sample has the shape [2]; "
        "line 7 is one value without a name");
}

TEST_CASE("plain: without missing= a null within an array is refused as ever") {
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened x(feed, asked("x", "f32:2"));
  give(feed, "{\"x\": [1, null]}\n{\"x\": [3, 4]}\n");
  feed.close_input();
  CHECK(x.all<float>() == std::vector<float>{3, 4});
  CHECK(feed.last_error() == "line 1: 'x' is null where a number is expected");
}

TEST_CASE("plain: missing= replaces nil of MessagePack") {
  SampleFeed feed(feed_of(Format::Msgpack));
  Opened x(feed, filled("x", "nan"));
  give(feed, std::string("\x81\xa1x\x92\x01\xc0\x81\xa1x\xc0\x81\xa1y\x01", 14));
  feed.close_input();
  x.part();
  const std::vector<float> values = x.all<float>();
  REQUIRE(values.size() == 6);
  CHECK(values[0] == 1);
  for (size_t i = 1; i < 6; ++i) CHECK(std::isnan(values[i]));
}

TEST_CASE("plain: missing= may be one of the symbols") {
  SampleFeed feed(feed_of(Format::Csv));
  Asked what = filled("kind", "other");
  what.symbols = {"rose", "other"};
  Opened kind(feed, what), size(feed, asked("size"));
  give(feed, "size,kind\n1.5,\n2.5,rose\n");
  feed.close_input();
  kind.part(), size.part();
  CHECK(kind.all<int64_t>() == std::vector<int64_t>{1, 0});
  what.missing = "tulip";
  CHECK_THROWS_WITH(Selection(what, "test:"), Catch::Contains("missing=tulip is not a word that symbols= lists"));
}

TEST_CASE("plain: missing= that cannot be had from a stream, or is not of its type, is an error with a remedy") {
  CHECK_THROWS_WITH(Selection(filled("x", "mean"), "test:"), Catch::Contains("missing=mean needs every sample"));
  CHECK_THROWS_WITH(Selection(filled("x", "word"), "test:"), Catch::Contains("missing=word is not a number"));
  CHECK_THROWS_WITH(Selection(filled("x", "nan", "u8"), "test:").learn([] {
    Record record;
    record.add("x").kind = Field::Kind::Numbers;
    record.numbers = {1};
    return record;
  }()),
                    Catch::Contains("missing=nan cannot be represented in u8"));
  CHECK_THROWS_WITH(Selection(filled("x", "300", "u8:"), "test:"),
                    Catch::Contains("missing=300 cannot be represented in u8"));
  CHECK_THROWS_WITH(Selection(filled("x", "10", "i64<10"), "test:"), Catch::Contains("not a class below 10"));
}

TEST_CASE("plain: a first sample that lacks a value says nothing of its shape, unless the flow declares it") {
  SampleFeed feed(feed_of(Format::Jsonl));
  Asked declared = filled("x", "0");
  declared.declared = "f32:2";
  Opened known(feed, declared), unknown(feed, filled("x", "0")), absent(feed, filled("y", "0"));
  give(feed, "{\"x\": null}\n{\"x\": [1, 2]}\n");
  feed.close_input();
  CHECK_THROWS_WITH(unknown.part(), Catch::Contains("how many numbers it has is not known"));
  CHECK_THROWS_WITH(absent.part(), Catch::Contains("line 1 has no field 'y'; its fields are: x"));
  CHECK(known.part().sample == Shape{2});
}

TEST_CASE("plain: a field that no sample had is filled in and noted, where the type is known") {
  SampleFeed feed(feed_of(Format::Jsonl));
  Opened x(feed, filled("a,b", "0", "f32:2"));
  feed.begin();
  give(feed, "{\"a\": 1}\n{\"a\": 2, \"b\": 3}\n{\"b\": 4}\n", 1000);
  feed.close_input();
  CHECK(x.all<float>() == std::vector<float>{1, 0, 2, 3, 0, 4});
  CHECK(feed.last_error() == "line 1: no sample had 'b' until now; using missing=0");
}

TEST_CASE("plain: bare numbers have the shape that the flow declares, and a type of their own if asked for") {
  const auto type = [](const std::string& told, const std::string& declared,
                       const std::map<std::string, std::string>& schema = {}) {
    return raw_type("test:", told, schema, declared);
  };
  CHECK(type("", "f32:28x28") == "f32:28x28");
  CHECK(type("u8", "f32:28x28") == "u8:28x28");
  CHECK(type("u8", "i64<10") == "u8<10");
  CHECK(type("u8:4", "f32:28x28") == "u8:4");
  CHECK(type("u8", "") == "u8:");
  CHECK(type("", "i64:") == "i64:");
  CHECK(type("", "f32:4", {{"x", "f64"}}) == "f64:4");
  CHECK_THROWS_WITH(type("", ""), Catch::Contains("needs the shape of a sample, and the flow declares none"));
  CHECK_THROWS_WITH(type("", "", {{"x", "u8"}, {"y", "u8"}}), Catch::Contains("its schema names 2 fields"));
}
