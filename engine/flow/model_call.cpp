#include "engine/flow/model_call.hpp"

#include <algorithm>

#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/base/philox.hpp"
#include "engine/model/entry_results.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/step_input.hpp"

namespace harmonics::engine {

namespace {

std::shared_ptr<const Item> make_model_function() {
  auto item = std::make_shared<Item>();
  item->kind = HX_LAYER;
  item->flags = HX_TAKES_CLASSES;
  item->name = kModelFunction;
  item->description = "a language model of a file, on streams of token numbers";
  item->arguments = {
      {HX_ARG_STRING, "file", "", "file or folder of the model", true},
      {HX_ARG_LAYER, "documents", "", "numbers of the documents that the tokens belong to; absent: one document",
       false},
      {HX_ARG_STRING, "output", "scores", "result after each token", false, "scores|hidden"},
      {HX_ARG_STRING, "type", "", "type to convert matrices to; absent: as in the file", false},
      {HX_ARG_STRING, "set", "", "settings of the model: \"num_layers=2, hidden_size=64\"", false},
      {HX_ARG_STRING, "lora", "", "settings of an adapter that is trained instead of the weights", false},
      {HX_ARG_STRING, "adapter", "", "an adapter that is applied and stays as it is", false}};
  return item;
}

// Returns the value as token numbers [batch, tokens]. Throws if it has another type or shape.
HTensor whole_numbers(const FlowValue& x, const std::string& what) {
  const HTensor& given = x.tensor;
  if (!is_integer(given.dtype()))
    throw Error(ErrorKind::Type,
                fmt::format("model reads {} by number, but the values have the type {}", what, type_of(given).str()),
                {},
                {"bind a stream of whole numbers, such as integer cells of CSV or JSON; layers with weights give real "
                 "numbers"});
  Shape shape = given.shape();
  if (shape.rank() == 3 && shape.back() == 1) shape = shape.slice(0, 2);
  if (shape.rank() != 2)
    throw Error(ErrorKind::Shape,
                fmt::format("model reads {} as samples [tokens], but they are {} (batch axis first)", what,
                            type_of(given).str()),
                {}, {"samples of a text are windows of it: file:text.txt?window=128"});
  const HTensor numbers = given.shape() == shape ? given : reshape(given, shape);
  return numbers.dtype() == DType::I32 ? numbers : cast(numbers, DType::I32);
}

void expect_fitting(const LayerModel& opened, const FlowValue& x, int64_t tokens) {
  const Model& model = opened.model;
  if (model.vocabulary > 0 && x.classes > model.vocabulary)
    throw Error(ErrorKind::Shape,
                fmt::format("the stream has {} different tokens, but the vocabulary of '{}' is {}", x.classes,
                            model.name, model.vocabulary),
                {},
                {"give it the numbers of the model's own tokenizer",
                 fmt::format("or describe the model with a vocab_size of at least {}", x.classes)});
  if (model.context > 0 && tokens > model.context)
    throw Error(
        ErrorKind::Shape,
        fmt::format("the samples have {} tokens, but the context of '{}' is {}", tokens, model.name, model.context), {},
        {fmt::format("take at most {0} tokens: window={0} in an address, sequence_len={0} for 'train'",
                     model.context)});
}

// Returns the entry that computes the result, and the name of its output.
std::pair<const Entry*, std::string> entry_with(const Model& model, const std::string& result) {
  const Entry* scores = model.find("forward");
  const Entry* vectors = model.find("embed");
  if (const Entry* entry = result == "hidden" && vectors ? vectors : scores) return {entry, result};
  throw Error(ErrorKind::Weights, fmt::format("'{}' has no results without caches, which a flow needs", model.name));
}

Program traced(const LayerModel& opened, const Entry& entry, const EntrySizes& sizes) {
  Budget steps = opened.model.limits.for_steps();
  Tracer inner(opened.model.name);
  inner.set_budget(&steps);
  EntryResults results;
  entry.body(inner, sizes, results);
  return inner.take();
}

// Returns the name of the weight of the last linear map before a value; "" if there is none.
std::string last_map(const Program& body, ValueId value) {
  for (;;) {
    const Node& node = body.producer(value);
    if (const FunctionalPtr map = called_by(node); map && map->traits.transposable) {
      const Node& weight = body.producer(node.inputs.at(*map->traits.transposable));
      return weight.op == Op::parameter ? weight.callee : "";
    }
    if (node.inputs.empty()) return "";
    value = node.inputs.front();
  }
}

// Copies the nodes of a model into the trace of the flow.
class Spliced {
 public:
  Spliced(const LayerModel& opened, const Program& body, const BoundCall& call, std::string prefix,
          ParameterSource& parameters, Tracer& tracer)
      : opened_(opened),
        body_(body),
        call_(call),
        prefix_(std::move(prefix)),
        parameters_(parameters),
        tracer_(tracer),
        outer_(tracer.scope()),
        values_(body.values.size()) {}

