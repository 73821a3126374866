// Checks of implementations of functionals and primitives.
#include <algorithm>

#include <fmt/core.h>
#include <harmonics/functional_abi.h>
#include <harmonics/ops.hpp>
#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/conformance/call_examples.hpp"
#include "engine/conformance/gradient_check.hpp"
#include "engine/conformance/kernel_memory.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/op.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;

constexpr DType kTypes[] = {DType::F32, DType::F64, DType::F16, DType::BF16};

// A call offered to the implementation, with the expected results.
struct AskedImplementation {
  CallExample call;
  CallSiteInfo site;
  Values expected;
  std::optional<std::string> declined;  // the reason; none if it is accepted
  bool training = false;

  std::string str() const { return site.str() + (training ? " in a training step" : ""); }
};

std::vector<AskedImplementation> ask(const Item& item, const std::string& op, uint64_t seed) {
  std::vector<AskedImplementation> all;
  for (const DType type : kTypes) {
    std::vector<CallExample> calls;
    try {
      calls = calls_of(op, type, seed);
    } catch (const Error&) {
      continue;  // undefined for this type
    }
    for (const CallExample& call : calls)
      for (const bool training : {false, true}) {
        AskedImplementation a{
            call, site_of(call, training), apply(call.op, call.attributes, call.inputs), {}, training};
        a.declined = declines(item, a.site);
        all.push_back(std::move(a));
      }
  }
  return all;
}

Finding operation_of(const std::string& op) {
  if (find_op(op)) return {Outcome::Passed, "the primitive " + op, ""};
  if (FunctionalTable::global().find(op)) return {Outcome::Passed, "the functional " + op, ""};
  std::vector<std::string> known = FunctionalTable::global().names();
  for (const OpRow& row : op_rows())
    if (find_op(row.name)) known.emplace_back(row.name);
  const auto near = nearest(op, known);
  return {Outcome::Failed, fmt::format("there is no functional or primitive '{}'", op),
          near ? "did you mean '" + *near + "'?"
               : "register the functional in the same library; 'harmonics list functionals' lists them"};
}

Finding answers(const std::vector<AskedImplementation>& asked) {
  const AskedImplementation* refused = nullptr;
  size_t served = 0;
  for (const AskedImplementation& a : asked) {
    if (!a.declined)
      ++served;
    else if (!refused)
      refused = &a;
    if (a.declined == "no reason given")
      return {Outcome::Failed, fmt::format("it declines {} without a reason", a.str()),
              "supports() returns the reason: explain --select shows it, and so does an override that cannot be used"};
  }
  const std::string text = fmt::format("{} of {}", served, quantity(asked.size(), "call"));
  if (served == 0)
    return {Outcome::Noted,
            fmt::format("{}: {}", text, asked.empty() ? "no call of it is available for testing" : *refused->declined),
            "nothing it computes could be tested"};
  return {Outcome::Passed, refused ? text + "; else: " + *refused->declined : text, ""};
}

Finding answers_alike(const Item& item, const std::vector<AskedImplementation>& asked) {
  for (size_t i = asked.size(); i-- > 0;)
    for (int again = 0; again < 2; ++again)
      if (declines(item, asked[i].site) != asked[i].declined)
        return {
            Outcome::Failed, fmt::format("a second call for {} gives another answer", asked[i].str()),
            "supports() must depend only on the call: it is called when programs are compiled, and its answer is kept"};
  return {};
}

// Runs the implementation on copies of the call's inputs.
Values computed(const ItemPtr& item, const AskedImplementation& a) {
  Values inputs;
  for (const HTensor& x : a.call.inputs) inputs.push_back(HTensor(x.dtype(), x.shape(), x.bytes()));
  return make_implementation_call(item, a.site, {})->run(inputs);
}

Finding means_the_same(const ItemPtr& item, const std::vector<const AskedImplementation*>& served) {
  for (const AskedImplementation* a : served) {
    Values got;
    try {
      got = computed(item, *a);
    } catch (const Error& e) {
      throw Error(e.kind(), fmt::format("{}, for {}", e.what(), a->site.str()), e.span(), e.notes());
    }
    for (size_t i = 0; i < a->expected.size(); ++i)
      if (const std::string text = difference(got[i], a->expected[i], "the body"); !text.empty())
        return {Outcome::Failed, fmt::format("result {} of {}: {}", i + 1, a->site.str(), text),
                "compute what the functional defines, or let supports() decline the call"};
  }
  return {Outcome::Passed, quantity(served.size(), "call"), ""};
}

