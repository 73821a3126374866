// Flow: a parsed .hmx file as plain data. Every name keeps its location in the text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <harmonics/error.hpp>

#include "engine/base/source_text.hpp"
#include "engine/flow/layer_change.hpp"

namespace harmonics::engine {

struct Name {
  std::string text;
  Span span;
};

// The value of an argument: a number, string, bool, list, or word (the name of a layer or enumerator).
struct ArgumentValue;
using ArgumentList = std::vector<ArgumentValue>;
struct Word {
  std::string text;
};
struct Number {
  double value;
  bool integral;  // written without a decimal point or exponent
};
struct ArgumentValue {
  std::variant<Number, std::string, bool, ArgumentList, Word> value;
  Span span;
};
struct CallArgument {
  std::optional<Name> name;  // absent if positional
  ArgumentValue value;
};
// For example `relu`, or `conv(32, kernel=[3, 3])`. Dotted names are joined with '.'.
struct Call {
  Name name;
  std::vector<CallArgument> arguments;
  bool has_parentheses = false;
  bool broken = false;  // see FlowErrors: an argument could not be read
};

struct Dim {
  int64_t size;  // -1 for '*'
  Span span;
};
struct Ratio {
  int64_t numerator, denominator;
  Name of;
  Span span;
};

enum class DeclarationKind { Producer, Consumer, Layer };
struct Declaration {
  DeclarationKind kind;
  Name name;
  std::vector<Dim> shape;  // empty if none is declared
  bool has_shape = false;
  std::optional<Ratio> ratio;
  bool broken = false;  // see FlowErrors: shape and ratio are unknown
};

// One arrow as written: source [tag] target. Forward: `a -(tag)-> b`. Backward (a training tap): `b <-(tag)- s`, where
// `source` is the tapped layer b and `target` is the stream or layer s.
struct Arrow {
  bool backward = false;
  std::vector<Call> tag;
  Name target;
  bool piped = false;  // preceded by '|': starts at the source of the line
  Span span;           // the arrow itself
};
struct FlowLine {
  std::optional<Name> source;  // absent: the source of the previous flow in the same braces
  std::vector<Arrow> arrows;
  Span span;
  bool broken = false;  // see FlowErrors: only arrows before the error were read
};

struct Comparison {
  std::string metric, op;  // one of < <= > >=
  double value;
  Span span;
};
struct Conditional;
using FlowStep = std::variant<FlowLine, std::shared_ptr<Conditional>>;
struct Conditional {
  std::variant<Comparison, Call> predicate;
  std::vector<FlowStep> then_steps, else_steps;
  bool has_else = false;
  Span span;
  bool broken = false;  // see FlowErrors: the predicate could not be read
};

// For example `for 1h`, `until loss < 0.05`, `epochs 10`, `steps 1000`, or `name = value`.
struct CycleCondition {
  enum class Kind { For, Until, Epochs, Steps, Setting } kind;
  double seconds = 0;
  int64_t count = 0;
  Comparison until;
  Name setting;
  ArgumentValue value;
  Span span;
};
struct Cycle {
  std::vector<CycleCondition> conditions;
  std::vector<FlowStep> steps;
  Span span;
};

struct Harmonic {
  Name name;
  std::vector<Declaration> declarations;
  std::vector<FlowLine> flows;  // outside any cycle; they belong to all cycles
  std::vector<Cycle> cycles;
  Span span;
};

// Text that could not be read because of errors. It may contain any declaration and any arrow between its words.
struct Unread {
  bool any = false;  // there are errors
  std::set<std::string, std::less<>> words;
  bool blocks = false;     // a brace is missing or superfluous, so statements may be in the wrong block
  bool producers = false;  // the text may declare a producer
  bool ratios = false;     // the text may contain the ratio of a producer
  bool names = false;      // functions, metrics, optimizers and the like may still be registered
};

struct Flow {
  std::shared_ptr<const SourceText> source;
  std::vector<Harmonic> harmonics;
  Unread unread = {};
  LayerChanges changes = {};  // already contained in `harmonics`
};

// The errors of a text and the part that could be read.
class FlowErrors : public SourceErrors {
 public:
  FlowErrors(std::vector<Error> errors, Flow read)
      : SourceErrors(*read.source, std::move(errors)), read_(std::move(read)) {}
  const Flow& read() const { return read_; }

 private:
  Flow read_;
};

}  // namespace harmonics::engine
