// The output of `inspect` for files and addresses, the object that every verb prints on an error, and readers that
// close the pipe.
#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

#include <csignal>

using namespace journeys;

namespace {

const char* const kPassengers =
    "survived,sex,age,name,fare\n"
    "1,female,22,Anna,7.25\n"
    "0,male,,Bo,71.3\n"
    "0,male,35.5,Carl,8\n"
    "1,female,4,Dora,\n";

json::value last_object(const Result& r) {
  REQUIRE(r.out.size() > 2);
  const size_t last = r.out.rfind('\n', r.out.size() - 2);
  return json::parse(r.out.substr(last == std::string::npos ? 0 : last + 1));
}

void expect_fits(const std::string& name, const json::value& value) {
  for (const std::string& wrong : SchemaCheck::run(schema(name), value)) FAIL_CHECK(name << ": " << wrong);
}

}  // namespace

TEST_CASE("inspect: a table is shown column by column, with an address for each") {
  Folder f;
  const std::string csv = f.write("passengers.csv", kPassengers);
  const Result r = harmonics("inspect " + csv);
  REQUIRE(r.code == 0);
  CHECK(has(r.out, "file " + csv + "\n  4 rows, 5 columns\n"));
  for (const char* line :
       {"survived  integer              0 to 1", "sex       words  ", "age       number            1  4 to 35.5"})
    CHECK(has(r.out, line));
  CHECK(has(r.out, "female, male"));
  const Result named = harmonics("inspect file:" + csv + " --json");
  const json::value printed = last_object(named);
  expect_fits("inspect", printed);
  const json::array& columns = printed.at("columns").as_array();
  REQUIRE(columns.size() == 5);
  CHECK(printed.at("rows") == json::value(4));
  const char* const types[] = {"integer", "words", "number", "words", "number"};
  for (size_t i = 0; i < 5; ++i) {
    CHECK(columns[i].at("type") == json::value(types[i]));
    // The suggested address can be read.
    CHECK(harmonics("inspect '" + std::string(columns[i].at("address").as_string()) + "' --json").code == 0);
  }
  CHECK(columns[0].at("classes") == json::value(2));
  CHECK(columns[2].at("missing") == json::value(1));
  CHECK(columns[2].at("least") == json::value(4.0));
  CHECK(columns[1].at("values") == json::parse(R"(["female","male"])"));
}

TEST_CASE("inspect: JSON lines, archives and tables without a header are shown column by column") {
  Folder f;
  const std::string lines = f.write(
      "log.jsonl", "{\"pixels\": [1, 2, 3], \"label\": \"cat\"}\n{\"pixels\": [4, 5, null], \"label\": \"dog\"}\n");
  const json::value log = last_object(harmonics("inspect " + lines + " --json"));
  expect_fits("inspect", log);
  REQUIRE(log.at("columns").as_array().size() == 2);
  CHECK(log.at("columns").at(0).at("shape") == json::parse("[3]"));
  CHECK(log.at("columns").at(0).at("missing") == json::value(1));
  CHECK(log.at("columns").at(0).at("greatest") == json::value(5.0));
  CHECK(log.at("columns").at(1).at("type") == json::value("words"));
  CHECK(harmonics("inspect '" + std::string(log.at("columns").at(1).at("address").as_string()) + "'").code == 0);

  const std::string plain = f.write("plain.csv", "1,2.5\n3,4.5\n");
  const json::value numbers = last_object(harmonics("inspect " + plain + " --json"));
  expect_fits("inspect", numbers);
  CHECK(numbers.at("dtype") == json::value("f32"));  // all columns together are one stream, too
  CHECK(has(std::string(numbers.at("columns").at(1).at("address").as_string()), "plain.csv#1"));
  CHECK(has(harmonics("inspect " + plain).out, "stream " + plain + "\n  samples     2\n"));
  expect_fits("inspect", last_object(harmonics("inspect '" + plain + "#0' --json")));
  expect_fits("inspect", last_object(harmonics("inspect synth:digits --json")));
}

TEST_CASE("inspect: columns with too many values to count are not called classes, and memory is bounded") {
  Folder f;
  std::string rows = "id,word\n";
  for (int i = 0; i < 5000; ++i) rows += std::to_string(i) + ",w" + std::to_string(i) + "\n";
  const json::value many = last_object(harmonics("inspect " + f.write("many.csv", rows) + " --json"));
  expect_fits("inspect", many);
  for (const json::value& column : many.at("columns").as_array()) CHECK(column.at("classes").is_null());
  CHECK(many.at("columns").at(0).at("greatest") == json::value(4999.0));
}