// Returns the gradients of the call's floating-point inputs.
Values gradients(const AskedImplementation& a, const std::function<Values(const Values&)>& call, bool only_first) {
  Tracer tracer("check");
  Values inputs, wrt;
  std::map<std::string, HTensor> leaves;
  for (size_t i = 0; i < a.call.inputs.size(); ++i) {
    leaves[std::to_string(i)] = a.call.inputs[i];
    inputs.push_back(tracer.input(std::to_string(i), a.site.inputs[i]));
    if (is_float(a.site.inputs[i].dtype)) wrt.push_back(inputs.back());
  }
  const Values found = gradient(tracer, weighted_sum(call(inputs), only_first), wrt);
  for (size_t i = 0; i < found.size(); ++i) tracer.output(std::to_string(i), found[i]);
  return interpret(tracer.take(), leaves);
}

std::string gradient_difference(const ItemPtr& item, const AskedImplementation& a, bool only_first) {
  const auto meant = [&](const Values& in) { return apply(a.site.op, a.site.attributes, in); };
  const auto made = [&](const Values& in) {
    Node node{};
    node.op = Op::host_call;
    node.host = make_implementation_call(item, a.site, {});
    return Tracer::current()->append(std::move(node), in, a.site.outputs);
  };
  const Values expected = gradients(a, meant, only_first), got = gradients(a, made, only_first);
  for (size_t i = 0; i < expected.size(); ++i)
    if (const std::string text = difference(got[i], expected[i], "that of the functional"); !text.empty())
      return fmt::format("of input {} of {}: {}", i + 1, a.site.str(), text);
  return "";
}

Finding own_gradient(const ItemPtr& item, const std::vector<const AskedImplementation*>& served) {
  size_t compared = 0;
  std::string later;
  for (const AskedImplementation* a : served) {
    const bool whole = a->site.inputs[0].dtype == DType::F32 || a->site.inputs[0].dtype == DType::F64;
    const bool floats = std::any_of(a->site.outputs.begin(), a->site.outputs.end(),
                                    [](const TensorType& t) { return is_float(t.dtype); });
    if (!a->training || !whole || !floats) continue;
    ++compared;
    if (const std::string text = gradient_difference(item, *a, true); !text.empty())
      return {Outcome::Failed, "the gradient " + text,
              "forward and backward must agree: fix it, or leave has_gradient() out"};
    if (later.empty() && a->site.outputs.size() > 1) later = gradient_difference(item, *a, false);
  }
  if (!later.empty())
    return {Outcome::Noted, "with gradients of all its results, the gradient " + later,
            "use output_gradients[1] and further ones too, where something may depend on these results"};
  if (compared == 0) return {Outcome::Noted, "none of the calls it serves in a training step is of f32 or f64", ""};
  return {Outcome::Passed, quantity(compared, "call"), ""};
}

// Runs the kernel of `step`, if there is one, in guarded memory and counts it.
Finding memory_of(const HostFunction& step, const char* whose, const std::string& site, const Values& inputs,
                  const std::vector<TensorType>& results, size_t& kernels) {
  hx_kernel kernel{};
  ItemPtr owner;
  if (!step.find_kernel(kernel, owner)) return {};
  ++kernels;
  const std::string text = run_guarded(kernel, inputs, results);
  if (kernel.destroy) kernel.destroy(kernel.context);
  if (text.empty()) return {};
  return {Outcome::Failed, fmt::format("{} kernel for {} {}", whose, site, text),
          "buffers are the inputs, the outputs and the workspace, of a gradient also the outputs' gradients before "
          "those of the inputs; parts of one phase run in any order and write disjoint memory"};
}

