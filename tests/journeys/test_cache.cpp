// harmonics cache: lists cached files by the names of what they contain, and removes them.
#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"

using namespace journeys;

namespace {

void append(std::string& to, uint64_t number) {
  for (int i = 0; i < 8; ++i) to += static_cast<char>(number >> (8 * i) & 0xff);
}

// Returns the bytes of a cached program, as devices write them.
std::string program_file(const std::vector<std::string>& made_from, const std::string& binary) {
  std::string key, bytes = "HXCLBIN1";
  for (const std::string& text : made_from) key += text + '\0';
  uint64_t sum = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : binary) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  append(bytes, key.size());
  append(bytes, binary.size());
  append(bytes, sum);
  return bytes + key + binary;
}

struct Cache {
  Folder f;
  Cache() {
    for (const char* folder : {"harmonics", "harmonics/opencl", "harmonics/cuda", "harmonics/packed"})
      fs::create_directories(f / folder);
    f.write("harmonics/opencl/1.bin",
            program_file({"driver", "A GPU", "",
                          "kernel void queries_of(int a) {}\n__kernel void keys_of(int a) {}\n"
                          "kernel void queries_of(int b);"},
                         "binary"));
    f.write("harmonics/opencl/2.bin", program_file({"driver", "A GPU", "", "kernel void chain()"}, "b").substr(0, 40));
    f.write("harmonics/cuda/3.bin",
            program_file({"12.1", "sm_90", "extern \"C\" __global__ void chain(int n) {}"}, "image"));
    f.write("harmonics/packed/4.pack", "too short");
    f.write("harmonics/packed/4.of", "place");
    f.write("harmonics/packed/.harmonics-1-p0.tmp", "being written");
    f.write("harmonics/product-rates", "1 2 3");
    f.write("harmonics/other", "an unrelated file");
  }
  Result run(const std::string& words) const { return harmonics_in("XDG_CACHE_HOME=" + (f / "."), "cache " + words); }
  json::object asked(const std::string& words) const {
    const Result r = run(words + " --json");
    CHECK(r.code == 0);
    const json::object answer = last_line(r.out);
    CHECK(SchemaCheck::run(schema("cache"), answer) == std::vector<std::string>{});
    return answer;
  }
  bool has_file(const char* name) const { return fs::exists(f / ("harmonics/" + std::string(name))); }
};

}  // namespace

TEST_CASE("cache: files are listed by the names of what they contain") {
  const Cache cache;
  const json::array entries = cache.asked("list opencl cuda packed product-rates").at("entries").as_array();
  REQUIRE(entries.size() == 5);
  const auto row = [](const char* kind, json::value name, json::value of, const char* file, bool damaged) {
    return json::object{{"kind", kind}, {"name", name}, {"of", of}, {"file", file}, {"damaged", damaged}};
  };
  const json::object expected[] = {
      row("opencl", "queries_of, keys_of", "A GPU", "opencl/1.bin", false),
      row("opencl", nullptr, nullptr, "opencl/2.bin", true), row("cuda", "chain", "sm_90", "cuda/3.bin", false),
      row("packed", nullptr, nullptr, "packed/4.pack", true),
      row("product-rates", "speeds of products and the processor's peak", nullptr, "product-rates", false)};
  for (size_t i = 0; i < entries.size(); ++i) {
    json::object entry = entries[i].as_object();
    CHECK(entry.at("bytes") == fs::file_size(cache.f / ("harmonics/" + std::string(entry.at("file").as_string()))));
    entry.erase("bytes");
    CHECK(entry == expected[i]);
  }
  const Result text = cache.run("list cuda");
  CHECK(has(text.out, "chain (sm_90)  cuda/3.bin\n"));
  CHECK_FALSE(has(text.out, "opencl"));
  CHECK(has(cache.run("list packed").out, "damaged  packed/4.pack\n14 bytes in "));  // with 4.of
}

TEST_CASE("cache: clear removes the files of the given kinds, and nothing else") {
  const Cache cache;
  const json::object some = cache.asked("clear opencl packed");
  CHECK(some.at("removed") == 4);
  CHECK_FALSE(cache.has_file("opencl/1.bin"));
  CHECK_FALSE(cache.has_file("opencl/2.bin"));
  CHECK_FALSE(cache.has_file("packed/4.of"));
  for (const char* kept : {"cuda/3.bin", "product-rates", "packed/.harmonics-1-p0.tmp", "other"})
    CHECK(cache.has_file(kept));
  const Result all = cache.run("clear");
  CHECK(all.code == 0);
  CHECK(has(all.out, "removed "));
  for (const char* gone : {"cuda/3.bin", "product-rates"}) CHECK_FALSE(cache.has_file(gone));
  CHECK(cache.has_file("other"));
  CHECK(cache.asked("list opencl cuda packed product-rates").at("entries").as_array().empty());
}

TEST_CASE("cache: without a cache folder there is nothing to list") {
  const Result r = harmonics_in("XDG_CACHE_HOME= HOME=", "cache list --json");
  CHECK(r.code == 0);
  CHECK(last_line(r.out).at("folder").is_null());
  CHECK(last_line(r.out).at("entries").as_array().empty());
}