TEST_CASE("errors: every verb prints one object with --json that matches the schema") {
  Folder f;
  const std::string none = f / "none", wrong = f.write("wrong.hmx", "harmonic g {\n  layer a -> b;\n}\n");
  const std::pair<std::string, int> uses[] = {{"run " + none + ".hmx", 66},
                                              {"infer " + wrong, 78},
                                              {"explain " + wrong, 78},
                                              {"profile " + none + ".hmx", 66},
                                              {"bench " + none + ".hmx", 66},
                                              {"inspect " + none + ".csv", 66},
                                              {"inspect nothing_of_that_name", 2},
                                              {"list nonsense", 2},
                                              {"ctl " + none + " status", 69},
                                              {"top " + none, 69},
                                              {"tap " + none + " x", 69},
                                              {"receive " + none, 66},
                                              {"send tcp:127.0.0.1:1 --from " + none, 66},
                                              {"serve " + none + ".hmx", 66},
                                              {"serve " + none + ".gguf", 66},
                                              {"bench " + none + ".gguf", 66},
                                              {"explain " + none + ".gguf", 66},
                                              {"train " + none + ".yaml", 66},
                                              {"train " + f.write("empty.yaml", ""), 78},
                                              {"generate " + none + ".gguf x", 66},
                                              {"chat " + none + ".gguf", 66},
                                              {"embed " + none + ".gguf x", 66},
                                              {"tokenize " + none + " x", 66},
                                              {"quantize " + none + ".gguf x.gguf", 66},
                                              {"importance " + none + ".gguf x y.gguf", 66},
                                              {"export " + none + ".gguf x.gguf", 66},
                                              {"keys " + none + "/x.key", 73},
                                              {"ckpt show " + none, 66},
                                              {"list-models --plugin " + none, 66},
                                              {"completion tcsh", 2},
                                              {"run --nonsense", 2},
                                              {"nonsense", 2},
                                              {"config show nonsense", 2},
                                              {"man nonsense", 2}};
  std::vector<std::pair<std::string, int>> all(std::begin(uses), std::end(uses));
  for (const std::string& verb : lines_of(harmonics("man --list").out)) all.emplace_back(verb + " --nonsense", 2);
  for (const auto& [use, code] : all) {
    const Result r = harmonics(use + " --json");
    CHECK(r.code == code);
    const json::value printed = last_object(r);
    expect_fits("error", printed);
    CHECK(printed.at("error").at("exit_code") == json::value(r.code));
    CHECK_FALSE(r.err.empty());
    CHECK(std::count(r.out.begin(), r.out.end(), '\n') == 1);
  }
  const json::value placed = last_object(harmonics("explain " + wrong + " --json"));
  CHECK(placed.at("error").at("line") == json::value(2));
  CHECK(placed.at("error").at("kind") == json::value("syntax"));
  // A verb with a separate error object prints that one.
  const Result validated = harmonics("validate " + wrong + " --json");
  CHECK(validated.code == 78);
  expect_fits("validate", last_object(validated));
  CHECK(harmonics("run " + none + ".hmx").out.empty());
}

TEST_CASE("pipes: a reader that closes early ends a verb silently, as with other programs") {
  Folder f;
  std::string rows;
  for (int i = 0; i < 200000; ++i) rows += "1,2,3,4,5,6,7,8\n";
  const std::string data = f.write("x.csv", rows);
  const std::string flow = f.write("g.hmx", "harmonic g { producer x; layer o; cycle { x -(identity)-> o; } }\n");
  for (const std::string& use : {"infer " + flow + " --producer " + data, "receive " + data}) {
    const std::string script = f.write("pipe.sh", "'" + kProgram + "' " + use + " --quiet 2>'" + (f / "err") +
                                                      "' | head -n 1 >'" + (f / "out") + "'; exit ${PIPESTATUS[0]}\n");
    const int status = std::system(("timeout 100 bash " + script).c_str());
    INFO(use << "\n" << read(f / "err"));
    CHECK(WEXITSTATUS(status) == 128 + SIGPIPE);
    CHECK(read(f / "err").empty());
    CHECK(read(f / "out").size() > 1);
  }
}
