// Corpora that arrive: rows of texts and JSON lines from a named pipe.
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "engine/corpus/live_corpus.hpp"
#include "engine/corpus/register.hpp"
#include "tests/message_of.hpp"
#include "tests/temporary_folder.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

using Numbers = std::vector<int32_t>;

// A named pipe into which a thread writes a text, and then closes it.
class ArrivingText {
 public:
  explicit ArrivingText(std::string text) : path_(folder_.path() + "/pipe") {
    REQUIRE(::mkfifo(path_.c_str(), 0600) == 0);
    writer_ = std::thread([path = path_, sent = std::move(text)] { std::ofstream(path, std::ios::binary) << sent; });
  }
  ~ArrivingText() {
    const int reader = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK);  // ends a writer that still waits for one
    writer_.join();
    ::close(reader);
  }
  CorpusOptions options(uint64_t window) const {
    CorpusOptions options;
    options.datasets.push_back({"file:" + path_, ExampleKind::automatic, {}, 0, false});
    options.tokenizer = "bytes";
    options.window = window;
    return options;
  }

 private:
  EmptyFolder folder_;
  std::string path_;
  std::thread writer_;
};

struct ArrivedRow {
  std::string tokens, next;  // bytes; '_' where nothing is learned
  Numbers documents;
};

std::vector<ArrivedRow> rows_of(LiveCorpus& corpus) {
  const int reader = corpus.add_reader();
  std::vector<ArrivedRow> rows;
  const size_t n = corpus.window();
  const auto text = [](const Numbers& tokens) {
    std::string all;
    for (const int32_t token : tokens) all += token < 0 ? '_' : static_cast<char>(token);
    return all;
  };
  for (;;) {
    Numbers tokens(n), next(n), documents(n);
    if (!corpus.next(reader, {tokens.data(), next.data(), documents.data()})) break;
    rows.push_back({text(tokens), text(next), documents});
  }
  corpus.remove_reader(reader);
  return rows;
}

}  // namespace

TEST_CASE("live corpus: a text that arrives is cut into rows as a file is") {
  const ArrivingText text("To be,\nor not\nto be");
  LiveCorpus corpus(text.options(6));
  const std::vector<ArrivedRow> rows = rows_of(corpus);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].tokens == "To be,");
  CHECK(rows[0].next == "o be,\n");
  CHECK(rows[1].tokens == "\nor no");
  CHECK(rows[2].tokens == "t\nto b");
  CHECK(rows[2].next == "\nto be");
}

TEST_CASE("live corpus: lines are examples, each in a row, or several with packing") {
  const std::string lines =
      "{\"prompt\": \"1?\", \"completion\": \"1!\"}\n\n{\"prompt\": \"2?\", \"completion\": \"2!\"}";
  {
    const ArrivingText text(lines);
    LiveCorpus corpus(text.options(8));
    const std::vector<ArrivedRow> rows = rows_of(corpus);
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].tokens.substr(0, 3) == "1?1");
    CHECK(rows[1].next == "_2!_____");
  }
  const ArrivingText text(lines);
  CorpusOptions options = text.options(8);
  options.packing = RowPacking::pack;
  LiveCorpus corpus(options);
  const std::vector<ArrivedRow> rows = rows_of(corpus);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].next == "_1!_2!__");
  CHECK(rows[0].documents == Numbers{0, 0, 0, 1, 1, 1, 2, 2});
}

TEST_CASE("live corpus: a byte order mark is no part of what arrives") {
  const ArrivingText lines("\xEF\xBB\xBF{\"prompt\": \"1?\", \"completion\": \"1!\"}\n");
  LiveCorpus examples(lines.options(4));
  const std::vector<ArrivedRow> rows = rows_of(examples);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].next == "_1!_");
  const ArrivingText plain("\xEF\xBB\xBFTo be");
  LiveCorpus text(plain.options(4));
  CHECK(rows_of(text).at(0).tokens == "To b");
  const ArrivingText like_a_mark("\xEF\xBC\xA1");  // a character whose first byte is that of a mark
  LiveCorpus letter(like_a_mark.options(2));
  CHECK(rows_of(letter).at(0).tokens == "\xEF\xBC");
}

TEST_CASE("live corpus: preferences are pairs in a row") {
  const ArrivingText text("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"cd\"}\n");
  LiveCorpus corpus(text.options(5));
  const std::vector<ArrivedRow> rows = rows_of(corpus);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].next == "bcd__");
  CHECK(rows[0].documents == Numbers{0, 1, 1, 2, 2});
}

TEST_CASE("live corpus: malformed lines are refused with their number, or counted") {
  const std::string lines = "{\"text\": \"abc\"}\n{\"text\": 1}\n{\"text\": \"def\"}\n";
  {
    const ArrivingText text(lines);
    LiveCorpus corpus(text.options(4));
    CHECK(message_of([&] { rows_of(corpus); }).find("line 2 has a number as 'text'") != std::string::npos);
  }
  const ArrivingText text(lines);
  CorpusOptions options = text.options(4);
  options.skip_malformed = true;
  LiveCorpus corpus(options);
  CHECK(rows_of(corpus).size() == 2);
  CHECK(corpus.health()->refused == 1);
}

TEST_CASE("live corpus: a malformed end of a text keeps the text before it") {
  const ArrivingText text("To be, or not\n\xff\xfe");
  CorpusOptions options = text.options(6);
  options.skip_malformed = true;
  LiveCorpus corpus(options);
  const std::vector<ArrivedRow> rows = rows_of(corpus);
  REQUIRE(rows.size() == 3);
  CHECK(rows[2].tokens.substr(0, 1) == "t");
  CHECK(rows[2].next == "\n_____");
  CHECK(corpus.health()->refused == 1);
}

TEST_CASE("live corpus: readers advance independently, and equal options share one corpus") {
  const ArrivingText text("abcdefghi");
  const CorpusOptions options = text.options(4);
  const auto corpus = LiveCorpus::open(options);
  CHECK(LiveCorpus::open(options) == corpus);
  const int one = corpus->add_reader(), other = corpus->add_reader();
  Numbers tokens(4), next(4);
  REQUIRE(corpus->next(one, {tokens.data(), nullptr, nullptr}));
  REQUIRE(corpus->next(one, {tokens.data(), nullptr, nullptr}));
  REQUIRE(corpus->next(other, {nullptr, next.data(), nullptr}));
  CHECK(tokens == Numbers{'e', 'f', 'g', 'h'});
  CHECK(next == Numbers{'b', 'c', 'd', 'e'});
  corpus->remove_reader(one);
  corpus->remove_reader(other);
}

TEST_CASE("live corpus: settings that need all texts are refused") {
  CorpusOptions options;
  options.datasets.push_back({"tcp:127.0.0.1:5555", ExampleKind::automatic, {}, 0, false});
  options.tokenizer = "characters";
  options.window = 8;
  CHECK(is_live_corpus(options));
  CHECK(message_of([&] { expect_live_corpus(options); }).find("its characters are unknown") != std::string::npos);
  options.tokenizer = "bytes";
  options.validation = 0.1;
  CHECK(message_of([&] { expect_live_corpus(options); }).find("no examples can be held out") != std::string::npos);
  options.validation = 0;
  options.datasets.push_back(options.datasets.front());
  CHECK(message_of([&] { expect_live_corpus(options); }).find("combined with other data sets") != std::string::npos);
  CHECK_FALSE(is_live_address("texts/a.jsonl"));
  CHECK_FALSE(is_live_address("{\"datasets\": []}"));
  CHECK_FALSE(is_live_address("nothing:known"));
}