  HTensor value(ValueId of) const { return values_[of]; }  // after run()

  HTensor run(const std::map<std::string, HTensor>& inputs, ValueId result) {
    const std::string last = last_map(body_, result);
    for (const Node& node : body_.nodes) {
      if (node.op == Op::input)
        set(node, input(node.callee, inputs));
      else if (node.op == Op::parameter)
        set(node, parameter(node.callee, body_.type(node.outputs.at(0)), node.callee == last));
      else
        append(node);
    }
    tracer_.set_scope(outer_);
    return values_[result];
  }

 private:
  void set(const Node& node, const HTensor& value) { values_[node.outputs.at(0)] = value; }

  HTensor input(const std::string& name, const std::map<std::string, HTensor>& inputs) {
    if (const auto given = inputs.find(name); given != inputs.end()) return given->second;
    if (const auto of = step_input_of(name)) return step_input(tracer_, of->input, of->part);
    throw Error(ErrorKind::Weights,
                fmt::format("'{}' has the input '{}', which a flow does not provide", opened_.model.name, name));
  }

  HTensor parameter(const std::string& name, const TensorType& type, bool last) {
    const auto known = opened_.parameters.find(name);
    if (known == opened_.parameters.end() || known->second.type != type)
      throw Error(ErrorKind::Internal, fmt::format("'{}' computes with the unknown parameter '{}' of type {}",
                                                   opened_.model.name, name, type.str()));
    return parameters_.of_model(prefix_ + "." + name, {opened_, known->second, last}, call_);
  }

  void append(const Node& node) {
    if (node.op == Op::state)
      throw Error(ErrorKind::Weights, fmt::format("'{}' keeps the state '{}' between runs, which a flow cannot",
                                                  opened_.model.name, node.callee));
    NodeScope scope = outer_;
    if (const std::string& path = body_.scope_of(node).path; !path.empty()) scope.path += "." + path;
    tracer_.set_scope(std::move(scope));
    std::vector<HTensor> inputs;
    std::vector<TensorType> types;
    for (const ValueId v : node.inputs) inputs.push_back(values_[v]);
    for (const ValueId v : node.outputs) types.push_back(body_.type(v));
    Node copy = node;
    if (node.op == Op::random_uniform) {  // gives numbers that differ from those of other uses of the model
      const std::string path = fmt::format("{}.random.{}", prefix_, node.attributes.integer("stream"));
      copy.attributes.set("stream", static_cast<int64_t>(stream_of(path.data(), path.size())));
    }
    const std::vector<HTensor> results = tracer_.append(std::move(copy), inputs, types);
    for (size_t i = 0; i < results.size(); ++i) values_[node.outputs[i]] = results[i];
  }

