#include "engine/flow/lowering.hpp"

#include <algorithm>
#include <cstring>
#include <fnmatch.h>

#include <fmt/core.h>

#include "engine/flow/run_edge.hpp"
#include "engine/contract/plugin_body.hpp"
#include "engine/contract/plugin_functions.hpp"
#include "engine/model/sealed_file.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

struct LayerValue {
  FlowValue value, before_activation;
  std::string activation;  // "mixed" if several arrows meet and one of them ends in an activation
};

struct LossTerm {
  HTensor total;
  HTensor each;  // with EntrySizes::sample_losses: [batch]; null if the loss has no value per sample
  std::string only;
  int counted = -1;  // index in EntryResults::counted
};

class Lowerer : public ParameterSource {
 public:
  Lowerer(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths, ParameterStore& store,
          const FlowPart& part, Mode mode, const EntrySizes& sizes, Tracer& tracer, EntryResults& result)
      : graph_(graph),
        streams_(streams),
        widths_(widths),
        store_(store),
        part_(part),
        mode_(mode),
        sizes_(sizes),
        tracer_(tracer),
        result_(result) {}

  // Traces the entry: layers, then losses unless the mode is infer. In training the sums to differentiate are outputs
  // too.
  void run() {
    inputs();
    for (int n : graph_.order()) visit(n);
    if (mode_ != Mode::infer) losses();
    hand_out();
    if (mode_ != Mode::train) return;
    result_.objectives = objectives();
    for (const std::string& p : parameters_) result_.parameters.push_back({p, !outer_.count(p)});
  }

  // ---- ParameterSource ----
  HTensor parameter(const std::string& path, const TensorType& type, const hx_init& init,
                    const BoundCall& call) override {
    const bool fresh = store_.find(path) == nullptr;
    const Role role = call.freeze ? Role::frozen : Role::weight;
    if (fresh && !call.weights.empty()) load_from(graph_.weights_file(call), path, type, role, init);
    const StoredTensor* given = store_.find(path);
    const bool kept = given && keeps_type(*given, type);
    if (!kept) store_.declare(path, type, role, init, part_.seed);
    if (call.freeze) frozen_.insert(path);
    if (into_tapped_) outer_.insert(path);
    const HTensor handle = tracer_.parameter(path, kept ? given->type : type);
    if (known_parameters_.insert(path).second) parameters_.push_back(path);
    return kept ? cast(handle, type.dtype) : handle;
  }
  HTensor of_model(const std::string& path, const ModelParameter& what, const BoundCall& call) override {
    const LayerParameter& p = what.parameter;
    const Role role = call.freeze || p.fixed ? Role::frozen : Role::weight;
    if (!store_.find(path)) {
      const auto loaded = store_.expected().find(path);
      const bool loads = loaded != store_.expected().end() && type_of(loaded->second) == p.type;
      if (p.value && !loads) {
        const HTensor value = p.value.dtype() == p.type.dtype ? p.value : cast(cast(p.value, DType::F32), p.type.dtype);
        store_.adopt(path, value, what.model.file, role, p.init).of_model = true;
      }
    }
    StoredTensor& stored = store_.declare(path, p.type, role, p.init, part_.seed);
    if (p.fixed) stored.fixed = true;
    if (role == Role::frozen) frozen_.insert(path);
    if (into_tapped_ && what.last) outer_.insert(path);
    if (known_parameters_.insert(path).second) parameters_.push_back(path);
    return tracer_.parameter(path, p.type);
  }
  HTensor state(const std::string& path, const TensorType& type, const hx_init& init) override {
    store_.declare(path, type, Role::state, init, part_.seed);
    const HTensor kept = tracer_.state(path, type);
    const auto updated = updated_.find(path);
    return updated == updated_.end() ? kept : stop_gradient(updated->second);
  }
  void update(const std::string& path, const HTensor& value) override {
    if (mode_ != Mode::train) return;
    tracer_.update(path, value);
    updated_[path] = value;
  }
  HTensor random(const std::string& path, const Shape& shape) override { return random_numbers(tracer_, path, shape); }
  bool training() const override { return mode_ == Mode::train; }
  void add_loss(const HTensor& loss) override { auxiliary_ = auxiliary_ ? add(auxiliary_, loss) : loss; }
  void gave(const BoundCall& c, const std::vector<HTensor>& from, const HTensor& to) override {
    if (is_shipped(*c.item)) return;
    PluginCall call{spoken_name(*c.item), {}, {}};
    const auto hand_out = [&](const HTensor& v, std::vector<std::string>& names) {
      names.push_back(
          fmt::format("{}{}:{}", kFunctionOutput, result_.plugins.size(), call.from.size() + call.to.size()));
      tracer_.output(names.back(), v);
    };
    for (const HTensor& v : from) hand_out(v, call.from);
    hand_out(to, call.to);
    result_.plugins.push_back(std::move(call));
  }

