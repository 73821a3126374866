// Dead letters: frames of unpaired and late samples, limited in size, without duplicates after a resume.
#include <catch2/catch.hpp>

#include <fcntl.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "engine/spool/dead_letters.hpp"
#include "engine/spool/segment.hpp"
#include "tests/files_in_memory.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

StreamInfo scalar() {
  StreamInfo info;
  info.dtype = DType::I64;
  info.classes = 30;
  return info;
}

// Returns the samples of a frame file by number.
std::map<uint64_t, int64_t> letters_in(FilesInMemory& files, const std::string& path) {
  std::map<uint64_t, int64_t> found;
  spool::SegmentReader reader(path, files);
  while (const auto entry = reader.next(reader.size())) {
    int64_t value = 0;
    std::memcpy(&value, entry->frame.tensors.at(0).bytes.data(), sizeof value);
    CHECK(entry->frame.tensors[0].classes == 30);
    found[entry->frame.number_of(0).number] = value;
  }
  return found;
}

}  // namespace

TEST_CASE("dead letters: appended to those of earlier runs up to the limit", "[spool]") {
  FilesInMemory files;
  std::vector<std::string> notes;
  DeadLetterOptions o{"dead", 1u << 20, [&](const std::string& note) { notes.push_back(note); }, false, &files};
  const auto keep = [](DeadLetters& letters, int64_t value) {
    letters.keep("x", scalar(), "late", static_cast<uint64_t>(value), {static_cast<uint64_t>(value), 9},
                 reinterpret_cast<const std::byte*>(&value));
  };
  {
    DeadLetters letters(o);
    for (int64_t i = 0; i < 5; ++i) keep(letters, i);
  }
  // An incomplete last frame, as after a power failure, is removed.
  const int file = files.open("dead/x.hxs", O_WRONLY, 0);
  const long long size = files.size(file);
  REQUIRE(size > 0);
  REQUIRE(files.truncate(file, static_cast<size_t>(size) - 3) == 0);
  files.close(file);
  o.most_bytes = static_cast<uint64_t>(2 * size);
  {
    DeadLetters letters(o);
    for (int64_t i = 10; i < 30; ++i) keep(letters, i);
  }
  const auto found = letters_in(files, "dead/x.hxs");
  CHECK(found.size() >= 8);
  CHECK(found.size() < 12);
  CHECK(found.count(4) == 0);
  for (const auto& [number, value] : found) CHECK(static_cast<int64_t>(number) == value);
  REQUIRE(notes.size() == 2);
  CHECK(notes[0].find("'dead/x.hxs' ended within a frame: dropped its last ") == 0);
  CHECK(notes[1].find("no longer kept in 'dead': it holds ") != std::string::npos);
  CHECK(notes[1].find("--dead-letters-limit") != std::string::npos);
}

TEST_CASE("dead letters: a resumed run keeps each sample once", "[spool]") {
  FilesInMemory files;
  DeadLetterOptions o{"dead", 1u << 20, nullptr, false, &files};
  const auto keep = [](DeadLetters& letters, uint64_t index, int64_t value, const char* why) {
    letters.keep("x", scalar(), why, index, {static_cast<uint64_t>(value), 9},
                 reinterpret_cast<const std::byte*>(&value));
  };
  {
    DeadLetters letters(o);
    for (int64_t i = 0; i < 5; ++i) keep(letters, static_cast<uint64_t>(i), i, "unpaired");
  }
  const size_t five = files.size_of("dead/x.hxs");
  o.resumed = true;
  {
    DeadLetters letters(o);  // resumed before the third; index and reason may differ
    for (int64_t i = 3; i < 10; ++i) keep(letters, static_cast<uint64_t>(i - 1), i, "late");
  }
  CHECK(letters_in(files, "dead/x.hxs").size() == 10);
  CHECK(files.size_of("dead/x.hxs") < five * 5 / 2);
  o.resumed = false;
  {
    DeadLetters letters(o);  // another run
    for (int64_t i = 0; i < 5; ++i) keep(letters, static_cast<uint64_t>(i), i, "unpaired");
  }
  CHECK(files.size_of("dead/x.hxs") > five * 5 / 2);
}