  const LayerModel& opened_;
  const Program& body_;
  const BoundCall& call_;
  std::string prefix_;
  ParameterSource& parameters_;
  Tracer& tracer_;
  NodeScope outer_;
  std::vector<HTensor> values_;
};

}  // namespace

ItemPtr model_function() {
  static const ItemPtr item = make_model_function();
  return item;
}

std::shared_ptr<const LayerModel> CalledModel::open(const Graph& graph, const BoundCall& call) {
  LayerModelRequest request;
  request.written = call.arguments.text("file");
  request.path = graph.model_file(call);
  request.trains = !call.freeze;
  if (!call.weights.empty()) request.weights = graph.weights_file(call);
  request.type = call.arguments.text("type", std::string());
  request.set = call.arguments.text("set", std::string());
  request.lora = call.arguments.text("lora", std::string());
  if (call.arguments.has("adapter")) {
    const std::string& written = call.arguments.text("adapter");
    request.adapter = graph.named_file(call, written, fmt::format("adapter=\"{}\"", written));
  }
  request.other_file = [&](const std::string& written) {
    return graph.named_file(call, written, fmt::format("lora=\"from={}\"", written));
  };
  const std::lock_guard lock(mutex_);
  if (model_ && path_ == request.path) return model_;
  try {
    model_ = layer_model_opener()(request, Registry::global());
  } catch (const SourceErrors& e) {  // errors in the text of the model
    throw Error(e.kind(), fmt::format("model(\"{}\") has errors", request.written), call.span, {e.what()});
  }
  path_ = request.path;
  return model_;
}

bool ends_in_model(const Graph& graph, int layer) {
  bool any = false;
  for (const GraphEdge& e : graph.edges) {
    if (e.target != layer) continue;
    if (e.calls.empty() || !e.calls.back().model) return false;
    any = true;
  }
  return any;
}

FlowValue run_model(const Graph& graph, const GraphEdge& edge, size_t number, const FlowValue& x,
                    const std::function<FlowValue(int node)>& value_of, ParameterSource& parameters) {
  const BoundCall& call = edge.calls[number];
  const std::map<std::string, HTensor> numbers = [&] {
    std::map<std::string, HTensor> all{{"tokens", whole_numbers(x, "tokens")}};
    for (const auto& [argument, node] : call.layers) all[argument] = whole_numbers(value_of(node), argument);
    return all;
  }();
  const Shape shape = numbers.at("tokens").shape();
  for (const auto& [name, value] : numbers)
    if (value.shape() != shape)
      throw Error(
          ErrorKind::Shape,
          fmt::format("the tokens are {} and their {} {} (batch axis first)", shape.str(), name, value.shape().str()),
          {}, {"each token has one number of its document"});
  const std::shared_ptr<const LayerModel> opened = call.model->open(graph, call);
  expect_fitting(*opened, x, shape[1]);
  const auto [entry, output] = entry_with(opened->model, call.arguments.text("output"));
  EntrySizes sizes;
  sizes.batch = shape[0];
  sizes.tokens = sizes.capacity = shape[1];
  sizes.training = parameters.training();
  sizes.frozen = call.freeze;
  sizes.documents = numbers.count("documents") != 0;
  const Program body = traced(*opened, *entry, sizes);
  const auto named = [&](std::string_view name) {
    return std::find_if(body.outputs.begin(), body.outputs.end(),
                        [&](const NamedValue& value) { return value.name == name; });
  };
  const auto result = named(output);
  if (result == body.outputs.end())
    throw Error(ErrorKind::Weights, fmt::format("'{}' gives no {} after each token", opened->model.name, output), {},
                {fmt::format("its other result: output={}", output == "scores" ? "hidden" : "scores")});
  Spliced spliced(*opened, body, call, parameter_prefix(edge, number), parameters, *Tracer::current());
  FlowValue y;
  y.tensor = spliced.run(numbers, result->value);
  if (const auto more = named(kAuxiliaryLoss); more != body.outputs.end())
    parameters.add_loss(spliced.value(more->value));
  if (y.tensor.rank() < 2 || y.tensor.shape()[0] != shape[0])
    throw Error(ErrorKind::Weights, fmt::format("'{}' gives {} of shape {}, not one for each sample of the batch",
                                                opened->model.name, output, y.tensor.shape().str()));
  y.positions = y.tensor.rank() > 2 ? 1 : 0;
  return y;
}

}  // namespace harmonics::engine
