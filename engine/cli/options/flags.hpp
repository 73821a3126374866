// Builds the rows of a verb. Error messages name the flag, the value, the permitted values and an example.
#pragma once

#include <cstdint>

#include "engine/cli/options/command_table.hpp"
#include "engine/cli/options/options.hpp"

namespace harmonics::engine::cli {

enum class Least { above_zero, zero };

class Flags {
 public:
  explicit Flags(VerbRow& verb) : verb_(verb) {}
  // Starts a group of flags with this heading.
  void group(const char* heading) { group_ = heading; }

  PositionalRow& positional(const char* name, const char* help);
  bool has(const char* name) const;  // whether this flag was added
  // Add flags. `help` continues the list of choices or names, if there are any: ", with its settings".
  FlagRow& on(const char* name, const char* help, bool Options::*to);
  FlagRow& text(const char* name, const char* value, const char* help, std::string Options::*to);
  FlagRow& text(const char* name, const char* value, const char* help, void (*to)(Options&, const std::string&));
  FlagRow& texts(const char* name, const char* value, const char* help, std::vector<std::string> Options::*to);
  // Add flags for whole numbers from `least` to `most`, real numbers with a minimum, and durations ("90s").
  FlagRow& whole(const char* name, int64_t least, int64_t most, const char* help, void (*to)(Options&, int64_t));
  FlagRow& real(const char* name, Least least, double most, const char* help, void (*to)(Options&, double));
  FlagRow& duration(const char* name, const char* help, void (*to)(Options&, double));

 private:
  using Take = std::function<void(const FlagRow&, Options&, const std::string&)>;
  FlagRow& add(const char* name, const char* value, const char* help, Take take);

  VerbRow& verb_;
  const char* group_ = "Options";
};

// Applies the value of a flag, or one value of a list.
void give(const FlagRow& flag, Options& options, const std::string& value);
// Reads true, on, yes, 1 or false, off, no, 0. Throws ErrorKind::Usage for other words.
bool read_switch(const FlagRow& flag, const std::string& text);
// Reads "90s", "10m", "1.5h". Throws ErrorKind::Usage for other text.
double duration_seconds(const std::string& flag, const std::string& text);
// Returns "cpu, cuda or opencl".
std::string either(const std::vector<std::string>& words);

}  // namespace harmonics::engine::cli
