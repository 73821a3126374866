// harmonics ckpt: shows the contents of checkpoints, checks their integrity, and compares two of them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/nearest_file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/cli/commands/ckpt.hpp"
#include "engine/checkpoint/checkpoint_folder.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace {

namespace json = boost::json;

// Returns the file itself, or the checkpoints of a folder, newest first.
std::vector<std::string> files_of(const std::string& path) {
  std::vector<std::string> names;
  std::error_code failed;
  if (!std::filesystem::exists(path, failed))
    throw Error(ErrorKind::NoInput, fmt::format("cannot read '{}': No such file or directory", path), {},
                {advice_for_missing(path)});
  if (FileCalls::system().list(path.c_str(), names) != 0) return {path};
  std::vector<std::string> files;
  for (const CheckpointFolder::Entry& e : CheckpointFolder(path).list()) files.push_back(e.path);
  if (!files.empty()) return files;
  Error e(ErrorKind::NoInput, fmt::format("there is no checkpoint in '{}'", path));
  const std::string inner = path + (path.ends_with('/') ? "checkpoints" : "/checkpoints");
  const bool of_train = FileCalls::system().list(inner.c_str(), names) == 0;
  throw e.note(of_train ? fmt::format("those of 'train' are in '{}'", inner)
                        : std::string("give the folder of --checkpoint, or one file"));
}

std::string newest_of(const std::string& path) { return files_of(path).front(); }

size_t bytes_of(const TensorFile& file) {
  size_t n = 0;
  for (const auto& [name, tensor] : file.tensors) n += type_of(tensor).bytes();
  return n;
}

json::array json_of(const LayerChanges& changes) {
  json::array all;
  for (const LayerChange& change : changes.all) {
    json::object arguments;
    for (const LayerChange::Argument& a : change.arguments)
      arguments[a.name] = a.after.empty() ? json::value(nullptr) : json::value(a.after);
    all.push_back(json::object{{"layer", change.layer}, {"arguments", std::move(arguments)}});
  }
  return all;
}

// Returns a layer's arguments as a line of text. Checkpoints do not contain the values before a change.
std::string change_text(const LayerChange& change) {
  std::string all;
  for (const LayerChange::Argument& a : change.arguments)
    all += fmt::format("{}{}{}", all.empty() ? "" : ", ", a.name, a.after.empty() ? " by default" : " = " + a.after);
  return fmt::format("'{}' has {}", change.layer, all);
}

json::object json_of(const Checkpoint& c) {
  const RunState& s = c.state;
  json::object o{{"file", c.path},
                 {"graph", s.graph},
                 {"cycle", s.cycle + 1},
                 {"step", s.step},
                 {"epoch", s.epoch + 1},
                 {"index", s.index},
                 {"samples", s.samples},
                 {"seconds", s.seconds},
                 {"seed", std::to_string(s.seed)},
                 {"training", s.training},
                 {"learning_rate", s.learning_rate},
                 {"batch", s.batch},
                 {"device", s.device},
                 {"identity", s.identity},
                 {"tensors", c.file.tensors.size()},
                 {"bytes", bytes_of(c.file)}};
  o["learning_rate_set"] = s.learning_rate_set ? json::value(*s.learning_rate_set) : json::value(nullptr);
  o["changes"] = json_of(s.changes);
  o["not_resumable"] = s.not_resumable.empty() ? json::value(nullptr) : json::value(s.not_resumable);
  json::object metrics, streams;
  for (const auto& [name, v] : s.metrics) metrics[name] = std::isfinite(v) ? json::value(v) : json::value(nullptr);
  for (const auto& [name, size] : s.streams) streams[name] = size;
  o["metrics"] = metrics;
  o["streams"] = streams;
  return o;
}

std::string loss_of(const RunState& s) {
  const auto at = s.metrics.find("loss");
  return at == s.metrics.end() ? "-" : fmt::format("{:.4g}", at->second);
}

