#include "engine/transformer/spec_trace.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>

#include "engine/base/philox.hpp"
#include "engine/base/spelling.hpp"
#include "engine/model/entry_results.hpp"
#include "engine/program/step_input.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

HTensor called(std::string_view name, const AttributeMap& attributes, const std::vector<HTensor>& inputs) {
  return apply(name, attributes, inputs).at(0);
}

const SpecOperation& operation_of(const specs::Step& step) {
  for (const SpecOperation& row : spec_operations())
    if (row.name == step.op) return row;
  std::vector<std::string> known{"Repeat"};
  for (const SpecOperation& row : spec_operations()) known.emplace_back(row.name);
  const std::string meant = did_you_mean(step.op, known);
  throw Error(ErrorKind::Name, fmt::format("{}: there is no operation {}", step.place, shown_name(step.op)), {},
              {meant.empty() ? "operations: " + comma_separated(known) : meant});
}

// Returns the positions of tokens within their documents, given the document number of each token [batch, tokens].
HTensor restarted(const HTensor& documents, const HTensor& places) {
  const int64_t batch = documents.shape()[0], tokens = documents.shape()[1];
  if (tokens == 1) return zeros_like(places);
  const HTensor begins =
      logical_not(equal(slice_axis(documents, 1, 1, tokens), slice_axis(documents, 1, 0, tokens - 1)));
  const HTensor zero = zeros_like(slice_axis(places, 1, 0, 1)), later = slice_axis(places, 1, 1, tokens);
  // Begin of each token's document: a running maximum, computed by doubling steps.
  HTensor begin = concat({zero, select(begins, later, zeros_like(later))}, 1);
  for (int64_t step = 1; step < tokens; step *= 2)
    begin =
        maximum(begin, concat({zeros_like(slice_axis(places, 1, 0, step)), slice_axis(begin, 1, 0, tokens - step)}, 1));
  return reshape(places - begin, Shape{batch, tokens});
}

constexpr int64_t kMostSteps = 100'000;  // per entry
const std::vector<std::string_view> kRepeatFields{"count", "var", "scope?"};

// Optional fields of every step.
constexpr std::string_view kCommonFields[] = {"when", "unless"};

void expect_fields(const specs::Step& step, const std::vector<std::string_view>& fields) {
  std::vector<std::string> known(std::begin(kCommonFields), std::end(kCommonFields));
  for (std::string_view field : fields) {
    const bool optional = field.ends_with("?");
    if (optional) field.remove_suffix(1);
    known.emplace_back(field);
    if (!optional && !step.fields.count(known.back()) && !step.lists.count(known.back()))
      throw Error(ErrorKind::Name, fmt::format("{}: the step {} has no '{}'", step.place, step.op, known.back()));
  }
  const auto expect = [&](const std::string& name) {
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const std::string& field) {
      return field == name || (field.ends_with("*") && name.starts_with(field.substr(0, field.size() - 1)));
    });
    if (is_known) return;
    const std::string meant = did_you_mean(name, known);
    throw Error(ErrorKind::Name,
                fmt::format("{}: the step {} has the unknown entry {}", step.place, step.op, shown_name(name)), {},
                {meant.empty() ? "known entries: " + comma_separated(known) : meant});
  };
  for (const auto& [name, value] : step.fields) expect(name);
  for (const auto& [name, list] : step.lists) expect(name);
}

}  // namespace

TensorType cache_type(const ResolvedSpec& resolved, const specs::Tensor& tensor, const LocalValues& locals,
                      const EntrySizes& sizes, DType dtype) {
  EntrySizes own = sizes;
  if (sizes.pages > 0) own.batch = sizes.pages, own.capacity = sizes.page_rows;
  LocalValues all = resolved.values_of(own);
  all.insert(locals.begin(), locals.end());
  std::vector<int64_t> dims;
  for (const specs::Expression& dim : tensor.dims) {
    dims.push_back(resolved.variables().whole(dim, all));
    if (dims.back() < 1)
      throw Error(ErrorKind::Weights,
                  fmt::format("{}: '{}' is {}; a dimension is at least 1", dim.place(), dim.text(), dims.back()));
  }
  if (const ElementType& element = element_type(dtype); dims.back() % element.block != 0)
    throw Error(ErrorKind::Usage,
                fmt::format("'{}': its heads are {} wide, and a cache of {} needs whole blocks of {}",
                            resolved.variables().model(), dims.back(), element.name, element.block),
                {}, {"take another type of the cache: f16"});
  return {dtype, Shape(dims)};
}

