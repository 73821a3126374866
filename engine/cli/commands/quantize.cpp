// harmonics quantize: writes a model with matrices in smaller types.
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <harmonics/element_type.hpp>
#include <harmonics/quantity.hpp>

#include "engine/base/scratch_folder.hpp"
#include "engine/base/spelling.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/whole_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/model/quantize.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Prints a line for every tenth of the work that is done, but not if the work takes only seconds.
class TenthLines {
 public:
  explicit TenthLines(bool quiet) : quiet_(quiet) {}
  void show(double fraction) {
    const int tenth = static_cast<int>(fraction * 10);
    if (quiet_ || tenth <= shown_ || seconds_since(begin_) < 3) return;
    shown_ = tenth;
    say(fmt::format("{} % written", tenth * 10));
  }

 private:
  bool quiet_;
  int shown_ = 0;
  Clock::time_point begin_ = Clock::now();
};

double megabytes(uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

std::pair<std::string, DType> tensor_type_of(const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0)
    throw Error(ErrorKind::Usage, fmt::format("--tensor takes PATTERN=TYPE, not '{}'", text), {},
                {"for instance --tensor 'blk.0.*=q8_0'"});
  const std::string type = text.substr(at + 1);
  const auto& known = quantized_types();
  if (std::find(known.begin(), known.end(), type) == known.end())
    throw Error(ErrorKind::Usage, fmt::format("--tensor: there is no type '{}' for '{}'", type, text.substr(0, at)))
        .note("types: " + comma_separated(known));
  return {text.substr(0, at), dtype_named(type)};
}

QuantizeOptions quantize_options(const Options& options) {
  QuantizeOptions how;
  how.mix = type_mix_named(options.mix);
  how.overrides.output = options.output_type;
  how.overrides.token_embedding = options.embedding_type;
  how.overrides.pure = options.pure;
  for (const std::string& text : options.tensor_types) how.overrides.tensors.push_back(tensor_type_of(text));
  how.requantize = options.requantize;
  how.keep_split = options.keep_split;
  return how;
}

boost::json::array json_of(const std::vector<QuantizedTensor>& tensors) {
  boost::json::array all;
  for (const QuantizedTensor& t : tensors)
    all.push_back(boost::json::object{{"name", t.name},
                                      {"shape", boost::json::value_from(t.shape)},
                                      {"from", std::string(t.from)},
                                      {"to", std::string(t.to)},
                                      {"bytes_before", t.bytes_before},
                                      {"bytes_after", t.bytes_after},
                                      {"importance", t.importance}});
  return all;
}

std::vector<std::string> unfit_of(const QuantizeResult& result) {
  std::vector<std::string> names;
  for (const QuantizedTensor& t : result.tensors)
    if (t.fallback) names.push_back(t.name);
  return names;
}

void print_table(const QuantizeResult& result) {
  size_t widest = 6;
  for (const QuantizedTensor& t : result.tensors) widest = std::max(widest, t.name.size());
  print("{:<{}}  {:<20} {:>8} {:>8} {:>10} {:>10}\n", "tensor", widest, "shape", "from", "to", "MB", "MB then");
  for (const QuantizedTensor& t : result.tensors)
    print("{:<{}}  {:<20} {:>8} {:>8} {:>10.2f} {:>10.2f}{}\n", t.name, widest,
          fmt::format("[{}]", fmt::join(t.shape, ", ")), t.from, t.to, megabytes(t.bytes_before),
          megabytes(t.bytes_after),
          t.fallback     ? "  rows are not whole blocks"
          : t.importance ? "  by importance"
                         : "");
}

std::string shown_outputs(const std::vector<std::string>& files) {
  return files.front() + (files.size() > 1 ? fmt::format(" and {}", quantity(files.size() - 1, "more file")) : "");
}

void print_summary(const Options& options, const QuantizeResult& result, double seconds) {
  const size_t tensors = result.tensors.size();
  if (options.dry_run)
    print("{} of {} would be converted to {}: {:.1f} MB instead of {:.1f} MB, {:.2f} bits per weight\n",
          thousands(static_cast<int64_t>(result.converted)), number_of(tensors, "tensor"), options.mix,
          megabytes(result.bytes_after), megabytes(result.bytes_before), result.bits_per_weight());
  else
    print(
        "{}: {} of {} converted to {} in {}, {:.1f} MB instead of {:.1f} MB, {:.2f} bits per weight; the "
        "weights differ by {:.2f} %\n",
        shown_outputs(result.files), thousands(static_cast<int64_t>(result.converted)), number_of(tensors, "tensor"),
        options.mix, duration(seconds), megabytes(result.bytes_after), megabytes(result.bytes_before),
        result.bits_per_weight(), result.relative_error * 100);
  const std::vector<std::string> unfit = unfit_of(result);
  if (!unfit.empty())
    print_note(fmt::format("{} in another type, for example '{}': rows are not whole blocks of the mix's type",
                           quantity(unfit.size(), "matrix", "matrices"), unfit.front()));
}

