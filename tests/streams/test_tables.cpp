// JSON lines, missing values, and tables that are reread from their text instead of being kept in memory.
#include <fstream>
#include <random>

#include "producers/file/csv.hpp"
#include "producers/file/jsonl.hpp"
#include "producers/file/open.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

using TextRows = std::vector<std::vector<float>>;

struct TableText {
  std::string text;
  std::string name = "x.jsonl";

  std::shared_ptr<Producer> open(const Options& options) const {
    const TemporaryFolder folder;
    return open_file(folder.write(name, text), options);
  }
  TextRows rows(const Options& options = {}) const { return drain<float>(*open(options)); }
  std::vector<int64_t> classes(const Options& options) const {
    std::vector<int64_t> values;
    for (const auto& sample : drain<int64_t>(*open(options))) values.push_back(sample[0]);
    return values;
  }
  std::string refuse(const Options& options = {}) const {
    const TemporaryFolder folder;
    const std::string path = folder.write(name, text);
    std::string what = refusal([&] { open_file(path, options); });
    for (size_t at; (at = what.find(path)) != std::string::npos;) what.replace(at, path.size(), "FILE");
    return what;
  }
};

std::string numbers_csv(int rows, int columns) {
  std::mt19937 random(7);
  std::string text;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      text += (c ? "," : "") + std::to_string(random() % 1000) + (c + 1 < columns ? "" : "\n");
  return text;
}

// Opens the same table without keeping it in memory.
std::shared_ptr<Producer> not_held(const std::string& path, CsvOptions options) {
  options.kept = 64;
  return open_table(csv_rows(FileBytes::open(path), options), options);
}

[[maybe_unused]] long resident_kilobytes(const char* what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(what, 0) == 0) return std::atol(line.c_str() + std::string(what).size());
  return -1;
}

}  // namespace

TEST_CASE("json lines: fields by name, arrays with their shape, words as classes") {
  const TableText t{
      "{\"a\": 1, \"b\": [1, 2.5], \"c\": \"dog\", \"m\": {\"n\": 3}, \"t\": true, \"i\": 2}\n\n"
      "  {\"b\": [3, -4e2], \"a\": 0.5, \"c\": \"cat\", \"m\": {\"n\": 4}, \"t\": false, \"i\": 0}\r\n"};
  CHECK(t.rows({{"#", "a"}}) == TextRows{{1}, {0.5}});
  CHECK(t.rows({{"#", "b"}}) == TextRows{{1, 2.5}, {3, -400}});
  CHECK(t.rows({{"#", "a,b,m.n"}}) == TextRows{{1, 1, 2.5, 3}, {0.5, 3, -400, 4}});
  CHECK(t.rows({{"#", "a,t"}}) == TextRows{{1, 1}, {0.5, 0}});
  CHECK(t.classes({{"#", "i"}}) == std::vector<int64_t>{2, 0});
  CHECK(t.classes({{"#", "c"}}) == std::vector<int64_t>{1, 0});
  CHECK(t.classes({{"#", "t"}}) == std::vector<int64_t>{1, 0});
  CHECK(t.classes({{"#", "c"}, {"symbols", "dog,cat,cow"}}) == std::vector<int64_t>{0, 1});
  CHECK(t.open({{"#", "c"}})->describe()->symbols == std::vector<std::string>{"cat", "dog"});
  CHECK(t.open({{"#", "i"}})->describe()->classes == 3);
  CHECK(TableText{"[[1, 2], [3, 4], [5, 6]]\n[[0, 0], [0, 0], [0, 1]]"}.open({})->describe()->sample == Shape{3, 2});
  CHECK(TableText{"1\n2.5\n"}.rows() == TextRows{{1}, {2.5}});
  CHECK(TableText{"[1, 2]\n[3, 4]\n"}.rows() == TextRows{{1, 2}, {3, 4}});
  CHECK(TableText{"{\"a\": 1, \"b\": 2}\n{\"b\": 4, \"a\": 3}\n"}.rows() == TextRows{{1, 2}, {3, 4}});
  CHECK(TableText{"{\"a\": 1, \"b\": 2}\n", "unnamed"}.rows() == TextRows{{1, 2}});
  CHECK(TableText{"\xEF\xBB\xBF{\"a\": 1.5}\n"}.rows() == TextRows{{1.5}});
}

