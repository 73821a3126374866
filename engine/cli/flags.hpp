// Builds the rows of a verb. Whatever reads a value names the flag, the value, what it takes and an example of it.
#pragma once

#include <cstdint>

#include "engine/cli/command_table.hpp"
#include "engine/cli/options.hpp"

namespace harmonics::cli {

enum class Least { above_zero, zero };

class Flags {
 public:
  explicit Flags(VerbRow& verb) : verb_(verb) {}
  // Flags from here on stand under this heading.
  void group(const char* heading) { group_ = heading; }

  PositionalRow& positional(const char* name, const char* help);
  // `help` of a flag with choices or names continues their list: ", with its settings".
  FlagRow& on(const char* name, const char* help, bool Options::*to);
  FlagRow& text(const char* name, const char* value, const char* help, std::string Options::*to);
  FlagRow& text(const char* name, const char* value, const char* help, void (*to)(Options&, const std::string&));
  FlagRow& texts(const char* name, const char* value, const char* help, std::vector<std::string> Options::*to);
  // Whole numbers from `least` to `most`, real numbers with a least one, durations ("90s").
  FlagRow& whole(const char* name, int64_t least, int64_t most, const char* help, void (*to)(Options&, int64_t));
  FlagRow& real(const char* name, Least least, double most, const char* help, void (*to)(Options&, double));
  FlagRow& duration(const char* name, const char* help, void (*to)(Options&, double));

 private:
  using Take = std::function<void(const FlagRow&, Options&, const std::string&)>;
  FlagRow& add(const char* name, const char* value, const char* help, Take take);

  VerbRow& verb_;
  const char* group_ = "Options";
};

// What was written for a flag, or for a part of a list.
void give(const FlagRow& flag, Options& options, const std::string& value);
// true, on, yes, 1; false, off, no, 0; ErrorKind::Usage.
bool read_switch(const FlagRow& flag, const std::string& text);
// "90s", "10m", "1.5h"; ErrorKind::Usage.
double duration_seconds(const std::string& flag, const std::string& text);
// "cpu, cuda or opencl".
std::string either(const std::vector<std::string>& words);

// Registered ones, "reference" and "auto".
std::vector<std::string> device_names();

// What defines the flags of each verb.
void run_flags(VerbRow& verb);
void infer_flags(VerbRow& verb);
void serve_flags(VerbRow& verb);
void validate_flags(VerbRow& verb);
void explain_flags(VerbRow& verb);
void profile_flags(VerbRow& verb);
void bench_flags(VerbRow& verb);
void ctl_flags(VerbRow& verb);
void top_flags(VerbRow& verb);
void tap_flags(VerbRow& verb);
void send_flags(VerbRow& verb);
void receive_flags(VerbRow& verb);
void keys_flags(VerbRow& verb);
void ckpt_flags(VerbRow& verb);
void list_flags(VerbRow& verb);
void inspect_flags(VerbRow& verb);
void plugin_flags(VerbRow& verb);
void config_flags(VerbRow& verb);
void completion_flags(VerbRow& verb);
void man_flags(VerbRow& verb);
void version_flags(VerbRow& verb);

}  // namespace harmonics::cli
