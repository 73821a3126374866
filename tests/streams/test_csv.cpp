#include <cmath>
#include <random>

#include "producers/file/open.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

using CsvRows = std::vector<std::vector<float>>;

CsvRows table(const std::string& text, Options options = {}) {
  const TemporaryFolder folder;
  return drain<float>(*open_file(folder.write("x.csv", text), options));
}
struct Classes {
  std::vector<int64_t> values;
  int64_t classes;
  std::vector<std::string> symbols;
};
Classes classes(const std::string& text, Options options) {
  const TemporaryFolder folder;
  const auto producer = open_file(folder.write("x.csv", text), options);
  const StreamInfo info = *producer->describe();
  CHECK(info.dtype == DType::I64);
  CHECK(info.sample == Shape{});
  Classes out{{}, info.classes, info.symbols};
  for (const auto& s : drain<int64_t>(*producer)) out.values.push_back(s[0]);
  return out;
}
// Returns the error text after the file's name.
std::string refused_csv(const std::string& text, Options options = {}) {
  const TemporaryFolder folder;
  const std::string path = folder.write("x.csv", text), what = refusal([&] { open_file(path, options); });
  const size_t at = what.find("'" + path + "'");
  return at == std::string::npos ? what : what.substr(0, at) + "FILE" + what.substr(at + path.size() + 2);
}

}  // namespace

TEST_CASE("numbers become f32 rows, with or without header") {
  CHECK(table("a,b\n1,2.5\n-3e2, 4 \n") == CsvRows{{1, 2.5}, {-300, 4}});
  CHECK(table("1,2\n3,4") == CsvRows{{1, 2}, {3, 4}});
  CHECK(table("\xEF\xBB\xBFx;y\r\n1;2\r\n\r\n3;+4\r\n") == CsvRows{{1, 2}, {3, 4}});
  CHECK(table("1\t2\n3\t4\n") == CsvRows{{1, 2}, {3, 4}});
  CHECK(table("1|2\n3|4\n", Options{{"delimiter", "|"}}) == CsvRows{{1, 2}, {3, 4}});
  CHECK(table("1,2\n3,4\n", Options{{"header", "true"}}) == CsvRows{{3, 4}});
  CHECK(table("\"a \"\"b\"\"\",\"c,\nd\"\n\"1\",\"2\"\n") == CsvRows{{1, 2}});
}

TEST_CASE("csv: numbers below the smallest double are zero, and a zero keeps its sign") {
  const CsvRows rows = table("1E-400,-1e-400,-0.00e999999999999999999,5e-324\n-0,\"-0\",0.1e-99999999999999999999,3\n");
  CHECK(rows == CsvRows{{0, 0, 0, 0}, {0, 0, 0, 3}});
  CHECK_FALSE(std::signbit(rows[0][0]));
  for (const float negative : {rows[0][1], rows[0][2], rows[1][0], rows[1][1]}) CHECK(std::signbit(negative));
  CHECK(refused_csv("1,1\n2,1e400\n") ==
        "FILE line 2, column #1: found '1e400', which is not a finite f32 number; correct it");
  CHECK(refused_csv("1,1\n2,+-5\n").find("line 2, column #1: found '+-5' where a number") != std::string::npos);
}

TEST_CASE("csv: the delimiter is the most frequent one of the first line, outside quotes") {
  CHECK(table("a;b\r1;2\r3;4\r5;6,7\r", Options{{"#", "a"}, {"as", "number"}}) == CsvRows{{1}, {3}, {5}});
  CHECK(table("\n \r\na;b\n1;2\n") == CsvRows{{1, 2}});
  CHECK(table("\"x, y, z\";\"l\n,,m\"\n1;2\n") == CsvRows{{1, 2}});
}

TEST_CASE("csv: lines of blanks are skipped, lines of delimiters are rows") {
  const Options zero{{"missing", "0"}, {"as", "number"}};
  CHECK(table("a\n1\n \n\t\n\"\"\n3\n  ", zero) == CsvRows{{1}, {0}, {3}});
  CHECK(table("a,b\n1,2\n  \n3,4\n", zero) == CsvRows{{1, 2}, {3, 4}});
  CHECK(table("a\tb\n1\t2\n\t\n3\t4\n", zero) == CsvRows{{1, 2}, {0, 0}, {3, 4}});
}