TEST_CASE("json lines: keys of every length that differ in one character are distinct") {
  for (size_t length = 1; length <= 20; ++length)
    for (size_t place = 0; place < length; ++place) {
      const std::string key(length, 'k');
      std::string other = key;
      other[place] = 'x';
      INFO(key << " and " << other);
      const TableText t{"{\"" + key + "\": 1.5, \"" + other + "\": 2.5}\n{\"" + other + "\": 3.5, \"" + key +
                        "\": 4.5}\n"};
      CHECK(t.rows({{"#", key.c_str()}}) == TextRows{{1.5}, {4.5}});
      CHECK(t.rows({{"#", other.c_str()}}) == TextRows{{2.5}, {3.5}});
    }
  CHECK(TableText{"{\"\": 1, \"a\": 2}\n{\"a\": 3, \"\": 4}\n"}.rows() == TextRows{{1, 2}, {4, 3}});
}

TEST_CASE("broken json lines are refused with line and field") {
  CHECK(TableText{"{\"a\": 1}\n{\"a\": }\n"}.refuse() ==
        "'FILE' line 2 is not JSON: The JSON document has an improper structure: missing or superfluous commas, "
        "braces, missing keys, etc.; every line must be one complete JSON value");
  CHECK(TableText{"{\"a\": 1} {\"a\": 2}\n"}.refuse().find("'FILE' line 1 is not JSON: ") == 0);
  CHECK(TableText{"{\"a\":\n1}\n"}.refuse().find("'FILE' line 1 is not JSON: ") == 0);
  CHECK(TableText{"{\"a\": 1, \"b\": 2}\n"}.refuse({{"#", "x"}}) ==
        "'FILE' has no field 'x' in line 1; its fields are: a, b");
  CHECK(
      TableText{"[1]\n"}.refuse({{"#", "x"}}) ==
      "'FILE' line 1 is an array, which has no field 'x'; leave '#' out, or write an object with names on every line");
  CHECK(TableText{"{\"a\": [1, 2]}\n{\"a\": [1]}\n"}.refuse() ==
        "'FILE' line 2, field 'a': found an array of 1, the first line has the shape [2]; every line must have one "
        "shape");
  CHECK(TableText{"{\"a\": [1, 2]}\n{\"a\": [1, 2, 3]}\n"}.refuse() ==
        "'FILE' line 2, field 'a': found an array of more than 2, the first line has the shape [2]; every line must "
        "have one shape");
  CHECK(TableText{"{\"a\": [1, 2]}\n{\"a\": 3}\n"}.refuse() ==
        "'FILE' line 2, field 'a': found a number, the first line has the shape [2]; every line must have one shape");
  CHECK(TableText{"{\"a\": 1.5}\n{\"a\": [3]}\n"}.refuse() ==
        "'FILE' line 2, field 'a': found an array, the first line has one value; every line must have one shape");
  CHECK(TableText{"{\"a\": {\"b\": 1}}\n"}.refuse() ==
        "'FILE' line 1, field 'a': found an object; select an inner field, as in '#a.NAME'");
  CHECK(TableText{"{\"a\": []}\n"}.refuse() ==
        "'FILE' line 1, field 'a': found an array of nothing; a sample is a number, a string or an array of numbers");
  CHECK(TableText{"{\"a\": [1, \"x\"]}\n"}.refuse() ==
        "'FILE' line 1, field 'a', number 1: found 'x' where a number is expected; select columns of numbers with "
        "'#NAME,NAME', or a column of words alone to read classes");
  CHECK(TableText{"{\"a\": 1, \"b\": 2}\n{\"a\": 1, \"b\": null}\n"}.refuse() ==
        "'FILE' line 2, field 'b': the value is missing; give missing=VALUE (or mean, nan) to replace it, or select "
        "other columns with '#NAME,NAME'");
  CHECK(TableText{"{\"a\": 1e39, \"b\": 2}\n"}.refuse() ==
        "'FILE' line 1, field 'a': found '1e+39', which is not a finite f32 number; correct it");
  CHECK(TableText{" \n\n"}.refuse() == "'FILE' has no rows");
  CHECK(TableText{"{}\n"}.refuse() == "'FILE' line 1 is an object without fields");
  CHECK(TableText{"[1]\n"}.refuse({{"header", "true"}}) ==
        "the option header= has no effect for 'FILE', which is jsonl; leave it out");
  CHECK(TableText{"[1]\n"}.refuse({{"as", "word"}}) ==
        "as=word cannot be used for 'FILE'; write as=number or as=class or as=auto");
}

