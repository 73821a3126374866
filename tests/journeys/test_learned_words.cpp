// Words and characters are numbered as learned with the weights, whatever file a later command reads.
#include "tests/journeys/background.hpp"
#include "tests/journeys/sending.hpp"

using namespace journeys;

namespace {

// Runs with these bytes on standard input, for at most a minute.
Result piped(const std::string& bytes, const std::string& arguments) {
  const Folder f;
  f.write("in", bytes);
  const std::string command = "cat '" + (f / "in") + "' | timeout 60 '" + kProgram + "' " + arguments + " >'" +
                              (f / "out") + "' 2>'" + (f / "err") + "'";
  const int status = std::system(command.c_str());
  Result r{WIFEXITED(status) ? WEXITSTATUS(status) : 128, read(f / "out"), read(f / "err")};
  UNSCOPED_INFO(command << "\nexit " << r.code << "\n" << r.out.substr(0, 2000) << r.err.substr(0, 3000));
  return r;
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
                     "' line 3, column #1 'sex': found 'Female', which is unknown to the weights; they know female, "
                     "male: correct it, omit its record, or train on data that contain it\n");
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
            "has the character 'd' at byte 3, line 1, which is unknown to the weights; they know 3 "
            "characters: replace it, or train on text that contains it"));
}

TEST_CASE("learned words: live samples of every plain format are numbered as the weights do") {
  const Words w;
  REQUIRE(harmonics(w.train("--save " + w.weights)).code == 0);
  const std::vector<std::string> expected = lines_of(w.infer(w.both + "#sex").out);
  REQUIRE(expected.size() == 4);
  const std::vector<std::string> male_twice{expected[0], expected[0]};
  const std::string lines = "{\"sex\": \"male\"}\n{\"sex\": \"male\"}\n",
                    command = "infer " + w.flow + " --quiet --weights " + w.weights + " --producer 'sex=";
  const auto gives = [&](const std::string& bytes, const std::string& address) {
    const Result r = piped(bytes, command + address + "'");
    CHECK(r.code == 0);
    CHECK(lines_of(r.out) == male_twice);
  };
  gives(lines, "stdin:#sex");
  gives("sex,y\nmale,1\nmale,2\n", "stdin:#sex");
  gives("\x81\xa3sex\xa4male\x81\xa3sex\xa4male", "stdin:#sex");
  gives("{\"sex\": 1}\n{\"sex\": 1}\n", "stdin:#sex");  // class indices

  const std::string socket = w.f / "socket";
  Background run(w.f, command + "unix:" + socket + "?format=jsonl#sex'");
  Connected(socket).send(lines);
  const Result sent = run.end();
  CHECK(sent.code == 0);
  CHECK(lines_of(sent.out) == male_twice);
}

TEST_CASE("learned words: training goes on from live words as from a file") {
  Folder f;
  const std::string flow =
                        f.write("c.hmx",
                                "harmonic c { producer x {2}; producer y; layer o; cycle (epochs 1, batch=2, lr=0.1) "
                                "{ x -(affine)-> o; o <-(cross_entropy)- y; } }\n"),
                    train = f.write("train.csv", "a,b,kind\n1,0,cat\n0,1,dog\n1,0,cat\n0,1,dog\n"),
                    dogs = f.write("dogs.csv", "a,b,kind\n0,1,dog\n0,2,dog\n"), first = f / "first.safetensors",
                    of_file = f / "file.safetensors", of_stream = f / "stream.safetensors";
  REQUIRE(harmonics("run " + flow + " --producer 'x=" + train + "#a,b' --producer 'y=" + train +
                    "#kind' --quiet --save " + first)
              .code == 0);
  const std::string go_on = "run " + flow + " --json --weights " + first;
  const Result file = harmonics(go_on + " --producer 'x=" + dogs + "?shuffle=0#a,b' --producer 'y=" + dogs +
                                "#kind' --save " + of_file);
  const Result stream = piped("{\"a\": 0, \"b\": 1, \"kind\": \"dog\"}\n{\"a\": 0, \"b\": 2, \"kind\": \"dog\"}\n",
                              go_on + " --producer 'x=stdin:#a,b' --producer 'y=stdin:#kind' --save " + of_stream);
  REQUIRE(file.code == 0);
  REQUIRE(stream.code == 0);
  CHECK(number(stream.out, "loss") == number(file.out, "loss"));
  CHECK(read(of_stream) == read(of_file));  // including the words
}

TEST_CASE("learned words: an unknown live word is refused with its line, its field and the known words") {
  const Words w;
  REQUIRE(harmonics(w.train("--save " + w.weights)).code == 0);
  const std::string lines = "{\"sex\": \"male\"}\n{\"sex\": \"Female\"}\n{\"sex\": \"male\"}\n",
                    why = "line 2: 'sex' is the word 'Female', which is unknown to the weights; they know female, male",
                    command = "infer " + w.flow + " --weights " + w.weights + " --producer 'sex=stdin:";
  const Result counted = piped(lines, command + "#sex'");
  CHECK(counted.code == 0);
  CHECK(lines_of(counted.out).size() == 2);
  CHECK(has(counted.err, "refused: 1 sample of 'sex'; " + why));
  const Result strict = piped(lines, command + "?strict=true#sex'");
  CHECK(strict.code == 65);
  CHECK(has(strict.err, why));
  const Result untrained = piped(lines, "infer " + w.flow + " --untrained --producer 'sex=stdin:#sex'");
  CHECK(untrained.code == 65);
  CHECK(has(untrained.err, "give the class words in order: ?symbols=a,b,c"));
}
