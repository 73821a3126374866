// Output files of verbs.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "engine/cli/options/options.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/model/safetensors.hpp"

namespace harmonics::engine::cli {

// Throws ErrorKind::Output for the first file of --save, --report, --plot, --confusion and --session that cannot be
// written, and Usage if --save has the extension of another format. Called before the first step.
void expect_writable_outputs(const Options& options);

// Throws ErrorKind::Usage if a file is both read and written, or written twice. Called before any file is opened.
// --save may name the file of --weights, which is read first.
void expect_separate_files(const Options& options);

// Throws ErrorKind::Usage if a file name has another extension than those of its format, because viewers would not open
// the file. `content` describes the format in the message.
void expect_ending(const char* flag, const std::string& path, std::initializer_list<const char*> endings,
                   const char* content);

// Writes all outputs, even if some fail.
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
  // Throws the first error.
  void end() const {
    if (failed_) throw *failed_;
  }

 private:
  std::optional<Error> failed_;
};

// Writes weights to `path`. If that fails, writes NAME.unsaved.safetensors to the working directory, or else to the
// temporary folder, and throws an error that names this file.
void save_or_rescue(const TensorFile& weights, const std::string& path);

}  // namespace harmonics::engine::cli
