#include "engine/cli/run/report_samples.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "formats/utf8.hpp"
#include "engine/bound/generate.hpp"
#include "engine/cli/run/pictures.hpp"
#include "engine/cli/terminal/chart.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/measure/examples.hpp"

namespace harmonics::engine::cli {

namespace {

constexpr size_t kRows = 20, kTexts = 6;           // maximum shown of each kind
constexpr int64_t kPositions = 48, kContext = 96;  // of a text: predicted positions, and the positions before them

std::string name_of(const std::vector<std::string>& names, int64_t c) {
  return c >= 0 && static_cast<size_t>(c) < names.size() ? names[static_cast<size_t>(c)] : std::to_string(c);
}

// ---- pictures ----

// Scales common to all shown images, so that their levels are comparable.
struct Scales {
  PixelScale input, output;

  explicit Scales(const Examples& examples) {
    std::vector<const std::vector<float>*> inputs, targets;
    for (const auto* some : {&examples.worst, &examples.samples})
      for (const Example& e : *some) {
        inputs.push_back(&e.pixels);
        targets.push_back(&e.target);
      }
    input = pixel_scale(inputs);
    output = pixel_scale(targets);
  }
};

std::string classes_html(const Examples& examples, const std::vector<Example>& samples, const Scales& scales) {
  std::string s = "<div class=\"grid\">\n";
  for (const Example& e : samples) {
    const std::string predicted = name_of(examples.names, e.predicted), label = name_of(examples.names, e.label);
    const bool wrong = e.label != e.predicted;
    s += fmt::format("<figure class=\"{}\">{}<figcaption>{}{}</figcaption></figure>\n", wrong ? "wrong" : "right",
                     image_html(e.pixels, examples.input, scales.input, fmt::format("sample {}", e.number)),
                     escaped(predicted), wrong ? " (" + escaped(label) + ")" : "");
  }
  return s + "</div>\n";
}

bool is_target(const Example& e) {
  return std::equal(e.pixels.begin(), e.pixels.end(), e.target.begin(), e.target.end(),
                    [](float a, float b) { return std::abs(a - b) <= 1e-5f * std::max(1.0f, std::abs(b)); });
}

// Returns whether the input image of a sample differs from its target.
bool input_differs(const Examples& examples) {
  if (!examples.input) return false;
  const auto differs = [](const Example& e) { return !is_target(e); };
  return std::any_of(examples.worst.begin(), examples.worst.end(), differs) ||
         std::any_of(examples.samples.begin(), examples.samples.end(), differs);
}

std::string outputs_html(const Examples& examples, const std::vector<Example>& samples, const Scales& scales) {
  const bool three = input_differs(examples);
  const auto one = [](const std::string& image, const char* what) {
    return fmt::format("<span>{}<small>{}</small></span>", image, what);
  };
  std::string s = fmt::format("<div class=\"sets of{}\">\n", three ? 3 : 2);
  for (const Example& e : samples) {
    s += "<figure><div>";
    if (three) s += one(image_html(e.pixels, examples.input, scales.input, "input"), "input");
    const char* target = three || !examples.input ? "target" : "input";
    s += one(image_html(e.target, examples.output, scales.output, target), target);
    s += one(image_html(e.prediction, examples.output, scales.output, "output"), "output");
    s += fmt::format("</div><figcaption>{} {:.4g}</figcaption></figure>\n",
                     std::isnan(e.loss) ? "squared error" : "loss", std::isnan(e.loss) ? e.badness : e.loss);
  }
  return s + "</div>\n";
}

// ---- text ----

// Returns a symbol with visible line breaks, tabs and control characters, and also blanks if `spaces`.
std::string shown_symbol(const std::string& symbol, bool spaces) {
  constexpr size_t kLongest = 48;  // bytes
  std::string s;
  for (size_t at = 0; at < symbol.size() && s.size() < kLongest;) {
    const size_t length = decode_utf8(symbol, at).length;
    const std::string one = symbol.substr(at, length);
    at += length;
    if (one == "\n")
      s += "↵";
    else if (one == "\t")
      s += "⇥";
    else if (one == " " && spaces)
      s += "␣";
    else
      s += visible(one);
  }
  return escaped(s);
}

std::string shown_token(const std::vector<std::string>& names, int64_t id, bool spaces) {
  return shown_symbol(name_of(names, id), spaces);
}

// Returns the text as HTML. Each line break is shown as a symbol followed by a break.
std::string shown_text(const std::string& text) {
  std::string s;
  for (size_t at = 0; at < text.size();) {
    const size_t length = decode_utf8(text, at).length;
    s += shown_symbol(text.substr(at, length), false) + (text[at] == '\n' ? "\n" : "");
    at += length;
  }
  return s;
}

std::string text_html(const Examples& examples, const Example& e) {
  const auto n = static_cast<int64_t>(e.expected.size());
  const int64_t first = std::max<int64_t>(0, n - kPositions);
  const bool translates = !examples.symbols.empty() && examples.symbols != examples.names;
  int64_t right = 0, counted = 0;
  std::string cells;
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    const bool counts = e.expected[at] >= 0, good = e.expected[at] == e.chosen[at];
    counted += counts;
    right += counts && good;
    if (i < first) continue;
    const std::string expected = counts ? shown_token(examples.names, e.expected[at], true) : "–";
    const std::string chosen = shown_token(examples.names, e.chosen[at], true);
    cells += fmt::format("<span class=\"{}\">", !counts ? "left" : good ? "ok" : "no");
    if (translates) cells += fmt::format("<u>{}</u>", shown_token(examples.symbols, e.tokens[at], true));
    cells += fmt::format("<i>{}</i><b>{}</b></span>", expected, chosen);
  }
  std::string context;
  if (!translates && !e.tokens.empty())
    for (int64_t i = std::max<int64_t>(0, first + 1 - kContext); i <= first; ++i) {
      const std::string& symbol = name_of(examples.symbols, e.tokens[static_cast<size_t>(i)]);
      context += shown_symbol(symbol, false) + (symbol == "\n" ? "\n" : "");
    }
  std::string s = fmt::format("<div class=\"text\"><p>sample {}: {} of {} right</p>\n", thousands(e.number),
                              thousands(right), thousands(counted));
  if (!context.empty()) s += "<pre>" + context + "</pre>\n";
  return s + "<p class=\"tokens\">" + cells + "</p></div>\n";
}

std::string texts_html(const Examples& examples, const std::vector<Example>& samples) {
  std::string s;
  for (size_t i = 0; i < std::min(samples.size(), kTexts); ++i) s += text_html(examples, samples[i]);
  return s;
}

// Returns a text generated by the model, or "" if it does not predict the symbols of its input.
std::string written_html(BoundGraph& graph, const RunSettings& settings, const Examples& examples) {
  if (examples.symbols.empty() || examples.symbols != examples.names) return "";
  constexpr size_t kPrompt = 32;
  GenerateSettings g;
  const std::vector<int64_t>& tokens = examples.samples.front().tokens;
  for (size_t i = 0; i < std::min(tokens.size(), kPrompt); ++i) g.prompt += name_of(examples.symbols, tokens[i]);
  g.symbols = 240;
  g.seconds = 5;
  g.threads = settings.threads;
  static_cast<DeviceSettings&>(g) = settings;
  std::string text;
  int64_t written = 0;
  const std::string title = "<h3>A text written by the model</h3>\n";
  try {
    generate(graph, 0, g, [&](const std::string& symbol) { text += symbol, ++written; });
  } catch (const Error& e) {
    return title + fmt::format("<p>None could be written: {}</p>\n", escaped(e.what()));
  }
  return title +
         fmt::format(
             "<p>The first {} symbols, bold, are the prompt: the beginning of the first sample. The model wrote "
             "the next {}, at temperature {:g} with seed {}. Not part of the data.</p>\n"
             "<pre class=\"written\"><b>{}</b>{}</pre>\n",
             std::min(tokens.size(), kPrompt), written, g.temperature, g.seed, shown_text(g.prompt), shown_text(text));
}

// ---- rows ----

std::string numbers_text(const std::vector<float>& v) {
  std::string s;
  for (size_t i = 0; i < std::min<size_t>(v.size(), 6); ++i) s += fmt::format("{}{:.4g}", i ? ", " : "", v[i]);
  return v.size() > 6 ? s + ", …" : s;
}

std::string rows_html(const Examples& examples, const std::vector<Example>& samples) {
  std::string s = "<div class=\"wide\"><table class=\"rows\"><tr><th>sample</th><th>predicted</th><th>actual</th>";
  s += examples.classes ? "</tr>\n" : "<th>loss</th></tr>\n";
  for (size_t i = 0; i < std::min(samples.size(), kRows); ++i) {
    const Example& e = samples[i];
    const bool wrong = examples.classes && e.label != e.predicted;
    s += fmt::format("<tr class=\"{}\"><td>{}</td><td>{}</td><td>{}</td>", wrong ? "wrong" : "", e.number,
                     examples.classes ? escaped(name_of(examples.names, e.predicted)) : numbers_text(e.prediction),
                     examples.classes ? escaped(name_of(examples.names, e.label)) : numbers_text(e.target));
    if (!examples.classes) s += "<td>" + (std::isnan(e.loss) ? "–" : fmt::format("{:.4g}", e.loss)) + "</td>";
    s += "</tr>\n";
  }
  return s + "</table></div>\n";
}

}  // namespace

