#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "engine/base/source_text.hpp"
#include "engine/base/spelling.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/options/command_table.hpp"
#include "engine/cli/options/hub_name.hpp"
#include "engine/cli/run/crash_report.hpp"
#include "engine/cli/run/deployment.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/commands/verb_flags.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/run/outputs.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/execution/device_choice.hpp"
#include "engine/execution/product_rates.hpp"
#include "engine/plugin/loader.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/program/functional.hpp"

namespace harmonics::engine::cli {

namespace {

void expect_known_device(const std::string& name) {
  if (const size_t colon = name.find(':'); colon != std::string::npos) {  // "trace:cpu"
    expect_known_device(name.substr(0, colon));
    return expect_known_device(name.substr(colon + 1));
  }
  const std::vector<std::string> known = device_names();
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  Error e(ErrorKind::Usage, "unknown device '" + name + "'");
  if (const std::string meant = did_you_mean(name, known); !meant.empty()) e.note(meant);
  throw e.note(plugin_help(HX_DEVICE));
}

// Throws if the device is unknown or has no kernels, before any slow input is read.
void expect_device(const std::string& name) {
  if (name == "cpu" || name == "reference" || name == "auto") return;
  expect_known_device(name);
  if (name.find(':') == std::string::npos && only_wraps(Registry::global(), name))
    throw Error(ErrorKind::Usage, "device '" + name + "' has no kernels: it passes calls on to another device", {},
                {"name that device too: --device " + name + ":cpu"});
}

// Replaces `--device auto` and `--deployment FILE` by a device.
void settle_device(Options& options) {
  const bool deployed = !options.deployment.empty();
  if (deployed && options.given.count("device"))
    throw Error(ErrorKind::Usage, "--device and --deployment both select the hardware", {}, {"keep one of them"});
  if (!deployed && options.run.device != "auto") return;
  const DeviceChoice choice =
      deployed ? deployed_device(options.deployment, name_of_flow(options)) : choose_device(Registry::global());
  options.run.device = choice.device;
  if (!choice.note.empty() && !options.quiet) print_note(choice.note);
}

// Runs a verb. If a missing file has a name like a model on a hub, adds the command to download it to the error.
int run_verb(const VerbRow& verb, const Options& options) {
  try {
    return verb.run(options);
  } catch (const Error& e) {
    const std::string command = e.kind() != ErrorKind::NoInput || options.files.empty()
                                    ? std::string()
                                    : download_command(options.files.front());
    if (command.empty()) throw;
    Error more = e;
    throw more.note("models are not downloaded automatically; to download one: " + command);
  }
}

int dispatch(const VerbRow& verb, Options options) {
  expect_separate_files(options);
  std::optional<CrashReport> crashes;
  if (options.verb != "plugin") crashes.emplace();  // plugin handles crashes in its child processes
  if (!options.quiet) set_call_notes(print_note);
  for (const std::string& plugin : options.plugins) load_plugin(plugin);
  if (!options.plugins.empty() && !options.quiet)
    for (const std::string& line : Registry::global().take_replacements()) print_note(line);
  expect_device(options.run.device);
  settle_device(options);
  settle_precision(options.run, Registry::global(), options.run.deterministic);
  options.weights = checkpoint_in(options.weights);
  note_unapplied_adapter(options);
  if (options.verb == "export") options.files.front() = checkpoint_in(options.files.front());
  return run_verb(verb, options);
}

}  // namespace

namespace {

// Converts exceptions of other classes: a file system error, or a bug.
Error error_of(const std::exception& e) {
  if (const auto* refused = dynamic_cast<const std::filesystem::filesystem_error*>(&e)) {
    const int reason = refused->code().value();
    return Error(kind_of_failure(reason, reason == EACCES || reason == EPERM ? ErrorKind::Denied : ErrorKind::NoInput),
                 "cannot use '" + refused->path1().string() + "': " + refused->code().message());
  }
  if (const auto* memory = dynamic_cast<const std::bad_alloc*>(&e))
    return Error(ErrorKind::Memory, text_of_memory(*memory), {},
                 {"use a smaller batch or smaller layers, or a machine with more memory"});
  return Error(ErrorKind::Internal, std::string("internal error: ") + e.what(), {},
               {"this is a bug; please report the command line and the files it read"});
}

}  // namespace

}  // namespace harmonics::engine::cli

namespace harmonics::engine::cli {

namespace {

int run_program(int argc, char** argv, Options& options) {
  try {
    const VerbRow* const verb = parse_options(command_table(), argc, argv, options);
    const int code = verb ? dispatch(*verb, options) : static_cast<int>(kDone);
    if (code == kDone) finish_output();  // for another code the error was already printed
    return code;
  } catch (const Error& e) {
    print_error(e);
    return is_reader_gone(e) ? static_cast<int>(kUnavailable) : exit_code(e.kind());
  } catch (const std::exception& e) {
    const Error error = error_of(e);
    print_error(error);
    return exit_code(error.kind());
  }
}

// Returns whether JSON was requested, even if the rest of the command line is invalid.
bool wants_json(int argc, char** argv, const Options& options) {
  return options.json ||
         std::any_of(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
}

// Prints the first error as JSON unless an object was already printed, so that --json always ends with an object.
void print_failure() {
  if (printed_json() || first_error().is_null()) return;
  try {
    print_json(boost::json::object{{"version", 1}, {"error", first_error()}});
    finish_output();
  } catch (const Error&) {  // standard output is closed
  }
}

}  // namespace

}  // namespace harmonics::engine::cli

int main(int argc, char** argv) {
  using namespace harmonics;
  using namespace harmonics::engine::cli;
  take_standard_streams();
  std::signal(SIGUSR1, SIG_IGN);  // runs reload plugins on this signal
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file size limit then fails with an error
  Options options;
  const int code = run_program(argc, argv, options);
  if (reader_has_gone() && code == kUnavailable) end_by_reader();
  if (code != kDone && wants_json(argc, argv, options)) print_failure();
  return code;
}
