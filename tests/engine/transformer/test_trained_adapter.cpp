// Training adapters: trained parameters, number of products, gradients, and written and reloaded files.
#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <set>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>

#include "engine/passes/observe.hpp"
#include "engine/passes/pass.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/step_input.hpp"
#include "engine/training/lower.hpp"
#include "engine/transformer/adapter.hpp"
#include "engine/transformer/peft_adapter.hpp"
#include "engine/transformer/spec_trace.hpp"
#include "tests/engine/language/small_llama.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

SmallLlama adapted_sizes(const std::string& pairing = "interleaved") {
  SmallLlama s;
  s.width = 8, s.layers = 2, s.heads = 2, s.shared = 1, s.hidden = 12, s.vocabulary = 11;
  s.pairing = pairing;
  return s;
}

LoraSettings settings_for(std::vector<std::string> targets, int64_t rank = 3) {
  LoraSettings settings;
  settings.rank = rank;
  settings.alpha = 6;
  settings.targets = std::move(targets);
  return settings;
}

// Returns a model with an adapter of random matrices, so that both affect its scores.
Model adapted_llama(const LoraSettings& settings, const SmallLlama& s = adapted_sizes()) {
  Model model = bare_llama(s);
  add_architecture_entries(model, DType::F32, settings);
  uint32_t seed = 40;
  for (const TrainedPair& pair : model.adapter->pairs)
    for (const std::string& name : {pair.a, pair.b})
      model.parameters->assign(name, small_random(model.parameters->find(name)->type.shape, seed++, 0.4f));
  return model;
}

std::shared_ptr<ResolvedSpec> resolved_llama(const Model& model) {
  TensorTypes types;
  for (const auto& [name, stored] : model.parameters->all()) types.emplace(name, stored.type);
  return std::make_shared<ResolvedSpec>(builtin_spec(model.metadata, model.name), model.metadata, types,
                                        SpecOverrides{}, model.name);
}

constexpr int64_t kSequences = 2, kPositions = 5;

HTensor token_rows(int64_t vocabulary, uint32_t seed) {
  HTensor ids(DType::I32, Shape{kSequences, kPositions});
  const std::vector<int32_t> some = some_tokens(kSequences * kPositions, vocabulary, seed);
  std::copy(some.begin(), some.end(), ids.mutable_data<int32_t>());
  return ids;
}

// Computes the scores of the entry "forward" by the reference.
HTensor scores_of(const Model& model) {
  EntrySizes sizes{kSequences, kPositions, 1};
  const Program program =
      observe(model.trace(model.entry("forward"), sizes), [](const std::string& name) { return name == "scores"; });
  std::map<std::string, HTensor> leaves{{"tokens", token_rows(model.vocabulary, 3)}};
  for (const Node* leaf : program.leaves(Op::parameter)) leaves[leaf->callee] = model.parameters->tensor(leaf->callee);
  return interpret(program, leaves).at(0);
}

double distance(const HTensor& l, const HTensor& r) {
  REQUIRE(l.shape() == r.shape());
  double worst = 0;
  for (int64_t i = 0; i < l.size(); ++i)
    worst =
        std::max(worst, std::abs(static_cast<double>(l.data<float>()[i]) - static_cast<double>(r.data<float>()[i])));
  return worst;
}

Lowered step_of(const Model& model, const std::string& optimizer = "adamw") {
  StepOptions options;
  options.optimizer = parse_optimizer(optimizer);
  options.device.device = "cpu";
  options.batch = kSequences;
  options.tokens = kPositions;
  return lower(model, options);
}

// Returns the plan's program, after all passes.
Program planned(const Model& model, const Program& program) {
  Program last;
  const auto executor = make_sequential_executor();
  CompileOptions options;
  options.device = "cpu";
  options.training = true;
  options.observe = [&](const std::string&, const Program& after) { last = after; };
  compile(program, model.parameters.get(), *executor, options);
  return last;
}

bool is_product(const Node& node) {
  static const std::set<std::string> kCalls{"linear", "dot_add", "dot_sum", "update_outer", "sgd_outer"};
  return node.op == Op::dot || (node.op == Op::call && kCalls.count(node.callee));
}