std::string samples_html(BoundGraph& graph, const RunSettings& settings) {
  bool live = false;  // validation took samples, which are gone
  graph.validation_streams().each([&](const Source& source) { live = live || source.info().live; });
  StreamSet& streams = !graph.test_streams().empty()                  ? graph.test_streams()
                       : !graph.validation_streams().empty() && !live ? graph.validation_streams()
                                                                      : graph.streams();
  constexpr int64_t kShown = 30;
  Examples examples;
  try {
    examples = examples_of(graph, streams, kShown, settings);
  } catch (const Error& e) {  // for example the error in the data that ended the run
    return fmt::format("<h2>Sample predictions</h2>\n<p>None could be read: {}</p>\n", escaped(e.what()));
  }
  if (examples.samples.empty()) return "";
  const Scales scales(examples);
  const bool pictures = examples.classes && examples.input;
  const auto shown = [&](const std::vector<Example>& samples) {
    return examples.sequences ? texts_html(examples, samples)
           : pictures         ? classes_html(examples, samples, scales)
           : examples.output  ? outputs_html(examples, samples, scales)
                              : rows_html(examples, samples);
  };
  std::string s = "<h2>Sample predictions</h2>\n";
  if (pictures) s += "<p>Blue where the prediction is right, red with the true class where it is wrong.</p>\n";
  if (examples.sequences)
    s += fmt::format(
        "<p>The last {} of each sample, below what came before them. Upper line{}: expected; "
        "lower line: predicted, underlined where it is wrong. ↵ is a line break, ␣ a space.</p>\n",
        quantity(kPositions, "position"),
        examples.symbols != examples.names && !examples.symbols.empty() ? "s: input, then" : "");
  if (!examples.worst.empty())
    s += fmt::format("<h3>The worst of the first {}</h3>\n", thousands(examples.judged)) + shown(examples.worst);
  else
    s += fmt::format("<p>The first {} are all right.</p>\n", thousands(examples.judged));
  s += "<h3>The first ones</h3>\n" + shown(examples.samples);
  return examples.sequences ? s + written_html(graph, settings, examples) : s;
}

}  // namespace harmonics::engine::cli
