#include "library.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace harmonics::cuda {

Library::Library(const std::vector<std::string>& names, std::string& why) {
  std::vector<std::string> folders{""};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* at = std::getenv(variable); at && *at == '/') folders.push_back(std::string(at) + "/lib64/");
  folders.push_back("/usr/local/cuda/lib64/");
  for (const std::string& folder : folders)
    for (const std::string& name : names)
      if (!handle_ && (handle_ = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL))) path_ = folder + name;
  if (!handle_) why = names.front() + " is not found: install it or set LD_LIBRARY_PATH";
}

void* Library::symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

}  // namespace harmonics::cuda
