// Short versions of the campaigns in scripts/.
#include "tests/faults/faulted.hpp"

using namespace faults;

namespace {

struct Campaign {
  int code;
  std::string said;
};

Campaign campaign(const std::string& arguments) {
  Folder f;
  const std::string command = "timeout 600 '" + std::string(HARMONICS_SOURCE_DIR) + "/scripts/campaign.sh' " +
                              arguments + " --program '" + kProgram + "' >'" + (f / "log") + "' 2>&1";
  const int status = std::system(command.c_str());
  Campaign c{WEXITSTATUS(status), read(f / "log")};
  UNSCOPED_INFO(c.said);
  return c;
}

}  // namespace

TEST_CASE("campaigns: a run killed ten times ends with the weights of an undisturbed run") {
  const Campaign c = campaign("--kills 10 --seed 4");
  CHECK(c.code == 0);
  CHECK(has(c.said, "kills: 10; "));
  CHECK(!has(c.said, "while one was written: 0"));
  CHECK(has(c.said, "each with the weights of the undisturbed run, to the bit"));
}

TEST_CASE("campaigns: learners and senders of live streams are killed ten times and lose nothing") {
  const Campaign c = campaign("--live --kills 10 --seed 4");
  CHECK(c.code == 0);
  for (const char* part :
       {"one sender: ", "one sender by way of the spool, killed too: ",
        "pictures and labels from two addresses, joined by number: ",
        "pictures and labels from two addresses, joined in order: ", "three senders and the replay of the spool: "})
    CHECK(has(c.said, std::string(part) + "learner killed 10 times"));
}
