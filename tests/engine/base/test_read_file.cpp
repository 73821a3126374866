#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include <harmonics/error.hpp>

#include "engine/base/read_file.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

struct TemporaryFile {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("harmonics_read_file_test." + std::to_string(getpid()));
  explicit TemporaryFile(const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  ~TemporaryFile() { std::filesystem::remove(path); }
};

}  // namespace

TEST_CASE("read file: any bytes are read whole") {
  std::string bytes(200'000, 'x');
  bytes[77] = '\0';
  bytes[78] = '\n';
  const TemporaryFile file(bytes);
  CHECK(read_file(file.path.string(), bytes.size()) == bytes);
  CHECK(read_file(file.path.string(), 1 << 20) == bytes);
  CHECK(read_file(TemporaryFile("").path.string(), 10).empty());
}

TEST_CASE("read file: a file longer than one read, and kernel files without a size, are read whole") {
  std::string bytes;
  for (size_t i = 0; bytes.size() < (size_t{3} << 20) + 17; ++i) bytes += std::to_string(i) + ' ';
  const TemporaryFile file(bytes);
  CHECK(read_file(file.path.string(), bytes.size()) == bytes);
  CHECK_THROWS(read_file(file.path.string(), bytes.size() - 1));
  const std::string self = read_file("/proc/self/status", 1 << 20);
  CHECK(self.find("\nPid:\t" + std::to_string(getpid()) + "\n") != std::string::npos);
}

TEST_CASE("read file: one above the limit is refused") {
  const TemporaryFile file("12345");
  CHECK(read_file(file.path.string(), 5) == "12345");
  CHECK_THROWS_WITH(read_file(file.path.string(), 4),
                    "cannot read '" + file.path.string() + "': it holds more than the 4 bytes allowed");
  // An endless file: reading stops at the limit.
  CHECK_THROWS_WITH(read_file("/dev/zero", 1000), "cannot read '/dev/zero': it holds more than the 1000 bytes allowed");
}

TEST_CASE("read file: an error names the file with the reason") {
  CHECK_THROWS_WITH(read_file("/no/such/file", 10), "cannot read '/no/such/file': No such file or directory");
  CHECK_THROWS_WITH(read_file("/", 10), "cannot read '/': Is a directory");
  try {
    read_file("/no/such/file", 10);
    FAIL("read a file that is not there");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::NoInput);
  }
}
