// harmonics train: configurations, their errors, and what is planned.
#include <boost/json.hpp>

#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

TEST_CASE("train: all errors of a configuration are shown in one run, with place and nearest key") {
  const Folder folder;
  const std::string config = folder.write("c.yaml",
                                          "model: m\ndatasets:\n  - path: a.jsonl\n    typ: chat\nmicro_batch_siz: 4\n"
                                          "learning_rate: fast\noptimizer: adamv\nnum_epochs: 0\nlora: {alpah: 8}\n");
  const Result result = harmonics("train " + config);
  CHECK(result.code == 78);
  for (const char* text :
       {"c.yaml:4:5: error:", "did you mean 'type'", "c.yaml:5:1: error: there is no key 'micro_batch_siz'",
        "did you mean 'micro_batch_size'", "c.yaml:6:16: error: 'learning_rate' is the text 'fast'",
        "did you mean 'adamw'", "c.yaml:8:13: error:", "did you mean 'alpha'"})
    CHECK(result.err.find(text) != std::string::npos);
}

TEST_CASE("train: what a whole configuration lacks is named") {
  const Folder folder;
  const Result nothing = harmonics("train " + folder.write("a.yaml", "seed: 1\n"));
  CHECK(nothing.code == 78);
  CHECK(nothing.err.find("the configuration names no model") != std::string::npos);
  CHECK(nothing.err.find("the configuration has no 'datasets'") != std::string::npos);
  const Result twice =
      harmonics("sft " + folder.write("b.yaml",
                                      "model: m\ndatasets: x\nlr: 0.1\nlearning_rate: 0.1\noptim: lion\n"
                                      "adam_epsilon: 1e-8\n"));
  CHECK(twice.code == 78);
  CHECK(twice.err.find("'lr' and 'learning_rate' are one setting") != std::string::npos);
  CHECK(harmonics("train").code == 2);
  const Result set = harmonics("train " + folder.write("c.yaml", "model: m\n") + " --set learning_rat=1");
  CHECK(set.code == 2);
  CHECK(set.err.find("did you mean 'learning_rate'") != std::string::npos);
}

TEST_CASE("train: a setting that the optimizer does not have is refused") {
  const Folder folder;
  const Result result =
      harmonics("train " + folder.write("c.yaml", "model: m\ndatasets: x\noptimizer: lion\nadam_epsilon: 1e-8\n"));
  CHECK(result.code == 78);
  CHECK(result.err.find("'adam_epsilon' has no effect: 'lion' has no such setting") != std::string::npos);
}

TEST_CASE("train: keys are listed with their other names") {
  const Result result = harmonics("train --keys");
  CHECK(result.code == 0);
  CHECK(result.out.find("micro_batch_size: a whole number from 1 (default: 8)") != std::string::npos);
  CHECK(result.out.find("also per_device_train_batch_size") != std::string::npos);
  const json::value keys = json::parse(harmonics("train --keys --json").out);
  CHECK(keys.at("keys").as_array().size() > 30);
}
