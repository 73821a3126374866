// Flows with a syntax error: the stages after the parser report nothing that the missing character may explain.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "dsl/load.hpp"
#include "engine/bound/bound_graph.hpp"
#include "engine/flow/graph.hpp"

namespace fs = std::filesystem;
using namespace harmonics;
using namespace harmonics::engine;

namespace {

const char* const kEverything = R"hmx(harmonic all {
  producer words {*, 12};
  producer image {1, 8, 8};
  producer label 1/1 image;
  producer other {4};
  layer text {*, 16}; layer memory {*, 16}; layer mixed {*, 16};
  layer hidden 1/2 image;
  layer narrow {16};
  layer answer {10};
  layer side;
  layer stream;
  consumer results;
  words -(embed(16))-> text;
  cycle (epochs 3, batch=16, optimizer="sgd(lr=0.1)", until answer.accuracy > 0.9, lr=0.01) {
    image -(flatten)-> stream;
    image -(relu, dropout(0.5))-> hidden -> narrow -(tanh)-> answer | -> narrow;
    text -(affine(16, name="shared"))-> memory;
    text -(attention(heads=4, memory=memory))-> mixed;
    if hidden.loss < 0.5 {
      narrow -(affine(10, tied=answer))-> side -> results;
    } else {
      narrow -(mul(narrow), affine(10))-> side;
      -> answer;
    }
    answer <-(cross_entropy(label_smoothing=0.1), mse(weight=0.5))- label;
  }
  cycle (steps=10) { other -> narrow; }
}
)hmx";

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

std::vector<std::pair<std::string, std::string>> flows() {
  std::vector<std::pair<std::string, std::string>> all{{"everything", kEverything}};
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(HARMONICS_SOURCE_DIR) / "samples"))
    if (entry.path().extension() == ".hmx") all.emplace_back(entry.path().filename().string(), read(entry.path()));
  return all;
}

struct Found {
  std::string syntax;              // empty: the text is a valid flow
  std::set<std::string> messages;  // of later stages
};

Found errors_of(const std::string& text) {
  const auto source = std::make_shared<const SourceText>("f.hmx", text);
  Found found;
  const auto add = [&](const std::vector<Error>& errors) {
    for (const Error& e : errors) found.messages.insert(e.what());
  };
  const auto examine_all = [&](const Flow& flow) {
    for (const Harmonic& harmonic : flow.harmonics) {
      Examined examined = examine(flow, harmonic, Registry::global());
      add(examined.errors);
      BoundGraph bound(Graph(examined.rest.graph));
      add(bound.shape_errors(examined.rest, true));
    }
  };
  try {
    examine_all(parse_flow(source));
  } catch (const FlowErrors& e) {
    found.syntax = e.what();
    examine_all(e.read());
  }
  return found;
}

}  // namespace

TEST_CASE("damaged flows: a missing character of punctuation causes no error of a later stage") {
  size_t damaged = 0;
  for (const auto& [name, text] : flows()) {
    const Found whole = errors_of(text);
    CHECK(whole.syntax.empty());
    if (name == "everything") CHECK(whole.messages.empty());
    for (size_t at = text.find_first_of(";{}()<>-,=/|\"*"); at != std::string::npos;
         at = text.find_first_of(";{}()<>-,=/|\"*", at + 1)) {
      std::string less = text;
      less.erase(at, 1);
      const Found found = errors_of(less);
      if (found.syntax.empty()) continue;
      ++damaged;
      for (const std::string& message : found.messages) {
        if (whole.messages.count(message)) continue;
        FAIL_CHECK(name << " without '" << text[at] << "' at byte " << at << ": " << message << "\n" << found.syntax);
      }
    }
  }
  CHECK(damaged > 400);
}

TEST_CASE("damaged flows: a missing line causes no error that its names explain") {
  // Lines are truncated in the middle: their declarations are lost, but uses remain.
  for (const auto& [name, text] : flows()) {
    const Found whole = errors_of(text);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const size_t word = text.find_first_not_of(" \t", begin);
      if (word < end && text.compare(word, 2, "//") != 0) {
        std::string less = text;
        less.insert(word, "@ ");
        const Found found = errors_of(less);
        CHECK_FALSE(found.syntax.empty());
        for (const std::string& message : found.messages) {
          if (whole.messages.count(message)) continue;
          FAIL_CHECK(name << " with '@' at byte " << word << ": " << message << "\n" << found.syntax);
        }
      }
      begin = end + 1;
    }
  }
}

TEST_CASE("damaged flows: errors that no syntax error explains are reported") {
  std::string text = kEverything;
  const auto replace = [&](const std::string& what, const std::string& with) {
    REQUIRE(text.find(what) != std::string::npos);
    text.replace(text.find(what), what.size(), with);
  };
  replace("producer other {4};", "producer other {4;");
  replace("(relu, dropout(0.5))", "(relo, dropout(1.5))");
  replace("memory=memory", "memory=memori");
  replace("-> results;", "-> result;");
  replace("batch=16", "bach=16");
  replace("answer.accuracy", "answr.accuracy");
  const Found found = errors_of(text);
  CHECK(found.syntax.find("f.hmx:5:20: error: ") == 0);
  CHECK(found.messages == std::set<std::string>{"unknown function 'relo'", "'rate' of layer 'dropout' is 1.5",
                                                "'memori' is not a layer or producer of this graph",
                                                "unknown name 'result'", "unknown setting 'bach' of a cycle",
                                                "unknown metric 'answr.accuracy'"});
}
