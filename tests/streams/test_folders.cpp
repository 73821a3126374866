// Several files as one: folders and patterns.
#include "producers/file/open.hpp"
#include "tests/streams/under_test.hpp"
#include "tests/streams/written_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::string refused_folder(const TemporaryFolder& folder, const std::string& name, const Options& options = {}) {
  std::string what = refusal([&] { open_file(folder.path(name), options); });
  for (size_t at; (at = what.find(folder.path(""))) != std::string::npos;)
    what.replace(at, folder.path("").size(), "FOLDER/");
  return what;
}

}  // namespace

TEST_CASE("the files of a folder or a pattern are read in the order of their names") {
  const TemporaryFolder folder;
  folder.write("b.csv", "5,6\n");
  folder.write("a.csv.gz", gzip_file("1,2\n3,4\n"));
  folder.write("c.csv.zst", zstd_file("7,8\n9,10\n11,12\n"));
  folder.write(".hidden.csv", "x");
  folder.write("LICENSE", "none");
  for (const char* name : {"", "*.csv*", "[abc].csv*"}) {
    const auto producer = open_file(folder.path(name), Options{});
    CHECK(producer->size() == 6);
    CHECK(drain<float>(*producer) ==
          std::vector<std::vector<float>>{{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}});
    for (const uint64_t chunk : {1, 2, 4, 10}) {
      REQUIRE(producer->rewind());
      CHECK(drain_blocks<float>(*producer, chunk).size() == 6);
    }
    const uint64_t numbers[] = {5, 0, 2};
    float three[6];
    REQUIRE(producer->read_at(numbers, 3, three));
    CHECK(std::vector<float>(three, three + 6) == std::vector<float>{11, 12, 1, 2, 5, 6});
  }
  CHECK(open_file(folder.path("[ac].csv*"), Options{{"part", "0-0.5"}})->size() == 1 + 1);
}

TEST_CASE("learned words and characters are those of all files") {
  const TemporaryFolder folder;
  folder.write("a.csv", "1,dog\n2,cow\n");
  folder.write("b.csv", "3,dog\n");
  const Options learned{{"#", "1"}, {"learned", R"(["cat","cow","dog"])"}};
  CHECK(drain<int64_t>(*open_file(folder.path("*.csv"), learned)) == std::vector<std::vector<int64_t>>{{2}, {1}, {2}});
  folder.write("b.csv", "3,7\n");  // a number among words
  CHECK_THROWS_WITH(open_file(folder.path("*.csv"), learned),
                    Catch::Contains("found '7', which symbols= does not list"));
  folder.write("a.txt", "bab");
  const auto text = open_file(folder.path("a.txt"), Options{{"learned", R"(["a","ä","b"])"}});
  CHECK(text->describe()->symbols == std::vector<std::string>{"a", "ä", "b"});
  CHECK(drain<int32_t>(*text) == std::vector<std::vector<int32_t>>{{2}, {0}, {2}});
  CHECK(open_file(folder.path("a.txt"), Options{{"learned", R"(["cat","dog"])"}})->describe()->symbols ==
        std::vector<std::string>{"a", "b"});  // symbols of a column, not of a text
}

TEST_CASE("classes and characters are collected from all files") {
  const TemporaryFolder folder;
  folder.write("a.csv", "1,dog\n2,cow\n");
  folder.write("b.csv", "3,cat\n");
  const auto words = open_file(folder.path("*.csv"), Options{{"#", "1"}});
  CHECK(words->describe()->symbols == std::vector<std::string>{"cat", "cow", "dog"});
  CHECK(words->describe()->classes == 3);
  CHECK(drain<int64_t>(*words) == std::vector<std::vector<int64_t>>{{2}, {1}, {0}});
  folder.write("a.txt", "bab");
  folder.write("b.txt", "cä");
  const auto text = open_file(folder.path("*.txt"), Options{});
  CHECK(text->describe()->symbols == std::vector<std::string>{"a", "b", "c", "ä"});
  CHECK(drain<int32_t>(*text) == std::vector<std::vector<int32_t>>{{1}, {0}, {1}, {2}, {3}});
  folder.write("a.jsonl", "{\"n\": 4}\n");
  folder.write("b.jsonl", "{\"n\": 6}\n");
  CHECK(open_file(folder.path("*.jsonl"), Options{{"#", "n"}})->describe()->classes == 7);
}

TEST_CASE("files of different type are refused") {
  const TemporaryFolder folder;
  CHECK(refused_folder(folder, "*.csv") == "no file matches 'FOLDER/*.csv'");
  CHECK(refused_folder(folder, "") == "'FOLDER/' is a folder without files of known extensions");
  folder.write("a.csv", "1,2\n");
  folder.write("b.csv", "1,2,3\n");
  CHECK(
      refused_folder(folder, "*.csv") ==
      "'FOLDER/b.csv' has samples of f32[3], 'FOLDER/a.csv' of f32[2]; files read as one must hold one type of sample");
  folder.write("c.npy", npy_file("<f4", "(1, 2)", bytes_of<float>({1, 2})));
  CHECK(refused_folder(folder, "") ==
        "'FOLDER/' holds files of several formats, 'FOLDER/a.csv' (csv) and 'FOLDER/c.npy' (npy); choose by a "
        "pattern, such as FOLDER//*.csv");
  CHECK(refused_folder(folder, "[ac].*") ==
        "'FOLDER/c.npy' is npy, 'FOLDER/a.csv' is csv; files read as one must have one format");
  folder.write("b.csv", "");
  CHECK(refused_folder(folder, "*.csv") == "'FOLDER/b.csv' is empty");
}

TEST_CASE("a stream may have more files than a process may open at once") {
  const TemporaryFolder folder;
  for (int i = 0; i < 1500; ++i)
    folder.write(std::to_string(10000 + i) + ".npy", npy_file("|u1", "(1,)", std::string(1, static_cast<char>(i))));
  const auto producer = open_file(folder.path(""), Options{});
  CHECK(producer->size() == 1500);
  CHECK(drain<uint8_t>(*producer)[1001] == std::vector<uint8_t>{1001 & 255});
}
