// The keys of `train` for losses besides that of the next token: preferences and distillation.
#include <algorithm>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/cli/run/train_settings.hpp"

namespace harmonics::engine::cli {

namespace {

void take_preferences(TrainSettings& s, const document::Node& node, document::Problems& problems) {
  const std::vector<std::string> known{"sigmoid", "hinge", "ipo"};
  document::Fields fields(node, problems, "'dpo'");
  PreferenceSettings made;
  made.beta = fields.real("beta", 1e-9, 1e9).value_or(made.beta);
  if (const document::Node* loss = fields.find("loss")) {
    made.loss = loss->text;
    if (loss->kind != document::Kind::scalar || std::find(known.begin(), known.end(), made.loss) == known.end())
      problems.expected(*loss, "'loss'", "one of " + comma_separated(known));
  }
  const document::Node* smoothing = fields.find("label_smoothing");
  made.label_smoothing = fields.real("label_smoothing", 0, 0.499).value_or(0);
  if (smoothing && made.label_smoothing > 0 && made.loss != "sigmoid")
    problems.add(smoothing->span, fmt::format("'label_smoothing' has no effect on the loss {}", made.loss),
                 "remove it");
  made.reference = fields.text("reference").value_or("");
  fields.finish();
  s.preferences = made;
}

void take_distillation(TrainSettings& s, const document::Node& node, document::Problems& problems) {
  document::Fields fields(node, problems, "'distillation'");
  DistillationSettings made;
  if (fields.need("teacher")) made.teacher = fields.text("teacher").value_or("");
  made.temperature = fields.real("temperature", 1e-3, 1e3).value_or(made.temperature);
  made.beta = fields.real("beta", 0, 1).value_or(made.beta);
  made.share = fields.real("share", 1e-6, 1).value_or(made.share);
  fields.finish();
  s.distillation = made;
}

}  // namespace

std::vector<TrainKey> train_loss_keys() {
  return {{"dpo",
           {},
           "a map with beta, loss, label_smoothing and reference",
           "",
           "direct preference optimisation on data sets of the type preference; beta (default 0.1); loss: sigmoid, "
           "hinge or ipo; reference: reference model (default: the initial model)",
           take_preferences},
          {"distillation",
           {},
           "a map with teacher, temperature, beta and share",
           "",
           "distillation from a teacher with the same tokenizer; temperature (default 1); beta from 0, KL(teacher || "
           "model), to 1, KL(model || teacher); share (default 0.5): fraction of the loss, the rest is cross entropy",
           take_distillation}};
}

std::string train_losses_text(const TrainSettings& s) {
  if (s.preferences) {
    const PreferenceSettings& p = *s.preferences;
    std::string text = fmt::format("dpo(documents=documents, beta={}, loss={}", p.beta, p.loss);
    if (p.label_smoothing > 0) text += fmt::format(", label_smoothing={}", p.label_smoothing);
    return text + fmt::format(", ignored={}, reference=reference)", kNotLearned);
  }
  const std::string ignored = fmt::format("ignore_index={}", kNotLearned);
  if (!s.distillation) return "cross_entropy(" + ignored + ")";
  const DistillationSettings& d = *s.distillation;
  // The gradients of softmax(scores / t) and of the teacher's term are each smaller by 1 / t, which t^2 compensates.
  const double weight = d.share * d.temperature * d.temperature;
  const std::string taught = fmt::format("distillation(teacher=teacher, temperature={}, beta={}, {}, weight={})",
                                         d.temperature, d.beta, ignored, weight);
  if (d.share >= 1) return taught;
  return fmt::format("cross_entropy({}, weight={}), {}", ignored, 1 - d.share, taught);
}

std::string yaml_losses(const TrainSettings& s) {
  std::string text;
  if (s.preferences) {
    const PreferenceSettings& p = *s.preferences;
    text += fmt::format("dpo:\n  beta: {}\n  loss: {}\n", p.beta, p.loss);
    if (p.label_smoothing > 0) text += fmt::format("  label_smoothing: {}\n", p.label_smoothing);
    if (!p.reference.empty()) text += "  reference: " + yaml_text(p.reference) + "\n";
  }
  if (s.distillation) {
    const DistillationSettings& d = *s.distillation;
    text += fmt::format("distillation:\n  teacher: {}\n  temperature: {}\n  beta: {}\n  share: {}\n",
                        yaml_text(d.teacher), d.temperature, d.beta, d.share);
  }
  return text;
}

}  // namespace harmonics::engine::cli
