// harmonics explain FILE.ndsl: shows the blocks of its layers, its tensors and their numbers of elements.
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "engine/base/spelling.hpp"
#include "engine/cli/commands/explain_model.hpp"
#include "engine/cli/commands/explanation.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

std::string layers_text(size_t first, size_t last) {
  return first == last ? fmt::format("layer {}", first) : fmt::format("layers {} to {}", first, last);
}

std::string block_text(const BlockSpec& block) {
  return fmt::format(
      "    variant              {}\n    forward_ops          {}\n    use_qk_norm          {}\n"
      "    ln2_on_residual_att  {}\n",
      block.variant, comma_separated(block.forward_ops), block.use_qk_norm, block.ln2_on_residual_att);
}

json::object block_json(const BlockSpec& block) {
  return {{"variant", block.variant},
          {"forward_ops", json::value_from(block.forward_ops)},
          {"use_qk_norm", block.use_qk_norm},
          {"ln2_on_residual_att", block.ln2_on_residual_att}};
}

void show_blocks(const CompiledNdsl& model, Explanation& e, json::object& to) {
  e.say("blocks\n");
  for (size_t first = 0; first < model.layers.size();) {
    size_t last = first;
    while (last + 1 < model.layers.size() && model.layers[last + 1] == model.layers[first]) ++last;
    e.say("  " + layers_text(first, last) + "\n" + block_text(model.layers[first]));
    first = last + 1;
  }
  json::array all;
  for (const BlockSpec& block : model.layers) all.push_back(block_json(block));
  to["blocks"] = std::move(all);
}

// Returns the layer of "blk.3.attn_q.weight", without its end in `rest`; -1 for tensors of no layer.
int64_t layer_of(const std::string& name, std::string& rest) {
  constexpr size_t kHead = 4;  // bytes of "blk."
  const size_t end = name.find('.', kHead);
  if (!name.starts_with("blk.") || end == std::string::npos) return -1;
  rest = name.substr(end);
  return std::stoll(name.substr(kHead, end - kHead));
}

// Returns the layers whose tensors differ from those of every layer before them.
std::set<int64_t> unlike_layers(const CompiledNdsl& model) {
  std::map<int64_t, std::string> tensors;
  for (const NdslTensor& tensor : model.tensors) {
    std::string rest;
    if (const int64_t layer = layer_of(tensor.name, rest); layer >= 0) tensors[layer] += rest + tensor.shape.str();
  }
  std::set<int64_t> unlike;
  std::set<std::string> seen;
  for (const auto& [layer, text] : tensors)
    if (seen.insert(text).second) unlike.insert(layer);
  return unlike;
}

void show_tensors(const CompiledNdsl& model, Explanation& e, json::object& to) {
  e.say("tensors\n");
  json::array all;
  const std::set<int64_t> shown = unlike_layers(model);
  for (const NdslTensor& tensor : model.tensors) {
    std::string rest;
    const int64_t layer = layer_of(tensor.name, rest);
    if (layer < 0 || shown.contains(layer)) e.say(fmt::format("  {:<36} {}\n", tensor.name, tensor.shape.str()));
    all.push_back(json::object{{"name", tensor.name}, {"shape", json::value_from(tensor.shape.vector())}});
  }
  if (shown.size() > 1)
    e.say("  (every other layer has the tensors of one of these)\n");
  else if (model.layers.size() > 1)
    e.say("  (of layer 0; those of the others are named blk.1 and so on)\n");
  to["tensors"] = std::move(all);
}

}  // namespace

bool explain_ndsl(const Options& options) {
  const std::string& file = options.files.front();
  if (!is_ndsl(file)) return false;
  if (!options.show.empty())
    throw Error(ErrorKind::Usage,
                fmt::format("--show {} has no effect: '{}' is a .ndsl file", fmt::join(options.show, ","), file), {},
                {"parts of a .ndsl file: entries, program, kernels, memory; without --show: blocks and tensors"});
  refuse_flags(options, {"producer", "graph", "weights-from", "limits", "dot", "optimizer", "lr", "schedule", "infer"},
               "a .ndsl file");
  refuse_without(options, {"batch", "recompute", "accumulate", "clip", "clip-value"}, "--memory");
  expect_given_weights(options);
  const auto model = compile_ndsl_model(file, ndsl_options(options));
  Explanation e(options);
  json::object shown{{"name", model->file.name.text}, {"parameters", model->parameters()}, {"tied", model->tied}};
  e.say(fmt::format("{}: {}\n", model->file.name.text, number_of(model->parameters(), "parameter")));
  json::object sizes;
  for (const auto& [name, value] : model->sizes) {
    e.say(fmt::format("  {:<24} {}\n", name, value));
    sizes[name] = value;
  }
  shown["sizes"] = std::move(sizes);
  if (model->tied) e.say("  scores use the table of the embedding\n");
  e.say("\n");
  show_blocks(*model, e, shown);
  e.say("\n");
  show_tensors(*model, e, shown);
  if (options.json) print_json(json::object{{"version", 1}, {"transformer", std::move(shown)}});
  return true;
}

}  // namespace harmonics::engine::cli
