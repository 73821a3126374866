// What is written when a run is over.
#pragma once

#include <optional>
#include <string>

#include "engine/cli/terminal.hpp"
#include "engine/model/safetensors.hpp"

namespace harmonics::cli {

// Tries each, whatever became of the others.
class Outputs {
 public:
  template <typename Write> void attempt(Write write) {
    try {
      write();
    } catch (const Error& e) {
      if (failed_) print_error(e);
      else failed_ = e;
    }
  }
  bool failed() const { return failed_.has_value(); }
  // Throws the first failure.
  void end() const {
    if (failed_) throw *failed_;
  }

 private:
  std::optional<Error> failed_;
};

// Writes weights that are nowhere else. Where `path` cannot be written they go to NAME.unsaved.safetensors, in the working directory or
// else in the folder for temporary files, and the error that is thrown says so.
void save_or_rescue(const TensorFile& weights, const std::string& path);

}  // namespace harmonics::cli
