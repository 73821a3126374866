#include "engine/serving/text_request.hpp"

#include <algorithm>
#include <array>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/language/pattern_grammar.hpp"
#include "engine/serving/json_fields.hpp"
#include "engine/serving/json_text.hpp"
#include "formats/exact_json.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

constexpr int64_t kMostTexts = 128;  // of one request
constexpr const char* kAnyObject = R"({"type":"object"})";

// Returns the text of a message, which may be a list of parts.
json::value content_of(const json::value* content) {
  if (!content || content->is_null()) return json::string();
  if (content->is_string()) return *content;
  if (!content->is_array()) refuse_field("content", "is neither a string nor a list of parts");
  std::string text;
  for (const json::value& part : content->get_array()) {
    if (!part.is_object()) refuse_field("content", "has a part that is not an object");
    const JsonFields fields(part.get_object());
    if (fields.text("type") == "refusal") continue;  // of an earlier answer, which the model did not write
    if (fields.text("type", "text") != "text")
      refuse_field("content", fmt::format("has a part of the type '{}': the model reads text", fields.text("type")));
    text += fields.text("text");
  }
  return json::value(json::string_view(text));
}

// Converts arguments of calls from JSON texts, as in OpenAI's API, to objects, as templates expect them.
json::array calls_of(const json::array& calls) {
  json::array all = calls;
  for (json::value& call : all) {
    if (!call.is_object()) refuse_field("tool_calls", "has an item that is not an object");
    json::value* const function = call.get_object().if_contains("function");
    if (!function || !function->is_object()) continue;
    json::value* const arguments = function->get_object().if_contains("arguments");
    if (!arguments || !arguments->is_string()) continue;
    json::error_code failed;
    json::value parsed = parse_json(arguments->get_string(), failed);
    if (!failed && parsed.is_object()) *arguments = std::move(parsed);
  }
  return all;
}

constexpr const char* kReadsText = "is not supported: the model reads text";

// Throws for fields that would change the reply and have no effect here. Empty texts and lists count as absent.
void refuse_given(const JsonFields& fields, std::initializer_list<const char*> names, const char* what) {
  for (const char* const name : names) {
    const json::value* const value = fields.find(name);
    if (!value || (value->is_string() && value->get_string().empty()) ||
        (value->is_array() && value->get_array().empty()))
      continue;
    refuse_field(name, what);
  }
}

// Throws for settings that this server lacks, unless they have no effect: false, 0 or empty.
void refuse_settings(const JsonFields& fields, std::initializer_list<const char*> names, const char* what) {
  for (const char* const name : names) {
    const json::value* const value = fields.find(name);
    const bool idle = !value || *value == false || (value->is_number() && value->to_number<double>() == 0) ||
                      (value->is_object() && value->get_object().empty());
    if (!idle) refuse_given(fields, {name}, what);
  }
}

// Reads Ollama's switch or effort of reasoning.
void read_think(const json::value& think, json::object& more) {
  if (think.is_bool()) {
    more["enable_thinking"] = think;
    return;
  }
  if (think == "") return;
  const auto is_level = [&](const char* level) { return think.is_string() && think.get_string() == level; };
  if (!std::ranges::any_of(std::array{"low", "medium", "high", "max"}, is_level))
    refuse_value("think", think, R"(true, false, "low", "medium", "high" or "max")");
  more["enable_thinking"] = true;
  more["reasoning_effort"] = think;
}

// Reads whether and how much the model reasons, under the names of several APIs.
void read_reasoning(const JsonFields& fields, json::object& more) {
  if (const json::value* const think = fields.find("think")) read_think(*think, more);
  if (const json::object* const thinking = fields.object("thinking"))
    more["enable_thinking"] = JsonFields(*thinking).text("type") != "disabled";
  if (fields.find("enable_thinking")) more["enable_thinking"] = fields.flag("enable_thinking", true);
  const std::string effort = fields.text("reasoning_effort");
  if (!effort.empty()) more["reasoning_effort"] = effort;
  if (effort == "none") more["enable_thinking"] = false;
}

