#include <harmonics/plugin.hpp>

#include "metrics.hpp"

HARMONICS_PLUGIN("harmonics.metrics", "0.1.0", "Apache-2.0", "Harmonics");

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  using harmonics::Argument;
  const auto classes = [&](const char* name, harmonics::MetricFactory make, const char* description,
                           std::vector<Argument> arguments = {}) {
    registry.register_metric(name, std::move(make), description, arguments, HX_TAKES_CLASSES);
  };
  const auto numbers = [&](const char* name, harmonics::MetricFactory make, const char* description) {
    registry.register_metric(name, std::move(make), description, {}, HX_TAKES_NUMBERS);
  };
  const Argument average =
      Argument::text(
          "average", "macro",
          "macro (over classes), micro (over samples), weighted (over classes by their samples), none (each class)")
          .in("macro|micro|weighted|none");
  classes("accuracy", metrics::make_accuracy, "fraction of samples with the correct class");
  classes("topk", metrics::make_topk, "fraction of samples with the correct class among the k most likely",
          {Argument::integer("k", 5, "number of classes").in("1..")});
  classes("precision", metrics::make_precision, "fraction of predictions of a class that are correct", {average});
  classes("recall", metrics::make_recall, "fraction of the samples of a class that are predicted as such", {average});
  classes("f1", metrics::make_f1, "harmonic mean of precision and recall", {average});
  classes("auc", metrics::make_auc,
          "area under the ROC curve; with more than two classes, the mean of each class against the others");
  classes("perplexity", metrics::make_perplexity, "exp of the mean negative log-probability of the class");
  classes("confusion", metrics::make_confusion,
          "counts of samples by actual and predicted class, for --confusion and --report");
  numbers("mae", metrics::make_mae, "mean absolute difference");
  numbers("rmse", metrics::make_rmse, "root of the mean squared difference");
  numbers("r2", metrics::make_r2, "fraction of the variance that is explained");
}
