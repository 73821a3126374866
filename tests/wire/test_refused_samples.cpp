// Refused samples in plain formats: their stored form, and the limit.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "wire/plain/sample_feed.hpp"

using namespace harmonics;
using namespace harmonics::plain;

namespace {

namespace fs = std::filesystem;

std::span<const std::byte> octets(const std::string& text) { return std::as_bytes(std::span(text)); }

struct KeptFolder {
  KeptFolder() {
    char name[] = "/tmp/harmonics-refused-XXXXXX";
    REQUIRE(mkdtemp(name));
    folder = name;
  }
  KeptFolder(const KeptFolder&) = delete;
  ~KeptFolder() { fs::remove_all(folder); }
  std::string text(const std::string& name) const {
    std::ostringstream all;
    all << std::ifstream(folder + "/" + name, std::ios::binary).rdbuf();
    return all.str();
  }
  // Returns the lines with reasons, without times.
  std::vector<std::string> reasons() const {
    std::vector<std::string> all;
    std::istringstream lines(text("x.reasons.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      REQUIRE(line.substr(0, 9) == "{\"time\":\"");
      all.push_back(line.substr(line.find(',') + 1));
    }
    return all;
  }
  FeedOptions feed(Format format) const {
    FeedOptions options;
    options.where = options.decoder.where = "test:";
    options.format = format;
    options.dead_letters = folder + "/x";
    return options;
  }
  std::string folder;
};

Asked of_type(const std::string& selection, const std::string& type) {
  Asked a;
  a.selection = selection;
  a.type = type;
  return a;
}

void pass(SampleFeed& feed, const std::string& text, size_t piece = 5, uint64_t peer = 1) {
  feed.came(peer);
  for (size_t at = 0; at < text.size(); at += piece) feed.arrived(peer, octets(text.substr(at, piece)));
  feed.left(peer);
}

}  // namespace

TEST_CASE("refused samples: lines are kept as they came, and a line beside each says why") {
  const size_t piece = GENERATE(1, 7, 1000);
  const bool begun = GENERATE(false, true);
  const KeptFolder kept;
  SampleFeed feed(kept.feed(Format::Jsonl));
  feed.choose(of_type("x", "u8:2"));
  if (begun) feed.begin();
  pass(feed, "{\"x\": [1, 300]}\n{\"x\": [1, 2]}\r\n{\"x\":  [1]}\r\nnot \xff json\n{\"y\": 1}", piece);
  feed.begin();
  CHECK(kept.text("x.refused.jsonl") == "{\"x\": [1, 300]}\n{\"x\":  [1]}\r\nnot \xff json\n{\"y\": 1}\n");
  const std::vector<std::string> reasons = kept.reasons();
  REQUIRE(reasons.size() == 4);
  CHECK(reasons[0] ==
        "\"address\":\"test:\",\"sender\":1,\"number\":1,\"format\":\"jsonl\",\"reason\":\"line 1: 'x' has 300, which "
        "u8 cannot represent\",\"bytes\":15,\"file\":\"x.refused.jsonl\",\"line\":1}");
  CHECK(reasons[1].find("\"number\":3,\"format\":\"jsonl\",\"reason\":\"line 3: 'x' of shape [1]") !=
        std::string::npos);
  CHECK(reasons[2].find("\"reason\":\"line 4 is not UTF-8\",\"bytes\":10,") != std::string::npos);
  CHECK(reasons[3].find("\"bytes\":8,\"file\":\"x.refused.jsonl\",\"line\":4}") != std::string::npos);
  CHECK(feed.inbox().health().refused == 4);
}

TEST_CASE("refused samples: nothing is kept unless asked for, and no file is made without a refusal") {
  const KeptFolder kept;
  FeedOptions options = kept.feed(Format::Jsonl);
  const bool asks = GENERATE(false, true);
  if (!asks) options.dead_letters.clear();
  SampleFeed feed(options);
  feed.choose(of_type("x", "u8:"));
  feed.begin();
  pass(feed, asks ? "{\"x\": 1}\n" : "{\"x\": 1}\nword\n");
  CHECK(fs::is_empty(kept.folder));
}

TEST_CASE("refused samples: a table is kept with its header, once, also by the next run") {
  const KeptFolder kept;
  const auto run = [&](const std::string& table) {
    SampleFeed feed(kept.feed(Format::Csv));
    feed.choose(of_type("age", "f32:"));
    feed.begin();
    pass(feed, table);
    return feed.inbox().health().refused;
  };
  CHECK(run("age,name\r\n1,a\r\n,\"b\nc\"\r\n2,d\r\n3\n") == 2);
  CHECK(kept.text("x.refused.csv") == "age,name\r\n,\"b\nc\"\r\n3\n");
  CHECK(run("age,name\r\n4,f\r\nold,e") == 1);
  CHECK(kept.text("x.refused.csv") == "age,name\r\n,\"b\nc\"\r\n3\nold,e\n");
  CHECK(run("name,age\nf,1\nf,-\n") == 1);  // with other columns
  CHECK(kept.text("x.refused-2.csv") == "name,age\nf,-\n");
  const std::vector<std::string> reasons = kept.reasons();
  REQUIRE(reasons.size() == 4);
  CHECK(reasons[1].find("\"file\":\"x.refused.csv\",\"line\":4}") != std::string::npos);
  CHECK(reasons[3].find("\"file\":\"x.refused-2.csv\",\"line\":2}") != std::string::npos);
}

TEST_CASE("refused samples: of a table whose header cannot be told, all that came is kept") {
  const KeptFolder kept;
  SampleFeed feed(kept.feed(Format::Csv));
  feed.choose(of_type("a", "f32:"));
  feed.begin();
  pass(feed, "a,b\nc,d\ne,f\n", 1000);
  CHECK(kept.text("x.refused.csv") == "a,b\nc,d\ne,f\n");
}

TEST_CASE("refused samples: a refused first row of a table without a header") {
  const KeptFolder kept;
  SampleFeed feed(kept.feed(Format::Csv));
  feed.choose(of_type("0", "u8:"));
  pass(feed, "300,a\n7,b\n");
  feed.begin();
  CHECK(kept.text("x.refused.csv") == "300,a\n");
}

TEST_CASE("refused samples: of a message only those that were refused, each on a line") {
  const KeptFolder kept;
  FeedOptions options = kept.feed(Format::Jsonl);
  options.messages = options.decoder.batches = true;
  SampleFeed feed(options);
  feed.choose(of_type("x", "u8:"));
  feed.begin();
  feed.message(1, octets("[{\"x\": 1}, {\"x\": -1, \"s\": \"]},\\\"\"} ,{\"x\": 2},\n 3]"));
  feed.message(2, octets("{\n \"x\":\n 300\n}\n"));
  CHECK(kept.text("x.refused.jsonl") == "{\"x\": -1, \"s\": \"]},\\\"\"}\n3\n{  \"x\":  300 } \n");
  CHECK(kept.reasons().at(2).find("\"sender\":2,\"number\":1,") != std::string::npos);
}

TEST_CASE("refused samples: bytes are kept as base64") {
  const KeptFolder kept;
  SECTION("of MessagePack") {
    SampleFeed feed(kept.feed(Format::Msgpack));
    feed.choose(of_type("x", "u8:"));
    feed.begin();
    pass(feed, std::string("\x81\xa1x\x07\x81\xa1x\xff\x92\x81\xa1x\x05\x81\xa1y\x06\xc1", 18), 2);
    const std::vector<std::string> reasons = kept.reasons();
    REQUIRE(reasons.size() == 3);
    CHECK(reasons[0].find("\"format\":\"msgpack\"") != std::string::npos);
    CHECK(reasons[0].find("\"bytes\":4,\"base64\":\"gaF4/w==\"}") != std::string::npos);
    CHECK(reasons[1].find("\"bytes\":4,\"base64\":\"gaF5Bg==\"}") != std::string::npos);  // from an array of samples
    CHECK(reasons[2].find("\"bytes\":1,\"base64\":\"wQ==\"}") != std::string::npos);      // unreadable from here on
    CHECK(!fs::exists(kept.folder + "/x.refused.msgpack"));
  }
  SECTION("of bare numbers") {
    FeedOptions options = kept.feed(Format::Raw);
    options.decoder.dtype = DType::I64;
    options.decoder.sample = Shape();
    SampleFeed feed(options);
    feed.choose(of_type("", "i64<3"));
    feed.begin();
    pass(feed, std::string("\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\1\2", 18));
    const std::vector<std::string> reasons = kept.reasons();
    REQUIRE(reasons.size() == 2);
    CHECK(reasons[0].find("has 3, which is not a class below 3\",\"bytes\":8,\"base64\":\"AwAAAAAAAAA=\"}") !=
          std::string::npos);
    CHECK(reasons[1].find("\"bytes\":2,\"base64\":\"AQI=\"}") != std::string::npos);
  }
}

TEST_CASE("refused samples: a row of a NumPy array is kept as an array of one row") {
  const bool rows = GENERATE(false, true);
  const auto array = [&](const std::string& shape, const std::string& data) {
    std::string head = "{'descr': '|u1', 'fortran_order': False, 'shape': (" + shape + "), }";
    head.append(63 - (head.size() + 10) % 64, ' ');
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(head.size() + 1) + '\0' + head + "\n" + data;
  };
  const auto decoded = [&](const std::string& bytes, std::string& raw) {
    DecoderOptions options;
    options.rows = rows;
    const auto decoder = make_decoder(Format::Npy, options);
    decoder->arrived(octets(bytes));
    Record record;
    std::string reason;
    std::vector<std::string> all;
    while (decoder->next(record, reason) == RecordDecoder::Next::Record) {
      all.emplace_back(reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size());
      raw = decoder->raw();
    }
    return all;
  };
  const std::string whole = array("2, 2,", "abcd");
  std::string raw, again;
  CHECK(decoded(whole, raw) == (rows ? std::vector<std::string>{"ab", "cd"} : std::vector<std::string>{"abcd"}));
  CHECK(decoded(raw, again) == (rows ? std::vector<std::string>{"cd"} : std::vector<std::string>{"abcd"}));
  CHECK((rows || raw == whole));
}

TEST_CASE("refused samples: no more are kept beyond the limit, together with all dead letters of the folder") {
  const KeptFolder kept;
  std::ofstream(kept.folder + "/y.hxs") << std::string(20000, 'f');
  FeedOptions options = kept.feed(Format::Jsonl);
  options.dead_letters_limit = 30000;
  SampleFeed feed(options);
  feed.choose(of_type("x", "u8:"));
  feed.begin();
  for (int i = 0; i < 1000; ++i) feed.arrived(1, octets("{\"x\": 256}\n"));
  const auto size = fs::file_size(kept.folder + "/x.refused.jsonl") + fs::file_size(kept.folder + "/x.reasons.jsonl");
  CHECK(size > 9000);
  CHECK(size <= 10000);
  CHECK(feed.inbox().health().refused == 1000);
  CHECK(feed.last_error().find("refused samples are no longer kept in '" + kept.folder + "': it holds ") !=
        std::string::npos);
  CHECK(feed.last_error().find("--dead-letters-limit") != std::string::npos);
}

TEST_CASE("refused samples: a folder that cannot be written to is reported, and the stream goes on") {
  const KeptFolder kept;
  FeedOptions options = kept.feed(Format::Jsonl);
  options.dead_letters = kept.folder + "/none/x";
  SampleFeed feed(options);
  feed.choose(of_type("x", "u8:"));
  feed.begin();
  const Outcome outcome = feed.arrived(1, octets("word\n{\"x\": 2}\n"));
  CHECK((outcome.accepted == 1 && outcome.refused == 1));
  CHECK(feed.last_error().find("no longer kept in '" + kept.folder + "/none': No such file or directory") !=
        std::string::npos);
}

TEST_CASE("refused samples: a line longer than a sample is kept without its bytes") {
  const KeptFolder kept;
  SampleFeed feed(kept.feed(Format::Jsonl));
  feed.choose(of_type("x", "u8:"));
  feed.begin();
  const std::string piece(1u << 20, '1');
  for (int i = 0; i < 18; ++i) feed.arrived(1, octets(piece));
  feed.arrived(1, octets("\n"));
  REQUIRE(kept.reasons().size() == 1);
  CHECK(kept.reasons()[0].find("write each sample on a separate line\"}") != std::string::npos);
}