// Returns the name of a function in {"name": ...} or {"function": {"name": ...}}, or "".
std::string named_function(const JsonFields& named) {
  const json::object* const function = named.object("function");
  return function ? JsonFields(*function).text("name") : named.text("name");
}

void expect_functions(const json::array& tools) {
  for (const json::value& tool : tools) {
    if (!tool.is_object()) refuse_field("tools", "has an item that is not an object");
    const JsonFields fields(tool.get_object());
    if (const std::string type = fields.text("type", "function"); type != "function")
      refuse_field("tools", fmt::format("has a tool of the type '{}': only functions are supported", type));
    if (named_function(fields).empty()) refuse_field("tools", "has a function without a name");
  }
}

ChatPrompt conversation_of(const JsonFields& fields) {
  ChatPrompt prompt;
  const json::array* const messages = fields.array("messages");
  if (!messages || messages->empty()) refuse_field("messages", "is missing: give a list of messages");
  for (const json::value& one : *messages) {
    if (!one.is_object()) refuse_field("messages", "has an item that is not an object");
    json::object message = one.get_object();
    const JsonFields parts(one.get_object());
    if (parts.text("role").empty()) refuse_field("role", "of a message is missing");
    if (parts.text("role") == "developer") message["role"] = "system";
    message["content"] = content_of(message.if_contains("content"));
    refuse_given(parts, {"images"}, kReadsText);
    if (const json::array* const calls = parts.array("tool_calls")) message["tool_calls"] = calls_of(*calls);
    // Names of Ollama and vLLM for what templates know by another one.
    for (const auto& [given, name] :
         {std::pair{"thinking", "reasoning_content"}, {"reasoning", "reasoning_content"}, {"tool_name", "name"}})
      if (const json::value* const value = parts.find(given); value && value->is_string())
        message.emplace(name, *value);
    prompt.messages.push_back(std::move(message));
  }
  if (const json::array* const tools = fields.array("tools")) prompt.tools = *tools;
  expect_functions(prompt.tools);
  read_reasoning(fields, prompt.more);
  if (const json::array* const documents = fields.array("documents")) prompt.more["documents"] = *documents;
  if (const json::object* const more = fields.object("chat_template_kwargs"))
    for (const auto& [key, value] : *more) prompt.more[key] = value;
  return prompt;
}

// Reads how the prompt ends, under the names of vLLM.
void read_prompt_end(const JsonFields& f, TextRequest& r) {
  r.continues = f.flag("continue_final_message", false);
  r.conversation->answer = f.flag("add_generation_prompt", !r.continues);
  if (r.continues && r.conversation->answer)
    refuse_field("continue_final_message", "and 'add_generation_prompt' exclude each other");
  if (f.flag("add_special_tokens", false))
    refuse_field("add_special_tokens", "is not supported: the chat template writes special tokens");
}

// Reads a tool choice given as a word: "required" demands a call of any tool.
void read_choice_word(const std::string& word, TextRequest& r) {
  if (word == "none")
    r.conversation->tools.clear();
  else if (word == "required")
    r.call = "";
  else if (word != "auto")
    refuse_field("tool_choice", "must be none, auto, required or a function");
}

// Reads {"mode": "auto" or "required", "tools": [...]}. Keeps only the listed tools of the request.
void read_allowed_tools(const JsonFields& allowed, TextRequest& r) {
  const json::array* const listed = allowed.array("tools");
  if (!listed || listed->empty()) refuse_field("tool_choice", "allows no tools: 'tools' is a list of functions");
  json::array& tools = r.conversation->tools;
  json::array left;
  for (const json::value& one : *listed) {
    const std::string name = one.is_object() ? named_function(JsonFields(one.get_object())) : "";
    const auto* const found = std::find_if(tools.begin(), tools.end(), [&](const json::value& tool) {
      return tool.is_object() && named_function(JsonFields(tool.get_object())) == name;
    });
    if (name.empty() || found == tools.end())
      refuse_field("tool_choice", fmt::format("names '{}', which 'tools' lacks", name));
    left.push_back(*found);
  }
  tools = std::move(left);
  read_choice_word(allowed.text("mode", "auto"), r);
}