TEST_CASE("missing values are refused, or replaced by a value, the mean or NaN") {
  const TableText csv{"a,b\n1,2\n,4\n5,NA\n", "x.csv"},
      json{"{\"a\": 1, \"b\": 2}\n{\"b\": 4}\n{\"a\": 5, \"b\": null}\n"};
  for (const TableText& t : {csv, json}) {
    CHECK(t.refuse().find("the value is missing") != std::string::npos);
    CHECK(t.rows({{"missing", "-1"}}) == TextRows{{1, 2}, {-1, 4}, {5, -1}});
    CHECK(t.rows({{"missing", "mean"}}) == TextRows{{1, 2}, {3, 4}, {5, 3}});
    const TextRows nan = t.rows({{"missing", "nan"}});
    CHECK(std::isnan(nan[1][0]));
    CHECK(nan[1][1] == 4);
    CHECK(t.rows({{"#", "a"}, {"missing", "mean"}}) == TextRows{{1}, {3}, {5}});
    CHECK(t.classes({{"#", "a"}, {"missing", "0"}}) == std::vector<int64_t>{1, 0, 5});
  }
  CHECK(TableText{"a,b\n1,\n2,\n", "x.csv"}.refuse({{"missing", "mean"}}) ==
        "'FILE' has no value in column #1 'b', so there is no mean; select other columns with '#NAME,NAME'");
  CHECK(TableText{"a,b\n1,yes\n2,True\n", "x.csv"}.refuse() ==
        "'FILE' line 2, column #1 'b': found 'yes' where a number is expected; select columns of numbers with "
        "'#NAME,NAME', or a column of words alone to read classes");
  CHECK(TableText{"a,b\n1,TRUE\n2,false\n", "x.csv"}.rows() == TextRows{{1, 1}, {2, 0}});
}

TEST_CASE("numbers get the requested type and shape") {
  const TableText csv{"l,a,b\n0,1,255\n3,7,8\n", "x.csv"},
      json{"{\"l\": 0, \"p\": [1, 255]}\n{\"l\": 3, \"p\": [7, 8]}\n"};
  for (const auto& [t, columns] : {std::pair{csv, "1-2"}, std::pair{json, "p"}}) {
    const auto producer = t.open({{"#", columns}, {"dtype", "u8"}, {"shape", "2x1"}});
    CHECK(producer->describe()->sample == Shape{2, 1});
    CHECK(drain<uint8_t>(*producer) == std::vector<std::vector<uint8_t>>{{1, 255}, {7, 8}});
    CHECK(t.open({{"#", "l"}, {"dtype", "u8"}})->describe()->classes == 4);
    CHECK(drain<int16_t>(*t.open({{"#", "l"}, {"dtype", "i16"}})) == std::vector<std::vector<int16_t>>{{0}, {3}});
    CHECK(t.refuse({{"#", columns}, {"shape", "3"}}) == "shape=3 of 'FILE' is one of 3 numbers, a row has 2");
    CHECK(drain<int32_t>(*t.open({{"#", columns}, {"dtype", "i32"}})) ==
          std::vector<std::vector<int32_t>>{{1, 255}, {7, 8}});
    CHECK(t.refuse({{"#", columns}, {"dtype", "i64"}}) ==
          "dtype=i64 of 'FILE' is not a type for table cells; write dtype=f32, u8, i8, u16, i16 or i32");
    CHECK(t.refuse({{"#", columns}, {"dtype", "u8"}, {"missing", "mean"}}) ==
          "missing=mean of 'FILE' makes no u8; give a whole number, or leave dtype= out");
  }
  CHECK(csv.refuse({{"#", "1-2"}, {"dtype", "i8"}}) ==
        "'FILE' line 2, column #2 'b': found '255', which i8 cannot represent; leave dtype= out, or give one that can "
        "represent it");
  const TableText large{"16777215\n-16777215\n16777217\n", "x.csv"};  // cells are f32
  CHECK(large.refuse({{"dtype", "i32"}}).find("line 3, column #0: found '16777216', which i32 cannot represent") !=
        std::string::npos);
  CHECK(TableText{"1\n2.5\n", "x.csv"}.refuse({{"dtype", "u8"}}) ==
        "'FILE' line 2, column #0: found '2.5', which u8 cannot represent; leave dtype= out, or give one that can "
        "represent it");
}

