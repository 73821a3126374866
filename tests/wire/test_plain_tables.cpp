// Tables and numbers of byte streams that files must read equally.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

#include "wire/plain/cell_text.hpp"
#include "wire/plain/sample_feed.hpp"

using namespace harmonics;
using namespace harmonics::plain;

namespace {

struct ReadStream {
  std::vector<float> values;
  std::string reasons;
};

// Reads one stream of a text that arrives in pieces of this size.
ReadStream read_stream(Format format, const std::string& text, size_t piece, const Asked& what) {
  FeedOptions options;
  options.where = options.decoder.where = "test:";
  options.format = format;
  SampleFeed feed(options);
  const std::string name = feed.choose(what);
  const int reader = feed.inbox().open(name, std::chrono::seconds(2));
  feed.came(1);
  for (size_t at = 0; at < text.size(); at += piece)
    feed.arrived(1, std::as_bytes(std::span(text).subspan(at, std::min(piece, text.size() - at))));
  feed.left(1);
  feed.close_input();
  feed.begin();
  ReadStream result;
  try {
    while (const auto sample = feed.inbox().next(reader)) {
      const size_t had = result.values.size();
      result.values.resize(had + sample->bytes.size() / sizeof(float));
      std::memcpy(result.values.data() + had, sample->bytes.bytes.data(), sample->bytes.size());
    }
    result.reasons = feed.last_error();
  } catch (const Error& e) {
    result.reasons = e.what();
  }
  return result;
}

Asked cells_of_type(const std::string& type, const std::optional<std::string>& missing = std::nullopt) {
  Asked a;
  a.type = type;
  a.missing = missing;
  return a;
}

}  // namespace

TEST_CASE("plain: a byte order mark precedes a quoted name over two lines, and is part of later cells") {
  const size_t piece = GENERATE(1, 4, 1000);
  const ReadStream table = read_stream(Format::Csv,
                                       "\xEF\xBB\xBF\"a\nb\",c\n1,2\n\xEF\xBB\xBF"
                                       "3,4\n",
                                       piece, cells_of_type("f32:2"));
  CHECK(table.values == std::vector<float>{1, 2});
  CHECK(table.reasons.find("line 4: ") == 0);
  CHECK(read_stream(Format::Csv, "\xEF\xBB\xBF\r\n\r\n1,2\r\n", piece, cells_of_type("f32:2")).values ==
        std::vector<float>{1, 2});
  CHECK(read_stream(Format::Csv, "\xEF\xBB\xBF\r\n\r\n1,2\r\n", piece, cells_of_type("f32:2")).reasons == "");
}

TEST_CASE("plain: rows of delimiters are samples, lines of blanks are not") {
  const size_t piece = GENERATE(1, 4, 1000);
  const ReadStream tabs = read_stream(Format::Csv, "a\tb\n1\t2\n\t\n3\t4\n", piece, cells_of_type("f32:2", "0"));
  CHECK(tabs.values == std::vector<float>{1, 2, 0, 0, 3, 4});
  CHECK(tabs.reasons == "");
  CHECK(read_stream(Format::Csv, " \n\na\n1\n \n\t\n3", piece, cells_of_type("f32:", "0")).values ==
        std::vector<float>{1, 3});
}

TEST_CASE("plain: the delimiter of a table is the most frequent one outside quotes") {
  const ReadStream table =
      read_stream(Format::Csv, "\"x, y, z\";\"l\n,,m\"\n1;2\n", GENERATE(1, 1000), cells_of_type("f32:2"));
  CHECK(table.values == std::vector<float>{1, 2});
}

TEST_CASE("plain: numbers below the smallest double are zero") {
  const ReadStream table =
      read_stream(Format::Csv, "1E-400,2\n-1e-999999999999,3\n1e400,4\n+-5,1\n", 5, cells_of_type("f32:2"));
  CHECK(table.values == std::vector<float>{0, 2, 0, 3});
  CHECK(std::signbit(table.values.at(2)));
  CHECK(table.reasons ==
        "line 3: '0' has inf, which f32 cannot represent; line 4: '0' is the word '+-5', but a number is "
        "expected");
}

TEST_CASE("plain: integers that a double rounds are refused for that reason") {
  const ReadStream numbers = read_stream(Format::Jsonl, "9007199254740993\n", 100, cells_of_type("i64:"));
  CHECK(numbers.values.empty());
  CHECK(numbers.reasons.find("line 1: the value has 9007199254740992, which is not below 2^53, where integers are "
                             "exact") != std::string::npos);
}

TEST_CASE("plain: a stream whose samples are all refused ends with the reason") {
  const ReadStream none = read_stream(Format::Csv, "a,b\n1e400,2\n", 100, cells_of_type("f32:2"));
  CHECK(none.reasons == "test:: it ends without a sample; line 2: 'a' has inf, which f32 cannot represent");
}

TEST_CASE("plain tables: exponents beyond every integer are zero or infinity") {
  for (const char* digits : {"400", "9223372036854775807", "99999999999999999999999"}) {
    INFO(digits);
    CHECK(std::isinf(number_in("1e" + std::string(digits)).value()));
    CHECK(number_in("-1e" + std::string(digits)).value() < 0);
    CHECK(number_in("10.5E-" + std::string(digits)) == 0);
    CHECK(std::signbit(number_in("-2e-" + std::string(digits)).value()));
  }
}