// Reads how the answer may use the tools.
void read_tool_choice(const JsonFields& f, TextRequest& r) {
  json::array& tools = r.conversation->tools;
  const json::value* const choice = f.find("tool_choice");
  if (choice && choice->is_string()) {
    read_choice_word(copied(choice->get_string()), r);
  } else if (choice) {
    if (!choice->is_object()) refuse_field("tool_choice", "must be none, auto, required or a function");
    const JsonFields named(choice->get_object());
    const std::string type = named.text("type", "function");
    if (type == "allowed_tools") {
      const json::object* const inner = named.object("allowed_tools");
      read_allowed_tools(inner ? JsonFields(*inner) : named, r);
    } else if (type == "function") {
      r.call = named_function(named);
      if (r.call->empty()) refuse_field("tool_choice", "names no function");
    } else {
      refuse_field("tool_choice", "must name a function");
    }
  }
  if (!r.call) return;
  if (tools.empty()) refuse_field("tool_choice", "asks for a call, but 'tools' is empty");
  if (!r.grammar.empty()) refuse_field("tool_choice", "asks for a call, which the grammar excludes");
}

// Reads sampling settings, whose names both APIs share; in Ollama's they are in "options".
void read_choice(const JsonFields& f, ContinuationSettings& s) {
  s.temperature = f.number("temperature", s.temperature, 0, 100);
  s.filters.top_p = f.number("top_p", s.filters.top_p, 0, 1);
  s.filters.min_p = f.number("min_p", s.filters.min_p, 0, 1);
  s.filters.top_k = f.whole("top_k", s.filters.top_k, -1, 1 << 24);
  s.filters.typical = f.number("typical_p", s.filters.typical, 1e-9, 1);
  for (const char* const name : {"repetition_penalty", "repeat_penalty"})  // vLLM's name, llama.cpp's
    s.filters.repeat_penalty = f.number(name, s.filters.repeat_penalty, 1e-3, 100);
  s.filters.presence_penalty = f.number("presence_penalty", s.filters.presence_penalty, -100, 100);
  s.filters.frequency_penalty = f.number("frequency_penalty", s.filters.frequency_penalty, -100, 100);
  s.filters.recent = f.whole("repeat_last_n", s.filters.recent, -1, 1 << 24);
  if (s.filters.recent < 0) s.filters.recent = s.tokens;  // the context
  s.filters.dry_multiplier = f.number("dry_multiplier", s.filters.dry_multiplier, 0, 100);
  s.filters.dry_base = f.number("dry_base", s.filters.dry_base, 1, 100);
  s.filters.dry_length = f.whole("dry_allowed_length", s.filters.dry_length, 1, 1 << 24);
  s.filters.mirostat = static_cast<int>(f.whole("mirostat", s.filters.mirostat, 0, 2));
  s.filters.mirostat_surprise = f.number("mirostat_tau", s.filters.mirostat_surprise, 1e-3, 100);
  s.filters.mirostat_rate = f.number("mirostat_eta", s.filters.mirostat_rate, 1e-6, 1);
  for (const std::string& stop : f.texts("stop")) s.stop.push_back(stop);
}

void read_seed(const JsonFields& f, TextRequest& r) {
  if (!f.find("seed")) return;
  r.settings.seed = static_cast<uint64_t>(f.whole("seed", 0, INT64_MIN, INT64_MAX));
  r.seeded = true;
}

constexpr double kMostBias = 1e4;

