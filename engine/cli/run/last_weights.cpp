#include "engine/cli/run/last_weights.hpp"

#include <utility>

#include <unistd.h>

#include "engine/cli/run/kept_weights.hpp"
#include "engine/cli/run/outputs.hpp"
#include "engine/cli/run/stop_signals.hpp"
#include "engine/cli/terminal/exit_codes.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

void LastWeights::set(TensorFile weights) {
  const std::lock_guard<std::mutex> lock(access_);
  ended_ = std::move(weights);
}

void LastWeights::save(const std::function<std::string()>& save) {
  const std::lock_guard<std::mutex> lock(access_);
  saved_ = save();
}

void LastWeights::write(const TensorFile& weights) const {
  if (!options_.save.empty()) {
    save_or_rescue(weights, options_.save);
    if (!options_.quiet) say("saved weights: " + options_.save);
    return;
  }
  try {
    const std::string path = keep_weights(weights, graph_);
    if (!options_.quiet) say("kept weights: " + path);
  } catch (const Error& e) {  // no flag requests the copy, so the exit code is unchanged
    if (!options_.quiet) print_note(std::string("no copy of the weights was kept: ") + e.what());
  }
}

void LastWeights::leave(CycleRuntime* runtime, int signal) {
  const std::lock_guard<std::mutex> lock(access_);
  int code = 128 + signal;
  try {
    const auto take = [this](const TensorFile& weights) { write(weights); };
    if (saved_) {
      if (!saved_->empty() && !options_.quiet) say(*saved_);
    } else if (!(runtime && runtime->with_copy(take)) && ended_) {
      write(*ended_);
    }
  } catch (const Error& e) {
    print_error(e);
    code = exit_code(e.kind());
  }
  LeftBehind::remove();
  ::_exit(code);
}

}  // namespace harmonics::engine::cli