SpecTrace::SpecTrace(const ResolvedSpec& resolved, Tracer& tracer, const EntrySizes& sizes, bool cached, DType cache)
    : resolved_(resolved),
      variables_(resolved.variables()),
      tracer_(tracer),
      sizes_(sizes),
      cache_(cache),
      start_(cached ? tracer.input("start", {DType::I32, Shape{sizes.batch}}) : HTensor()),
      tokens_(tracer.input("tokens", {DType::I32, Shape{sizes.batch, sizes.tokens}})),
      locals_(resolved.values_of(sizes)),
      terms_(resolved.adapted(), resolved.trained(), tracer, sizes.training) {
  const HTensor places = iota(DType::I32, Shape{sizes.batch, sizes.tokens}, 1);
  if (cached && sizes.pages > 0)
    pages_ = tracer.input("pages", {DType::I32, Shape{sizes.batch, sizes.capacity / sizes.page_rows}});
  if (cached) lengths_ = start_ + static_cast<double>(sizes.tokens);
  positions_ = cached ? reshape(start_, Shape{sizes.batch, 1}) + places : places;
  if (!sizes.documents) return;
  if (cached) throw Error(ErrorKind::Internal, "documents are for entries without caches");
  documents_ = tracer.input("documents", {DType::I32, Shape{sizes.batch, sizes.tokens}});
  positions_ = restarted(documents_, places);
}

void SpecTrace::run(SpecResult result) {
  result_ = result;
  HTensor following;
  if (result == SpecResult::loss)
    following = tracer_.input("targets", {DType::I32, Shape{sizes_.batch, sizes_.tokens}});
  steps(resolved_.spec().forward);
  observe_turn();
  const auto output = [&](const std::string& name, const std::string& of) {
    const auto at = values_.find(of);
    if (at == values_.end())
      throw Error(ErrorKind::Name,
                  fmt::format("'{}': outputs.{}: no step gives {}", resolved_.spec().path, name, shown_name(of)));
    return at->second;
  };
  if (result == SpecResult::none) return;
  if (result == SpecResult::loss) {
    const auto scores = resolved_.spec().outputs.find("scores");
    if (scores == resolved_.spec().outputs.end())
      throw Error(ErrorKind::Name, fmt::format("'{}': outputs has no 'scores' to train by", resolved_.spec().path));
    const HTensor each = called("softmax_cross_entropy", {}, {output("scores", scores->second), following});
    const HTensor mean = reduce_mean(each, {0, 1}), more = auxiliary_loss();
    return tracer_.output("loss", more ? mean + cast(more, mean.dtype()) : mean);
  }
  if (const HTensor more = auxiliary_loss()) tracer_.output(kAuxiliaryLoss, more);
  const auto& outputs = resolved_.spec().outputs;
  for (const auto& [name, of] : outputs) {
    const bool vector = name == "hidden";  // if the spec has scores, only "embed" returns it
    if (vector ? result == SpecResult::vectors || !outputs.count("scores") : result != SpecResult::vectors)
      tracer_.output(name, output(name, of));
  }
}

void SpecTrace::steps(const std::vector<specs::Step>& all) {
  for (const specs::Step& one : all) {
    const specs::Step* outer = at_;
    at_ = &one;
    if (++traced_ > kMostSteps) fail(fmt::format("is one of more than {}", kMostSteps));
    if (checked_.insert(at_).second) {
      expect_fields(one, one.op == "Repeat" ? kRepeatFields : operation_of(one).fields);
      if (one.steps.empty() == (one.op == "Repeat")) fail("has 'steps' if it is Repeat, and only then");
    }
    const bool runs = (!has("when") || whole("when") != 0) && (!has("unless") || whole("unless") == 0);
    if (runs) step(one);
    at_ = outer;
  }
}

