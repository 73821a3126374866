#include "engine/base/scratch_folder.hpp"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <harmonics/error.hpp>

namespace harmonics::engine {

namespace fs = std::filesystem;

ScratchFolder::ScratchFolder() {
  std::error_code failed;
  fs::path all = fs::temp_directory_path(failed);
  if (failed) all = "/tmp";
  path_ = (all / "harmonics-XXXXXX").string();
  if (!::mkdtemp(path_.data()))
    throw Error(ErrorKind::Output, "cannot create a folder in '" + all.string() + "': " + std::strerror(errno), {},
                {"set TMPDIR to a folder that may be written"});
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace harmonics::engine
