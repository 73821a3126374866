// The keys of `train` for what is watched during the run: samples of text, conspicuous losses.
#include <fmt/core.h>

#include "engine/cli/run/train_settings.hpp"

namespace harmonics::engine::cli {

namespace {

void take_sample_texts(TrainSettings& s, const document::Node& node, document::Problems& problems) {
  constexpr int64_t kMostTokens = 1 << 20;
  constexpr double kHottest = 100;
  document::Fields fields(node, problems, "'samples'");
  s.samples = {};
  s.samples.every = fields.whole("every", 1, int64_t{1} << 40).value_or(0);
  if (fields.need("prompts")) s.samples.prompts = fields.texts("prompts").value_or(std::vector<std::string>());
  s.samples.tokens = fields.whole("tokens", 1, kMostTokens).value_or(s.samples.tokens);
  s.samples.temperature = fields.real("temperature", 0, kHottest).value_or(s.samples.temperature);
  fields.finish();
}

void take_guard(TrainSettings& s, const document::Node& node, document::Problems& problems) {
  constexpr double kMostDeviations = 1e6;
  document::Fields fields(node, problems, "'loss_guard'");
  LossGuardSettings guard = parse_loss_guard("");
  guard.deviations = fields.real("deviations", 0, kMostDeviations).value_or(guard.deviations);
  guard.patience = fields.whole("patience", 1, 1000000).value_or(guard.patience);
  if (const document::Node* then = fields.find("then")) {
    guard.returns = then->text == "checkpoint";
    if (then->kind != document::Kind::scalar || (!guard.returns && then->text != "stop"))
      problems.expected(*then, "'then'", "stop or checkpoint");
  }
  fields.finish();
  s.guard = guard;
}

}  // namespace

std::vector<TrainKey> train_watch_keys() {
  return {{"samples",
           {},
           "a map with prompts, every, tokens and temperature",
           "",
           "texts that the model continues during the run; every: number of steps (default: eval_steps); defaults: "
           "tokens 64, temperature 0.8",
           take_sample_texts},
          {"loss_guard",
           {},
           "a map with deviations, patience and then",
           "",
           "skip batches whose loss is not finite or exceeds the mean of the last 100 steps by this many standard "
           "deviations (default 6); after patience (3) batches in a row stop, or restore the last checkpoint; without "
           "the key, a loss that is not finite ends the run",
           take_guard}};
}

}  // namespace harmonics::engine::cli