 private:
  const GraphNode& node(int n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  bool active(int cycle, const std::vector<int>& branches) const {
    if (cycle >= 0 && cycle != part_.cycle) return false;
    return std::all_of(branches.begin(), branches.end(), [&](int b) { return part_.branches.count(b) != 0; });
  }

  void inputs() {
    for (int n : graph_.producers_used(part_.cycle, mode_ != Mode::infer)) {
      const auto it = streams_.find(n);
      if (it == streams_.end())
        throw Error(ErrorKind::Usage, fmt::format("producer '{}' is not bound", node(n).name), node(n).span,
                    {fmt::format("bind it: --producer {}=file:PATH", node(n).name)});
      Shape batched{sizes_.batch};
      for (int64_t d : it->second.sample) batched.push_back(d);
      LayerValue v;
      v.value = {tracer_.input(node(n).name, {it->second.dtype, batched}), it->second.positions, it->second.classes};
      v.before_activation = v.value;
      values_[n] = v;
      result_.inputs.push_back(n);
    }
  }

  const LayerValue& value_of(int n, Span where) {
    const auto it = values_.find(n);
    if (it != values_.end()) return it->second;
    throw Error(ErrorKind::Name,
                fmt::format("'{}' is read here, but no arrow drives it when this branch is taken", node(n).name), where,
                {"drive it in both branches, or outside of 'if'"});
  }

  void visit(int n) {
    if (node(n).kind == DeclarationKind::Producer) return;
    std::vector<const GraphEdge*> in;
    for (size_t number : into_[static_cast<size_t>(n)])
      if (const GraphEdge& e = graph_.edges[number]; active(e.cycle, e.branches)) in.push_back(&e);
    if (in.empty()) return;
    std::optional<int64_t> width;
    if (auto it = widths_.of.find(n); it != widths_.of.end())
      width = it->second.shape.from(it->second.positions).count();
    into_tapped_ = std::any_of(graph_.taps.begin(), graph_.taps.end(),
                               [&](const GraphTap& t) { return t.layer == n && active(t.cycle, t.branches); });
    LayerValue v;
    for (const GraphEdge* e : in) {
      EdgeResult r = run_edge(
          graph_, *e, value_of(e->source, e->span).value, width,
          [&](int layer) { return value_of(layer, e->span).value; }, *this);
      if (v.value.tensor.empty()) {
        v = {r.value, r.before_activation, r.activation};
        continue;
      }
      v.activation = v.activation.empty() && r.activation.empty() ? "" : "mixed";
      v.value.tensor = add(as_numbers(v.value.tensor), as_numbers(r.value.tensor));
      v.before_activation = v.value;
    }
    reshape_to_width(n, v);
    values_[n] = std::move(v);
  }

  void reshape_to_width(int n, LayerValue& v) {
    const auto it = widths_.of.find(n);
    if (it == widths_.of.end() || node(n).kind != DeclarationKind::Layer) return;
    Shape want{sizes_.batch};
    for (int64_t d : it->second.shape) want.push_back(d);
    if (want.count() != v.value.tensor.shape().count() || want == v.value.tensor.shape()) return;
    v.value.tensor = reshape(v.value.tensor, want);
    v.before_activation.tensor = reshape(v.before_activation.tensor, want);
  }

  // ---- losses ----
  static HTensor mean_loss(const HTensor& loss, uint32_t leading) {
    const Shape s = loss.shape();
    if (s.rank() == 0) return loss;
    std::vector<int64_t> all;
    double samples = 1;
    for (uint32_t i = 0; i < s.rank(); ++i) {
      all.push_back(i);
      if (i < leading) samples *= static_cast<double>(s[i]);
    }
    return mul(reduce_sum(loss, all), 1.0 / samples);
  }

  // Returns, per sample, the mean over its positions, for a loss whose first axis is the batch; null for other losses.
  HTensor loss_of_each(const HTensor& loss, uint32_t leading) const {
    const Shape s = loss.shape();
    if (s.rank() == 0 || s[0] != sizes_.batch) return {};
    double positions = 1;
    for (uint32_t i = 1; i < std::min<uint32_t>(leading, s.rank()); ++i) positions *= static_cast<double>(s[i]);
    const HTensor sums = s.rank() == 1 ? loss : reduce_sum(loss, axes_from(loss, 1));
    return mul(reshape(sums, Shape{sizes_.batch}), 1.0 / positions);
  }

  void losses() {
    const TraceScope scope({"", Phase::loss});
    for (const GraphTap& t : graph_.taps) {
      if (!active(t.cycle, t.branches)) continue;
      const LayerValue& prediction = value_of(t.layer, t.span);
      const LayerValue& target = value_of(t.target, t.span);
      LossInfo& info = info_of(t.layer);
      if (mode_ == Mode::train) expect_weights(t, prediction.value.tensor);
      for (const BoundCall& c : t.losses) {
        LossTerm term = loss(t, c, prediction, target, info);
        term.only = c.only;
        if (c.loss_weight != 1) {
          term.total = mul(term.total, c.loss_weight);
          if (term.each) term.each = mul(term.each, c.loss_weight);
        }
        layer_terms_[info.name].push_back(term);
        terms_.push_back(std::move(term));
      }
    }
    if (terms_.empty()) return;
    if (auxiliary_) terms_.front().total = add(terms_.front().total, cast(auxiliary_, terms_.front().total.dtype()));
    result_.parts = hand_out_loss("loss", terms_);
    for (const auto& [name, terms] : layer_terms_) {
      const auto info = std::find_if(result_.losses.begin(), result_.losses.end(),
                                     [&layer = name](const LossInfo& l) { return l.name == layer; });
      info->parts = hand_out_loss(name + ".loss", terms);
      if (sizes_.sample_losses) hand_out_sample_losses(*info, terms);
    }
  }

  // Returns whether a gradient of `value` reaches a parameter.
  bool reaches_parameter(const HTensor& value) {
    const Program& p = tracer_.program();
    std::vector<bool> needed(p.values.size(), false);
    const ValueId from = tracer_.id_of(value);
    needed[from] = true;
    for (size_t i = p.values[from].node + 1; i-- > 0;) {
      const Node& n = p.nodes[i];
      if (std::none_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return needed[v]; })) continue;
      if (n.op == Op::parameter) return true;
      if (n.op == Op::stop_gradient) continue;
      for (const ValueId v : n.inputs) needed[v] = true;
    }
    return false;
  }

  // Returns the arrow into `n`, or into the nearest layer before it, that is the stream of a producer; null if there is
  // none. `found` keeps the results, so that each layer is visited once.
  const GraphEdge* stream_behind(int n, std::map<int, const GraphEdge*>& found) const {
    if (const auto known = found.find(n); known != found.end()) return known->second;
    const GraphEdge*& last = found[n];
    for (const GraphEdge& e : graph_.edges) {
      if (e.target != n || !active(e.cycle, e.branches)) continue;
      if (e.is_stream) return last = &e;
      if (const GraphEdge* further = stream_behind(e.source, found)) last = further;
    }
    return last;
  }

  // Refuses a training tap that reaches no weights, which is a mistake in the flow.
  void expect_weights(const GraphTap& t, const HTensor& prediction) {
    if (reaches_parameter(prediction)) return;
    Error e(ErrorKind::Name,
            fmt::format("the training tap of '{}' reaches no weights, so nothing would be trained", node(t.layer).name),
            t.span);
    std::map<int, const GraphEdge*> found;
    const GraphEdge* stream = stream_behind(t.layer, found);
    if (!stream) throw e.note("give an arrow before it weights, such as SOURCE -(affine)-> LAYER;");
    const std::string &from = node(stream->source).name, &to = node(stream->target).name;
    std::string functions;
    for (const BoundCall& c : stream->calls) functions += ", " + c.item->name;
    e.note(fmt::format(
        "note: '{}' has no width and no other source than the producer '{}', so it is that stream, without weights", to,
        from));
    throw e.note(
        fmt::format("let its arrow learn: {} -(affine{})-> {}; or give the layer a width", from, functions, to));
  }

  static HTensor sum_of(const std::vector<LossTerm>& terms) {
    HTensor total = terms.front().total;
    for (size_t i = 1; i < terms.size(); ++i) total = add(total, terms[i].total);
    return total;
  }

  static std::map<int, std::vector<LossTerm>> by_count(const std::vector<LossTerm>& terms) {
    std::map<int, std::vector<LossTerm>> parts;
    for (const LossTerm& term : terms) parts[term.counted].push_back(term);
    return parts;
  }

  // Outputs the loss of these terms. Terms that are means over the same positions form one part.
  std::vector<LossPart> hand_out_loss(const std::string& name, const std::vector<LossTerm>& terms) {
    const auto by = by_count(terms);
    std::vector<LossPart> parts;
    for (const auto& [counted, some] : by) {
      parts.push_back({by.size() == 1 ? name : fmt::format("{}:{}", name, parts.size()), counted});
      if (by.size() > 1) tracer_.output(parts.back().output, sum_of(some));
    }
    tracer_.output(name, sum_of(terms));
    return parts;
  }

  // Outputs the loss per sample. Omitted if a loss ignores positions: it is a mean over the counted positions of the
  // batch.
  void hand_out_sample_losses(LossInfo& info, const std::vector<LossTerm>& terms) {
    HTensor total;
    for (const LossTerm& term : terms) {
      if (!term.each || term.counted >= 0) return;
      total = total ? add(total, term.each) : term.each;
    }
    info.sample_losses = true;
    tracer_.output(info.name + ".sample_loss", cast(total, DType::F32));
  }

  LossTerm loss(const GraphTap& t, const BoundCall& c, const LayerValue& prediction, const LayerValue& target,
                LossInfo& info) {
    TraceScope scope({node(t.layer).name, Phase::loss, graph_.origin(t.span)});
    try {
      const FlowValue& p = prediction.value;
      const bool classes = (c.item->flags & HX_TAKES_CLASSES) && is_integer(target.value.tensor.dtype()) &&
                           target.value.tensor.rank() + 1 == p.tensor.rank();
      HTensor y;
      int counted = -1;
      if (classes) {
        y = cast(target.value.tensor, DType::I32);
        counted = counted_places(t, c, y);
        if (!(c.item->flags & HX_SHIFTS_TARGET) && c.layers.empty()) count_correct(c, prediction, y, counted, info);
      } else {
        if ((c.item->flags & HX_TAKES_CLASSES) && !(c.item->flags & HX_SHIFTS_TARGET))
          expect_meant_as_numbers(t, p.tensor, target.value.tensor);
        y = stop_gradient(as_numbers(target.value.tensor));
        if (!is_float(y.dtype())) y = cast(y, p.tensor.dtype());  // integers that are not classes
        if (y.shape() != p.tensor.shape()) {
          if (y.size() != p.tensor.size())
            throw Error(ErrorKind::Shape,
                        fmt::format("'{}' of shape {} cannot be compared with '{}' of shape {} (batch axis first)",
                                    node(t.layer).name, p.tensor.shape().str(), node(t.target).name, y.shape().str()));
          y = reshape(y, p.tensor.shape());
        }
      }
      const auto hand_to_metrics = [&] {
        if (sizes_.metric_inputs && !info.metric_inputs) add_metric_inputs(c, prediction, y, classes, info);
      };
      if (c.layers.empty()) hand_to_metrics();
      std::vector<std::pair<std::string, HTensor>> others;
      for (const auto& [argument, layer] : c.layers)
        others.emplace_back(argument, value_of(layer, c.span).value.tensor);
      std::vector<ReportedFigure> reported;
      const HTensor value = call_loss(c.item, c.arguments, prediction.activation, prediction.before_activation.tensor,
                                      p.tensor, y, others, &reported);
      add_figures(reported, info);
      std::vector<HTensor> from{p.tensor, prediction.before_activation.tensor, y};
      for (const auto& [argument, other] : others) from.push_back(other);
      gave(c, from, value);
      // A loss with further sources has metrics only if it has one value per position.
      if (classes && !c.layers.empty() && value.size() == y.size() && !(c.item->flags & HX_SHIFTS_TARGET)) {
        count_correct(c, prediction, y, counted, info);
        hand_to_metrics();
      }
      return {mean_loss(value, 1 + p.positions),
              sizes_.sample_losses ? loss_of_each(value, 1 + p.positions) : HTensor(), "", counted};
    } catch (const Error& e) {
      if (e.span().line) throw;
      throw Error(e.kind(), e.what(), c.span.line ? c.span : t.span, e.notes());
    }
  }

  // Checks integers passed to a loss that takes classes, if their rank rules out classes. Refuses them unless they are
  // clearly meant as numbers.
  void expect_meant_as_numbers(const GraphTap& t, const HTensor& prediction, const HTensor& target) const {
    if (!is_integer(target.dtype())) return;
    const std::string &layer = node(t.layer).name, &stream = node(t.target).name;
    const std::string what = fmt::format("'{}' of shape {} (batch axis first) ", stream, target.shape().str());
    if (target.rank() < prediction.rank())
      throw Error(ErrorKind::Shape,
                  fmt::format("{}matches neither classes nor values for the output '{}' of shape {}", what, layer,
                              prediction.shape().str()),
                  {},
                  {fmt::format("class targets have the output's shape without its last axis; declare a class per "
                               "position as: producer {} {{*, {}}};",
                               stream, std::max<int64_t>(2, prediction.shape().back()))});
    if (target.dtype() != DType::U8 || use_of(graph_, behind(t.target)).computed) return;
    throw Error(
        ErrorKind::Type,
        fmt::format("{}gives a byte for each output of '{}', and bytes are scaled to [0, 1]: a 1 would count as 1/255",
                    what, layer),
        {},
        {"for binary values use another type, such as f32 or i32",
         fmt::format("for intensities scaled to [0, 1] write: layer scaled; {0} -(identity)-> scaled; and compare with "
                     "'scaled'",
                     stream)});
  }

  // Returns the producer whose samples a layer passes on unchanged, or else the node itself.
  int behind(int n) const {
    for (const GraphEdge& e : graph_.edges)
      if (e.target == n && e.is_stream && e.calls.empty()) return behind(e.source);
    return n;
  }

  LossInfo& info_of(int layer) {
    for (LossInfo& info : result_.losses)
      if (info.layer == layer) return info;
    return result_.losses.emplace_back(LossInfo{layer, node(layer).name});
  }

  static HTensor present(const BoundCall& c, const HTensor& labels) {
    return cast(logical_not(equal(labels, static_cast<double>(c.arguments.integer("ignore_index")))), DType::F32);
  }

  // Returns the index of the positions over which the loss is a mean; -1 for all positions of the batch.
  int counted_places(const GraphTap& t, const BoundCall& c, const HTensor& labels) {
    const std::string key = counted_by(graph_, t, c);
    if (key.empty()) return -1;
    for (size_t i = 0; i < result_.counted.size(); ++i)
      if (result_.counted[i].key == key) return static_cast<int>(i);
    const int64_t last = static_cast<int64_t>(labels.rank()) - 1;
    const bool shifts = (c.item->flags & HX_SHIFTS_TARGET) && last > 0;
    const HTensor counts = present(c, shifts ? slice_axis(labels, last, 1, labels.shape().back()) : labels);
    const CountedPositions& all = result_.counted.emplace_back(
        CountedPositions{key, fmt::format("counted:{}", result_.counted.size()), counts.size()});
    counted_.push_back(reduce_sum(counts, axes_from(counts, 0)));
    tracer_.output(all.output, counted_.back());
    return static_cast<int>(counted_.size()) - 1;
  }

  void count_correct(const BoundCall& c, const LayerValue& prediction, const HTensor& labels, int counted,
                     LossInfo& info) {
    if (info.accuracy) return;  // set by the first tap of the layer with classes
    const TraceScope scope({info.name, Phase::observe, tracer_.scope().origin});
    const HTensor &p = prediction.value.tensor, &logits = prediction.before_activation.tensor;
    const bool second = (c.item->flags & HX_TWO_CLASSES_IN_ONE) && p.shape().back() == 1;  // p is its probability
    const HTensor best = second ? cast(reshape(less(0.5, p), labels.shape()), DType::I64)
                                : argmax(logits, static_cast<int64_t>(logits.rank()) - 1);
    HTensor hit = cast(equal(best, cast(labels, DType::I64)), DType::F32);
    if (counted >= 0) hit = hit * present(c, labels);
    info.accuracy = true;
    info.counted = hit.size();
    info.accuracy_of = counted;
    tracer_.output(info.name + ".correct", reduce_sum(hit, axes_from(hit, 0)));
  }

  // Outputs the figures. If two losses of a layer report the same figure, only that of the first is used.
  void add_figures(const std::vector<ReportedFigure>& reported, LossInfo& info) {
    const TraceScope scope({info.name, Phase::observe, tracer_.scope().origin});
    for (const ReportedFigure& figure : reported) {
      const auto same = [&](const LossFigure& known) { return known.name == figure.name; };
      if (std::any_of(info.figures.begin(), info.figures.end(), same)) continue;
      info.figures.push_back({figure.name, info.name + ".figure." + figure.name});
      const HTensor value = cast(figure.value, DType::F32);
      const auto count = static_cast<double>(std::max<int64_t>(1, value.size()));
      tracer_.output(info.figures.back().output, reduce_sum(value, axes_from(value, 0)) * (1.0 / count));
    }
  }

  void add_metric_inputs(const BoundCall& c, const LayerValue& prediction, const HTensor& target, bool classes,
                         LossInfo& info) {
    const TraceScope scope({info.name, Phase::observe, tracer_.scope().origin});
    const HTensor& p = prediction.value.tensor;
    MetricInputs j;
    j.classes = classes;
    j.shifts = classes && (c.item->flags & HX_SHIFTS_TARGET);
    j.rows = 1;
    for (uint32_t axis = 0; axis <= prediction.value.positions; ++axis) j.rows *= p.shape()[axis];
    if (classes) j.rows = target.size();
    j.outputs = p.size() / j.rows;
    j.n_classes = !classes ? 0 : j.outputs == 1 ? 2 : j.outputs;
    j.sequence = target.rank() > 1 ? target.shape().back() : 1;
    if (c.arguments.has("ignore_index")) j.ignored = c.arguments.integer("ignore_index");
    j.activation = prediction.activation;
    tracer_.output(info.name + ".prediction", cast(p, DType::F32));
    tracer_.output(info.name + ".target", classes ? target : cast(target, DType::F32));
    info.metric_inputs = std::move(j);
  }

  // ---- objectives ----
  // Groups the terms by the pattern of parameters that learn from them. Outputs each sum, times `weight` if there is
  // one.
  std::vector<Objective> objectives_of(const std::vector<LossTerm>& terms, const HTensor& weight) {
    std::map<std::string, HTensor> groups;  // only= pattern, sum of its losses
    for (const LossTerm& term : terms)
      groups[term.only] = groups.count(term.only) ? add(groups[term.only], term.total) : term.total;
    std::vector<Objective> objectives;
    for (auto& [pattern, total] : groups) {
      if (weight) total = total * cast(weight, total.dtype());
      std::vector<std::string> wrt;
      for (const std::string& p : parameters_)
        if (!frozen_.count(p) && (pattern.empty() || fnmatch(pattern.c_str(), p.c_str(), 0) == 0)) wrt.push_back(p);
      if (!pattern.empty() && wrt.empty())
        throw Error(ErrorKind::Name, fmt::format("only=\"{}\" matches no parameter", pattern), {},
                    {"parameters are named SOURCE.TARGET.FUNCTION..., e.g. only=\"*.output.*\""});
      objectives.push_back({kObjectiveOutput + std::to_string(objectives_++), std::move(wrt)});
      tracer_.output(objectives.back().loss, total);
    }
    return objectives;
  }

  // One list per part of the loss if the counts are known only at the end of the step; otherwise one for the whole
  // loss.
  std::vector<std::vector<Objective>> objectives() {
    if (terms_.empty()) return {};
    const TraceScope scope({"", Phase::loss});
    if (!sizes_.parts) return {objectives_of(terms_, {})};
    std::vector<std::vector<Objective>> parts;
    for (const auto& [counted, terms] : by_count(terms_)) {
      const auto at = static_cast<size_t>(counted);
      parts.push_back(objectives_of(
          terms, counted < 0 ? HTensor() : counted_[at] * (1.0 / static_cast<double>(result_.counted[at].places))));
    }
    return parts;
  }

  // Returns whether a matrix of a file stays in its type. Products read it there; all other readers get f32 from a
  // conversion in every step, so other tensors are converted once. Training needs f32.
  bool keeps_type(const StoredTensor& stored, const TensorType& type) const {
    constexpr uint64_t kLeastBytes = 1 << 16;
    const DType given = stored.type.dtype;
    return stored.given && graph_.taps.empty() && type.dtype == DType::F32 && stored.type.shape == type.shape &&
           type.shape.rank() == 2 && stored.type.bytes() >= kLeastBytes &&
           (given == DType::F16 || given == DType::BF16 || is_stored(given));
  }

  void load_from(const std::string& file, const std::string& path, const TensorType& type, Role role,
                 const hx_init& init) {
    const auto [known, fresh] = files_.try_emplace(file);
    if (fresh) known->second = read_weights(file);
    const TensorFile& loaded = known->second;
    auto it = loaded.tensors.find(path);
    if (it == loaded.tensors.end()) it = loaded.tensors.find(path.substr(path.rfind('.') + 1));
    if (it == loaded.tensors.end())
      throw Error(ErrorKind::Weights,
                  fmt::format("{} has neither '{}' nor '{}'", file, path, path.substr(path.rfind('.') + 1)));
    if (type_of(it->second) != type && !is_convertible(type_of(it->second), type))
      throw Error(ErrorKind::Weights, fmt::format("{}: '{}' is {}, the graph expects {}", file, it->first,
                                                  type_of(it->second).str(), type.str()));
    store_.adopt(path, it->second, loaded.mapped, role, init);
  }

  void hand_out() {
    for (int n : part_.wanted)
      if (auto it = values_.find(n); it != values_.end()) {
        result_.values[n] = "out:" + node(n).name;
        tracer_.output("out:" + node(n).name, it->second.value.tensor);
      }
    for (const auto& [n, v] : values_)
      if (node(n).kind == DeclarationKind::Layer) tracer_.output(kValueOutput + node(n).name, v.value.tensor);
  }

  const Graph& graph_;
  const std::map<int, StreamType>& streams_;
  const Widths& widths_;
  ParameterStore& store_;
  const FlowPart& part_;
  const Mode mode_;
  const EntrySizes& sizes_;
  const std::vector<std::vector<size_t>> into_ = graph_.arrows_into();
  Tracer& tracer_;
  std::map<int, LayerValue> values_;
  std::vector<std::string> parameters_;
  std::set<std::string> known_parameters_;
  std::set<std::string> frozen_;
  std::map<std::string, TensorFile> files_;  // initial parameters
  std::map<std::string, HTensor> updated_;   // states after this step
  std::set<std::string> outer_;              // parameters of arrows into tapped layers
  bool into_tapped_ = false;
  std::vector<LossTerm> terms_;
  HTensor auxiliary_;  // sum of the auxiliary losses of models; null if there is none
  std::map<std::string, std::vector<LossTerm>> layer_terms_;
  std::vector<HTensor> counted_;  // index as EntryResults::counted
  int objectives_ = 0;
  EntryResults& result_;
};

}  // namespace

std::string counted_by(const Graph& graph, const GraphTap& tap, const BoundCall& loss) {
  if (!(loss.item->flags & HX_TAKES_CLASSES) || !loss.arguments.has("ignore_index")) return "";
  const bool shifts = (loss.item->flags & HX_SHIFTS_TARGET) != 0;
  return fmt::format("{} without {}{}", graph.nodes[static_cast<size_t>(tap.target)].name,
                     loss.arguments.integer("ignore_index"), shifts ? ", shifted" : "");
}

void trace_entry(Tracer& tracer, const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                 ParameterStore& store, const FlowPart& part, Mode mode, const EntrySizes& sizes,
                 EntryResults& results) {
  Lowerer(graph, streams, widths, store, part, mode, sizes, tracer, results).run();
}

}  // namespace harmonics::engine
