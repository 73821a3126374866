// Disk cache of built programs: damaged files are ignored.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

TEST_CASE("program files: those that other users may write, and other kinds of files, are rebuilt") {
  const CacheFolder folder;
  const ProgramFile file("opencl", {"driver", "source"});
  file.write("binary");
  struct stat written {};
  REQUIRE(::stat(file.path().c_str(), &written) == 0);
  CHECK((written.st_mode & 0777) == 0600);
  REQUIRE(::chmod(file.path().c_str(), 0644) == 0);
  CHECK(file.read() == "binary");
  REQUIRE(::chmod(file.path().c_str(), 0646) == 0);
  CHECK_FALSE(file.read());
  CHECK_FALSE(ProgramFile::made_from(file.path()));
  file.write("binary");
  CHECK(file.read() == "binary");
  if (::geteuid() == 0) {  // root may give files away
    REQUIRE(::chown(file.path().c_str(), 65534, 65534) == 0);
    CHECK_FALSE(file.read());
  }
  // A name that another process chose: written through a link, the file behind it would be lost.
  const std::string beside = file.path() + "." + std::to_string(::getpid()), other = file.path() + ".other";
  std::ofstream(other) << "of another program";
  REQUIRE(::symlink(other.c_str(), beside.c_str()) == 0);
  file.write("binary");
  CHECK(bytes_of(other) == "of another program");
  CHECK(file.read() == "binary");
  REQUIRE(::unlink(file.path().c_str()) == 0);
  REQUIRE(::mkfifo(file.path().c_str(), 0600) == 0);
  CHECK_FALSE(file.read());  // does not wait for a writer
}

TEST_CASE("program files: without a cache folder programs are always built") {
  const CacheFolder folder;
  setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
  const ProgramFile file("opencl", {"driver", "source"});
  file.write("binary");
  CHECK_FALSE(file.read());
}