TEST_CASE("numbers that f32 rounds to an integer are not integers") {
  CHECK(TableText{"255\n254.99999999\n", "x.csv"}.refuse({{"dtype", "u8"}}) ==
        "'FILE' line 2, column #0: found '254.99999999', which u8 cannot represent; leave dtype= out, or give one that "
        "can represent it");
  CHECK(TableText{"[1, 3.0]\n[2, 8388608.4]\n"}
            .refuse({{"dtype", "i32"}})
            .find("line 2, the value, number 1: found '8388608.4', which i32 cannot") != std::string::npos);
  CHECK(drain<uint8_t>(*TableText{"3.0,1.\n2,\"4.00\"\n", "x.csv"}.open({{"dtype", "u8"}})) ==
        std::vector<std::vector<uint8_t>>{{3, 1}, {2, 4}});
}

TEST_CASE("json lines: a line that is no object does not lack a field") {
  for (const char* line : {"[1]", "null", "3"}) {
    const TableText mixed{"{\"v\": 1}\n" + std::string(line) + "\n"};
    CHECK(mixed.refuse({{"#", "v"}, {"as", "number"}, {"missing", "0"}}).find("'FILE' line 2 is ") == 0);
  }
  const TableText absent{"{\"v\": 1}\n{}\n{\"w\": 2}\n"};
  CHECK(absent.rows({{"#", "v"}, {"as", "number"}, {"missing", "0"}}) == TextRows{{1}, {0}, {0}});
}

TEST_CASE("json lines: integers of 64 bits are distinct classes") {
  const TableText ids{"{\"id\": 18446744073709551615}\n{\"id\": 18446744073709551614}\n{\"id\": 7}\n"};
  const auto producer = ids.open({{"as", "class"}});
  CHECK(producer->describe()->symbols == std::vector<std::string>{"18446744073709551614", "18446744073709551615", "7"});
  CHECK(drain<int64_t>(*producer) == std::vector<std::vector<int64_t>>{{1}, {0}, {2}});
}

