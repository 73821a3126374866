// A library of the CUDA toolkit, opened on demand.
#pragma once

#include <string>
#include <vector>

namespace harmonics::cuda {

class Library {
 public:
  // Opens the first of these names, in the loader's search path or the toolkit's usual folders. Never closes it. If
  // none can be opened, sets `why`, with the loader's message if a file exists.
  Library(const std::vector<std::string>& names, std::string& why);
  bool is_open() const { return handle_; }
  // Looks up a symbol. Returns false, with its name in `why`, if the library lacks it.
  template <typename F>
  bool find(F*& to, const char* name, std::string& why) const {
    to = reinterpret_cast<F*>(symbol(name));
    if (!to && why.empty()) why = path_ + " has no " + name;
    return to;
  }

 private:
  void* symbol(const char* name) const;
  void* handle_ = nullptr;
  std::string path_;
};

}  // namespace harmonics::cuda