void SpecTrace::step(const specs::Step& step) {
  if (step.op == "Repeat") return repeat(step);
  NodeScope scope = tracer_.scope();
  const std::string path = scope.path.empty() ? "" : scope.path + ".";
  scope.path = path + (!step.operation.empty() ? step.operation : has("out") ? text("out") : step.op);
  try {
    const TraceScope within(scope);
    operation_of(step).trace(*this);
    if (sizes_.operations) observe_operation(step, path);
  } catch (const Error& e) {
    // Only errors of functionals lack the step's name.
    if (e.kind() != ErrorKind::Shape && e.kind() != ErrorKind::Type) throw;
    throw Error(e.kind(), fmt::format("{}: the step {}: {}", step.place, step.op, e.what()), e.span(), e.notes());
  }
}

// Records values for observers. Steps of JSON specs are named by their results, the last of each name in an iteration;
// those of .ndsl files list observed values.
void SpecTrace::observe_operation(const specs::Step& step, const std::string& path) {
  if (step.operation.empty() && has("out")) turn_[path + text("out")] = values_.at(text("out"));
  for (const auto& [name, of] : step.observed) turn_[path + name] = values_.at(of);
}

void SpecTrace::observe_turn() {
  for (const auto& [name, value] : std::exchange(turn_, {}))
    if (observed_.insert(name).second) tracer_.output(kValueOutput + name, value);
}

void SpecTrace::repeat(const specs::Step& step) {
  const specs::Repeat loop{specs::Expression(specs::text_of(field("count")), step.place + ".count"), text("var")};
  const LocalValues outer = locals_;
  for_each_turn(loop, variables_, outer, [&](const LocalValues& locals) {
    locals_ = locals;
    if (!has("scope")) return steps(step.steps);
    const TraceScope scope(variables_.interpolated(text("scope"), step.place, locals_));
    std::map<std::string, HTensor> outer_turn = std::exchange(turn_, {});
    steps(step.steps);
    observe_turn();
    turn_ = std::move(outer_turn);
  });
  locals_ = outer;
}

void SpecTrace::fail(const std::string& what) const {
  throw Error(ErrorKind::Weights, fmt::format("{}: the step {} {}", at_->place, at_->op, what));
}

bool SpecTrace::has(const char* field) const { return at_->fields.count(field) || at_->lists.count(field); }

const specs::Value& SpecTrace::field(const char* name) const {
  const auto at = at_->fields.find(name);
  if (at == at_->fields.end()) fail(fmt::format("has no '{}'", name));
  return at->second;
}

std::string SpecTrace::text(const char* name) const {
  const auto* text = std::get_if<std::string>(&field(name));
  if (!text) fail(fmt::format("has {} as '{}', which must be a string", specs::text_of(field(name)), name));
  return *text;
}

bool SpecTrace::truth(const char* name, bool otherwise) const {
  if (!has(name)) return otherwise;
  const auto* truth = std::get_if<bool>(&field(name));
  if (!truth) fail(fmt::format("has {} as '{}', which must be true or false", specs::text_of(field(name)), name));
  return *truth;
}

int64_t SpecTrace::whole(const char* name) const {
  const specs::Value& value = field(name);
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  return variables_.whole(specs::Expression(text(name), at_->place + "." + name), locals_);
}

double SpecTrace::real(const char* name) const {
  const specs::Value& value = field(name);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
  return variables_.real(specs::Expression(text(name), at_->place + "." + name), locals_);
}

Shape SpecTrace::dims(const char* name) const {
  const auto at = at_->lists.find(name);
  if (at == at_->lists.end()) fail(fmt::format("has no list '{}'", name));
  std::vector<int64_t> all;
  for (const specs::Expression& dim : at->second) {
    all.push_back(variables_.whole(dim, locals_));
    if (all.back() < 1) fail(fmt::format("has the dimension {} in '{}'", all.back(), name));
  }
  return Shape(all);
}

std::vector<std::pair<std::string, specs::Value>> SpecTrace::fields_with(const std::string& prefix) const {
  std::vector<std::pair<std::string, specs::Value>> all;
  for (const auto& [name, value] : at_->fields)
    if (name.starts_with(prefix)) all.emplace_back(name.substr(prefix.size()), value);
  return all;
}