// Opens the model to quantise. A .ndsl file with weights is first exported to a file beside `to`.
AsGguf source_of(const Options& options, const std::string& to) {
  const std::string& from = options.files[0];
  if (!is_ndsl(from)) {
    if (!options.weights.empty() || !options.set.empty())
      throw Error(ErrorKind::Usage, fmt::format("'{}' has its own weights, and is not a .ndsl file", from))
          .note("remove --weights and --set");
    return AsGguf(from, to);
  }
  if (options.weights.empty())
    throw Error(ErrorKind::Usage, fmt::format("'{}' describes a model and has no weights", from))
        .note("--weights names a Hugging Face folder, or weights that a flow saved");
  return AsGguf(to + ".described.gguf", [&](const std::string& path) {
    Options whole;
    whole.verb = "export";
    whole.files = {from, path};
    whole.weights = options.weights;
    whole.set = options.set;
    whole.quiet = true;
    export_command(whole);
  });
}

}  // namespace

int quantize_command(const Options& options) {
  const std::string& from = options.files[0];
  if (options.files.size() < 2 && !options.dry_run)
    throw Error(ErrorKind::Usage, "quantize lacks OUTPUT, the file to write").note("--dry-run writes none");
  for (const char* other : {".safetensors", ".ndsl", ".onnx", "/"})
    if (options.files.size() > 1 && options.files[1].ends_with(other))
      throw Error(ErrorKind::Usage, fmt::format("quantize writes GGUF, not '{}'", options.files[1]), {},
                  {"give a name that ends in .gguf; 'harmonics export' writes other formats"});
  QuantizeOptions how = quantize_options(options);
  ImportanceMatrix importance;
  if (!options.importance.empty()) {
    importance = read_importance(options.importance);
    how.importance = &importance;
  }
  std::optional<ScratchFolder> beside;  // of a dry run without OUTPUT
  if (options.files.size() < 2) beside.emplace();
  const std::string to = beside ? beside->path() + "/model" : options.files[1];
  const AsGguf source = source_of(options, to);
  const auto begin = Clock::now();
  QuantizeResult result;
  if (options.dry_run) {
    result = plan_quantization(source.path(), how);
  } else {
    const auto executor = make_team_executor(
        options.run.threads > 0 ? options.run.threads : static_cast<int>(std::thread::hardware_concurrency()));
    TenthLines lines(options.quiet || options.json);
    result =
        quantize_gguf(source.path(), options.files[1], how, *executor, [&](double fraction) { lines.show(fraction); });
  }
  const double seconds = seconds_since(begin);
  if (options.keep_split && result.files.size() == 1)
    print_note(fmt::format("--keep-split has no effect: '{}' is one file", from));
  if (options.json) {
    boost::json::object object{
        {"version", 1},
        {"from", from},
        {"type", options.mix},
        {"tensors", result.tensors.size()},
        {"converted", result.converted},
        {"unfit", boost::json::value_from(unfit_of(result))},
        {"bytes_before", result.bytes_before},
        {"bytes_after", result.bytes_after},
        {"bits_per_weight", result.bits_per_weight()},
        {"relative_error", options.dry_run ? boost::json::value(nullptr) : boost::json::value(result.relative_error)},
        {"seconds", seconds}};
    if (!options.dry_run) object["to"] = result.files.front();
    if (!options.dry_run) object["files"] = result.files.size();
    if (options.dry_run) object["table"] = json_of(result.tensors);
    print_json(object);
    return kDone;
  }
  if (options.quiet) return kDone;
  if (options.dry_run) print_table(result);
  print_summary(options, result, seconds);
  if (how.importance &&
      std::none_of(result.tensors.begin(), result.tensors.end(), [](const QuantizedTensor& t) { return t.importance; }))
    print_note(fmt::format("'{}' has importance values for none of the converted matrices", options.importance));
  return kDone;
}

}  // namespace harmonics::engine::cli
