#include "engine/cli/run/epoch_lines.hpp"

#include <cmath>

#include <fmt/core.h>

#include "engine/cli/run/run_outcome.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace {

constexpr const char* kValidation = "  · validation ";

}  // namespace

EpochLines::EpochLines(int64_t tokens, bool perplexity)
    : tokens_(tokens), perplexity_(perplexity), width_(terminal_width()) {}

void EpochLines::show(const EpochReport& e, bool constant_rate) {
  constexpr double kLeast = 0.2;
  std::string text = epoch_text(e, constant_rate, tokens_);
  if (e.validation) text += kValidation + figures_text(*e.validation);
  if (e.validation && tokens_ > 0 && perplexity_)
    text += fmt::format(", perplexity {:.4g}", std::exp(e.validation->loss));
  since_ += e.seconds;
  left_out_.reset();
  if (width_ > 0 && began_ && since_ < kLeast)
    left_out_ = std::move(text);
  else
    print_line(text);
}

void EpochLines::end() {
  if (left_out_) print_line(*left_out_);
  left_out_.reset();
}

// Prints validation figures on a separate line if both do not fit on one.
void EpochLines::print_line(const std::string& text) {
  began_ = true;
  since_ = 0;
  std::string shown = text;
  const size_t at = text.find(kValidation);
  const std::string mark = kValidation;
  if (width_ > 0 && at != std::string::npos && columns_of(text) > width_)
    shown = text.substr(0, at) + "\n          " + text.substr(at + mark.find("validation"));
  say(shown);
}

}  // namespace harmonics::engine::cli