// A list of [token, bias], as llama.cpp's server takes it; false excludes the token.
void read_bias_list(const json::array& list, ContinuationSettings& s) {
  for (const json::value& one : list) {
    const json::array* const pair = one.if_array();
    const bool whole = pair && pair->size() == 2 && (*pair)[0].is_int64() && (*pair)[0].get_int64() >= 0 &&
                       (*pair)[0].get_int64() <= INT32_MAX && ((*pair)[1].is_number() || (*pair)[1] == false);
    if (!whole) refuse_field("logit_bias", "must be an object of numbers by token, or a list of [token, number]");
    const double bias = (*pair)[1].is_number() ? (*pair)[1].to_number<double>() : -kMostBias;
    s.filters.bias.emplace_back(static_cast<int32_t>((*pair)[0].get_int64()),
                                static_cast<float>(std::clamp(bias, -kMostBias, kMostBias)));
  }
}

void read_bias(const JsonFields& f, ContinuationSettings& s) {
  const json::value* const given = f.find("logit_bias");
  if (given && given->is_array()) return read_bias_list(given->get_array(), s);
  const json::object* const bias = f.object("logit_bias");
  if (!bias) return;
  for (const auto& [key, value] : *bias) {
    const std::string id = copied(key);
    if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != std::string::npos || !value.is_number())
      refuse_field("logit_bias", "must be an object of numbers by token");
    s.filters.bias.emplace_back(std::stoi(id),
                                static_cast<float>(std::clamp(value.to_number<double>(), -kMostBias, kMostBias)));
  }
}

// Reads the limits of tokens. Some clients write -1 for none. Continuing a text by no token computes its prompt only.
void read_most_tokens(const JsonFields& f, TextRequest& r) {
  ContinuationSettings& s = r.settings;
  const int64_t least = r.api == TextApi::completion ? 0 : 1;
  for (const char* const name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    const json::value* const value = f.find(name);
    if (value && value->is_int64() && value->get_int64() == -1) continue;
    s.tokens = f.whole(name, s.tokens, least, INT32_MAX);  // the context is a limit too
  }
  s.least = f.whole("min_tokens", 0, 0, INT32_MAX);
  if (s.least > s.tokens)
    refuse_field("min_tokens", fmt::format("is {}, but the limit of tokens is {}", s.least, s.tokens));
}

// Reads which tokens end the text, under the names of vLLM.
void read_ends(const JsonFields& f, ContinuationSettings& s) {
  if (f.flag("ignore_eos", false)) {
    s.ends.clear();
    s.usual_ends = false;
  }
  if (const json::array* const ids = f.array("stop_token_ids"))
    for (const int32_t id : token_ids(*ids, "stop_token_ids")) s.ends.push_back(id);
  s.all_written = !f.flag("skip_special_tokens", true);
}

void read_log_probabilities(const JsonFields& f, ContinuationSettings& s) {
  if (f.flag("logprobs", false)) s.log_probabilities = static_cast<size_t>(f.whole("top_logprobs", 0, 0, 20));
}

const std::vector<std::string> kDryBreakers = {"\n", ":", "\"", "*"};  // those of dry_breakers()

// Refuses settings of vLLM and llama.cpp's server that this server lacks.
void refuse_others(const JsonFields& f, const ContinuationSettings& s) {
  refuse_given(f, {"functions", "function_call"}, "is not supported: give 'tools' and 'tool_choice'");
  refuse_given(f, {"audio", "web_search_options"}, "is not supported: the model reads and writes text");
  for (const std::string& modality : f.texts("modalities"))
    if (modality != "text") refuse_field("modalities", "has " + modality + ": the model reads and writes text");
  refuse_settings(f,
                  {"bad_words", "allowed_token_ids", "use_beam_search", "logits_processors", "truncate_prompt_tokens",
                   "include_stop_str_in_output", "return_token_ids", "return_tokens_as_token_ids", "prompt_embeds",
                   "guided_whitespace_pattern", "xtc_probability", "dynatemp_range", "t_max_predict_ms", "lora",
                   "post_sampling_probs", "response_fields"},
                  "is not supported");
  refuse_settings(f, {"n_probs"}, "is not supported: give 'logprobs'");
  refuse_given(f, {"chat_template"}, "is not supported: --chat-template of the server sets the template");
  if (f.number("top_n_sigma", 0, -1e6, 1e6) > 0) refuse_field("top_n_sigma", "is not supported");
  if (s.filters.dry_multiplier <= 0) return;
  if (f.find("dry_sequence_breakers") && f.texts("dry_sequence_breakers") != kDryBreakers)
    refuse_field("dry_sequence_breakers", "is not supported: line ends, ':', '\"' and '*' end a repetition");
  if (f.whole("dry_penalty_last_n", -1, -1, INT32_MAX) != -1)
    refuse_field("dry_penalty_last_n", "is not supported: repetitions of the whole text count");
}

