// `plugin check` passes the same types to functions as flows do.
#include <catch2/catch.hpp>

#include <harmonics/functional.hpp>

#include "engine/conformance/item_checks.hpp"
#include "engine/plugin/pending_items.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

// Registers items like an embedder.
template <typename Register>
std::vector<ItemPtr> items(Register&& body) {
  hx_registry pending;
  hx_registration registration{sizeof(hx_registration), harmonics_api(), &pending};
  body(reinterpret_cast<FunctionRegistry&>(registration));
  std::vector<ItemPtr> all(pending.pending.begin(), pending.pending.end());
  commit_pending(pending, Registry::global());  // functionals are looked up in the global registry
  return all;
}

// Collects lines "takes a target: i64[4]". Failed ones begin with '!' and end with the remedy.
class Lines final : public CheckLog {
 public:
  void begin(const std::string& check) override { check_ = check; }
  void end(const Finding& f) override {
    const bool failed = f.outcome == Finding::Outcome::Failed;
    lines.push_back((failed ? "!" : "") + check_ + ": " + f.text + (failed ? " / " + f.remedy : ""));
  }
  std::vector<std::string> lines;

 private:
  std::string check_;
};

std::string first_line(const ItemPtr& item) {
  Lines log;
  CheckSettings settings;
  settings.calls = 100;
  settings.seconds = 0.1;
  check_item(item, settings, log);
  return log.lines.empty() ? "" : log.lines.front();
}

// Compares the classes, as numbers of one type, with each column's class.
struct Hits : LossFunction {
  explicit Hits(DType dtype) : dtype_(dtype) {}
  HTensor operator()(const HTensor& p, const HTensor& target) const override {
    Shape column = target.shape();
    column.push_back(1);
    const HTensor hot = equal(iota(dtype_, p.shape(), p.rank() - 1), broadcast(reshape(target, column), p.shape()));
    return neg(reduce_sum(select(hot, p, zeros_like(p)), {static_cast<int64_t>(p.rank()) - 1}));
  }

 private:
  DType dtype_;
};

struct Symbols : LayerFunction {
  explicit Symbols(bool all) : all_(all) {}
  HTensor operator()(Scope&, const HTensor& x, const Arguments&) const override {
    if (x.dtype() == DType::F32 || (!all_ && x.dtype() != DType::I64)) throw Error(ErrorKind::Type, "takes i64");
    return cast(x, DType::F32);
  }

 private:
  bool all_;
};

struct Affine : FunctionalBody {
  std::vector<HTensor> operator()(const std::vector<HTensor>& in, const Arguments&) const override {
    return {add(dot(in.at(0), in.at(1), {static_cast<int64_t>(in.at(0).rank()) - 1}, {1}), in.at(2))};
  }
};

}  // namespace

TEST_CASE("check types: a loss receives classes as i32, as in flows") {
  const auto all = items([](FunctionRegistry& r) {
    r.register_loss("hits_i32", std::make_shared<Hits>(DType::I32), "", {}, HX_TAKES_CLASSES);
    r.register_loss("hits_i64", std::make_shared<Hits>(DType::I64), "", {}, HX_TAKES_CLASSES);
    r.register_loss("hits_alone", std::make_shared<Hits>(DType::I32));
  });
  CHECK(first_line(all[0]) == "takes a target: i32[4], i32[2, 4]");
  CHECK(first_line(all[1]) ==
        "!takes a target: no classes: f32[4, 3] with i32[4]: loss 'hits_i64': equal: operands are i64[4, 3] and i32[4, "
        "3]; element types must be equal; cast one"
        " / flows hand classes over as i32, one rank below the prediction");
  CHECK(first_line(all[2]).rfind("!takes a target: no numbers of the prediction's shape: f32[4, 3] with f32[4, 3]: ",
                                 0) == 0);
}

TEST_CASE("check types: a layer receives symbols in every type of streams") {
  const auto all = items([](FunctionRegistry& r) {
    r.register_layer("symbols", std::make_shared<Symbols>(true), "", {}, HX_TAKES_CLASSES);
    r.register_layer("wide_symbols", std::make_shared<Symbols>(false), "", {}, HX_TAKES_CLASSES);
    r.register_layer("no_symbols", std::make_shared<Symbols>(true));
  });
  CHECK(first_line(all[0]) == "takes samples and keeps the batch axis: i64[3, 5], i32[3, 5], u8[3, 5]");
  CHECK(first_line(all[1]).rfind("!takes samples and keeps the batch axis: takes i64[3, 5], but not u8[3, 5]: ", 0) ==
        0);
  CHECK(first_line(all[2]).rfind("!takes samples and keeps the batch axis: ", 0) == 0);
}

TEST_CASE("check types: a functional of several inputs receives shapes that fit together") {
  const auto all =
      items([](FunctionRegistry& r) { r.register_functional("affine_of_three", std::make_shared<Affine>()); });
  CHECK(first_line(all[0]).find("3 inputs of ") != std::string::npos);
  CHECK(first_line(all[0]).find("[3, 5]x[4, 5]x[4]") != std::string::npos);
}
