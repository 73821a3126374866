// Files truncated while they are mapped.
#include "tests/streams/under_test.hpp"

#include <csignal>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <harmonics/file_mapping.hpp>

#include "engine/base/file.hpp"
#include "engine/model/safetensors.hpp"
#include "producers/file/bytes.hpp"
#include "producers/file/csv.hpp"
#include "producers/file/open.hpp"
#include "producers/file/table.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr size_t kBytes = 1 << 18;

std::string lost(const std::string& path) { return "'" + path + "' became shorter while it was read: it had "; }

template <typename Body>
std::string refusal_of(Body body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

FileMapping mapping_of(const std::string& path, size_t bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(file >= 0);
  FileMapping mapping(file, bytes);
  ::close(file);
  REQUIRE(mapping.data());
  return mapping;
}

uint64_t sum_of(const FileMapping& mapping) {
  uint64_t sum = 0;
  const auto* bytes = static_cast<const volatile unsigned char*>(mapping.data());
  for (size_t i = 0; i < mapping.bytes(); ++i) sum += bytes[i];
  return sum;
}

}  // namespace

TEST_CASE("a mapping of a truncated file reads zeros and reports it, other mappings are unaffected") {
  const TemporaryFolder folder;
  const std::string cut = folder.write("cut", std::string(kBytes, '\1')),
                    whole = folder.write("whole", std::string(kBytes, '\1'));
  const FileMapping a = mapping_of(cut, kBytes), b = mapping_of(whole, kBytes);
  CHECK(sum_of(a) == kBytes);
  std::filesystem::resize_file(cut, kBytes / 2);
  CHECK_FALSE(a.lost());
  CHECK(sum_of(a) == kBytes / 2);
  CHECK(a.lost());
  CHECK(sum_of(b) == kBytes);
  CHECK_FALSE(b.lost());
  FileMapping moved = mapping_of(whole, kBytes);
  const FileMapping to = std::move(moved);
  CHECK_FALSE(moved.lost());
  std::filesystem::resize_file(whole, 0);
  CHECK(sum_of(to) == 0);
  CHECK(to.lost());
}

TEST_CASE("mappings are lost on several threads while others are made and removed") {
  const TemporaryFolder folder;
  const std::string whole = folder.write("whole", std::string(kBytes, '\1'));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    const std::string cut = folder.write("cut" + std::to_string(t), std::string(kBytes, '\1'));
    threads.emplace_back([&, cut] {
      const FileMapping a = mapping_of(cut, kBytes);
      std::error_code failed;
      std::filesystem::resize_file(cut, 4096, failed);
      for (int i = 0; i < 50; ++i) {
        const FileMapping b = mapping_of(whole, kBytes);
        wrong += sum_of(b) != kBytes || b.lost();
      }
      wrong += sum_of(a) != 4096 || !a.lost();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a SIGBUS outside mapped files goes to the earlier handler, or ends the process") {
  const TemporaryFolder folder;
  const std::string cut = folder.write("cut", std::string(kBytes, '\1'));
  const auto child = [&](bool handler) {
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      const int file = ::open(cut.c_str(), O_RDWR);
      struct sigaction action {};
      action.sa_handler = SIG_DFL;
      if (handler) action.sa_handler = [](int) { ::_exit(3); };
      // As in a process that maps its first file.
      if (::sigaction(SIGBUS, nullptr, &mapped::handler_before) != 0) ::_exit(9);
      mapped::handler_before = action;
      struct sigaction ours {};
      ours.sa_sigaction = mapped::on_bus_error;
      ours.sa_flags = SA_SIGINFO;
      ::sigaction(SIGBUS, &ours, nullptr);
      auto* const own = static_cast<volatile char*>(::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, file, 0));
      if (::ftruncate(file, 0) != 0) ::_exit(9);
      ::_exit(own[0] == 0 ? 8 : 9);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  };
  mapping_of(folder.write("first", "x"), 1);
  CHECK(child(true) == 3);
  folder.write("cut", std::string(kBytes, '\1'));
#ifndef __SANITIZE_ADDRESS__
  CHECK(child(false) == 128 + SIGBUS);
#endif
}

TEST_CASE("every reader of mapped files refuses data of a truncated file") {
  const TemporaryFolder folder;
  std::string rows;
  for (int i = 0; i < 40000; ++i) rows += "1,2\n";
  const std::string raw = folder.write("x.raw", std::string(kBytes, '\1')),
                    tokens = folder.write("x.tokens", std::string(kBytes, '\0')), table = folder.write("x.csv", rows);
  CsvOptions read_again;
  read_again.kept = 0;
  const std::pair<std::string, std::shared_ptr<Producer>> all[] = {
      {raw, open_file(raw, Options{{"dtype", "u8"}})},
      {tokens, open_file(tokens, Options{{"window", "16"}})},
      {table, open_table(csv_rows(FileBytes::open(table), read_again), read_again)},
  };
  for (const auto& [path, producer] : all) {
    INFO(path);
    const StreamInfo info = *producer->describe();
    std::vector<std::byte> to(64 * info.sample_bytes());
    REQUIRE(producer->read(64, to.data()) == 64);  // periodic checks count as done
    std::filesystem::resize_file(path, 0);
    const uint64_t last = info.size - 1;
    CHECK(refusal_of([&] { producer->read_at(&last, 1, to.data()); }).rfind(lost(path), 0) == 0);
    CHECK(refusal_of([&] { producer->read(1, to.data()); }).rfind(lost(path), 0) == 0);
  }
}

TEST_CASE("weights truncated during reading are refused") {
  const TemporaryFolder folder;
  const std::string path = folder.write("w", std::string(kBytes, '\1'));
  const auto file = MappedFile::open(path);
  CHECK_NOTHROW(file->expect_whole());
  std::filesystem::resize_file(path, 0);
  CHECK(refusal_of([&] {
          read_whole(*file, [&] { return read_safetensors(file->data(), file->bytes(), path, file); });
        }) == "'" + path + "' became shorter while it was read, or its device failed");
}
