#include "engine/cli/terminal/exit_codes.hpp"

namespace harmonics::engine::cli {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Syntax:
    case ErrorKind::Name:
    case ErrorKind::Shape:
    case ErrorKind::Type:
      return kInvalidGraph;
    case ErrorKind::Weights:
    case ErrorKind::Stream:
      return kBadData;
    case ErrorKind::NoInput:
      return kNoInput;
    case ErrorKind::Usage:
      return kWrongUse;
    case ErrorKind::Output:
      return kCannotWrite;
    case ErrorKind::Internal:
      return kInternal;
    case ErrorKind::InputOutput:
      return kInputOutput;
    case ErrorKind::Denied:
      return kNotAllowed;
    case ErrorKind::Unavailable:
      return kUnavailable;
    case ErrorKind::Memory:
    case ErrorKind::Plugin:
    case ErrorKind::Device:
    case ErrorKind::Diverged:
      return kFailed;
  }
  return kInternal;
}

}  // namespace harmonics::engine::cli