// Returns a JSON schema, which some clients give as a text.
std::string schema_text(const json::value& schema, const char* name) {
  if (!schema.is_string()) return json::serialize(schema);
  json::error_code failed;
  parse_json(schema.get_string(), failed);
  if (failed) refuse_field(name, "is a text, but not one of JSON: " + failed.message());
  return copied(schema.get_string());
}

std::string rule_of_pattern(const std::string& pattern, const char* name) {
  try {
    return "text ::= " + grammar_of_whole_pattern(pattern) + "\n";
  } catch (const Error& e) {
    refuse_field(name, fmt::format("is not usable: {}", e.what()));
  }
}

std::string rule_of_choices(const std::vector<std::string>& choices, const char* name) {
  std::string rule;
  for (const std::string& choice : choices) {
    rule += rule.empty() ? "text ::= \"" : " | \"";
    for (const char c : choice)
      rule += c == '"' || c == '\\' ? std::string{'\\', c}
              : static_cast<unsigned char>(c) < ' '
                  ? fmt::format("\\x{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)))
                  : std::string(1, c);
    rule += '"';
  }
  if (rule.empty()) refuse_field(name, "has no text to choose");
  return rule + "\n";
}

// Reads the form of answers under the names of vLLM, SGLang and llama.cpp's server.
void read_form(const JsonFields& f, TextRequest& r) {
  const auto schema = [&](const JsonFields& fields, const char* name) {
    if (const json::value* const given = fields.find(name)) r.schema = schema_text(*given, name);
  };
  const auto pattern = [&](const JsonFields& fields, const char* name) {
    if (fields.find(name)) r.rules = rule_of_pattern(fields.text(name), name);
  };
  const auto choices = [&](const JsonFields& fields, const char* name) {
    if (fields.find(name)) r.rules = rule_of_choices(fields.texts(name), name);
  };
  const auto grammar = [&](const JsonFields& fields, const char* name) {
    if (std::string text = fields.text(name); !text.empty()) r.grammar = std::move(text);
  };
  for (const char* const name : {"json_schema", "guided_json"}) schema(f, name);
  for (const char* const name : {"regex", "guided_regex"}) pattern(f, name);
  for (const char* const name : {"grammar", "ebnf", "guided_grammar"}) grammar(f, name);
  choices(f, "guided_choice");
  if (const json::object* const all = f.object("structured_outputs")) {
    const JsonFields fields(*all);
    schema(fields, "json");
    if (fields.flag("json_object", false)) r.schema = kAnyObject;
    pattern(fields, "regex");
    choices(fields, "choice");
    grammar(fields, "grammar");
    refuse_settings(fields, {"structural_tag", "whitespace_pattern"}, "of 'structured_outputs' is not supported");
  }
}

void read_response_format(const JsonFields& f, TextRequest& r) {
  const json::object* const format = f.object("response_format");
  if (!format) return;
  const std::string type = JsonFields(*format).text("type");
  if (type == "json_object") {
    const json::object* const schema = JsonFields(*format).object("schema");  // as llama.cpp's server
    r.schema = schema ? json::serialize(*schema) : kAnyObject;
  } else if (type == "json_schema") {
    const json::object* const named = JsonFields(*format).object("json_schema");
    const json::value* const schema = named ? JsonFields(*named).find("schema") : nullptr;
    if (!schema) refuse_field("response_format", "has no json_schema.schema");
    r.schema = json::serialize(*schema);
  } else if (type != "text") {
    refuse_field("response_format", "must be of the type text, json_object or json_schema");
  }
}

// Reads which log probabilities the reply has. Of prompts those of the first token are missing.
void read_openai_probabilities(const JsonFields& f, TextRequest& r) {
  ContinuationSettings& s = r.settings;
  if (r.api != TextApi::completion) {
    read_log_probabilities(f, s);
    if (!s.log_probabilities && f.whole("top_logprobs", 0, 0, 20) > 0)
      refuse_field("top_logprobs", "needs 'logprobs': true");
  } else if (f.find("logprobs")) {
    s.log_probabilities = static_cast<size_t>(f.whole("logprobs", 0, 0, 20));
    if (r.echo) s.prompt_probabilities = s.log_probabilities;
  }
  if (!f.find("prompt_logprobs")) return;
  if (r.api == TextApi::responses) refuse_field("prompt_logprobs", "is not supported: /v1/chat/completions has it");
  if (r.stream) refuse_field("prompt_logprobs", "has no place in a stream: give 'stream': false");
  r.prompt_logprobs = static_cast<size_t>(f.whole("prompt_logprobs", 0, 0, 20));
  s.prompt_probabilities = std::max(s.prompt_probabilities.value_or(0), *r.prompt_logprobs);
}

void read_openai(const JsonFields& f, TextRequest& r) {
  read_choice(f, r.settings);
  read_seed(f, r);
  read_bias(f, r.settings);
  read_most_tokens(f, r);
  read_ends(f, r.settings);
  if (r.api != TextApi::responses) r.each = static_cast<size_t>(f.whole("n", 1, 1, kMostTexts));
  refuse_others(f, r.settings);
  r.stream = f.flag("stream", false);
  r.one_call = !f.flag("parallel_tool_calls", true);
  if (const json::object* const options = f.object("stream_options"))
    r.usage = JsonFields(*options).flag("include_usage", false);
  if (r.api == TextApi::completion)
    r.echo = f.flag("echo", false);
  else
    refuse_settings(f, {"echo"}, "is not supported: /v1/completions has it");
  read_openai_probabilities(f, r);
  read_form(f, r);
  read_response_format(f, r);
}

void read_ollama(const JsonFields& f, TextRequest& r) {
  if (const json::object* const options = f.object("options")) {
    read_choice(JsonFields(*options), r.settings);
    read_seed(JsonFields(*options), r);
    const int64_t most = JsonFields(*options).whole("num_predict", -1, -2, 1 << 24);
    if (most > 0) r.settings.tokens = most;
  }
  r.stream = f.flag("stream", true);
  refuse_given(f, {"images"}, kReadsText);
  refuse_given(f, {"suffix"}, "is not supported: texts are continued at their end");
  read_log_probabilities(f, r.settings);
  refuse_given(f, {"template"}, "is not supported: --chat-template of the server sets the template");
  refuse_given(f, {"context"}, "is not supported: /api/chat continues conversations");
  const json::value* const format = f.find("format");
  if (!format) return;
  if (format->is_object())
    r.schema = json::serialize(*format);
  else if (format->is_string() && format->get_string() == "json")
    r.schema = kAnyObject;
  else if (!(format->is_string() && format->get_string().empty()))
    refuse_field("format", "must be \"json\" or a JSON schema");
}

// A prompt is a text or a list of tokens; a list of prompts asks for a text for each.
void read_completion_prompts(const JsonFields& f, TextRequest& r) {
  const json::value* const prompt = f.find("prompt");
  const json::array* const list = prompt ? prompt->if_array() : nullptr;
  if (list && !list->empty() && list->front().is_int64()) {
    r.prompts.push_back({"", token_ids(*list, "prompt")});
  } else if (list && !list->empty() && list->front().is_array()) {
    for (const json::value& one : *list) {
      if (!one.is_array() || one.get_array().empty())
        refuse_field("prompt", "has an item that is not a list of tokens");
      r.prompts.push_back({"", token_ids(one.get_array(), "prompt")});
    }
  } else {
    for (std::string& text : f.texts("prompt")) r.prompts.push_back({std::move(text)});
  }
  if (r.prompts.empty()) r.prompts.emplace_back();
  if (r.texts() > static_cast<size_t>(kMostTexts))
    refuse_field("prompt", fmt::format("and 'n' ask for {} texts; the limit is {}", r.texts(), kMostTexts));
}

void read_completion(const JsonFields& f, TextRequest& r) {
  read_completion_prompts(f, r);
  const bool begin = f.flag("add_special_tokens", true);
  for (PlainPrompt& prompt : r.prompts) prompt.begin = begin;
  refuse_given(f, {"suffix"}, "is not supported: texts are continued at their end");
  if (f.whole("best_of", 1, 1, kMostTexts) > static_cast<int64_t>(r.each))
    refuse_field("best_of", "is more than 'n', which is not supported: raise 'n' and choose by 'logprobs'");
}

void read_generate_prompt(const JsonFields& f, TextRequest& r) {
  const std::string text = f.text("prompt");
  r.loads = text.empty();
  if (f.flag("raw", false)) return r.prompts.push_back({text});
  ChatPrompt prompt;
  if (const std::string system = f.text("system"); !system.empty())
    prompt.messages.push_back(json::object{{"role", "system"}, {"content", system}});
  prompt.messages.push_back(json::object{{"role", "user"}, {"content", text}});
  r.conversation = std::move(prompt);
}

}  // namespace

