// Files that verbs write.
#pragma once

#include <optional>
#include <string>

#include "engine/cli/options.hpp"
#include "engine/cli/terminal.hpp"
#include "engine/model/safetensors.hpp"

namespace harmonics::cli {

// Throws ErrorKind::Output for the first of --save, --report, --plot and --confusion that could not be written: asked
// before the first step.
void expect_writable_outputs(const Options& options);

// Throws ErrorKind::Usage when a file that is written is read as well, or written twice; asked before anything is
// opened.
// --save may name the file of --weights: that is read before.
void expect_separate_files(const Options& options);

// Tries each, whatever became of the others.
class Outputs {
 public:
  template <typename Write>
  void attempt(Write write) {
    try {
      write();
    } catch (const Error& e) {
      if (failed_)
        print_error(e);
      else
        failed_ = e;
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

// Writes weights that are nowhere else. Where `path` cannot be written they go to NAME.unsaved.safetensors, in the
// working directory or else in the folder for temporary files, and the error that is thrown says so.
void save_or_rescue(const TensorFile& weights, const std::string& path);

}  // namespace harmonics::cli