// Returns the implementation's own gradient and sets its operands.
std::shared_ptr<const HostFunction> gradient_step(const ItemPtr& item, const AskedImplementation& a, Values& operands) {
  Tracer tracer("check");
  operands = a.call.inputs;
  operands.insert(operands.end(), a.expected.begin(), a.expected.end());
  for (const HTensor& y : a.expected)
    operands.push_back(is_float(y.dtype()) ? random_tensor(y.shape(), 5, -1, 1, y.dtype()) : y);
  Values traced;
  for (size_t i = 0; i < operands.size(); ++i) traced.push_back(tracer.input(std::to_string(i), type_of(operands[i])));
  const auto outputs = traced.begin() + static_cast<std::ptrdiff_t>(a.call.inputs.size());
  const auto output_gradients = outputs + static_cast<std::ptrdiff_t>(a.expected.size());
  make_implementation_call(item, a.site, {})
      ->gradient({traced.begin(), outputs}, {outputs, output_gradients}, {output_gradients, traced.end()});
  const Program program = tracer.take();
  const auto step =
      std::find_if(program.nodes.begin(), program.nodes.end(), [](const Node& n) { return n.op == Op::host_call; });
  return step == program.nodes.end() ? nullptr : step->host;
}

Finding memory(const ItemPtr& item, const std::vector<const AskedImplementation*>& served) {
  size_t kernels = 0;
  for (const AskedImplementation* a : served) {
    Finding f = memory_of(*make_implementation_call(item, a->site, {}), "its", a->site.str(), a->call.inputs,
                          a->site.outputs, kernels);
    if (f.outcome == Outcome::Failed) return f;
    if (!a->training || !(item->flags & HX_OWN_GRADIENT)) continue;
    Values operands;
    std::vector<TensorType> input_gradients;
    for (const TensorType& t : a->site.inputs)
      if (is_float(t.dtype)) input_gradients.push_back(t);
    if (const auto step = gradient_step(item, *a, operands))
      f = memory_of(*step, "its gradient's", a->site.str(), operands, input_gradients, kernels);
    if (f.outcome == Outcome::Failed) return f;
  }
  if (kernels == 0) return {Outcome::Passed, "no kernels: run() is given tensors", ""};
  return {Outcome::Passed, quantity(kernels, "kernel"), ""};
}

Finding on_threads(const ItemPtr& item, const AskedImplementation& a) {
  const Values expected = computed(item, a);
  const std::string error = on_four_threads(100, [&] {
    if (declines(*item, a.site)) throw Error(ErrorKind::Plugin, "it declines calls that it served on one thread");
    const Values got = computed(item, a);
    for (size_t i = 0; i < got.size(); ++i)
      if (!same_bits(got[i], expected[i])) throw Error(ErrorKind::Plugin, "other numbers than on one thread");
  });
  if (error.empty()) return {};
  return {Outcome::Failed, error, "different kernels run at the same time: share no mutable state"};
}

}  // namespace

void check_implementation(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  const std::string op = item->name.substr(0, item->name.find('.'));
  bool known = false;
  attempt(log, "names an existing functional", [&] {
    const Finding f = operation_of(op);
    known = f.outcome == Outcome::Passed;
    return f;
  });
  if (!known) return;
  std::vector<AskedImplementation> asked;
  std::vector<const AskedImplementation*> served;
  attempt(
      log, "reports the calls it serves, and why not others",
      [&] {
        asked = ask(*item, op, settings.seed);
        for (const AskedImplementation& a : asked)
          if (!a.declined) served.push_back(&a);
        return answers(asked);
      },
      "supports() answers every call: \"\" or the reason against it");
  if (asked.empty()) return;
  attempt(log, "answers consistently", [&] { return answers_alike(*item, asked); });
  if (served.empty()) return;
  bool careful = false;  // a kernel that fails this may corrupt memory in later checks
  attempt(
      log, "stays within its memory",
      [&] {
        const Finding f = memory(item, served);
        careful = f.outcome == Outcome::Passed;
        return f;
      },
      "find() gives a complete kernel: function, name, phases and parts");
  if (!careful) return;
  const bool runs = attempt(
      log, "computes what " + op + " means", [&] { return means_the_same(item, served); },
      "compute every call that supports() accepts, or let it decline the call");
  if (!runs) return;
  if (item->flags & HX_OWN_GRADIENT) attempt(log, "gradient", [&] { return own_gradient(item, served); });
  attempt(log, "threads", [&] { return on_threads(item, *served.front()); });
  attempt(log, "many calls", [&] {
    const auto call = make_implementation_call(item, served.front()->site, {});
    return many_calls(settings, [&] { call->run(served.front()->call.inputs); });
  });
}

}  // namespace harmonics::engine
