#include "engine/cli/run/outputs.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include <fmt/core.h>

#include "engine/base/address.hpp"
#include "engine/base/file.hpp"
#include "producers/file/formats.hpp"
#include "producers/file/images.hpp"
#include "engine/model/sealed_file.hpp"

namespace fs = std::filesystem;

namespace harmonics::engine::cli {

namespace {

[[noreturn]] void refuse(const char* flag, const std::string& path, const std::string& why, const std::string& remedy,
                         int reason = 0) {
  throw Error(kind_of_failure(reason, ErrorKind::Output), fmt::format("{}: cannot write '{}': {}", flag, path, why), {},
              {remedy});
}

// Throws if the file cannot be written. Otherwise removes what killed runs have left beside it. Creates a test file
// beside it, because permissions do not reveal read-only file systems.
void expect_writable(const char* flag, const std::string& path) {
  std::error_code failed;
  const fs::path linked = fs::is_symlink(path, failed) ? fs::weakly_canonical(path, failed) : fs::path(path);
  if ((void)fs::symlink_status(linked, failed); failed == std::errc::filename_too_long)
    refuse(flag, path, std::strerror(ENAMETOOLONG), "give a shorter name");
  if (fs::is_directory(linked, failed))
    refuse(flag, path, "it is a folder",
           fmt::format("name a file in it: {} {}", flag, (fs::path(path) / "NAME").string()));
  if (fs::exists(linked, failed) && !fs::is_regular_file(linked, failed))
    refuse(flag, path, "it exists and is not a plain file", "give another name");
  const fs::path folder = linked.has_parent_path() ? linked.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, failed))
    refuse(flag, path, fmt::format("there is no folder '{}'", folder.string()),
           fmt::format("make it first: mkdir -p '{}'", folder.string()));
  const std::string tried = (folder / fmt::format(".harmonics-try-{}.tmp", ::getpid())).string();
  const int file = ::open(tried.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) refuse(flag, path, std::strerror(errno), "give a file in a folder that may be written", errno);
  ::close(file);
  ::unlink(tried.c_str());
  remove_unfinished_files(folder.string());
}

// Throws for the extension of another format, in which --save does not write.
void expect_tensor_name(const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  for (const char* other : {".gguf", ".pt", ".pth", ".ckpt", ".onnx", ".npz", ".h5", ".keras"})
    if (ending == other)
      throw Error(ErrorKind::Usage, fmt::format("--save '{}' has the extension of another format", path), {},
                  {"--save writes safetensors: use that extension",
                   "'harmonics export' writes saved weights in other formats"});
}

// Returns an unused name in `folder` derived from that of `path`.
std::string free_name(const fs::path& folder, const std::string& path) {
  const std::string stem = fs::path(path).stem().string();
  for (int number = 1;; ++number) {
    const fs::path name =
        folder / fmt::format("{}.unsaved{}.safetensors", stem, number > 1 ? "-" + std::to_string(number) : "");
    std::error_code failed;
    if (!fs::exists(fs::symlink_status(name, failed)) || failed) return name.string();
  }
}

// A file on the command line and its flag.
struct NamedFile {
  std::string flag, path;
};
using NamedFiles = std::vector<NamedFile>;

void add_file(NamedFiles& to, const char* flag, const std::string& path) {
  if (!path.empty()) to.push_back({flag, path});
}

// Adds the files of "file:" addresses. Errors in addresses are reported when they are opened.
void add_addresses(NamedFiles& to, const char* flag, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    try {
      const Binding binding = parse_binding(text);
      if (binding.address.scheme == "file") to.push_back({std::string(flag) + " " + text, binding.address.path});
    } catch (const Error&) {
    }
  }
}

// Returns whether both paths are the same regular file. Pipes and devices may be named more than once.
bool is_the_same_file(const std::string& a, const std::string& b) {
  std::error_code failed;
  if (fs::exists(a, failed) && !fs::is_regular_file(a, failed)) return false;
  return fs::equivalent(a, b, failed) || fs::weakly_canonical(a, failed) == fs::weakly_canonical(b, failed);
}

// Returns whether reading the file, folder or pattern `input` reads this file.
bool reads(const std::string& input, const std::string& file) {
  std::error_code failed;
  if (!fs::is_regular_file(file, failed)) return false;
  if (!fs::is_directory(input, failed))
    return ::fnmatch(input.c_str(), file.c_str(), FNM_PATHNAME) == 0 || is_the_same_file(input, file);
  const fs::path folder = fs::weakly_canonical(file, failed).parent_path();
  return fs::equivalent(folder, input, failed) && format_of_name(file) && find_images(input).paths.empty();
}

