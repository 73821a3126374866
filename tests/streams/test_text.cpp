#include "producers/file/open.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

struct TextFile {
  explicit TextFile(const std::string& text) : path(folder.write("x.txt", text)) {}
  std::shared_ptr<Producer> open(Options options) const { return open_file(path, options); }
  // Returns the windows of a pass as text.
  std::vector<std::string> windows(Options options) const {
    const auto producer = open(options);
    const StreamInfo info = *producer->describe();
    CHECK(info.classes == static_cast<int64_t>(info.symbols.size()));
    std::vector<std::string> out;
    for (const auto& window : drain<int32_t>(*producer)) {
      out.emplace_back();
      for (const int32_t i : window) out.back() += info.symbols.at(static_cast<size_t>(i));
    }
    CHECK(out.size() == producer->size());
    REQUIRE(producer->rewind());
    CHECK(drain_blocks<int32_t>(*producer, 3).size() == out.size());
    return out;
  }
  std::string refuse(Options options) const {
    const std::string what = refusal([&] { open(options); });
    return what.substr(0, path.size() + 2) == "'" + path + "'" ? what.substr(path.size() + 3) : what;
  }
  TemporaryFolder folder;
  std::string path;
};

}  // namespace

TEST_CASE("text gives windows of symbols") {
  const TextFile text("hello, w\xC3\xB6rld \xE2\x82\xAC\xF0\x9F\x98\x80!");
  const StreamInfo info = *text.open(Options{{"window", "4"}})->describe();
  CHECK(info.dtype == DType::I32);
  CHECK(info.sample == Shape{4});
  CHECK(info.position_axes == 1);
  CHECK(info.symbols == std::vector<std::string>{" ", "!", ",", "d", "e", "h", "l", "o", "r", "w", "\xC3\xB6",
                                                 "\xE2\x82\xAC", "\xF0\x9F\x98\x80"});
  CHECK(text.windows(Options{{"window", "4"}}) ==
        std::vector<std::string>{"hell", "o, w", "\xC3\xB6rld", " \xE2\x82\xAC\xF0\x9F\x98\x80!"});
  CHECK(text.windows(Options{{"window", "14"}, {"shift", "1"}}).size() == 3);
  CHECK(
      text.windows(Options{{"window", "14"}, {"shift", "2"}}) ==
      std::vector<std::string>{"hello, w\xC3\xB6rld \xE2\x82\xAC", "llo, w\xC3\xB6rld \xE2\x82\xAC\xF0\x9F\x98\x80!"});
  const auto single = text.open(Options{});
  CHECK(single->describe()->sample == Shape{});
  CHECK(single->describe()->position_axes == 0);
  CHECK(single->size() == 16);
}

TEST_CASE("parts of a text share only its vocabulary") {
  const TextFile text("aaaaabbbbbcccccddddd");
  CHECK(text.windows(Options{{"window", "5"}, {"part", "0-0.75"}}) ==
        std::vector<std::string>{"aaaaa", "bbbbb", "ccccc"});
  CHECK(text.windows(Options{{"window", "5"}, {"part", "0.75-1"}}) == std::vector<std::string>{"ddddd"});
  CHECK(text.open(Options{{"part", "0.75-1"}})->describe()->classes == 4);
}

TEST_CASE("a given vocabulary sets the order") {
  const TextFile text("abcab");
  const auto producer = text.open(Options{{"vocabulary", "cbaz"}, {"window", "5"}});
  CHECK(producer->describe()->classes == 4);
  CHECK(drain<int32_t>(*producer)[0] == std::vector<int32_t>{2, 1, 0, 2, 1});
  CHECK(text.refuse(Options{{"vocabulary", "ab"}}) ==
        "has the character 'c' at byte 2, line 1, which vocabulary= does not hold; add it there, or leave vocabulary= "
        "out");
}

TEST_CASE("more than 256 symbols are supported") {
  std::string all;
  for (uint32_t c = 0x4E00; c < 0x4E00 + 400; ++c)
    all += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
            static_cast<char>(0x80 | (c & 63))};
  const TextFile text(all);
  const auto samples = drain<int32_t>(*text.open(Options{{"window", "400"}}));
  for (int i = 0; i < 400; ++i) CHECK(samples[0][static_cast<size_t>(i)] == i);
}

TEST_CASE("files that are not text are refused") {
  CHECK(TextFile("ab\xFF").refuse({}) ==
        "is not UTF-8: byte 2 does not begin a character; convert it, for example with iconv -t UTF-8");
  for (const char* bad : {"\xC0\x80", "\xC3", "\xE2\x82", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xF4\x90\x80\x80",
                          "\x80", "\xE0\x80\x80", "\xF0\x80\x80\x80", "\xC3(", "\xE2\x82("})
    CHECK(TextFile(bad).refuse({}) ==
          "is not UTF-8: byte 0 does not begin a character; convert it, for example with iconv -t UTF-8");
  CHECK(TextFile(std::string("a\0b", 3)).refuse({}) == "is not text: byte 1 is zero; use format= to set its format");
  CHECK(TextFile("abc").refuse(Options{{"window", "4"}}) ==
        "has 3 characters, fewer than the window of 4; give a smaller window=");
  CHECK(TextFile("abcdef").refuse(Options{{"window", "4"}, {"part", "0-0.5"}}) ==
        "has 3 characters in part=0-0.5, fewer than the window of 4; give a smaller window=");
  CHECK(TextFile("abc").refuse(Options{{"window", "0"}}) == "window=0 is not a number of symbols; the minimum is 1");
  CHECK(TextFile("abc").refuse(Options{{"window", "2"}, {"shift", "-1"}}) ==
        "shift=-1 is not a number of symbols; the minimum is 1");
}

TEST_CASE("tinyshakespeare has 65 characters and splits in nine to one") {
  if (!have_data("text/tinyshakespeare.txt")) return;
  const std::string path = data_path("text/tinyshakespeare.txt");
  const auto train = open_file(path, Options{{"window", "256"}, {"shift", "1"}, {"part", "0-0.9"}}),
             test = open_file(path, Options{{"part", "0.9-1"}});
  CHECK(train->describe()->classes == 65);
  CHECK(train->size() == 1003854 - 255);
  CHECK(test->size() == 111540);
}