int list(const std::string& path, const Options& options) {
  json::array rows;
  int code = kDone;
  const std::vector<std::string> files = files_of(path);
  size_t width = std::string_view("checkpoint").size();
  for (const std::string& file : files) width = std::max(width, file.size());
  if (!options.json)
    print("{:<{}} {:>10} {:>7} {:>10} {:>10} {:>9}\n", "checkpoint", width, "step", "epoch", "sample", "loss", "MB");
  for (const std::string& file : files) {
    try {
      const Checkpoint c = read_checkpoint(file);
      if (options.json)
        rows.push_back(json_of(c));
      else
        print("{:<{}} {:>10} {:>7} {:>10} {:>10} {:>9.1f}{}\n", file, width, thousands(c.state.step), c.state.epoch + 1,
              thousands(static_cast<int64_t>(c.state.index)), loss_of(c.state),
              static_cast<double>(bytes_of(c.file)) / 1e6, c.state.not_resumable.empty() ? "" : "  not resumable");
    } catch (const Error& e) {
      code = exit_code(e.kind());
      if (options.json)
        rows.push_back(json::object{{"file", file}, {"damaged", e.what()}});
      else
        print("{:<{}} {}\n", file, width, e.what());
    }
  }
  if (options.json) print_json(json::object{{"version", 1}, {"checkpoints", rows}});
  return code;
}

int verify(const std::string& path, const Options& options) {
  json::array rows;
  int code = kDone;
  for (const std::string& file : files_of(path)) {
    std::string wrong;
    try {
      const Checkpoint c = read_checkpoint(file);
      if (!options.json)
        print("{}: whole, {}, {:.1f} MB\n", file, number_of(c.file.tensors.size(), "tensor"),
              static_cast<double>(bytes_of(c.file)) / 1e6);
    } catch (const Error& e) {
      wrong = e.what();
      code = exit_code(e.kind());
      if (!options.json) print("{}\n", wrong);
    }
    rows.push_back(
        json::object{{"file", file}, {"damaged", wrong.empty() ? json::value(nullptr) : json::value(wrong)}});
  }
  if (options.json) print_json(json::object{{"version", 1}, {"checkpoints", rows}});
  return code;
}

struct Difference {
  int64_t elements = 0;  // elements, or blocks of elements, that differ in any bit
  double largest = 0;    // largest |a - b| of floating-point elements
};

template <typename T>
void largest(const HTensor& a, const HTensor& b, Difference& d) {
  const T *x = static_cast<const T*>(a.bytes()), *y = static_cast<const T*>(b.bytes());
  for (int64_t i = 0; i < a.size(); ++i)
    d.largest = std::max(d.largest, std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i])));
}

Difference difference(const HTensor& a, const HTensor& b) {
  Difference d;
  const ElementType& element = element_type(a.dtype());
  const size_t width = element.block_bytes;
  const auto *x = static_cast<const char*>(a.bytes()), *y = static_cast<const char*>(b.bytes());
  for (int64_t i = 0; i < a.size() / element.block; ++i)
    d.elements += std::memcmp(x + static_cast<size_t>(i) * width, y + static_cast<size_t>(i) * width, width) != 0;
  if (a.dtype() == DType::F32) largest<float>(a, b, d);
  if (a.dtype() == DType::F64) largest<double>(a, b, d);
  return d;
}

