// harmonics quantize: writes a model with its matrices in a smaller type.
#include <chrono>
#include <thread>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/element_type.hpp>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/whole_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/model/quantize.hpp"

namespace harmonics::engine::cli {

namespace {

using Clock = std::chrono::steady_clock;

// A line for every tenth that is done, once the work has taken some seconds.
class TenthLines {
 public:
  explicit TenthLines(bool quiet) : quiet_(quiet) {}
  void show(double fraction) {
    const int tenth = static_cast<int>(fraction * 10);
    if (quiet_ || tenth <= shown_ || std::chrono::duration<double>(Clock::now() - begin_).count() < 3) return;
    shown_ = tenth;
    say(fmt::format("{} % written", tenth * 10));
  }

 private:
  bool quiet_;
  int shown_ = 0;
  Clock::time_point begin_ = Clock::now();
};

double megabytes(uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

int quantize_command(const Options& options) {
  const std::string &from = options.files[0], &to = options.files[1];
  const auto executor = make_team_executor(
      options.run.threads > 0 ? options.run.threads : static_cast<int>(std::thread::hardware_concurrency()));
  TenthLines lines(options.quiet || options.json);
  const QuantizeOptions how{options.weight_type.value_or(DType::Q8_0), options.requantize};
  const AsGguf source(from, to);
  const QuantizeResult result =
      quantize_gguf(source.path(), to, how, *executor, [&](double fraction) { lines.show(fraction); });
  if (options.json) {
    print_json(boost::json::object{{"version", 1},
                                   {"from", from},
                                   {"to", to},
                                   {"type", std::string(element_type(how.dtype).name)},
                                   {"tensors", result.tensors},
                                   {"converted", result.converted},
                                   {"unfit", boost::json::value_from(result.unfit)},
                                   {"bytes_before", result.bytes_before},
                                   {"bytes_after", result.bytes_after},
                                   {"relative_error", result.relative_error}});
    return kDone;
  }
  if (options.quiet) return kDone;
  print("{}: {} of {} tensors are {} now, {:.1f} MB instead of {:.1f} MB; the weights differ by {:.2f} %\n", to,
        thousands(static_cast<int64_t>(result.converted)), thousands(static_cast<int64_t>(result.tensors)),
        element_type(how.dtype).name, megabytes(result.bytes_after), megabytes(result.bytes_before),
        result.relative_error * 100);
  if (!result.unfit.empty())
    print_note(fmt::format("{} matrices stay as they are, '{}' among them: their rows are no multiples of {}",
                           result.unfit.size(), result.unfit.front(), element_type(how.dtype).block));
  return kDone;
}

}  // namespace harmonics::engine::cli
