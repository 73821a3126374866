#pragma once

#include <harmonics/error.hpp>

namespace harmonics::engine::cli {

// Exit codes, described in docs/cli.md. They are those of sysexits.h where one is suitable.
enum Exit {
  kDone = 0,
  kFailed = 1,
  kWrongUse = 2,
  kBadData = 65,
  kNoInput = 66,
  kUnavailable = 69,
  kInternal = 70,
  kCannotWrite = 73,
  kInputOutput = 74,
  kResumable = 75,
  kNotAllowed = 77,
  kInvalidGraph = 78,
  kInterrupted = 130
};
int exit_code(ErrorKind kind);

}  // namespace harmonics::engine::cli
