// Words and characters are numbered as the weights learned them, whatever file a later command reads.
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Learns a number for each of two words.
struct Words {
  Folder f;
  std::string flow, both, weights;

  Words() {
    flow = f.write("m.hmx",
                   "harmonic m { producer sex; producer y {1}; layer e; layer o {1}; cycle (epochs 3, batch=2) { sex "
                   "-(embed(2))-> e -> o; o <-(mse)- y; } }\n");
    both = f.write("both.csv", "sex,y\nmale,1\nfemale,2\nmale,1\nfemale,2\n");
    weights = f / "m.safetensors";
  }
  std::string train(const std::string& more) const {
    return "run " + flow + " --producer 'sex=" + both + "#sex' --producer 'y=" + both + "#y' --quiet " + more;
  }
  Result infer(const std::string& address) const {
    return harmonics("infer " + flow + " --quiet --weights " + weights + " --producer 'sex=" + address + "'");
  }
};

}  // namespace

TEST_CASE("learned words: inference numbers a file with some of them as the weights do") {
  const Words w;
  REQUIRE(harmonics(w.train("--save " + w.weights)).code == 0);
  const Result all = w.infer(w.both + "#sex");
  REQUIRE(all.code == 0);
  const std::vector<std::string> expected = lines_of(all.out);
  REQUIRE(expected.size() == 4);
  REQUIRE(expected[0] != expected[1]);
  const auto one_word = [&](const std::string& word) {
    const Result r = w.infer(w.f.write("one.csv", "sex\n" + word + "\n" + word + "\n") + "?header=true#sex");
    CHECK(r.code == 0);
    return lines_of(r.out);
  };
  CHECK(one_word("male") == std::vector<std::string>{expected[0], expected[0]});
  CHECK(one_word("female") == std::vector<std::string>{expected[1], expected[1]});
  const std::string lines = w.f.write("one.jsonl", "{\"sex\": \"male\"}\n{\"sex\": \"male\"}\n");
  CHECK(lines_of(w.infer(lines + "#sex").out) == std::vector<std::string>{expected[0], expected[0]});
}

TEST_CASE("learned words: an unknown word is refused with its record, its column and the known words") {
  const Words w;
  REQUIRE(harmonics(w.train("--save " + w.weights)).code == 0);
  const std::string other = w.f.write("other.csv", "id,sex\n1,male\n2,Female\n");
  const Result r = w.infer(other + "#sex");
  CHECK(r.code == 65);
  CHECK(r.err == "error: stream 'sex': '" + other +
                     "' line 3, column #1 'sex': found 'Female', which the weights have not learned; they know female, "
                     "male: correct it, leave its record out, or train on data that have it\n");
  const Result said = w.infer(other + "?symbols=female,male#sex");
  CHECK(said.code == 65);
  CHECK(has(said.err, "found 'Female', which symbols= does not list; the symbols are: female, male"));
}

TEST_CASE("learned words: a resumed run numbers another file as its checkpoint does") {
  const Words w;
  const std::string runs = " --checkpoint " + (w.f / "runs");
  REQUIRE(harmonics(w.train(runs)).code == 0);
  const std::string one = w.f.write("one.csv", "sex,y\nmale,1\nmale,1\nmale,1\nmale,1\n");
  const auto resume = [&](const std::string& options) {
    const Result r =
        harmonics("run " + w.flow + " --producer 'sex=" + one + "?" + options + "#sex' --producer 'y=" + one +
                  "#y' --quiet --epochs 5 --save " + w.weights + " --resume " + (w.f / "runs"));
    CHECK(r.code == 0);
    return read(w.weights);
  };
  fs::copy(w.f / "runs", w.f / "again");
  const std::string numbered = resume("header=true");
  fs::remove_all(w.f / "runs");
  fs::copy(w.f / "again", w.f / "runs");
  CHECK(numbered == resume("symbols=female,male"));
}

TEST_CASE("learned words: test and validation data are numbered as the training data") {
  Folder f;
  const std::string flow = f.write("c.hmx",
                                   "harmonic c { producer x {2}; producer y; layer o; cycle (epochs 30, batch=4, "
                                   "lr=0.1) { x -(affine)-> o; o <-(cross_entropy)- y; } }\n");
  const std::string train = f.write("train.csv", "a,b,kind\n1,0,cat\n0,1,dog\n1,0,cat\n0,1,dog\n"),
                    dogs = f.write("dogs.csv", "a,b,kind\n0,1,dog\n0,1,dog\n");
  const auto run = [&](const std::string& label) {
    const std::string x = dogs + "#a,b", y = dogs + label;
    return harmonics("run " + flow + " --producer 'x=" + train + "#a,b' --producer 'y=" + train +
                     "#kind' --quiet --json --no-keep --test 'x=" + x + "' --test 'y=" + y + "' --validate 'x=" + x +
                     "' --validate 'y=" + y + "'");
  };
  const Result same = run("#kind"), said = run("?symbols=cat,dog#kind");
  REQUIRE(same.code == 0);
  REQUIRE(said.code == 0);
  CHECK(number(same.out, "test_loss") == number(said.out, "test_loss"));
  CHECK(number(same.out, "test_loss") < 0.5);
}

TEST_CASE("learned words: characters of another text are numbered as the weights do") {
  Folder f;
  const std::string flow = f.write("t.hmx",
                                   "harmonic t { producer text; layer e; layer o; cycle (epochs 2, batch=4) { text "
                                   "-(embed(4))-> e -> o; o <-(next_token)- text; } }\n");
  const std::string trained = f.write("train.txt", "abcabcabcabcabcabcabcabc"), other = f.write("b.txt", "bcbcbcbc"),
                    strange = f.write("d.txt", "abcd\nabc"), weights = f / "t.safetensors";
  const Result run = harmonics("run " + flow + " --producer '" + trained + "?window=4' --quiet --save " + weights);
  REQUIRE(run.code == 0);
  const auto infer = [&](const std::string& address) {
    return harmonics("infer " + flow + " --quiet --weights " + weights + " --producer '" + address + "'");
  };
  const Result taken = infer(other + "?window=4");
  CHECK(taken.code == 0);
  CHECK(taken.out == infer(other + "?window=4&vocabulary=abc").out);
  const Result unknown = infer(strange + "?window=4");
  CHECK(unknown.code == 65);
  CHECK(has(unknown.err,
            "has the character 'd' at byte 3, line 1, which the weights have not learned; they know 3 "
            "characters: replace it, or train on text that has it"));
}
