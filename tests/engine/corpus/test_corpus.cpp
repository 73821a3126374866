// Corpora of files: tokens, masks, held-out examples, malformed lines, descriptions, the producer.
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/base/address.hpp"
#include "engine/corpus/example_files.hpp"
#include "engine/corpus/register.hpp"
#include "engine/streams/streams.hpp"
#include "tests/engine/model/fake_importer.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

using Numbers = std::vector<int32_t>;

CorpusOptions corpus_of(const std::string& path, uint64_t window, const std::string& tokenizer = "bytes") {
  CorpusOptions options;
  options.datasets.push_back({path, ExampleKind::automatic, {}, 0, false});
  options.tokenizer = tokenizer;
  options.window = window;
  return options;
}

struct CorpusRow {
  Numbers tokens, next, documents;
};

CorpusRow row_in(const Corpus& corpus, uint64_t row) {
  const size_t n = corpus.window();
  CorpusRow made{Numbers(n), Numbers(n), Numbers(n)};
  corpus.fill(0, row, {made.tokens.data(), made.next.data(), made.documents.data()});
  return made;
}

std::string bytes_in(const Numbers& tokens) {
  std::string text;
  for (const int32_t token : tokens) text += token < 0 ? '_' : static_cast<char>(token);
  return text;
}

std::string instruction_lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += "{\"prompt\": \"" + std::to_string(i) + "?\", \"completion\": \"" + std::to_string(i) + "!\"}\n";
  return lines;
}

Source open_corpus_source(const std::string& address) {
  return open_source(Registry::global(), "x", parse_address(address));
}

}  // namespace

TEST_CASE("corpus: a text is cut into rows, and each token's target is the one that follows") {
  const TemporaryFolder folder;
  const Corpus corpus(corpus_of(folder.write("text.txt", "To be, or not"), 5));
  REQUIRE(corpus.rows() == 3);
  CHECK_FALSE(corpus.packs_documents());
  CHECK(bytes_in(row_in(corpus, 0).tokens) == "To be");
  CHECK(bytes_in(row_in(corpus, 0).next) == "o be,");
  CHECK(bytes_in(row_in(corpus, 2).next) == "ot___");
}

TEST_CASE("corpus: the characters of a text are its vocabulary, by code point") {
  const TemporaryFolder folder;
  const Corpus corpus(corpus_of(folder.write("text.txt",
                                             "b\xC3\xA4"
                                             "ab\n"),
                                4, "characters"));
  CHECK(corpus.tokenizer().tokenizer->size() == 4);  // "\n", "a", "b", U+00E4
  CHECK(row_in(corpus, 0).tokens == Numbers{2, 3, 1, 2});
  CHECK(row_in(corpus, 0).next == Numbers{3, 1, 2, 0});
  CHECK_FALSE(corpus.tokenizer().json.empty());
}

TEST_CASE("corpus: of instructions only completions count, in rows of their own or packed") {
  const TemporaryFolder folder;
  CorpusOptions options = corpus_of(folder.write("data.jsonl", instruction_lines(3)), 8);
  const Corpus padded(options);
  REQUIRE(padded.rows() == 3);
  CHECK(bytes_in(row_in(padded, 1).tokens).substr(0, 3) == "1?1");
  CHECK(bytes_in(row_in(padded, 1).next).substr(0, 4) == "_1!_");
  options.packing = RowPacking::pack;
  const Corpus packed(options);
  CHECK(packed.rows() == 2);
  CHECK(packed.packs_documents());
  CHECK(bytes_in(row_in(packed, 0).next) == "_0!_1!__");
  CHECK(row_in(packed, 0).documents == Numbers{0, 0, 0, 1, 1, 1, 2, 2});
  options.datasets[0].learns_prompts = true;
  CHECK(bytes_in(row_in(Corpus(options), 0).next) == "?0!?1!__");
}

