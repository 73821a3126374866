// Notes about items that a plugin replaces.
#include <catch2/catch.hpp>

#include "tests/plugins/fixture.hpp"
#include "tests/plugins/small_run.hpp"

using journeys::Folder;
using journeys::has;
using journeys::Result;
namespace fs = std::filesystem;

TEST_CASE("replacing: a plugin that replaces another's item gives a one-line note") {
  const SmallRun data;
  const std::string flow = data.flow("affine, sigmoid"),
                    note =
                        "note: plugin 'org.example.own' replaces activation 'sigmoid' of libharmonics_activations.so\n";
  const Result named = journeys::harmonics("run " + flow + data.flags + "--plugin " + fixture("own_sigmoid"));
  CHECK(named.code == 0);
  CHECK(has(named.err, note));
  CHECK_FALSE(has(journeys::harmonics("run " + flow + data.flags).err, " replaces "));
  CHECK(journeys::harmonics("run --quiet " + flow + data.flags + "--plugin " + fixture("own_sigmoid")).err == "");

  const Folder place;
  fs::copy_file(fixture("own_sigmoid"), place / "libown.so");
  place.write("libown.manifest", "activation sigmoid\n");
  const std::string here = "HARMONICS_PLUGIN_PATH=" + (place / "") + " XDG_CACHE_HOME=" + (place / "cache") + " ";
  CHECK(has(journeys::harmonics_in(here, "run " + flow + data.flags).err, note));
  CHECK_FALSE(has(journeys::harmonics_in(here, "run " + data.flow("affine, tanh") + data.flags).err, " replaces "));
}
