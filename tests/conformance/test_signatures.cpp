// Signatures of the library's functionals: complete, consistent with their calls, and shown in docs/functionals.md.
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/core.h>

#include "engine/conformance/functional_cases.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/tensor/attribute_reads.hpp"
#include "tests/architecture/sources.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::conformance;

namespace {

// Attributes that bodies do not read: one selects how kernels compute, the others are attributes of `dot` and always
// empty.
const std::set<std::string> kNotRead{"linear.batch_invariant", "grouped_linear.batch_invariant", "dot_sum.lhs_batch",
                                     "dot_sum.rhs_batch"};

struct Reads {
  std::map<std::string, std::set<std::string>> by_functional;

  // Runs the body of a case, and its gradient if it has one.
  void run(const FunctionalCase& c) {
    const FunctionalPtr f = FunctionalTable::global().find(c.functional);
    std::mt19937_64 generator(7);
    const Values in = make_operands(c, DType::F32, generator);
    AttributeReads reads(c.attributes);
    const Values out = f->body(c.attributes, in);
    if (f->gradient) f->gradient(c.attributes, in, out, out);
    by_functional[c.functional].insert(reads.names().begin(), reads.names().end());
  }
};

std::vector<FunctionalPtr> library() {
  std::vector<FunctionalPtr> all = FunctionalTable::global().all();
  std::erase_if(all, [](const FunctionalPtr& f) {
    return f->name.rfind("conformance.", 0) == 0 || f->name.rfind("test_", 0) == 0;
  });
  return all;
}

std::string default_of(const AttributeSpec& a) {
  if (a.required) return "required";
  if (a.type == HX_ARG_STRING) return "`\"" + a.default_text + "\"`";
  return a.default_text.empty() ? "absent" : "`" + a.default_text + "`";
}

std::string attribute_row(const AttributeSpec& a) {
  std::string note = a.description;
  if (a.since) note += fmt::format("{}since contract 1.{}", note.empty() ? "" : "; ", a.since);
  std::string range = a.range;
  for (size_t at = 0; (at = range.find('|', at)) != std::string::npos; at += 2) range.insert(at, "\\");
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", a.name, argument_type_name(a.type), default_of(a),
                     range.empty() ? "" : "`" + range + "`", note);
}

std::string page() {
  std::string text =
      "# Functionals\n\nThe library's functionals with their signatures; a test compares this page with the program. "
      "`harmonics inspect NAME` shows\none of them, with a call that works. How to read a signature: `?` marks an "
      "optional input or result, `...` after one that it\nrepeats, `< rows` indices below the size of that axis or "
      "below that attribute. An attribute with neither `?` nor a default is\nrequired.\n\n"
      "A call with an unknown attribute, a value of another type or out of range, or another number of inputs is an "
      "error. Calls of\nplugins built for contract 1.4 or earlier may have unknown attributes: they are ignored, with "
      "a note.\n";
  for (const FunctionalPtr& f : library()) {
    text += fmt::format("\n## {}\n\n{}\n\n    {}\n", f->name, f->description, f->signature.str());
    if (!f->signature.notes.empty()) text += fmt::format("\n{}\n", f->signature.notes);
    const std::vector<std::string> traits = f->traits.names();
    for (const std::string& trait : traits) text += (&trait == &traits.front() ? "\nTraits: " : ", ") + trait;
    if (!traits.empty()) text += "\n";
    if (f->signature.attributes.empty()) continue;
    text += "\n| attribute | type | default | range | |\n|---|---|---|---|---|\n";
    for (const AttributeSpec& a : f->signature.attributes) text += attribute_row(a);
  }
  return text;
}

}  // namespace

TEST_CASE("signatures: bodies and gradients read no other attributes, and each of them is read") {
  Reads reads;
  for (const uint64_t seed : {1, 2, 3})
    for (const FunctionalCase& c : functional_cases(seed)) reads.run(c);
  for (const FunctionalPtr& f : library()) {
    std::set<std::string> unread;
    for (const AttributeSpec& a : f->signature.attributes)
      if (!kNotRead.count(f->name + "." + a.name)) unread.insert(a.name);
    for (const std::string& name : reads.by_functional[f->name]) {
      INFO(f->name << " reads '" << name << "'");
      CHECK((f->signature.attribute(name) || f->signature.more_attributes));
      unread.erase(name);
    }
    for (const std::string& name : unread) {
      INFO(f->name << " does not read '" << name << "'");
      CHECK(false);
    }
  }
}

TEST_CASE("signatures: a read of an attribute that is not declared is found") {
  const AttributeMap a = AttributeMap().set("offset", int64_t{1});
  AttributeReads reads(a);
  CHECK(a.integer("ofset", 3) == 3);
  CHECK(AttributeMap(a).has("other") == false);  // a copy
  CHECK(reads.names() == std::set<std::string>{"ofset"});
}

TEST_CASE("signatures: every case of a functional fits, and so do its results") {
  for (const FunctionalCase& c : functional_cases(4)) {
    INFO(c.str());
    const Signature& s = FunctionalTable::global().find(c.functional)->signature;
    std::mt19937_64 generator(7);
    const Values in = make_operands(c, DType::F32, generator);
    const Values out = apply(c.functional, c.attributes, in);
    const auto optional = [](const OperandSpec& o) { return o.optional; };
    const bool repeats =
        std::any_of(s.results.begin(), s.results.end(), [](const OperandSpec& o) { return o.repeated; });
    const auto least =
        s.results.size() - static_cast<size_t>(std::count_if(s.results.begin(), s.results.end(), optional));
    CHECK(out.size() >= least);
    CHECK((repeats || out.size() <= s.results.size()));
    std::vector<TensorType> types;
    for (const HTensor& x : in) types.push_back(type_of(x));
    for (size_t i = 0; i < std::min(in.size(), s.inputs.size()); ++i) {
      const auto limit = index_limit(s, i, c.attributes, types);
      if (!limit) continue;
      const HTensor indices = cast(in[i], DType::I64);
      for (int64_t k = 0; k < indices.size(); ++k) CHECK(indices.data<int64_t>()[k] < *limit);
    }
  }
}

TEST_CASE("signatures: the functionals that rows name exist") {
  for (const FunctionalPtr& f : library())
    for (const char* name : {f->traits.factored, f->traits.joins[0], f->traits.joins[1], f->traits.places_of}) {
      INFO(f->name << ": " << name);
      CHECK((std::string(name).empty() || FunctionalTable::global().has_own(name)));
    }
  CHECK(joined_call("conv", "max_pool")->name == "conv_max_pool");
  CHECK(joined_call("max_pool_grad", "conv_grad_weight")->name == "conv_max_pool_grad_weight");
  CHECK_FALSE(joined_call("conv", "avg_pool"));
}

TEST_CASE("signatures: docs/functionals.md shows them") {
  const std::string wanted = page();
  if (testing::read(testing::kRoot / "docs/functionals.md") == wanted) return;
  const std::filesystem::path to = std::filesystem::path(HARMONICS_BINARY_DIR) / "functionals.md";
  std::ofstream(to) << wanted;
  FAIL("the signatures have changed: copy " << to << " to docs/functionals.md");
}