HTensor SpecTrace::value(const char* name) const {
  const std::string of = text(name);
  if (const auto at = values_.find(of); at != values_.end()) return at->second;
  std::vector<std::string> known;
  for (const auto& [other, tensor] : values_) known.push_back(other);
  const std::string meant = did_you_mean(of, known);
  throw Error(ErrorKind::Name,
              fmt::format("{}: the step {} reads {}, which no earlier step gives", at_->place, at_->op, shown_name(of)),
              {}, meant.empty() ? std::vector<std::string>{} : std::vector<std::string>{meant});
}

void SpecTrace::set(const HTensor& result) {
  const std::string name = text("out");
  for (const specs::Tensor& tensor : resolved_.spec().tensors) {
    if (tensor.role != "intermediate" || tensor.name != name) continue;
    std::vector<int64_t> dims;
    for (const specs::Expression& dim : tensor.dims) dims.push_back(variables_.whole(dim, locals_));
    if (const Shape wanted(dims); wanted != result.shape())
      fail(fmt::format("gives '{}' the shape {}, and {} says {}", name, result.shape().str(), tensor.place,
                       wanted.str()));
  }
  values_[name] = result;
}

HTensor SpecTrace::bound(const BoundWeight& weight, const std::string& parameter) const {
  const TensorType* type = resolved_.type_of(parameter);
  return tracer_.parameter(parameter, {type && weight.shape.rank() == 2 ? type->dtype : DType::F32, weight.shape});
}

HTensor SpecTrace::weight(const char* name) const { return named_weight(text(name)); }

HTensor SpecTrace::named_weight(const std::string& name) const {
  const BoundWeight& weight = resolved_.weight(name, at_->place, locals_);
  if (weight.parameter.empty()) return {};
  if (weight.experts) fail(fmt::format("takes the experts '{}' as one matrix", name));
  const HTensor tensor = bound(weight, weight.parameter);
  terms_.read(tensor, weight.key);
  return tensor;
}

bool SpecTrace::is_transposed(const char* name) const {
  return resolved_.weight(text(name), at_->place, locals_).transposed;
}

std::vector<HTensor> SpecTrace::experts(const char* name) const {
  const BoundWeight& weight = resolved_.weight(text(name), at_->place, locals_);
  std::vector<HTensor> all;
  for (int64_t e = 0; e < weight.experts; ++e) all.push_back(bound(weight, expert_name(weight.parameter, e)));
  if (all.empty()) fail(fmt::format("needs experts, and '{}' is bound as one matrix", text(name)));
  return all;
}

HTensor SpecTrace::map_by_experts(const HTensor& rows, const HTensor& offsets, const char* name) const {
  const BoundWeight& weight = resolved_.weight(text(name), at_->place, locals_);
  std::vector<HTensor> operands = experts(name);
  operands.insert(operands.begin(), {rows, offsets});
  AttributeMap by_row;  // a row's bits do not depend on the number of rows
  if (!sizes_.training) by_row.set("batch_invariant", true);
  return terms_.added_by_experts(called("grouped_linear", by_row, operands), rows, offsets, weight.key, weight.experts);
}

// An affine map. Outside of training it is batch-invariant: a row's bits do not depend on the number of tokens.
HTensor SpecTrace::map(const HTensor& x, const HTensor& weight, const HTensor& bias, bool transposed) const {
  AttributeMap how;
  if (!sizes_.training) how.set("batch_invariant", true);
  if (transposed) how.set("transposed", true);
  const bool later = bias && terms_.scale(weight);
  const HTensor y = terms_.added(
      bias && !later ? called("linear", how, {x, weight, bias}) : called("linear", how, {x, weight}), x, weight);
  return later ? y + bias : y;
}

HTensor SpecTrace::looked_up(const HTensor& table, const HTensor& ids) const {
  return terms_.looked_up(cast(called("embedding", {}, {table, ids}), DType::F32), ids, table);
}

