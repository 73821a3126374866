#include "library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

namespace harmonics::cuda {

Library::Library(const std::vector<std::string>& names, std::string& why) {
  std::vector<std::string> folders{""};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* at = std::getenv(variable); at && *at == '/') folders.push_back(std::string(at) + "/lib64/");
  folders.push_back("/usr/local/cuda/lib64/");
  std::string broken;  // the loader's message about a file that exists
  for (const std::string& folder : folders)
    for (const std::string& name : names) {
      if (handle_) break;
      path_ = folder + name;
      handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
      const char* said = handle_ ? nullptr : dlerror();
      if (said && broken.empty() && !std::string_view(said).starts_with(path_ + ": cannot open shared object file"))
        broken = said;
    }
  if (handle_) return;
  why = broken.empty() ? names.front() + " is not found: install it, or name its folder in LD_LIBRARY_PATH"
                       : names.front() + " cannot be loaded: " + broken;
}

void* Library::symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

}  // namespace harmonics::cuda
