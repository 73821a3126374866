// The metrics of the catalogue, and what they share.
#pragma once

#include <memory>

#include <harmonics/metric.hpp>

namespace metrics {

using harmonics::Arguments;
using harmonics::Metric;
using harmonics::MetricBatch;

using Made = std::unique_ptr<Metric>;

// Of classes.
Made make_accuracy(const Arguments&);
Made make_topk(const Arguments&);
Made make_precision(const Arguments&);
Made make_recall(const Arguments&);
Made make_f1(const Arguments&);
Made make_confusion(const Arguments&);
Made make_perplexity(const Arguments&);
Made make_auc(const Arguments&);
// Of numbers.
Made make_mae(const Arguments&);
Made make_rmse(const Arguments&);
Made make_r2(const Arguments&);

// The class a row's prediction stands for: the largest output (the first of equals), or by a half where one output is the
// second class's probability.
uint32_t predicted_class(const MetricBatch& batch, uint64_t row);

// A row's prediction as probabilities that add up to 1, by what its layer ends in: softmax and log_softmax give them, no
// activation gives logits, outputs of any other stand for their share of the sum.
void probabilities(const MetricBatch& batch, uint64_t row, std::vector<double>& out);

}  // namespace metrics
