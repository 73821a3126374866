#include <clocale>
#include <csignal>
#include <cstdio>
#include <exception>

#include "engine/base/source_text.hpp"
#include "engine/cli/command.hpp"
#include "engine/cli/terminal.hpp"
#include "engine/plugin/loader.hpp"

namespace harmonics::cli {

namespace {

struct Row {
  const char* verb;
  int (*run)(const Options&);
};
constexpr Row kVerbs[] = {
    {"run", run_command},       {"infer", infer_command}, {"validate", validate_command}, {"explain", explain_command},
    {"profile", profile_command}, {"bench", bench_command},
    {"ckpt", ckpt_command},     {"list", list_command},     {"inspect", inspect_command}, {"version", version_command},
    {"plugin", plugin_command}, {"config", config_command}, {"completion", completion_command}, {"man", man_command},
};

int dispatch(const Options& options) {
  for (const std::string& plugin : options.plugins) load_plugin(plugin);
  for (const Row& row : kVerbs)
    if (options.verb == row.verb) return row.run(options);
  return kWrongUse;
}

}  // namespace

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Syntax:
    case ErrorKind::Name:
    case ErrorKind::Shape:
    case ErrorKind::Type: return kInvalidGraph;
    case ErrorKind::Weights:
    case ErrorKind::Stream: return kBadData;
    case ErrorKind::NoInput: return kNoInput;
    case ErrorKind::Usage: return kWrongUse;
    case ErrorKind::Output: return kCannotWrite;
    case ErrorKind::Internal: return kInternal;
    case ErrorKind::Plugin:
    case ErrorKind::Device:
    case ErrorKind::Diverged: return kFailed;
  }
  return kInternal;
}

}  // namespace harmonics::cli

int main(int argc, char** argv) {
  using namespace harmonics;
  using namespace harmonics::cli;
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of writing, with its reason
  Options options;
  try {
    if (const std::optional<int> code = parse_options(argc, argv, options)) return *code;
    return dispatch(options);
  } catch (const Error& e) {
    print_error(e);
    return exit_code(e.kind());
  } catch (const std::exception& e) {
    print_error(Error(ErrorKind::Internal, std::string("internal error: ") + e.what(), {}, {"this is a bug; please report the command line and the files it read"}));
    return kInternal;
  }
}