NamedFiles inputs_of(const Options& options) {
  NamedFiles inputs;
  const bool samples = options.verb == "send" || options.verb == "receive";
  if (options.verb == "tokenize")
    add_file(inputs, "--file", options.text_file);
  else if (options.verb == "export")
    add_file(inputs, "MODEL", options.files.empty() ? "" : options.files.front());
  else if (!samples)
    for (const std::string& file : options.files) add_file(inputs, "the flow", file);
  if (options.verb == "receive") add_addresses(inputs, "the address", options.files);
  add_addresses(inputs, "--producer", options.producers);
  add_addresses(inputs, "--validate", options.validations);
  add_addresses(inputs, "--test", options.tests);
  add_addresses(inputs, "--from", options.from);
  add_file(inputs, "--weights", options.weights);
  add_file(inputs, "--resume", options.resume.value_or(""));
  add_file(inputs, "--config", options.config);
  add_file(inputs, "--numbers", options.numbers);
  for (const std::string& plugin : options.plugins) add_file(inputs, "--plugin", plugin);
  return inputs;
}

NamedFiles outputs_of(const Options& options) {
  NamedFiles outputs;
  add_file(outputs, "--save", options.save);
  add_file(outputs, "--report", options.report);
  add_file(outputs, "--plot", options.plot);
  add_file(outputs, "--confusion", options.confusion);
  add_file(outputs, "--trace", options.trace);
  add_file(outputs, "--html", options.html);
  add_file(outputs, "--checkpoint", options.checkpoint);
  if (options.verb == "tokenize" && options.train_size && !options.files.empty())
    add_file(outputs, "--train", options.files.front());
  if (options.verb == "export" && options.files.size() > 1) add_file(outputs, "OUTPUT", options.files[1]);
  for (const std::string& log : options.logs) add_file(outputs, "--log", log);
  add_addresses(outputs, "--consumer", options.consumers);
  add_addresses(outputs, "--to", options.to);
  if (options.verb == "send") add_addresses(outputs, "the address", options.files);
  return outputs;
}

}  // namespace

void expect_separate_files(const Options& options) {
  const NamedFiles inputs = inputs_of(options), outputs = outputs_of(options);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& output = outputs[i];
    for (const NamedFile& input : inputs) {
      const bool read_before = output.flag == "--save" && input.flag == "--weights";  // fine-tuning reads it first
      if (!read_before && reads(input.path, output.path))
        throw Error(ErrorKind::Usage,
                    fmt::format("{} would overwrite '{}', which {} reads", output.flag, output.path, input.flag), {},
                    {"write to another file"});
    }
    for (size_t k = 0; k < i; ++k)
      if (is_the_same_file(outputs[k].path, output.path))
        throw Error(ErrorKind::Usage,
                    fmt::format("{} and {} both write '{}'", outputs[k].flag, output.flag, output.path), {},
                    {"write to two files"});
  }
}

void expect_writable_outputs(const Options& options) {
  const std::pair<const char*, const std::string*> outputs[] = {{"--save", &options.save},
                                                                {"--report", &options.report},
                                                                {"--plot", &options.plot},
                                                                {"--confusion", &options.confusion},
                                                                {"--session", &options.session}};
  for (const auto& [flag, path] : outputs)
    if (!path->empty()) expect_writable(flag, *path);
  expect_tensor_name(options.save);
}

void expect_ending(const char* flag, const std::string& path, std::initializer_list<const char*> endings,
                   const char* content) {
  const std::string ending = fs::path(path).extension().string();
  if (ending.empty() || std::find(endings.begin(), endings.end(), ending) != endings.end()) return;
  std::string known;
  for (const char* one : endings) known += (known.empty() ? "" : " or ") + std::string(one);
  throw Error(ErrorKind::Usage, fmt::format("{} '{}' does not end in {}", flag, path, known), {},
              {fmt::format("{} writes {}: use that extension", flag, content)});
}

void save_or_rescue(const TensorFile& weights, const std::string& path) {
  try {
    save_sealed(weights, path);
  } catch (const Error& failure) {
    std::error_code failed;
    for (const fs::path& folder : {fs::path(), fs::temp_directory_path(failed)}) {
      const std::string instead = free_name(folder, path);
      try {
        save_sealed(weights, instead);
      } catch (const Error&) {
        continue;
      }
      throw Error(failure).note(fmt::format("the weights are in {}: use --weights", instead));
    }
    throw;
  }
}

}  // namespace harmonics::engine::cli
