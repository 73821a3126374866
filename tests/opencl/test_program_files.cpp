// Disk cache of built programs: damaged files are ignored.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <stdlib.h>

#include "kernels/shared/program_files.hpp"
#include "tests/cache_folder.hpp"

using harmonics::engine::testing::CacheFolder;
using harmonics::kernels::ProgramFile;
namespace fs = std::filesystem;

namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("program files: the key contains all inputs of a program") {
  const CacheFolder folder;
  const std::string binary("\0\1\2binary", 9);
  const ProgramFile file("opencl", {"driver 1", "device", "-O", "kernel void f() {}"});
  CHECK_FALSE(file.read());
  file.write(binary);
  CHECK(file.read() == binary);
  CHECK(ProgramFile("opencl", {"driver 1", "device", "-O", "kernel void f() {}"}).read() == binary);
  CHECK_FALSE(ProgramFile("opencl", {"driver 2", "device", "-O", "kernel void f() {}"}).read());
  CHECK_FALSE(ProgramFile("opencl", {"driver 1", "device", "-Okernel", " void f() {}"}).read());
}

TEST_CASE("program files: damaged or foreign files are rebuilt") {
  const CacheFolder folder;
  const ProgramFile file("opencl", {"driver", "source"});
  const std::string binary(1000, 'x');
  file.write(binary);
  const std::string whole = bytes_of(file.path());
  REQUIRE(whole.size() > binary.size());
  for (size_t cut = 0; cut < whole.size(); cut += 7) {
    std::ofstream(file.path(), std::ios::binary) << whole.substr(0, cut);
    CHECK_FALSE(file.read());
  }
  for (size_t at = 0; at < whole.size(); at += 13) {
    std::string other = whole;
    other[at] = static_cast<char>(other[at] ^ 0x20);
    std::ofstream(file.path(), std::ios::binary) << other;
    CHECK_FALSE(file.read());
  }
  file.write(binary);
  CHECK(file.read() == binary);
}

TEST_CASE("program files: without a cache folder programs are always built") {
  const CacheFolder folder;
  setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
  const ProgramFile file("opencl", {"driver", "source"});
  file.write("binary");
  CHECK_FALSE(file.read());
}
