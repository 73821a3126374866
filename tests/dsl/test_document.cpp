// YAML as a tree with positions: values as written, limits, errors.
#include <catch2/catch.hpp>

#include "dsl/document/fields.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

document::Document parsed(const std::string& text, const document::Limits& limits = {}) {
  return document::parse_document(std::make_shared<const SourceText>("a.yaml", text), limits);
}

// Returns the error message, rendered as by the command line.
std::string refusal(const std::string& text, const document::Limits& limits = {}) {
  const auto source = std::make_shared<const SourceText>("a.yaml", text);
  try {
    document::parse_document(source, limits);
  } catch (const SourceErrors& errors) {
    return errors.what();
  } catch (const Error& error) {
    return source->render(error);
  }
  return "accepted";
}

std::string many_of(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

}  // namespace

TEST_CASE("document: scalars stay the texts that are written") {
  const auto doc = parsed("a: 010\nb: no\nc: 1e-6\nd: \"2\"\ne:\nf: true\ng: ~\nh: -3\ni: 'it''s'\nj: .5\nk: 0x10\n");
  const document::Node& root = doc.root;
  CHECK(root.find("a")->text == "010");
  CHECK_FALSE(document::whole_of(*root.find("a")));
  CHECK_FALSE(document::real_of(*root.find("a")));
  CHECK(root.find("b")->text == "no");
  CHECK_FALSE(document::truth_of(*root.find("b")));
  CHECK(document::real_of(*root.find("c")) == 1e-6);
  CHECK_FALSE(document::whole_of(*root.find("d")));
  CHECK(root.find("e")->kind == document::Kind::null);
  CHECK(document::truth_of(*root.find("f")) == true);
  CHECK(root.find("g")->kind == document::Kind::null);
  CHECK(document::whole_of(*root.find("h")) == -3);
  CHECK(root.find("i")->text == "it's");
  CHECK(document::real_of(*root.find("j")) == 0.5);
  CHECK_FALSE(document::whole_of(*root.find("k")));
  CHECK(root.find("l") == nullptr);
}

TEST_CASE("document: places of keys and values") {
  const auto doc = parsed("# a comment\nmodel:\n  - op: RMSNorm\n    config: {eps: 1e-6}\n");
  const document::Node& list = *doc.root.find("model");
  CHECK(doc.source->place(doc.root.entries.at(0).place) == "a.yaml:2:1");
  const document::Entry& op = list.items.at(0).entries.at(0);
  CHECK(doc.source->place(op.place) == "a.yaml:3:5");
  CHECK(doc.source->place(op.value.span) == "a.yaml:3:9");
  CHECK(op.value.span.length == 7);
  CHECK(doc.source->place(list.items.at(0).find("config")->find("eps")->span) == "a.yaml:4:19");
}

TEST_CASE("document: places count behind a byte order mark") {
  const auto doc = parsed(
      "\xEF\xBB\xBF"
      "a: 1\nb: 2\n");
  CHECK(doc.source->place(doc.root.entries.at(1).value.span) == "a.yaml:2:4");
}

TEST_CASE("document: aliases stand for copies") {
  const auto doc = parsed("base: &b {x: 1}\nother: *b\n");
  CHECK(doc.root.find("other")->find("x")->text == "1");
}

TEST_CASE("document: a duplicate key is refused with both places") {
  CHECK(refusal("a: 1\nb: 2\na: 3\n") ==
        "a.yaml:3:1: error: the key 'a' is given twice\na: 3\n^\nnote: it is also given at a.yaml:1:1\n");
}

TEST_CASE("document: all duplicate keys are reported in one run") {
  const std::string text = refusal("a: 1\na: 3\nb: {c: 1, c: 2}\n");
  CHECK(text.find("a.yaml:2:1: error") != std::string::npos);
  CHECK(text.find("a.yaml:3:11: error") != std::string::npos);
}