TextRequest read_text_request(TextApi api, std::string_view body, const ContinuationSettings& usual) {
  const json::object object = object_of_body(body);
  const JsonFields fields(object);
  TextRequest r;
  r.api = api;
  r.model = fields.text("model");
  r.settings = usual;
  const bool openai = api == TextApi::chat || api == TextApi::completion || api == TextApi::responses;
  if (openai)
    read_openai(fields, r);
  else
    read_ollama(fields, r);
  if (api == TextApi::ollama_chat) {
    const json::array* const messages = fields.array("messages");
    r.loads = !messages || messages->empty();
  }
  if (api == TextApi::chat || api == TextApi::responses || (api == TextApi::ollama_chat && !r.loads))
    r.conversation = conversation_of(fields);
  if (r.conversation) read_tool_choice(fields, r);
  if (r.conversation && openai) read_prompt_end(fields, r);
  if (api == TextApi::completion) read_completion(fields, r);
  if (api == TextApi::ollama_generate) read_generate_prompt(fields, r);
  const json::value* const keep = r.loads ? fields.find("keep_alive") : nullptr;
  r.unloads = keep && (*keep == 0 || *keep == "0" || *keep == "0s");
  r.tools = r.conversation && !r.conversation->tools.empty();
  if (int{!r.schema.empty()} + int{!r.rules.empty()} + int{!r.grammar.empty()} > 1)
    refuse_field(r.grammar.empty() ? "response_format" : "grammar", "and another format exclude each other");
  return r;
}

std::string loaded_reply(const TextRequest& request, int64_t now) {
  json::object object{{"model", request.model},
                      {"created_at", timestamp(now)},
                      {"done", true},
                      {"done_reason", request.unloads ? "unload" : "load"}};
  if (request.api == TextApi::ollama_chat)
    object["message"] = json::object{{"role", "assistant"}, {"content", ""}};
  else
    object["response"] = "";
  return json_line(object) + "\n";
}

}  // namespace harmonics::engine