int diff(const std::string& first, const std::string& second, const Options& options) {
  const Checkpoint a = read_checkpoint(newest_of(first)), b = read_checkpoint(newest_of(second));
  json::array rows, fields;
  bool same = true;
  const auto tell = [&](const std::string& name, const std::string& how) {
    same = false;
    rows.push_back(json::object{{"tensor", name}, {"difference", how}});
    if (!options.json) print("  {:<40} {}\n", name, how);
  };
  const json::object left = json_of(a), right = json_of(b);
  if (!options.json) print("{}\n{}\n", a.path, b.path);
  for (const auto& [key, value] : left) {
    if (key == "file" || value == right.at(key)) continue;
    fields.push_back(json::string(key));
    if (!options.json)
      print("  {:<40} {} | {}\n", std::string(key), json::serialize(value), json::serialize(right.at(key)));
  }
  for (const auto& [name, tensor] : a.file.tensors) {
    const auto at = b.file.tensors.find(name);
    if (at == b.file.tensors.end())
      tell(name, "only in the first");
    else if (type_of(tensor) != type_of(at->second))
      tell(name, type_of(tensor).str() + " | " + type_of(at->second).str());
    else if (const Difference d = difference(tensor, at->second); d.elements)
      tell(name, fmt::format("{} of {} numbers differ, by {:.3g} at most", thousands(d.elements),
                             thousands(tensor.size()), d.largest));
  }
  for (const auto& [name, tensor] : b.file.tensors)
    if (!a.file.tensors.count(name)) tell(name, "only in the second");
  if (options.json)
    print_json(json::object{{"version", 1},
                            {"first", a.path},
                            {"second", b.path},
                            {"same_tensors", same},
                            {"fields", fields},
                            {"tensors", rows}});
  else if (same)
    print("  all {} tensors are bit-identical\n", a.file.tensors.size());
  return kDone;
}

void expect_paths(const Options& options, size_t n, const char* usage) {
  if (options.files.size() != n + 1)
    throw Error(ErrorKind::Usage,
                fmt::format("'harmonics ckpt {}' takes {}", options.files.front(), n == 1 ? "one path" : "two paths"),
                {}, {usage});
}

}  // namespace

int show_checkpoint(const std::string& path, const Options& options) {
  const Checkpoint c = read_checkpoint(newest_of(path));
  json::object o = json_of(c);
  if (options.json) {
    o["version"] = 1;
    print_json(o);
    return kDone;
  }
  const RunState& s = c.state;
  print(
      "{}\n  graph       {}, cycle {} ({})\n  step        {} after {} in {}\n  position    {}\n  reading     "
      "{}\n",
      c.path, s.graph, s.cycle + 1, s.identity, thousands(s.step),
      number_of(static_cast<uint64_t>(s.samples), "sample"), duration(s.seconds), s.position(), s.reading);
  for (const auto& [name, size] : s.streams)
    print("  producer    {}, {}\n", name, size ? number_of(size, "sample") : "endless");
  print("  resumable   {}\n  training    {}, batch {}, seed {}, rate {:.4g}, on {}\n",
        s.not_resumable.empty() ? "yes" : "no: " + s.not_resumable, s.training, s.batch, s.seed, s.learning_rate,
        s.device);
  if (s.learning_rate_set) print("  requested   learning rate {:.4g}\n", *s.learning_rate_set);
  for (const LayerChange& change : s.changes.all) print("  requested   {}\n", change_text(change));
  for (const auto& [name, v] : s.metrics) print("  {:<11} {:.6g}\n", name, v);
  for (const auto& [name, tensor] : c.file.tensors) print("    {:<40} {}\n", name, type_of(tensor).str());
  return kDone;
}

int ckpt_command(const Options& options) {
  const std::string& action = options.files.front();
  if (action == "list") return expect_paths(options, 1, "harmonics ckpt list DIR"), list(options.files[1], options);
  if (action == "show")
    return expect_paths(options, 1, "harmonics ckpt show FILE"), show_checkpoint(options.files[1], options);
  if (action == "verify")
    return expect_paths(options, 1, "harmonics ckpt verify FILE"), verify(options.files[1], options);
  if (action == "diff")
    return expect_paths(options, 2, "harmonics ckpt diff FILE FILE"), diff(options.files[1], options.files[2], options);
  Error e(ErrorKind::Usage, fmt::format("'harmonics ckpt' does not accept '{}'", action));
  if (const auto near = nearest(action, {"list", "show", "verify", "diff"}))
    e.note("did you mean '" + *near + "'?");
  else
    e.note("commands: list, show, verify, diff");
  throw e;
}

}  // namespace harmonics::engine::cli