TEST_CASE("corpus: examples are held out by their own text, the same in any order") {
  const TemporaryFolder folder;
  const auto seen_in = [&](const std::string& name, const std::string& lines, bool held) {
    std::set<std::string> texts;
    const ExampleFileOptions options{folder.write(name, lines), 0.3, held, false, ExampleKind::automatic};
    const ExampleFormat format(ExampleKind::automatic, {}, nullptr, "", false);
    read_examples(options, format, [&](const TextExample& example) { texts.insert(example.text); });
    return texts;
  };
  const std::string lines = instruction_lines(200);
  std::string backwards;
  for (size_t end = lines.size(); end > 0;) {
    const size_t at = end < 2 ? std::string::npos : lines.rfind('\n', end - 2);
    const size_t begin = at == std::string::npos ? 0 : at + 1;
    backwards += lines.substr(begin, end - begin);
    end = begin;
  }
  const std::set<std::string> held = seen_in("a.jsonl", lines, true), rest = seen_in("a.jsonl", lines, false);
  CHECK(held.size() + rest.size() == 200);
  CHECK(held.size() > 40);
  CHECK(held.size() < 80);
  CHECK(seen_in("b.jsonl", backwards, true) == held);
}

TEST_CASE("corpus: the end of a text is held out") {
  const TemporaryFolder folder;
  CorpusOptions options = corpus_of(folder.write("text.txt", "0123456789"), 2);
  options.validation = 0.3;
  CHECK(bytes_in(row_in(Corpus(options), 0).tokens) == "01");
  options.held_out = true;
  const Corpus held(options);
  REQUIRE(held.rows() == 1);
  CHECK(bytes_in(row_in(held, 0).next) == "89");
}

TEST_CASE("corpus: a list of examples is read like lines") {
  const TemporaryFolder folder;
  const std::string list = R"([{"instruction": "a", "output": "b"}, {"instruction": "c", "output": "d"}])";
  CHECK(Corpus(corpus_of(folder.write("list.json", list), 200)).rows() == 2);
}

TEST_CASE("corpus: malformed lines are refused by file and line, or counted") {
  const TemporaryFolder folder;
  const std::string path = folder.write("data.jsonl", instruction_lines(2) + "\n{\"prompt\": 3\n" + "[1]\n");
  CorpusOptions options = corpus_of(path, 8);
  const std::string message = message_of([&] { Corpus corpus(options); });
  CHECK(message.find("'" + path + "' line 4 is not JSON") != std::string::npos);
  options.skip_malformed = true;
  const Corpus corpus(options);
  CHECK(corpus.counts()[0].malformed == 2);
  CHECK(corpus.counts()[0].text(8).find("skipped 2 malformed, the first: '" + path + "' line 4") != std::string::npos);
}

TEST_CASE("corpus: answers without an end token are counted as such") {
  const TemporaryFolder folder;
  const auto counts = [&](const std::string& line) {
    return Corpus(corpus_of(folder.write("some.jsonl", line), 64)).counts()[0].text(64);
  };
  CHECK(counts(R"({"prompt": "ab", "completion": "c"})").ends_with("so nothing marks the end of an answer"));
  CHECK(counts(R"({"text": "abc"})").find("nothing marks") == std::string::npos);
}

TEST_CASE("corpus: what cannot be a corpus is refused") {
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt", "abc"), packed = folder.write("text.bin", "\x1F\x8B\x08");
  CHECK(message_of([&] { Corpus(corpus_of(text, 0)); }).find("tokens in a row is missing") != std::string::npos);
  CHECK(message_of([&] { Corpus(corpus_of(text, 1 << 25)); }).find("not a row length") != std::string::npos);
  CHECK(message_of([&] { Corpus(corpus_of(packed, 4)); }).find("is truncated") != std::string::npos);
  CHECK(message_of([&] { Corpus(corpus_of(folder.write("bad.txt", "a\xFF"), 4)); }).find("not UTF-8 at byte 1") !=
        std::string::npos);
  CHECK(message_of([&] { Corpus(corpus_of(folder.write("one.txt", "a"), 4)); }).find("has no rows to learn from") !=
        std::string::npos);
  CHECK(message_of([&] { Corpus(corpus_of(text + ".not", 4)); }) != "no error");
  CorpusOptions shared = corpus_of(folder.write("lines.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"def\"}\n"), 4);
  shared.validation = 0.999;
  CHECK(message_of([&] { Corpus{shared}; }).find("the share for validation took its 2 examples: lower it") !=
        std::string::npos);
  shared.validation = 0.001, shared.held_out = true;
  CHECK(message_of([&] { Corpus{shared}; }).find("none of its 2 examples fell into this share: raise it") !=
        std::string::npos);
  CHECK(message_of([&] { Corpus(corpus_of(text, 4, "")); }).find("lacks tokenizer=") != std::string::npos);
}

