// The origin of an archive's bytes, for errors.
#pragma once

#include <string>

#include <harmonics/error.hpp>

namespace harmonics {

struct Origin {
  std::string name;  // a path or an address, as the user wrote it
  ErrorKind kind;    // of errors about the content: Weights for files of weights, Stream for files of samples
};

// Throws "'name' <what>; <remedy>".
[[noreturn]] inline void refuse(const Origin& file, const std::string& what, const std::string& remedy = "") {
  throw Error(file.kind, "'" + file.name + "' " + what + (remedy.empty() ? "" : "; " + remedy));
}

}  // namespace harmonics