HTensor SpecTrace::appended(const std::string& name, const HTensor& rows) {
  if (!start_) return rows;
  const std::string wanted = variables_.interpolated(name, at_->place, locals_);
  for (const specs::Tensor& tensor : resolved_.spec().tensors) {
    if (tensor.role != "cache") continue;
    HTensor all;
    const auto append = [&](const LocalValues& locals) {
      if (all || variables_.interpolated(tensor.name, tensor.place, locals) != wanted) return;
      const HTensor old = tracer_.state(wanted, cache_type(resolved_, tensor, locals, sizes_, cache_));
      all = pages_ ? called("cache_append", AttributeMap().set("operands", "pages"), {old, rows, start_, pages_})
                   : called("cache_append", {}, {old, rows, start_});
      tracer_.update(wanted, all);
    };
    const auto turn = tensor.repeat ? locals_.find(tensor.repeat->variable) : locals_.end();
    append(turn == locals_.end() ? LocalValues{} : LocalValues{{turn->first, turn->second}});
    if (all) return all;
  }
  fail(fmt::format("appends to {}, which is not a cache of prepare.tensors", shown_name(wanted)));
}

HTensor SpecTrace::dropped(const HTensor& x, double rate) {
  if (!(rate >= 0 && rate < 1)) fail(fmt::format("has the dropout {:g}; it is 0 to less than 1", rate));
  if (!learns() || rate == 0) return x;
  const std::string stream = fmt::format("dropout.{}", traced_);  // unique per step
  AttributeMap random;
  random.set("shape", x.shape().vector());
  random.set("stream", static_cast<int64_t>(stream_of(stream.data(), stream.size())));
  const HTensor numbers = apply("random_uniform", random, {step_input(tracer_, StepInput::counter)}).at(0);
  return apply("dropout", AttributeMap().set("rate", rate), {x, numbers}).at(0);
}

void SpecTrace::balance(const HTensor& scores, const HTensor& experts, double coefficient) {
  if (!(coefficient >= 0)) fail(fmt::format("has the coefficient {:g} of a loss; it is at least 0", coefficient));
  if (!learns() || coefficient == 0) return;
  const int64_t count = scores.shape().back(), used = experts.shape().back();
  const HTensor shares = called("softmax", {}, {reshape(scores, Shape{scores.size() / count, count})}),
                chosen = reshape(experts, Shape{experts.size() / used, used});
  for (Balanced& known : balanced_) {
    if (known.coefficient != coefficient || known.shares[0].shape() != shares.shape() ||
        known.chosen[0].shape() != chosen.shape())
      continue;
    known.shares.push_back(shares);
    known.chosen.push_back(chosen);
    return;
  }
  balanced_.push_back({coefficient, {shares}, {chosen}});
}

void SpecTrace::limit_scores(const HTensor& scores, double coefficient) {
  if (!(coefficient >= 0)) fail(fmt::format("has the coefficient {:g} of a loss; it is at least 0", coefficient));
  if (!learns() || coefficient == 0) return;
  const int64_t count = scores.shape().back();
  const HTensor rows = reshape(scores, Shape{scores.size() / count, count});
  for (Limited& known : limited_)
    if (known.coefficient == coefficient && known.scores[0].shape() == rows.shape()) {
      known.scores.push_back(rows);
      return;
    }
  limited_.push_back({coefficient, {rows}});
}

HTensor SpecTrace::auxiliary_loss() const {
  HTensor sum;
  const auto joined = [](const std::vector<HTensor>& all) { return all.size() == 1 ? all[0] : concat(all, 0); };
  for (const Balanced& one : balanced_) {
    const HTensor loss = called("load_balance_loss", {}, {joined(one.shares), joined(one.chosen)}) * one.coefficient;
    sum = sum ? sum + loss : loss;
  }
  for (const Limited& one : limited_) {
    const HTensor loss = called("router_z_loss", {}, {joined(one.scores)}) * one.coefficient;
    sum = sum ? sum + loss : loss;
  }
  return sum;
}

HTensor SpecTrace::scored(const HTensor& last) {
  if (sizes_.scored == 0 || sizes_.scored == sizes_.batch) return last;
  if (const auto batch = locals_.find("batch"); batch != locals_.end()) batch->second = sizes_.scored;
  return slice_axis(last, 0, 0, sizes_.scored);
}

void SpecTrace::observe(const std::string& name, const HTensor& x) {
  const std::string full = variables_.interpolated(name, at_->place, locals_);
  observed_.insert(full);
  tracer_.output(kValueOutput + full, x);
}

}  // namespace harmonics::engine