TEST_CASE("document: what is not YAML has its place") {
  const std::string text = refusal("a: [1, 2\nb: 3\n");
  CHECK(text.find("a.yaml:") == 0);
  CHECK(text.find("error: this is not YAML") != std::string::npos);
  CHECK(refusal("a: \x01\n").find("a.yaml:1:4: error: the text has a control character") == 0);
  CHECK(refusal("a: \xff\n").find("a.yaml:1:4: error: the text is not UTF-8") == 0);
  CHECK(refusal("a: 1\n---\nb: 2\n").find("a second document begins") != std::string::npos);
  CHECK(refusal("a: !!int 3\n").find("the tag") != std::string::npos);
  CHECK(refusal("x: &x {a: 1}\ny:\n  <<: *x\n").find("a.yaml:3:3: error: the merge key") == 0);
  CHECK(refusal("? [1, 2]\n: 3\n").find("a key is a list or a map") != std::string::npos);
  CHECK(refusal("a: *none\n").find("a.yaml:1:") == 0);
}

TEST_CASE("document: sizes are bounded") {
  document::Limits small;
  small.depth = 4;
  small.nodes = 50;
  small.bytes = 1000;
  small.expanded_bytes = 200;
  CHECK(refusal(many_of("[", 5) + many_of("]", 5), small).find("nested more than 4 deep") != std::string::npos);
  CHECK(refusal(many_of("[", 4) + many_of("]", 4), small) == "accepted");
  CHECK(refusal("[" + many_of("1,", 60) + "1]", small).find("more than 50 values") != std::string::npos);
  CHECK(refusal(many_of("#", 1001), small).find("holds 1001 bytes; the limit is 1000") != std::string::npos);
  CHECK(refusal("a: " + many_of("x", 201), small).find("more than 200 bytes") != std::string::npos);
}

TEST_CASE("document: aliases count as what they stand for") {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) text += (k ? ", *a" : "*a") + std::to_string(i - 1);
    text += "]\n";
  }
  CHECK(refusal(text).find("more than 200000 values") != std::string::npos);
  std::string long_text = "a: &a " + many_of("y", 1000) + "\nb: [";
  for (int k = 0; k < 20'000; ++k) long_text += k ? ", *a" : "*a";
  CHECK(refusal(long_text + "]\n").find("bytes, counting aliases") != std::string::npos);
  std::string deep = "a0: &a0 [x]\n";
  for (int i = 1; i < 90; ++i)
    deep += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  CHECK(refusal(deep).find("nested more than 64 deep") != std::string::npos);
}

TEST_CASE("document: fields report all that is wrong, with the nearest key") {
  const auto doc = parsed("epochs: many\nlerning_rate: 0.1\nshuffle: no\nsteps: 5\n");
  document::Problems problems(doc.source);
  document::Fields fields(doc.root, problems, "the configuration");
  CHECK_FALSE(fields.whole("epochs", 1, 100));
  CHECK_FALSE(fields.real("learning_rate", 0, 1));
  CHECK_FALSE(fields.truth("shuffle"));
  CHECK(fields.whole("steps", 1, 10) == 5);
  CHECK_FALSE(fields.need("model"));
  fields.finish();
  CHECK(problems.count() == 4);
  try {
    problems.throw_any();
    FAIL("accepted");
  } catch (const SourceErrors& errors) {
    const std::string text = errors.what();
    CHECK(text.find("a.yaml:1:9: error: 'epochs' is the string 'many'; it must be a whole number of 1 to 100") !=
          std::string::npos);
    CHECK(text.find("a.yaml:2:1: error: the configuration has the unknown key 'lerning_rate'") != std::string::npos);
    CHECK(text.find("did you mean 'learning_rate'?") != std::string::npos);
    CHECK(text.find("a.yaml:3:10: error: 'shuffle' is the string 'no'; it must be true or false") != std::string::npos);
    CHECK(text.find("the configuration has no 'model'") != std::string::npos);
  }
}