TEST_CASE("tables not held in memory give the same samples, in order and by number") {
  const TemporaryFolder folder;
  std::string text = numbers_csv(1000, 5);
  text += "1,,3,\"4\",5\n" + numbers_csv(500, 5);
  const std::string path = folder.write("x.csv", text);
  for (const char* selection : {"", "1,3", "4,4,0", "2"})
    for (const char* part : {"", "0.25-0.75"})
      for (const char* missing : {"7", "mean", "i16"}) {
        INFO(selection << " " << part << " " << missing);
        CsvOptions options;
        if (*missing == 'i') options.dtype = std::exchange(missing, "7");
        if (*selection) options.selection = selection;
        options.part = part;
        options.missing = missing;
        const auto held = open_table(csv_rows(FileBytes::open(path), options), options),
                   again = not_held(path, options);
        const StreamInfo a = *held->describe(), b = *again->describe();
        CHECK((a.dtype == b.dtype && a.sample == b.sample && a.size == b.size && a.classes == b.classes));
        const size_t bytes = a.sample_bytes();
        std::vector<char> x(bytes * a.size), y(bytes * a.size), one(bytes);
        CHECK(held->read(a.size + 1, x.data()) == static_cast<int64_t>(a.size));
        CHECK(again->read(a.size + 1, y.data()) == static_cast<int64_t>(a.size));
        CHECK(x == y);
        CHECK(again->read(1, y.data()) == 0);
        for (uint64_t i = a.size; i > 0; i -= std::min<uint64_t>(i, 37)) {
          const uint64_t number = i - 1;
          REQUIRE(again->read_at(&number, 1, one.data()));
          CHECK(std::equal(one.begin(), one.end(), x.begin() + static_cast<std::ptrdiff_t>(number * bytes)));
        }
        REQUIRE(again->rewind());
        CHECK(again->read(a.size, y.data()) == static_cast<int64_t>(a.size));
        CHECK(x == y);
      }
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // sanitizers use additional memory
TEST_CASE("reading a table that is not held needs no memory for it") {
  const TemporaryFolder folder;
  {
    std::ofstream out(folder.path("x.csv"));
    const std::string piece = numbers_csv(1000, 50);
    for (int i = 0; i < 200; ++i) out << piece;  // 40 MB of f32
  }
  const long before = resident_kilobytes("RssAnon:");
  const auto producer = not_held(folder.path("x.csv"), {});
  CHECK(producer->size() == 200000);
  std::vector<float> batch(50 * 64);
  uint64_t total = 0;
  for (int64_t got = 64; got == 64; total += static_cast<uint64_t>(got)) got = producer->read(64, batch.data());
  CHECK(total == 200000);
  CHECK(resident_kilobytes("RssAnon:") - before < 4096);
}
#endif

TEST_CASE("numbers are rounded once, in every notation") {
  std::mt19937_64 random(3);
  std::string text;
  std::vector<float> expected;
  for (int i = 0; i < 20000; ++i) {
    char word[64];
    const double value = std::ldexp(static_cast<double>(random() >> 11), -53) *
                         std::pow(10.0, static_cast<double>(random() % 12)) * (random() % 2 ? 1 : -1);
    std::snprintf(word, sizeof word, "%.*f", static_cast<int>(random() % 16), value);
    text += std::string(word) + ",0\n";
    expected.push_back(static_cast<float>(std::strtod(word, nullptr)));
  }
  const TextRows rows = TableText{text, "x.csv"}.rows();
  REQUIRE(rows.size() == expected.size());
  for (size_t i = 0; i < rows.size(); ++i) REQUIRE(rows[i][0] == expected[i]);
}

// Sums that NumPy computes from the same files, of numbers rounded to f32.
TEST_CASE("tables written by other programs have the values numpy reads") {
  if (!have_data("streaming/titanic.csv")) return;
  const auto open = [](const char* name, const Options& options) {
    return open_file(data_path(std::string("streaming/") + name), options);
  };
  const auto sum = [&](const char* name, const Options& options) {
    double total = 0;
    for (const auto& row : drain<float>(*open(name, options)))
      for (const float x : row) total += static_cast<double>(x);
    return total;
  };
  const auto total = [&](const char* name, const Options& options) {
    int64_t n = 0;
    for (const auto& row : drain<int64_t>(*open(name, options))) n += row[0];
    return n;
  };
  CHECK(sum("higgs_binary.train.tsv", {{"#", "1"}}) == Approx(7024.42400154).epsilon(1e-11));
  CHECK(total("higgs_binary.train.tsv", {{"#", "0"}}) == 3716);
  CHECK(sum("weather.csv", {{"#", "0-7"}}) == Approx(22602521.699912317).epsilon(1e-14));
  CHECK(total("weather.csv", {{"#", "target"}}) == 5698);
  CHECK(sum("wine-quality.csv", {}) == Approx(1021906.31402166).epsilon(1e-13));
  CHECK(sum("housing.csv", {}) == Approx(472348.15439540753).epsilon(1e-14));
  CHECK(sum("iris.csv", {{"#", "0-3"}}) == Approx(2078.1999964267015).epsilon(1e-14));
  CHECK(total("airline-passengers.csv", {{"#", "Passengers"}}) == 40363);
  CHECK(sum("titanic.csv", {{"#", "adult_male"}, {"as", "number"}}) == 537);
  CHECK(total("titanic.csv", {{"#", "alive"}}) == 342);
  CHECK(open("titanic.csv", {{"#", "class"}})->describe()->symbols ==
        std::vector<std::string>{"First", "Second", "Third"});
  const auto ages = drain<float>(*open("titanic.csv", {{"#", "age,fare"}, {"missing", "mean"}}));
  CHECK(ages.size() == 891);
  CHECK(ages[5][0] == Approx(29.69911764704046));  // the first of 177 missing values
  int missing = 0;
  for (const auto& row : drain<float>(*open("titanic.csv", {{"#", "age"}, {"missing", "nan"}})))
    missing += std::isnan(row[0]);
  CHECK(missing == 177);
}
