#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/abi.h>

#include "engine/cli/command.hpp"
#include "engine/cli/output.hpp"

namespace harmonics::cli {

int version_command(const Options& options) {
  if (options.json) {
    print_json(boost::json::object{{"version", 1}, {"harmonics", HARMONICS_VERSION}, {"contract", fmt::format("{}.{}", HX_ABI_MAJOR, HX_ABI_MINOR)}, {"compiler", __VERSION__}});
    return kDone;
  }
  print("harmonics {}\nplugin contract {}.{}\nbuilt with g++ {}\n", HARMONICS_VERSION, HX_ABI_MAJOR, HX_ABI_MINOR, __VERSION__);
  return kDone;
}

}  // namespace harmonics::cli