// Counts a layer's products after the forward pass with an operand or result of one of these widths.
int narrow_products(const Program& program, const std::string& layer, const std::set<int64_t>& widths) {
  int count = 0;
  for (const Node& node : program.nodes) {
    if (!is_product(node) || is_forward(program, node)) continue;
    bool narrow = false;
    std::vector<ValueId> values = node.inputs;
    values.insert(values.end(), node.outputs.begin(), node.outputs.end());
    for (const ValueId v : values)
      for (const int64_t dim : program.type(v).shape.vector()) narrow |= widths.count(dim) > 0;
    count += narrow && program.scope_of(node).text().find(layer) != std::string::npos;
  }
  return count;
}

std::string folder_for(const std::string& name) {
  const std::string path = (std::filesystem::temp_directory_path() / ("harmonics_" + name)).string();
  std::filesystem::remove_all(path);
  return path;
}

}  // namespace

TEST_CASE("lora: settings are read from a text, and mistakes are named") {
  const LoraSettings settings = parse_lora("rank=16, alpha=32, targets=q_proj+v_proj, dora, seed=7, dropout=0.5");
  CHECK(settings.rank == 16);
  CHECK(settings.alpha == 32);
  CHECK(settings.targets == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK((settings.dora && !settings.rslora));
  CHECK(settings.factor() == 2);
  CHECK(parse_lora("rank=16,rslora").factor() == 4);
  CHECK(parse_lora("").rank == 8);
  CHECK_THAT(message_of([] { parse_lora("rang=8"); }), Catch::Contains("'rang'") && Catch::Contains("rank"));
  CHECK_THAT(message_of([] { parse_lora("rank=many"); }), Catch::Contains("a whole number"));
  CHECK_THAT(message_of([] { parse_lora("rank=0"); }), Catch::Contains("1 to 4096"));
  CHECK_THAT(message_of([] { parse_lora("dropout=1"); }), Catch::Contains("less than 1"));
  CHECK_THAT(message_of([] { parse_lora("alpha=-1"); }), Catch::Contains("above 0"));
  CHECK_THAT(message_of([] { parse_lora("init=zeros"); }), Catch::Contains("kaiming or gaussian"));
  CHECK_THAT(message_of([] { parse_lora("targets=q_proj++"); }), Catch::Contains("targets"));
  CHECK_THAT(message_of([] { adapted_llama(settings_for({"q_prj"})); }), Catch::Contains("q_proj"));
}

TEST_CASE("lora: a new adapter changes nothing, by its seed") {
  const Model plain = small_llama(adapted_sizes());
  for (const char* how : {"rank=2", "rank=2,init=gaussian", "rank=2,dora", "rank=2,targets=embed_tokens+lm_head"}) {
    Model model = bare_llama(adapted_sizes());
    add_architecture_entries(model, DType::F32, parse_lora(how));
    CHECK(distance(scores_of(model), scores_of(plain)) < 2e-6);
    const std::string a = model.adapter->pairs.back().a;
    Model other = bare_llama(adapted_sizes()), same = bare_llama(adapted_sizes());
    add_architecture_entries(other, DType::F32, parse_lora(std::string(how) + ",seed=5"));
    add_architecture_entries(same, DType::F32, parse_lora(how));
    CHECK(distance(model.parameters->tensor(a), same.parameters->tensor(a)) == 0);
    CHECK(distance(model.parameters->tensor(a), other.parameters->tensor(a)) > 0);
  }
}

TEST_CASE("lora: only the adapter has gradients, moments and updates") {
  for (const bool dora : {false, true}) {
    LoraSettings settings = settings_for({"all-linear"});
    settings.dora = dora;
    const Model model = adapted_llama(settings);
    const Lowered lowered = step_of(model);
    const std::vector<std::string> own = model.adapter->parameters();
    CHECK(own.size() == (dora ? 42 : 28));  // 7 maps in 2 layers
    std::set<std::string> expected(own.begin(), own.end()), found, moments;
    for (const std::string& name : own) expected.insert({"optimizer.m." + name, "optimizer.v." + name});
    for (const NamedValue& update : lowered.program.updates) found.insert(update.name);
    CHECK(found == expected);
    for (const auto& [name, stored] : model.parameters->all())
      if (stored.role == Role::moment) moments.insert(name);
    CHECK(moments.size() == 2 * own.size());
    // No value after the forward pass has a frozen matrix's type: frozen matrices have no gradients.
    const Program program = planned(model, lowered.program);
    for (const Node& node : program.nodes) {
      if (is_forward(program, node)) continue;
      for (const ValueId v : node.outputs) {
        const Shape shape = program.type(v).shape;
        INFO(program.scope_of(node).text() << " " << shape.str());
        CHECK(shape != Shape{12, 8});
        CHECK(shape != Shape{8, 12});
        CHECK(shape != Shape{11, 8});
        CHECK(shape != Shape{8, 8});
      }
    }
  }
}

TEST_CASE("lora: maps of one input share their products in the backward pass") {
  // Products of each map alone, recomputing x Aᵀ: 5, so 15 for q, k and v, and 10 for gate and up. Keeping x Aᵀ from
  // the forward pass leaves 12 and 8. Gradients of the A matrices are one product, and so are those of x: 8 and 6.
  const auto count = [](std::vector<std::string> targets, const std::string& layer) {
    const Model model = adapted_llama(settings_for(targets, 3));
    return narrow_products(planned(model, step_of(model).program), layer,
                           {3, 3 * static_cast<int64_t>(targets.size())});
  };
  CHECK(count({"q_proj", "k_proj", "v_proj"}, "blk.1") == 8);
  CHECK(count({"gate_proj", "up_proj"}, "blk.1") == 6);
  CHECK(count({"o_proj"}, "blk.1") == 4);
  CHECK(count({"q_proj", "k_proj", "v_proj"}, "blk.0") == 7);  // nothing below it has a gradient
}

TEST_CASE("lora: gradients of adapted maps are their finite differences") {
  // q and k share x; v has rows 2 to 5 of a fused weight; a table is looked up.
  TrainedAdapter adapter;
  const auto pair = [&](const std::string& key, int64_t from, int64_t rows, int64_t whole, const std::string& group) {
    TrainedPair p{key, {}, "", key + ".A", key + ".B", "", ""};
    p.rank = 2, p.width = 3, p.from = from, p.rows = rows, p.whole = whole, p.factor = 1.5, p.group = group;
    adapter.pairs.push_back(p);
  };
  pair("q", 0, 4, 4, "g");
  pair("k", 2, 3, 6, "g");
  pair("o", 0, 2, 2, "o");
  pair("table", 0, 5, 5, "t");
  adapter.pairs.back().looked_up = true;
  for (const bool dora : {false, true}) {
    if (dora)
      for (TrainedPair& p : adapter.pairs)
        if (!p.looked_up) p.magnitude = p.key + ".m", p.squares = p.key + ".s";
    Tracer tracer("maps");
    const AdaptedWeights none;
    LowRankTerms terms(none, &adapter, tracer, true);
    std::map<std::string, HTensor> leaves;
    uint32_t seed = 3;
    const auto leaf = [&](const std::string& name, const Shape& shape, double middle = 0) {
      leaves[name] = cast(small_random(shape, seed++, 0.7f, static_cast<float>(middle)), DType::F64);
    };
    const HTensor ids = tracer.input("ids", {DType::I32, Shape{2, 3}});
    leaves["ids"] = cast(HTensor::from(Shape{2, 3}, std::vector<float>{0, 4, 1, 1, 3, 0}), DType::I32);
    const HTensor table = tracer.parameter("table", {DType::F64, Shape{5, 3}});
    leaf("table", {5, 3});
    terms.read(table, "table");
    const HTensor x = terms.looked_up(call1("embedding", {table, ids}), ids, table);
    const auto mapped = [&](const std::string& key, const HTensor& of, int64_t rows) {
      const HTensor weight = tracer.parameter(key, {DType::F64, Shape{rows, 3}});
      leaf(key, {rows, 3});
      terms.read(weight, key);
      return terms.added(call1("linear", {of, weight}), of, weight);
    };
    const HTensor q = mapped("q", x, 4), k = mapped("k", x, 6), o = mapped("o", tanh(x), 2);
    tracer.output("loss", reduce_sum(sin(q), {0, 1, 2}) + reduce_sum(k * k, {0, 1, 2}) + reduce_sum(o * o, {0, 1, 2}));
    Program forward = tracer.take();
    std::vector<std::string> names;
    for (const TrainedPair& p : adapter.pairs) {
      leaf(p.a, p.looked_up ? Shape{5, 2} : Shape{2, 3});
      leaf(p.b, p.looked_up ? Shape{3, 2} : Shape{p.rows, 2});
      if (!p.magnitude.empty()) {
        leaf(p.magnitude, {p.rows}, 2);
        HTensor all = reduce_sum(leaves.at(p.key) * leaves.at(p.key), {1});
        leaves[p.squares] = slice_axis(all, 0, p.from, p.from + p.rows);
        names.push_back(p.magnitude);
      } else if (!dora) {  // DoRA's norms count as constants, so finite differences do not apply to A and B
        names.insert(names.end(), {p.a, p.b});
      }
    }
    const auto loss = [&] { return *interpret(forward, leaves).at(0).data<double>(); };
    const Program both = differentiate(forward, "loss", names);
    const Values results = interpret(both, leaves);
    for (size_t i = 0; i < both.outputs.size(); ++i)
      for (const std::string& name : names) {
        if (both.outputs[i].name != gradient_output(name)) continue;
        const HTensor gradient = results[i];
        for (int64_t e = 0; e < gradient.size(); ++e) {
          INFO(name << " " << e);
          const HTensor before = leaves.at(name);
          const auto at = [&](double step) {
            HTensor moved = before + 0.0;
            moved.mutable_data<double>()[e] += step;
            leaves[name] = moved;
            return loss();
          };
          const double difference = (at(1e-5) - at(-1e-5)) / 2e-5;
          leaves[name] = before;
          CHECK(gradient.data<double>()[e] == Approx(difference).epsilon(1e-6).margin(1e-7));
        }
      }
  }
}

namespace {

// Returns the program's outputs after one run on the CPU.
std::map<std::string, HTensor> results_of(const Model& model, const Program& program, int64_t step = 1,
                                          const std::string& recomputation = "none", uint64_t* arena = nullptr) {
  StepValues values;
  values.set(0, step, 1);
  const auto executor = make_sequential_executor();
  CompileOptions options;
  options.device = "cpu";
  options.recomputation = recomputation;
  const auto plan = compile(program, model.parameters.get(), *executor, options);
  if (arena) *arena = plan->memory().arena_bytes;
  const HTensor tokens = token_rows(model.vocabulary, 3), targets = token_rows(model.vocabulary, 4);
  std::vector<const void*> inputs;
  for (const std::string& name : plan->input_names())
    if (const auto own = step_input_of(name))
      inputs.push_back(values.address(*own));
    else
      inputs.push_back(name == "tokens" ? tokens.bytes() : targets.bytes());
  plan->run(inputs.data());
  std::map<std::string, HTensor> results;
  for (const NamedValue& output : program.outputs) results[output.name] = plan->output(output.name) + 0.0;
  return results;
}

// Returns the model with its matrices in another type, or with their values decoded from that type.
Model in_type_of_weights(const Model& model, DType type, bool decoded) {
  Model other;
  other.name = model.name;
  other.metadata = model.metadata;
  for (const auto& [name, stored] : model.parameters->all()) {
    HTensor weight = model.parameters->tensor(name);
    if (weight.rank() == 2) weight = decoded ? cast(cast(weight, type), DType::F32) : cast(weight, type);
    other.parameters->adopt(name, weight, nullptr, Role::frozen, {}).fixed = true;
  }
  return other;
}

}  // namespace

TEST_CASE("lora: gradients through quantised weights are those through the numbers that they stand for") {
  for (const DType type : {DType::NF4_64, DType::FP4_64, DType::E4M3_64, DType::F8_E4M3, DType::Q8_0, DType::Q4_0,
                           DType::Q4_K, DType::Q6_K, DType::F16, DType::BF16})
    for (const bool dora : {false, true}) {
      INFO(element_type(type).name << " " << dora);
      SmallLlama sizes = adapted_sizes();
      sizes.width = sizes.hidden = std::max<int64_t>(64, element_type(type).block);
      LoraSettings settings = settings_for({"all-linear"});
      settings.dora = dora;
      std::map<std::string, HTensor> found[2];
      for (const bool decoded : {false, true}) {
        Model model = in_type_of_weights(bare_llama(sizes), type, decoded);
        add_architecture_entries(model, DType::F32, settings);
        uint32_t seed = 40;
        for (const TrainedPair& pair : model.adapter->pairs)
          for (const std::string& name : {pair.a, pair.b})
            model.parameters->assign(name, small_random(model.parameters->find(name)->type.shape, seed++, 0.1f));
        EntrySizes run{kSequences, kPositions, 1};
        run.training = true;
        const Program loss =
            observe(model.trace(model.entry("loss"), run), [](const std::string& name) { return name == "loss"; });
        found[decoded ? 1 : 0] = results_of(model, differentiate(loss, "loss", model.adapter->parameters()));
        if (!decoded) CHECK(model.parameters->find("blk.0.attn_q.weight")->type.dtype == type);
      }
      REQUIRE(found[0].size() == found[1].size());
      for (const auto& [name, gradient] : found[1]) {
        double most = 0;
        for (int64_t i = 0; i < gradient.size(); ++i)
          most = std::max(most, std::abs(static_cast<double>(gradient.data<float>()[i])));
        INFO(name);
        CHECK(most > 0);
        CHECK(distance(found[0].at(name), gradient) < 1e-4 * most + 1e-7);
      }
    }
}

TEST_CASE("lora: what the adapted maps read is computed again, with the same bits in less memory") {
  SmallLlama sizes = adapted_sizes();
  sizes.layers = 6;
  const Model model = adapted_llama(settings_for({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"}), sizes);
  EntrySizes run{kSequences, kPositions, 1};
  run.training = true;
  const Program loss =
      observe(model.trace(model.entry("loss"), run), [](const std::string& name) { return name == "loss"; });
  const Program program = differentiate(loss, "loss", model.adapter->parameters());
  uint64_t bytes[2];
  std::map<std::string, HTensor> found[2];
  for (const bool again : {false, true}) {
    const auto at = static_cast<size_t>(again);
    found[at] = results_of(model, program, 1, again ? "lora" : "none", &bytes[at]);
  }
  CHECK(bytes[1] < bytes[0]);
  for (const auto& [name, gradient] : found[0]) CHECK(distance(found[1].at(name), gradient) == 0);
}

TEST_CASE("lora: dropout drops in training alone, by the step") {
  LoraSettings settings = settings_for({"q_proj", "down_proj"});
  settings.dropout = 0.5;
  const Model model = adapted_llama(settings), without = adapted_llama(settings_for({"q_proj", "down_proj"}));
  CHECK(distance(scores_of(model), scores_of(without)) == 0);
  const Program program = step_of(model, "sgd").program;
  const auto losses = [&](int64_t step) { return *results_of(model, program, step).at("loss").data<float>(); };
  CHECK(losses(1) == losses(1));
  CHECK(losses(1) != losses(2));
}

TEST_CASE("lora: maps that read one value keep factors of their own in training") {
  const Model model = adapted_llama(settings_for({"q_proj", "k_proj", "v_proj"}));
  TrainedAdapter changed = *model.adapter;
  for (TrainedPair& pair : changed.pairs) pair.factor = pair.target == "q_proj" ? 2 : pair.target == "k_proj" ? 0.5 : 5;
  LoraSettings settings;
  settings.from = folder_for("own_factors");
  write_peft_adapter(
      changed, [&](const std::string& name) { return model.parameters->tensor(name); }, settings.from);
  Model trained = bare_llama(adapted_sizes());
  add_architecture_entries(trained, DType::F32, settings);
  REQUIRE(trained.adapter->pairs.size() == changed.pairs.size());
  for (size_t i = 0; i < changed.pairs.size(); ++i)
    CHECK(trained.adapter->pairs[i].factor == Approx(changed.pairs[i].factor));
  StepOptions evaluated;
  evaluated.mode = Mode::evaluate;
  evaluated.device.device = "cpu";
  evaluated.batch = kSequences, evaluated.tokens = kPositions;
  const auto loss_of = [](const Model& of, const Program& program) {
    return *results_of(of, program).at("loss").data<float>();
  };
  // Evaluation multiplies each pair separately, the step the pairs of a group at once.
  const float alone = loss_of(trained, lower(trained, evaluated).program);
  CHECK(loss_of(trained, step_of(trained, "sgd").program) == Approx(alone).epsilon(1e-6));
  CHECK(std::abs(loss_of(model, lower(model, evaluated).program) - alone) > 1e-4f);
  std::filesystem::remove_all(settings.from);
}

TEST_CASE("lora: a folder of PEFT that was written is read with the same scores, also on top of it") {
  for (const char* pairing : {"interleaved", "half"})
    for (const char* how : {"rank=3,alpha=6", "rank=3,alpha=6,dora", "rank=4,rslora,targets=q_proj+up_proj",
                            "rank=2,targets=embed_tokens+k_proj+lm_head"}) {
      INFO(pairing << " " << how);
      const SmallLlama sizes = adapted_sizes(pairing);
      const Model trained = adapted_llama(parse_lora(how), sizes);
      const std::string folder = folder_for("peft_adapter");
      const auto value = [&](const std::string& name) { return trained.parameters->tensor(name); };
      write_adapter(*trained.adapter, value, folder);

      Model read = bare_llama(sizes);
      const auto resolved = resolved_llama(read);
      const Adapter adapter = read_adapter({folder, 1}, *resolved, Registry::global());
      CHECK(adapter.pairs.size() == trained.adapter->pairs.size());
      apply_adapters({adapter}, *resolved, *read.parameters);
      ResolvedSpec::add_entries(resolved, read, DType::F32);
      CHECK(distance(scores_of(read), scores_of(trained)) < 2e-5);
      CHECK(distance(scores_of(read), scores_of(small_llama(sizes))) > 1e-2);

      LoraSettings further;
      further.from = folder;
      Model again = bare_llama(sizes);
      add_architecture_entries(again, DType::F32, further);
      CHECK(again.adapter->pairs.size() == trained.adapter->pairs.size());
      CHECK(distance(scores_of(again), scores_of(trained)) < 2e-5);
      std::filesystem::remove_all(folder);
    }
}

TEST_CASE("lora: an adapter is trained on top of a frozen one") {
  const SmallLlama sizes = adapted_sizes();
  const Model first = adapted_llama(settings_for({"q_proj", "k_proj"}), sizes);
  const std::string folder = folder_for("stacked_adapter");
  write_adapter(
      *first.adapter, [&](const std::string& name) { return first.parameters->tensor(name); }, folder);
  Model model = bare_llama(sizes);
  const auto resolved = resolved_llama(model);
  apply_adapters({read_adapter({folder, 1}, *resolved, Registry::global())}, *resolved, *model.parameters);
  add_adapters(settings_for({"k_proj", "v_proj", "down_proj"}, 2), *resolved, model);
  ResolvedSpec::add_entries(resolved, model, DType::F32);
  CHECK(distance(scores_of(model), scores_of(first)) < 2e-6);
  std::set<std::string> trained;
  for (const TrainedParameter& p : step_of(model).trained) trained.insert(p.name);
  CHECK(trained.size() == 12);
  for (const std::string& name : trained) CHECK(name.find(".lora_") != std::string::npos);
  CHECK(!trained.count("blk.0.attn_q.weight.lora_a"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("lora: weights merged with an adapter compute what they do beside it") {
  for (const bool dora : {false, true}) {
    LoraSettings settings = settings_for({"all-linear"});
    settings.dora = dora;
    const Model trained = adapted_llama(settings);
    const std::string folder = folder_for("merged_adapter");
    write_adapter(
        *trained.adapter, [&](const std::string& name) { return trained.parameters->tensor(name); }, folder);
    Model merged = bare_llama(adapted_sizes());
    const auto resolved = resolved_llama(merged);
    const Adapter adapter = read_adapter({folder, 1}, *resolved, Registry::global());
    for (const auto& [key, pair] : adapter.pairs)
      merged.parameters->assign(key, merged_weight(merged.parameters->tensor(key), false, {&pair}));
    ResolvedSpec::add_entries(resolved, merged, DType::F32);
    CHECK(distance(scores_of(merged), scores_of(trained)) < 2e-5);
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("adapter: of several patterns with an alpha the first that fits counts, as in PEFT") {
  const auto alpha = [](const char* patterns) {
    const std::string text =
        std::string(R"({"peft_type": "LORA", "lora_alpha": 8, "alpha_pattern": )") + patterns + "}";
    return parse_peft_config(text, "c").alpha_of("model.layers.0.self_attn.q_proj");
  };
  CHECK(alpha(R"({"self_attn.q_proj": 32, "q_proj": 16})") == 32);
  CHECK(alpha(R"({"q_proj": 16, "0.self_attn.q_proj": 32})") == 16);
  CHECK(alpha(R"({"v_proj": 16})") == 8);
}
