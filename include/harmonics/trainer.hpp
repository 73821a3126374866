// Trains a transformer of an .ndsl file, or a built-in one, by its registered name.
//
//   harmonics::ModelConfig config = harmonics::RuntimeModelRegistry::create_model_config("MyModel");
//   harmonics::TrainingArguments arguments;
//   arguments.tokens = std::make_shared<MyTokens>(...);
//   arguments.next = std::make_shared<MyTokens>(...);
//   harmonics::Trainer trainer(config, arguments);
//   trainer.train();
//
// Link Harmonics::harmonics. Every failure is a harmonics::Error. A trainer must be used by one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <harmonics/graph.hpp>
#include <harmonics/models.hpp>

namespace harmonics {

struct TrainingArguments {
  FitOptions fit;
  // Samples of token ids, i32 [tokens], all of one length: the tokens of a sequence, and the token after each of them.
  std::shared_ptr<Producer> tokens, next;
  // Addresses, as on the command line; used if the producer is null.
  std::string tokens_address, next_address;
  std::string lora;  // settings of an adapter to train instead of the weights: "r=8, alpha=16"; "": none
};

class Trainer {
 public:
  // Settings of `config` override those of the registered model. `use_modular_blocks` must be true, because all models
  // are computed by blocks; false throws ErrorKind::Usage.
  HARMONICS_FACE Trainer(const ModelConfig& config, TrainingArguments arguments, bool use_modular_blocks = true)
      : arguments_(std::move(arguments)), graph_(parse_hmx_text(flow_of(config, arguments_.lora))) {
    if (!use_modular_blocks)
      throw Error(ErrorKind::Usage, "models of .ndsl files are computed by their blocks: use_modular_blocks is true");
    bind("tokens", arguments_.tokens, arguments_.tokens_address);
    bind("next", arguments_.next, arguments_.next_address);
  }

  // Trains; another call continues from the current weights.
  HARMONICS_FACE FitReport train() { return graph_.fit(arguments_.fit); }
  // Returns the scores of the next token at each position, [tokens, vocabulary]; a batch has a new first axis.
  HARMONICS_FACE HTensor scores(const HTensor& tokens) {
    return graph_.infer(std::map<std::string, HTensor>{{"tokens", tokens}}).at("scores");
  }
  // Writes weights and the text of the flow, as HarmonicGraph::save() does.
  HARMONICS_FACE void save(const std::string& path) const { graph_.save(path); }
  HarmonicGraph& graph() { return graph_; }

 private:
  HARMONICS_FACE void bind(const char* name, const std::shared_ptr<Producer>& producer, const std::string& address) {
    if (producer) return graph_.bindProducer(name, producer);
    if (address.empty()) throw Error(ErrorKind::Usage, std::string("the training arguments have no '") + name + "'");
    graph_.bindProducer(name, address);
  }
  HARMONICS_FACE static std::string flow_of(const ModelConfig& config, const std::string& lora) {
    const std::string set = changed_settings(config);
    if (config.model.find('"') != std::string::npos)
      throw Error(ErrorKind::Usage, "a model that is trained has no '\"' in its name");
    return "harmonic trained { producer tokens; producer next; layer scores; cycle { tokens -(model(\"" + config.model +
           "\"" + (set.empty() ? "" : ", set=\"" + set + "\"") + (lora.empty() ? "" : ", lora=\"" + lora + "\"") +
           "))-> scores; scores <-(cross_entropy)- next; } }";
  }

  TrainingArguments arguments_;
  HarmonicGraph graph_;
};

}  // namespace harmonics