TEST_CASE("columns are selected by name, number and range") {
  const std::string text = "a,b,c-d,0\n1,2,3,4\n5,6,7,8\n";
  const auto with_header = [&](const char* selection) {
    return table(text, Options{{"header", "true"}, {"#", selection}});
  };
  CHECK(with_header("b,a") == CsvRows{{2, 1}, {6, 5}});
  CHECK(with_header("1-3") == CsvRows{{2, 3, 4}, {6, 7, 8}});
  CHECK(with_header("c-d,b") == CsvRows{{3, 2}, {7, 6}});
  CHECK(with_header("0,1") == CsvRows{{4, 2}, {8, 6}});  // a name takes precedence over an index
  CHECK(table("1,2.5\n3,4\n", Options{{"#", "1"}}) == CsvRows{{2.5}, {4}});
  CHECK(table("1,2.5\n3,4\n", Options{{"#", "0"}, {"as", "number"}}) == CsvRows{{1}, {3}});
  CHECK(refused_csv(text, Options{{"header", "true"}, {"#", "bb"}}) ==
        "FILE has no column 'bb'; its columns are: a, b, c-d, 0; did you mean 'b'?");
  CHECK(refused_csv("1,2\n3,4\n", Options{{"#", "bb"}}) ==
        "FILE has no column 'bb'; it has no header line, its columns are #0 to #1");
  CHECK(refused_csv("1,2\n3,4\n", Options{{"#", "1-2"}}) == "FILE has no columns #1-2; its columns are #0 to #1");
  CHECK(refused_csv("1,2\n3,4\n", Options{{"#", ""}}) ==
        "FILE has no column ''; it has no header line, its columns are #0 to #1");
  CHECK(refused_csv("a,a\n3,4\n", Options{{"#", "a"}}) ==
        "FILE has several columns named 'a'; select by number, '#0' is the first");
}

TEST_CASE("one column of integers or words is a stream of classes") {
  const Classes numbers = classes("x,label\n0.5,2\n0.5,0\n0.5,9\n", Options{{"#", "label"}});
  CHECK(numbers.values == std::vector<int64_t>{2, 0, 9});
  CHECK(numbers.classes == 10);
  CHECK(numbers.symbols.empty());
  CHECK(classes("label\n-1\n1\n", {}).classes == 0);
  const Classes words = classes("1,dog\n2,cat\n3,dog\n", Options{{"#", "1"}});
  CHECK(words.values == std::vector<int64_t>{1, 0, 1});
  CHECK(words.classes == 2);
  CHECK(words.symbols == std::vector<std::string>{"cat", "dog"});
  CHECK(classes("1,dog\n2,cat\n", Options{{"#", "1"}, {"symbols", "dog,cat,cow"}}).values ==
        std::vector<int64_t>{0, 1});
  CHECK(classes("1,dog\n2,cat\n", Options{{"#", "1"}, {"symbols", "dog,cat,cow"}}).classes == 3);
  CHECK(classes("1,b\n2,7\n", Options{{"#", "1"}, {"as", "class"}, {"header", "false"}}).symbols ==
        std::vector<std::string>{"7", "b"});
  CHECK(refused_csv("1,dog\n2,cat\n", Options{{"#", "1"}, {"symbols", "dog,cow"}}) ==
        "FILE line 2, column #1: found 'cat', which symbols= does not list; the symbols are: dog, cow");
  CHECK(refused_csv("n,v\n1,4\n2,5\n3,x6\n", Options{{"#", "v"}}) ==
        "FILE line 4, column #1 'v': found 'x6' among numbers; correct it, or read the column as words with as=class");
}

