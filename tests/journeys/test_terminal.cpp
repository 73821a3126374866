// Output of a run on a terminal: progress within its width, rewritten in place; epoch lines; waiting times.
#include "tests/journeys/on_terminal.hpp"
#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"

using namespace journeys;

namespace {

// Returns the columns of UTF-8 text without wide characters.
size_t columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

const std::string kRewritten = "\r\x1b[K";

// Returns the texts written over each other, from an offset of the screen on.
std::vector<std::string> rewritten(const std::string& screen, size_t from) {
  std::vector<std::string> all;
  for (size_t at = screen.find(kRewritten, from); at != std::string::npos; at = screen.find(kRewritten, at + 1)) {
    const size_t begin = at + kRewritten.size(), end = screen.find_first_of("\r\n", begin);
    if (end == std::string::npos || end + 1 == screen.size()) break;  // not complete yet
    const bool whole_line = screen.compare(end, 2, "\r\n") == 0;      // an epoch line, which stays
    if (!whole_line && end > begin) all.push_back(screen.substr(begin, end - begin));
  }
  return all;
}

std::string digits_of(int size, const char* flag) {
  const std::string address = " 'synth:digits?size=" + std::to_string(size);
  return std::string(flag) + address + "' " + flag + address + "#label' ";
}

const std::string kWatched =
    "run " + kSamples + "mnist.hmx " + digits_of(3000, "--producer") + digits_of(200, "--validate") +
    "--metric f1 --metric 'topk(3)' --metric auc --window 500 --epochs 1000000 --for 100s --threads 1 --no-keep";

}  // namespace

TEST_CASE("progress: a line fits its terminal, and is rewritten in place") {
  for (const unsigned short width : {60, 80, 100, 200}) {
    OnTerminal terminal(kWatched, width, 24);
    REQUIRE(terminal.await("validation loss"));  // of two lines of epochs
    REQUIRE(terminal.await("validation loss"));
    const size_t seen = terminal.screen.size();
    REQUIRE(terminal.await(kRewritten));
    REQUIRE(terminal.await(kRewritten));
    REQUIRE(terminal.await(kRewritten));
    const std::vector<std::string> lines = rewritten(terminal.screen, 0);
    REQUIRE_FALSE(lines.empty());
    for (const std::string& line : lines) {
      INFO(width << ": " << line);
      CHECK(columns(line) < width);
      CHECK(has(line, " %"));
      CHECK(has(line, "loss "));
    }
    // Only the rewritten line came between two epoch lines.
    CHECK(terminal.screen.substr(0, seen).find("\n\r\x1b[K\n") == std::string::npos);
    terminal.type('\x03');
    CHECK(terminal.end() == 130);
  }
}

TEST_CASE("progress: a narrower terminal gets narrower lines") {
  OnTerminal terminal(kWatched, 200, 24);
  REQUIRE(terminal.await("samples/s"));
  terminal.resize(50, 24);
  REQUIRE(terminal.await(kRewritten));
  REQUIRE(terminal.await(kRewritten));
  const size_t from = terminal.screen.size();
  for (int i = 0; i < 4; ++i) REQUIRE(terminal.await(kRewritten));
  const std::vector<std::string> lines = rewritten(terminal.screen, from);
  REQUIRE_FALSE(lines.empty());
  for (const std::string& line : lines) CHECK(columns(line) < 50);
  terminal.type('\x03');
  CHECK(terminal.end() == 130);
}

TEST_CASE("epochs: short ones are skipped on a terminal only") {
  Folder f;
  const std::string flow = f.write(
      "g.hmx", "harmonic g { producer x; producer y; layer o; cycle (batch=2) { x -(affine)-> o; o <-(mse)- y; } }\n");
  const std::string x = f.write("x.csv", "1\n2\n3\n4\n"), log = f / "l.csv";
  const std::string run =
      "run " + flow + " --producer " + x + " --producer " + x + " --epochs 300 --no-keep --log " + log;
  const auto count = [](const std::string& text) {
    size_t n = 0;
    for (size_t at = text.find("epoch "); at != std::string::npos; at = text.find("epoch ", at + 1))
      n += at == 0 || text[at - 1] == '\n' || text[at - 1] == 'K';
    return n;
  };
  OnTerminal terminal(run, 100, 24);
  REQUIRE(terminal.await("epoch 300 "));
  CHECK(terminal.end() == 0);
  CHECK(has(terminal.screen, "epoch 1 "));
  CHECK(count(terminal.screen) < 300);
  const std::string rows = read(log);
  CHECK(std::count(rows.begin(), rows.end(), '\n') == 301);
  CHECK(count(harmonics(run).err) == 300);
}

TEST_CASE("waiting: a run whose steps wait for data reports how long") {
  Folder f;
  const std::string flow = f.write(
      "g.hmx",
      "harmonic g { producer x; producer y; layer o; cycle (epochs 2, batch=8) { x -(affine)-> o; o <-(mse)- y; } }\n");
  const std::string plugin = " --plugin " + std::string(HARMONICS_BINARY_DIR) + "/test_plugins/libexits.so";
  const Result slow =
      harmonics("run " + flow + plugin +
                " --producer 'x=failing:slow?shuffle=0' --producer 'y=failing:slow?shuffle=0' --json --no-keep");
  REQUIRE(slow.code == 0);
  CHECK(has(slow.err, "  waited for data "));
  CHECK(has(slow.err, "\nwaited for data "));
  const json::value printed = json::parse(slow.out);
  CHECK(printed.at("waited_for_data").to_number<double>() > 0.25);
  CHECK(printed.at("waited_for_data").to_number<double>() <= 1);
  for (const std::string& wrong : SchemaCheck::run(schema("run"), printed)) FAIL_CHECK(wrong);
}
