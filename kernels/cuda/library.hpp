// A library of the toolkit that is opened when it is needed.
#pragma once

#include <string>
#include <vector>

namespace harmonics::cuda {

class Library {
 public:
  // The first of these that opens, as the loader finds it or in a toolkit's usual folder; stays open. None: `why` says what was
  // looked for.
  Library(const std::vector<std::string>& names, std::string& why);
  bool is_open() const { return handle_; }
  // False, with the name in `why`, when the library lacks it.
  template <typename F> bool find(F*& to, const char* name, std::string& why) const {
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