TEST_CASE("learned words number a column as weights do") {
  const auto learned = [](const char* words) { return Options{{"#", "1"}, {"learned", words}}; };
  const Classes some = classes("1,dog\n2,dog\n", learned(R"(["cat","dog","Smith, J."])"));
  CHECK(some.values == std::vector<int64_t>{1, 1});
  CHECK(some.classes == 3);
  CHECK(some.symbols == std::vector<std::string>{"cat", "dog", "Smith, J."});
  CHECK(classes("1,\"Smith, J.\"\n2,cat\n", learned(R"(["cat","dog","Smith, J."])")).values ==
        std::vector<int64_t>{2, 0});
  CHECK(refused_csv("1,dog\n2,cow\n", learned(R"(["cat","dog"])")) ==
        "FILE line 2, column #1: found 'cow', which is unknown to the weights; they know cat, dog: correct it, omit "
        "its record, or train on data that contain it");
  // Integers are words if the weights know all of them, else class indices.
  CHECK(classes("1,20\n2,10\n", learned(R"(["10","20","x"])")).values == std::vector<int64_t>{1, 0});
  const Classes numbers = classes("1,1\n2,0\n", learned(R"(["cat","dog"])"));
  CHECK(numbers.values == std::vector<int64_t>{1, 0});
  CHECK(numbers.symbols.empty());
  CHECK(
      classes("1,dog\n2,cat\n", Options{{"#", "1"}, {"learned", R"(["cat","dog"])"}, {"symbols", "dog,cat"}}).values ==
      std::vector<int64_t>{0, 1});
  CHECK(table("1,2\n3,4\n", Options{{"learned", R"(["cat"])"}}) == CsvRows{{1, 2}, {3, 4}});
  for (const char* wrong : {"cat", "[1]", "{\"a\": 1}"})
    CHECK(refused_csv("1,dog\n", learned(wrong)) ==
          "learned=" + std::string(wrong) + " is not a JSON array of strings; write symbols=a,b,c to list words");
}

TEST_CASE("missing cells are refused or replaced") {
  const std::string text = "a,b\n1,2\n,4\n5,NA\n";
  CHECK(refused_csv(text) ==
        "FILE line 3, column #0 'a': the value is missing; give missing=VALUE (or mean, nan) to replace it, or select "
        "other columns with '#NAME,NAME'");
  CHECK(refused_csv(text, Options{{"#", "b"}}) ==
        "FILE line 4, column #1 'b': the value is missing: 'NA'; give missing=VALUE (or mean, nan) to replace it, or "
        "select other columns with '#NAME,NAME'");
  CHECK(table(text, Options{{"missing", "-1"}}) == CsvRows{{1, 2}, {-1, 4}, {5, -1}});
  CHECK(classes("1,a\n2,\n", Options{{"#", "1"}, {"missing", "none"}}).symbols ==
        std::vector<std::string>{"a", "none"});
  CHECK(refused_csv(text, Options{{"missing", "no"}}) ==
        "FILE line 3, column #0 'a': found 'no' where a number is expected; select columns of numbers with "
        "'#NAME,NAME', or a column of words alone to read classes");
}

TEST_CASE("broken csv is refused with line and column") {
  CHECK(refused_csv("a,b\n1,2\n3\n") ==
        "FILE line 3 has 1 cell, line 1 has 2; every row needs the same number of cells");
  CHECK(refused_csv("a,b\n1,2\n3,4,5\n") ==
        "FILE line 3 has 3 cells, line 1 has 2; every row needs the same number of cells");
  CHECK(refused_csv("a,b\n1,x\n") ==
        "FILE line 2, column #1 'b': found 'x' where a number is expected; select columns of numbers with "
        "'#NAME,NAME', or a column of words alone to read classes");
  CHECK(refused_csv("1,2\n\"3\n,4\n") ==
        "FILE line 2: a quoted cell has no closing '\"'; close it, or write a quote inside quotes twice");
  CHECK(refused_csv("1,2\n\"3\"x,4\n") ==
        "FILE line 2: found 'x' after a closing '\"'; a quoted cell ends before ',' or the end of the line; write a "
        "quote inside quotes twice");
  CHECK(refused_csv(std::string("1,2\n3,\0\n", 8)) ==
        "FILE line 2: there is a zero byte at byte 6; this is not text; UTF-16 must be converted to UTF-8");
  CHECK(refused_csv("1,1e99\n") ==
        "FILE line 1, column #1: found '1e99', which is not a finite f32 number; correct it");
  CHECK(refused_csv("1,inf\n") == "FILE line 1, column #1: found 'inf', which is not a finite f32 number; correct it");
  CHECK(refused_csv("1,1e9999\n") ==
        "FILE line 1, column #1: found '1e9999', which is not a finite f32 number; correct it");
  CHECK(refused_csv("\n\n") == "FILE has no rows");
  CHECK(refused_csv("a,b\n", Options{{"header", "true"}}) == "FILE has a header but no rows");
  CHECK(refused_csv("a,b\nc,d\n") ==
        "FILE line 1 may be a header or a row: there is no number in it or below; write header=true or header=false");
  CHECK(refused_csv("label,0\n1,2\n") ==
        "FILE line 1 may be a header or a row: 'label' is above numbers, beside numbers; write header=true or "
        "header=false");
  CHECK(refused_csv("1\n", Options{{"header", "yes"}}) ==
        "header=yes cannot be used for FILE; write header=true or header=false or header=auto");
  CHECK(refused_csv("1\n", Options{{"as", "x"}}) ==
        "as=x cannot be used for FILE; write as=number or as=class or as=auto");
  CHECK(refused_csv("1\n", Options{{"delimiter", "ab"}}) ==
        "delimiter=ab cannot be used for FILE; write one character, delimiter=tab, or delimiter=auto");
}