TEST_CASE("corpus: descriptions are read back as they were written, and refused with the nearest name") {
  CorpusOptions options = corpus_of("a.jsonl", 64);
  options.datasets[0].columns = {{"prompt", "q"}};
  options.datasets[0].weight = 2;
  options.datasets.push_back({"b.txt", ExampleKind::text, {}, 1, true});
  options.packing = RowPacking::pack;
  options.validation = 0.1;
  options.too_long = TooLong::split;
  CHECK(parse_corpus_json(corpus_json(options), "x").key() == options.key());
  const auto refused = [](const char* text) { return message_of([&] { parse_corpus_json(text, "x.json"); }); };
  CHECK(refused("{").find("'x.json' is not JSON") == 0);
  CHECK(refused("3").find("not an object") != std::string::npos);
  CHECK(refused(R"({"dataset": []})").find("did you mean 'datasets'") != std::string::npos);
  CHECK(refused(R"({"datasets": [{"path": "a"}], "window": 0})").find("no 'window'") != std::string::npos);
  CHECK(refused(R"({"datasets": [{"path": "a", "weight": -1}], "window": 4})").find("below 0") != std::string::npos);
  CHECK(refused(R"({"datasets": [{}], "window": 4})").find("without 'path'") != std::string::npos);
}

TEST_CASE("corpus: an address gives its fields, in any order and from any position") {
  const TemporaryFolder folder;
  const std::string path = folder.write("text.txt", "0123456789abcdefghij");
  const std::string address = "corpus:" + path + "?tokenizer=bytes&window=4";
  Source tokens = open_corpus_source(address), next = open_corpus_source(address + "#next");
  CHECK(tokens.info().size == 5);
  CHECK(tokens.info().classes == 256);
  CHECK(tokens.info().position_axes == 1);
  CHECK(tokens.info().notes.find("1 example, 20 tokens in 5 rows") != std::string::npos);
  CHECK(next.info().notes.empty());
  Numbers a(4), b(4);
  tokens.seek(0, 2);
  next.seek(0, 2);
  REQUIRE(tokens.read(1, a.data()) == 1);
  REQUIRE(next.read(1, b.data()) == 1);
  CHECK(bytes_in(a) == "89ab");
  CHECK(bytes_in(b) == "9abc");
  const std::string wrong = message_of([&] { open_corpus_source(address + "#nxt"); });
  CHECK(wrong.find("did you mean 'next'") != std::string::npos);
}

TEST_CASE("corpus: passes of another length go on where the last one ended, in a shuffled order") {
  const TemporaryFolder folder;
  const std::string path = folder.write("text.txt", "0123456789abcdefghij!");
  const std::string address = "corpus:" + path + "?tokenizer=bytes&window=4&pass=3&order-seed=1";
  Source rows = open_corpus_source(address);
  CHECK(rows.info().size == 3);
  std::vector<std::string> seen;
  for (uint64_t pass = 0; pass < 5; ++pass) {
    rows.seek(pass, 0);
    for (Numbers row(4); rows.read(1, row.data()) == 1;) seen.push_back(bytes_in(row));
  }
  REQUIRE(seen.size() == 15);  // three passes over five rows
  for (size_t pass = 0; pass < 3; ++pass)
    CHECK(
        std::set<std::string>(seen.begin() + 5 * static_cast<int>(pass), seen.begin() + 5 * static_cast<int>(pass + 1))
            .size() == 5);
  CHECK(!std::equal(seen.begin(), seen.begin() + 5, seen.begin() + 5));
  Numbers row(4);
  rows.seek(3, 1);
  REQUIRE(rows.read(1, row.data()) == 1);
  CHECK(bytes_in(row) == seen[10]);
}
