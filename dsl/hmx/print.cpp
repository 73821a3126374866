#include "dsl/hmx/print.hpp"

#include <charconv>
#include <cmath>

namespace harmonics::engine {

namespace {

std::string shortest(double value, std::chars_format format = std::chars_format::general) {
  char text[400];
  const auto result = std::to_chars(text, text + sizeof text, value, format);
  return std::string(text, result.ptr);
}

std::string text_of(const Number& number) {
  if (number.integral) return shortest(number.value, std::chars_format::fixed);
  std::string text = shortest(number.value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string text_of(const std::string& string) {
  std::string out = "\"";
  for (const char c : string) {
    const size_t special = std::string_view("\"\\\n\t\r").find(c);
    if (special == std::string_view::npos) {
      out += c;
    } else {
      out += '\\';
      out += "\"\\ntr"[special];
    }
  }
  return out + "\"";
}

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(const Word& word) { return word.text; }

// Returns the items joined by ", ".
template <typename Items, typename Print>
std::string joined(const Items& items, const Print& print) {
  std::string out;
  for (const auto& item : items) {
    if (!out.empty()) out += ", ";
    out += print(item);
  }
  return out;
}

std::string text_of(const ArgumentList& list) {
  return "[" + joined(list, [](const ArgumentValue& value) { return to_text(value); }) + "]";
}

std::string text_of(const CallArgument& argument) {
  return (argument.name ? argument.name->text + "=" : "") + to_text(argument.value);
}

std::string text_of(const Comparison& comparison) {
  return comparison.metric + " " + comparison.op + " " + shortest(comparison.value);
}

// Uses the largest unit that gives the same number of seconds when parsed.
std::string text_of_duration(double seconds) {
  for (const auto& [unit, size] : {std::pair("d", 86400.0), std::pair("h", 3600.0), std::pair("m", 60.0)}) {
    const double count = seconds / size;
    if (count >= 1 && count < 1e15 && count == std::floor(count) && count * size == seconds) {
      return shortest(count, std::chars_format::fixed) + unit;
    }
  }
  const double milliseconds = seconds * 1000;
  if (seconds < 1 && milliseconds == std::floor(milliseconds) && milliseconds / 1000 == seconds && seconds > 0) {
    return shortest(milliseconds, std::chars_format::fixed) + "ms";
  }
  return shortest(seconds, std::chars_format::fixed) + "s";
}

std::string text_of(const CycleCondition& condition) {
  using Kind = CycleCondition::Kind;
  switch (condition.kind) {
    case Kind::For:
      return "for " + text_of_duration(condition.seconds);
    case Kind::Until:
      return "until " + text_of(condition.until);
    case Kind::Epochs:
      return "epochs " + std::to_string(condition.count);
    case Kind::Steps:
      return "steps " + std::to_string(condition.count);
    case Kind::Setting:
      return condition.setting.text + "=" + to_text(condition.value);
  }
  return {};
}

std::string text_of(const Declaration& declaration) {
  std::string out = declaration.kind == DeclarationKind::Producer   ? "producer "
                    : declaration.kind == DeclarationKind::Consumer ? "consumer "
                                                                    : "layer ";
  out += declaration.name.text;
  if (declaration.has_shape) {
    out += " {" +
           joined(declaration.shape,
                  [](const Dim& dim) { return dim.size < 0 ? std::string("*") : std::to_string(dim.size); }) +
           "}";
  }
  if (const auto& ratio = declaration.ratio) {
    out += " " + std::to_string(ratio->numerator) + "/" + std::to_string(ratio->denominator) + " " + ratio->of.text;
  }
  return out + ";";
}

std::string text_of(const Arrow& arrow) {
  const std::string tag = joined(arrow.tag, [](const Call& call) { return to_text(call); });
  std::string out = arrow.piped ? "| " : "";
  if (tag.empty()) {
    out += arrow.backward ? "<-" : "->";
  } else {
    out += arrow.backward ? "<-(" + tag + ")-" : "-(" + tag + ")->";
  }
  return out + " " + arrow.target.text;
}

void print(std::string& out, const std::vector<FlowStep>& steps, const std::string& indent);

void print(std::string& out, const Conditional& conditional, const std::string& indent) {
  const auto* comparison = std::get_if<Comparison>(&conditional.predicate);
  out += indent + "if " + (comparison ? text_of(*comparison) : to_text(std::get<Call>(conditional.predicate))) + " {\n";
  print(out, conditional.then_steps, indent + "  ");
  if (conditional.has_else) {
    out += indent + "} else {\n";
    print(out, conditional.else_steps, indent + "  ");
  }
  out += indent + "}\n";
}

void print(std::string& out, const std::vector<FlowStep>& steps, const std::string& indent) {
  for (const FlowStep& step : steps) {
    if (const auto* flow = std::get_if<FlowLine>(&step)) {
      out += indent + to_text(*flow) + "\n";
    } else {
      print(out, *std::get<std::shared_ptr<Conditional>>(step), indent);
    }
  }
}

}  // namespace

std::string to_text(const ArgumentValue& value) {
  return std::visit([](const auto& alternative) { return text_of(alternative); }, value.value);
}

std::string to_text(const Call& call) {
  const std::string arguments = joined(call.arguments, [](const CallArgument& argument) { return text_of(argument); });
  return call.name.text + (call.has_parentheses || !arguments.empty() ? "(" + arguments + ")" : "");
}

std::string to_text(const FlowLine& flow) {
  std::string out = flow.source ? flow.source->text : "";
  for (const Arrow& arrow : flow.arrows) out += (out.empty() ? "" : " ") + text_of(arrow);
  return out + ";";
}

std::string to_text(const Harmonic& harmonic) {
  std::string out = "harmonic " + harmonic.name.text + " {\n";
  for (const Declaration& declaration : harmonic.declarations) out += "  " + text_of(declaration) + "\n";
  if (!harmonic.declarations.empty() && !harmonic.flows.empty()) out += "\n";
  for (const FlowLine& flow : harmonic.flows) out += "  " + to_text(flow) + "\n";
  bool separate = !harmonic.declarations.empty() || !harmonic.flows.empty();
  for (const Cycle& cycle : harmonic.cycles) {
    if (separate) out += "\n";
    separate = true;
    const std::string conditions =
        joined(cycle.conditions, [](const CycleCondition& condition) { return text_of(condition); });
    out += "  cycle " + (conditions.empty() ? "" : "(" + conditions + ") ") + "{\n";
    print(out, cycle.steps, "    ");
    out += "  }\n";
  }
  return out + "}\n";
}

std::string to_text(const Flow& flow) {
  std::string out;
  for (const Harmonic& harmonic : flow.harmonics) out += (out.empty() ? "" : "\n") + to_text(harmonic);
  return out;
}

}  // namespace harmonics::engine