TEST_CASE("line numbers count every line, including quoted and blank ones") {
  CHECK(refused_csv("\"a\n\n\",b\n\n1,2\n3\n").find("FILE line 6 has 1 cell") == 0);
}

TEST_CASE("random tables survive a round trip") {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    const size_t rows = 1 + random() % 20, columns = 2 + random() % 6;
    CsvRows expected(rows, std::vector<float>(columns));
    std::string text;
    const char* ends[] = {"\n", "\r\n", "\r"};
    const std::string end = ends[random() % 3];
    for (auto& row : expected) {
      for (size_t c = 0; c < columns; ++c) {
        row[c] = static_cast<float>(static_cast<int32_t>(random()) / 1024) / 64.0f;
        char cell[64];
        std::snprintf(cell, sizeof cell, random() % 2 ? "%.9g" : "\"%.9g\"", static_cast<double>(row[c]));
        text += (c ? std::string(random() % 4 ? "," : ", ") : "") + cell;
      }
      text += end;
    }
    if (random() % 2) text.resize(text.size() - end.size());
    INFO(text);
    CHECK(table(text) == expected);
  }
}

TEST_CASE("tables written by other programs are read") {
  if (!have_data("streaming/iris.csv")) return;
  const auto at = [](const char* name) { return data_path(std::string("streaming/") + name); };
  const auto iris = open_file(at("iris.csv"), Options{{"#", "0-3"}});
  CHECK(iris->size() == 150);
  CHECK(drain<float>(*iris)[149] == std::vector<float>{5.9f, 3.0f, 5.1f, 1.8f});
  CHECK(open_file(at("iris.csv"), Options{{"#", "4"}})->describe()->symbols ==
        std::vector<std::string>{"Iris-setosa", "Iris-versicolor", "Iris-virginica"});
  const auto higgs = open_file(at("higgs_binary.test.tsv"), Options{{"#", "1-28"}});
  CHECK(higgs->size() == 500);
  CHECK(higgs->describe()->sample == Shape{28});
  CHECK(open_file(at("higgs_binary.test.tsv"), Options{{"#", "0"}})->describe()->classes == 2);
  CHECK(open_file(at("weather.csv"), Options{{"#", "target"}})->size() == 18159);
  CHECK(open_file(at("wine-quality.csv"), Options{{"#", "fixed acidity,pH"}})->describe()->sample == Shape{2});
  CHECK(open_file(at("housing.csv"), Options{})->describe()->sample == Shape{14});
  CHECK(open_file(at("airline-passengers.csv"), Options{{"#", "Passengers"}, {"as", "number"}})->describe()->dtype ==
        DType::F32);
  CHECK(open_file(at("titanic.csv"), Options{{"#", "sex"}})->describe()->classes == 2);
  CHECK(refusal([&] {
          open_file(at("titanic.csv"), Options{{"#", "age,fare"}});
        }) == "'" + at("titanic.csv") +
                  "' line 7, column #3 'age': the value is missing; give missing=VALUE (or mean, nan) to replace it, "
                  "or select other columns with '#NAME,NAME'");
}
