// Libraries that crash or hang the system's loader: nothing waits forever, and neither processes nor files remain.
#include <catch2/catch.hpp>

#include <csignal>
#include <cstring>
#include <elf.h>

#include "engine/plugin/loader.hpp"
#include "tests/journeys/background.hpp"
#include "tests/plugins/fixture.hpp"
#include "tests/plugins/traced.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using harmonics::engine::testing::error_of;
using journeys::Folder;
using journeys::has;
using journeys::Result;
namespace fs = std::filesystem;

namespace {

// Returns the library with one relocation that writes to a distant address.
std::string with_wild_relocation(std::string file) {
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof header);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, file.data() + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_RELA) continue;
    Elf64_Rela relocation;
    std::memcpy(&relocation, file.data() + section.sh_offset, sizeof relocation);
    relocation.r_offset = uint64_t{1} << 46;
    std::memcpy(file.data() + section.sh_offset, &relocation, sizeof relocation);
    break;
  }
  return file;
}

}  // namespace

TEST_CASE("trial: plugin check and doctor do not wait forever") {
  const std::string library = fixture("never_ends");
  const auto in = [](const std::string& place, const std::string& arguments) {
    return journeys::harmonics_in("NEVER_ENDS=" + place + " HARMONICS_PLUGIN_PATIENCE=0.5", arguments);
  };
  for (const char* place : {"constructor", "register"})
    for (const char* verb : {"check ", "doctor "}) {
      const Result r = in(place, "plugin " + (verb + library));
      CHECK(r.code == 1);
      CHECK(has(r.out + r.err, "did not end within 0.5 seconds while it was loaded"));
    }
  const Result body = in("body", "plugin check " + library);
  CHECK(body.code == 1);
  CHECK(has(body.err, "did not end within 0.5 seconds in '"));
  CHECK(has(body.err, "' of activation stays"));
  CHECK(journeys::harmonics("plugin check " + library).code == 0);
  CHECK(has(journeys::harmonics_in("HARMONICS_PLUGIN_PATIENCE=soon", "plugin check " + library).err,
            "HARMONICS_PLUGIN_PATIENCE is 'soon', which is not a number of seconds above 0"));
}

TEST_CASE("trial: processes started by a check end with it") {
  for (const char* place : {"constructor", "register", "body"}) {
    INFO(place);
    const Folder f;
    const std::string file = f / "process";
    ::setenv("NEVER_ENDS", place, 1);
    ::setenv("NEVER_ENDS_PROCESS", file.c_str(), 1);
    journeys::Background check(f, "plugin check " + fixture("never_ends"));
    REQUIRE(check.await([&] { return journeys::read(file).ends_with('\n'); }));
    ::unsetenv("NEVER_ENDS");
    ::unsetenv("NEVER_ENDS_PROCESS");
    const std::string number = journeys::read(file);
    const fs::path process = "/proc/" + number.substr(0, number.size() - 1);
    REQUIRE(number != std::to_string(check.process()) + "\n");
    check.signal(SIGKILL);
    CHECK(check.await([&] {
      const std::string state = journeys::read(process / "stat");
      return state.empty() || has(state, ") Z ");
    }));
  }
}

TEST_CASE("trial: a library that crashes the system's loader is refused, and each file is tried once") {
  const Folder f;
  const std::string damaged = f.write("libdamaged.so", with_wild_relocation(journeys::read(fixture("functions"))));
  Registry registry;
  const std::string why = "plugin '" + damaged +
                          "' cannot be loaded: it crashes with SIGSEGV\nthe file is damaged, or its constructors are "
                          "wrong: build it or copy it again";
  CHECK(error_of([&] { load_plugin(damaged, registry); }) == why);
  CHECK(error_of([&] { load_plugin(damaged, registry); }) == why);
  CHECK(has(error_of([&] { load_plugin(fixture("crashes_at_load"), registry); }),
            "cannot be loaded: it crashes with SIGABRT\n"));

  const std::string here = "XDG_CACHE_HOME=" + (f / "cache") + " NEVER_ENDS_OPENED=" + (f / "opened") + " ";
  const auto opened = [&] { return fs::file_size(f / "opened"); };
  const std::string library = f / "libcopy.so", command = "list activations --plugin " + library;
  fs::copy_file(fixture("never_ends"), library);
  CHECK(journeys::harmonics_in(here, command).code == 0);
  CHECK(opened() == 2);  // once by the child
  CHECK(journeys::harmonics_in(here, command).code == 0);
  CHECK(opened() == 3);
  fs::last_write_time(library, fs::last_write_time(library) + std::chrono::seconds(1));
  CHECK(journeys::harmonics_in(here, command).code == 0);
  CHECK(opened() == 5);
  f.write("cache/harmonics/plugins-opened", std::string(3 << 20, 'x'));
  CHECK(journeys::harmonics_in(here, command).code == 0);
  CHECK(opened() == 7);
  CHECK(journeys::harmonics_in(here, command).code == 0);
  CHECK(opened() == 8);
  const Result waits = journeys::harmonics_in(
      "NEVER_ENDS=constructor HARMONICS_PLUGIN_PATIENCE=0.5 XDG_CACHE_HOME=" + (f / "other"), command);
  CHECK(waits.code == 1);
  CHECK(has(waits.err,
            "cannot be loaded: it did not end within 0.5 seconds\nhelp: its constructors run when it is loaded; "
            "HARMONICS_PLUGIN_PATIENCE=SECONDS waits longer\n"));
}
