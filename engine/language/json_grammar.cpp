#include "engine/language/json_grammar.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/language/multiple_grammar.hpp"
#include "engine/language/number_grammar.hpp"
#include "engine/language/pattern_grammar.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

constexpr int kSchemaDepth = 64;
constexpr size_t kSchemaRules = 20'000;
constexpr size_t kMostUnique = 10;  // values of an enum whose arrays have different items

constexpr std::string_view kJsonRules = R"(ws ::= ( " " | "\n" [ \t]{0,20} )?
string ::= "\"" character* "\""
character ::= [^"\\\x00-\x1F] | "\\" ( ["\\bfnrt/] | "u" [0-9a-fA-F]{4} )
integer ::= "-"? natural
natural ::= "0" | [1-9] [0-9]{0,17}
digits ::= [0-9]{1,9}
number ::= "-"? positive
positive ::= natural ( "." [0-9]{1,17} )? ( [eE] [+\-]? [0-9]{1,3} )?
boolean ::= "true" | "false"
null ::= "null"
object ::= "{" ws ( string ws ":" ws value ws ( "," ws string ws ":" ws value ws )* )? "}"
array ::= "[" ws ( value ws ( "," ws value ws )* )? "]"
value ::= object | array | string | number | boolean | null
date ::= [0-9]{4} "-" ( "0" [1-9] | "1" [0-2] ) "-" ( "0" [1-9] | [12] [0-9] | "3" [01] )
time ::= ( [01] [0-9] | "2" [0-3] ) ":" [0-5] [0-9] ":" [0-5] [0-9] ( "." [0-9]{1,9} )? ( "Z" |
  [+\-] [0-2] [0-9] ":" [0-5] [0-9] )
hex ::= [0-9a-fA-F]
)";

// Returns the text as a GBNF literal.
std::string quoted_gbnf(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      out += fmt::format("\\x{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    else
      out += c;
  }
  return out + "\"";
}

std::string view_of(json::string_view text) { return {text.data(), text.size()}; }

class SchemaGrammar {
 public:
  // `prefix`: of the names of rules.
  SchemaGrammar(const json::value& schema, std::string prefix) : whole_(schema), prefix_(std::move(prefix)) {}

  // Returns the rules, of which `root` allows the texts of the schema.
  std::string run(const std::string& root) {
    std::string text = root + " ::= ws " + expression(whole_, "#") + " ws\n";
    for (const auto& [name, body] : rules_) text += name + " ::= " + body + "\n";
    return text;
  }

 private:
  [[noreturn]] static void fail(const std::string& place, const std::string& what, const std::string& remedy = "") {
    Error e(ErrorKind::Usage, fmt::format("the JSON schema, {}: {}", place, what));
    if (!remedy.empty()) e.note(remedy);
    throw e;
  }

  std::string rule(const std::string& body) {
    const std::string name = fmt::format("{}{}", prefix_, rules_.size() + 1);
    if (rules_.size() >= kSchemaRules) fail("#", fmt::format("it needs more than {} rules", kSchemaRules));
    rules_.emplace_back(name, body);
    return name;
  }

  // Returns the texts allowed by a schema, as one term of a sequence.
  std::string expression(const json::value& schema, const std::string& place) {
    if (++depth_ > kSchemaDepth) fail(place, fmt::format("it is nested more than {} deep", kSchemaDepth));
    std::string term;
    if (schema.is_bool()) {
      if (!schema.get_bool()) fail(place, "'false' allows nothing");
      term = "value";
    } else if (schema.is_object()) {
      term = of_object(schema.get_object(), place);
    } else {
      fail(place, "a schema is an object or true");
    }
    --depth_;
    return term;
  }

  std::string of_object(const json::object& schema, const std::string& place) {
    expect_known(schema, place);
    const std::string term = term_of(schema, place);
    const json::value* const nullable = schema.if_contains("nullable");  // of OpenAPI 3.0
    return nullable && *nullable == true ? fmt::format("( {} | null )", term) : term;
  }

  std::string term_of(const json::object& schema, const std::string& place) {
    if (const json::value* const to = schema.if_contains("$ref")) return reference(*to, place);
    if (const json::value* const one = schema.if_contains("const"))
      return quoted_gbnf(plain_numbers(json::serialize(*one)));
    if (const json::value* const all = schema.if_contains("enum")) return enumeration(*all, place);
    for (const char* key : {"anyOf", "oneOf", "allOf"})
      if (const json::value* const all = schema.if_contains(key)) return either(*all, place + "/" + key, key);
    const json::value* const type = schema.if_contains("type");
    if (!type) {
      if (schema.contains("properties") || schema.contains("required")) return object(schema, place);
      if (schema.contains("items") || schema.contains("prefixItems")) return array(schema, place);
      return "value";
    }
    if (type->is_string()) return of_type(view_of(type->get_string()), schema, place);
    if (!type->is_array() || type->get_array().empty()) fail(place + "/type", "it is a string or a list of strings");
    std::string terms;
    for (const json::value& one : type->get_array()) {
      if (!one.is_string()) fail(place + "/type", "it is a string or a list of strings");
      terms += (terms.empty() ? "( " : " | ") + of_type(view_of(one.get_string()), schema, place);
    }
    return terms + " )";
  }

  // Keywords of JSON Schema, OpenAPI, editors and generators that do not restrict values.
  static bool is_annotation(std::string_view key) {
    constexpr std::string_view kAnnotations[] = {"$anchor",
                                                 "$comment",
                                                 "$dynamicAnchor",
                                                 "$id",
                                                 "$schema",
                                                 "$vocabulary",
                                                 "contentEncoding",
                                                 "contentMediaType",
                                                 "contentSchema",
                                                 "default",
                                                 "deprecated",
                                                 "description",
                                                 "discriminator",
                                                 "enumNames",
                                                 "enumDescriptions",
                                                 "errorMessage",
                                                 "example",
                                                 "examples",
                                                 "externalDocs",
                                                 "id",
                                                 "title",
                                                 "propertyOrdering",
                                                 "readOnly",
                                                 "markdownDescription",
                                                 "strict",
                                                 "writeOnly",
                                                 "xml"};
    return key.starts_with("x-") || std::ranges::find(kAnnotations, key) != std::end(kAnnotations);
  }

  static void expect_known(const json::object& schema, const std::string& place) {
    constexpr std::string_view kKnown[] = {"$ref",        "const",
                                           "enum",        "anyOf",
                                           "oneOf",       "allOf",
                                           "type",        "properties",
                                           "required",    "items",
                                           "minItems",    "maxItems",
                                           "$defs",       "minLength",
                                           "format",      "maxLength",
                                           "minimum",     "maximum",
                                           "prefixItems", "exclusiveMinimum",
                                           "pattern",     "exclusiveMaximum",
                                           "nullable",    "multipleOf",
                                           "definitions", "additionalProperties",
                                           "uniqueItems"};
    for (const auto& [key, value] : schema) {
      if (is_annotation(view_of(key)) || std::ranges::find(kKnown, view_of(key)) != std::end(kKnown)) continue;
      if (key == "propertyNames" && allows_any_string(value)) continue;
      fail(place, fmt::format("the keyword '{}' is not supported", view_of(key)));
    }
  }

  // Returns whether names of members are not restricted, as zod writes for maps.
  static bool allows_any_string(const json::value& schema) {
    if (!schema.is_object()) return schema == true;
    return std::ranges::all_of(schema.get_object(), [](const auto& one) {
      return one.key() == "type" ? one.value() == "string" : is_annotation(view_of(one.key()));
    });
  }

  std::string of_type(const std::string& type, const json::object& schema, const std::string& place) {
    if (type == "object") return object(schema, place);
    if (type == "array") return array(schema, place);
    if (type == "string") return text(schema, place);
    if (type == "boolean" || type == "null") return type;
    if (type != "integer" && type != "number")
      fail(place + "/type", fmt::format("'{}' is not a JSON type", type),
           "types: array, boolean, integer, null, number, object, string");
    return number(type == "integer", schema, place);
  }

  // Returns a bound of numbers. Bounds of integers are rounded to integers within them.
  static std::optional<NumberBound> bound(const json::object& schema, const char* key, bool whole, bool least,
                                          const std::string& place) {
    const json::value* const value = schema.if_contains(key);
    if (!value) return std::nullopt;
    const double given = value->is_number() ? value->to_number<double>() : HUGE_VAL;
    if (!(std::fabs(given) <= static_cast<double>(kLargestBound)))
      fail(fmt::format("{}/{}", place, key), fmt::format("it is a number of at most {} in magnitude", kLargestBound));
    const bool open = std::string_view(key).starts_with("exclusive");
    const double rounded = !whole ? given : least ? std::ceil(given) : std::floor(given);
    const auto bound = number_bound(rounded, rounded == given && open);
    if (!bound) fail(fmt::format("{}/{}", place, key), fmt::format("it has at most {} decimals", kMostBoundDecimals));
    return bound;
  }

  // Returns the stricter one of two bounds.
  static std::optional<NumberBound> stricter(std::optional<NumberBound> a, std::optional<NumberBound> b, bool least) {
    if (!a || !b) return a ? a : b;
    const auto is_negative = [](const NumberBound& x) { return x.value < 0 || x.below_zero; };
    const bool below = is_negative(*a);
    if (below != is_negative(*b)) return below == least ? b : a;
    if (a->value == b->value && a->fraction == b->fraction) return a->open ? a : b;
    // Decimals without zeros at their end have the order of their texts.
    const bool larger = a->value != b->value ? a->value > b->value : (a->fraction > b->fraction) != below;
    return larger == least ? a : b;
  }

  std::string multiples(const json::value& step, bool whole, const std::optional<NumberBound>& least,
                        const std::optional<NumberBound>& most, const std::string& place) {
    const double given = step.is_number() ? step.to_number<double>() : 0;
    if (!(given > 0)) fail(place + "/multipleOf", "it is a number above 0");
    try {
      return multiples_between(given, whole, least, most, [this](const std::string& body) { return rule(body); });
    } catch (const Error& e) {
      fail(place + "/multipleOf", e.what(), e.notes().empty() ? "" : e.notes().front());
    }
  }

  std::string number(bool whole, const json::object& schema, const std::string& place) {
    const auto of = [&](const char* key, bool least) { return bound(schema, key, whole, least, place); };
    const auto least = stricter(of("minimum", true), of("exclusiveMinimum", true), true),
               most = stricter(of("maximum", false), of("exclusiveMaximum", false), false);
    const json::value* const step = schema.if_contains("multipleOf");
    const auto is_zero = [](const NumberBound& b) { return b.value == 0 && b.fraction.empty() && !b.open; };
    if (!step && !least && !most) return whole ? "integer" : "number";
    if (!step && !most && is_zero(*least)) return whole ? "natural" : "positive";
    const std::string all = step    ? multiples(*step, whole, least, most, place)
                            : whole ? integers_between(least, most)
                                    : numbers_between(least, most);
    if (all.empty()) fail(place, "no number is within its bounds");
    return rule(all);
  }

  std::string reference(const json::value& to, const std::string& place) {
    if (!to.is_string() || !to.get_string().starts_with("#")) fail(place + "/$ref", "it must begin with '#'");
    const std::string path = view_of(to.get_string());
    if (const auto known = references_.find(path); known != references_.end()) return known->second;
    json::error_code failed;
    const json::value* const found = path == "#" ? &whole_ : whole_.find_pointer(path.substr(1), failed);
    if (!found) fail(place + "/$ref", fmt::format("there is no '{}'", path));
    const std::string name = rule("");  // named first, so that recursive references find it
    const size_t index = rules_.size() - 1;
    references_[path] = name;
    rules_[index].second = expression(*found, path);
    return name;
  }

  std::string enumeration(const json::value& all, const std::string& place) {
    if (!all.is_array() || all.get_array().empty()) fail(place + "/enum", "it is a list of values");
    std::string terms;
    for (const json::value& one : all.get_array())
      terms += (terms.empty() ? "( " : " | ") + quoted_gbnf(plain_numbers(json::serialize(one)));
    return terms + " )";
  }

  std::string either(const json::value& all, const std::string& place, std::string_view key) {
    if (!all.is_array() || all.get_array().empty()) fail(place, "it is a list of schemas");
    if (key == "allOf" && all.get_array().size() > 1) fail(place, "several schemas that all hold are not supported");
    std::string terms;
    for (size_t i = 0; i < all.get_array().size(); ++i)
      terms += (i == 0 ? "( " : " | ") + expression(all.get_array()[i], fmt::format("{}/{}", place, i));
    return terms + " )";
  }

  static int64_t count(const json::object& schema, const char* key, int64_t otherwise, const std::string& place) {
    const json::value* const value = schema.if_contains(key);
    if (!value) return otherwise;
    if (!value->is_int64() || value->get_int64() < 0 || value->get_int64() > 1000)
      fail(place + "/" + key, "it is a whole number from 0 to 1000");
    return value->get_int64();
  }
  // Returns "{2,5}" or "{2,}".
  static std::string times(int64_t least, int64_t most, const std::string& place) {
    if (most >= 0 && most < least) fail(place, "the minimum is larger than the maximum");
    return most < 0 ? fmt::format("{{{},}}", least) : fmt::format("{{{},{}}}", least, most);
  }

  // Returns the texts of a format; "" for an unknown one.
  std::string named_format(const std::string& name) {
    const auto label = [this] { return rule(R"([a-zA-Z0-9] ( [a-zA-Z0-9\-]{0,61} [a-zA-Z0-9] )?)"); };
    if (name == "hostname") return fmt::format(R"({0} ( "." {0} )*)", label());
    if (name == "email") return fmt::format(R"([a-zA-Z0-9._%+\-]{{1,64}} "@" {0} ( "." {0} )+)", label());
    if (name == "ipv4")
      return fmt::format(R"({0} "." {0} "." {0} "." {0})",
                         rule(R"([0-9] | [1-9] [0-9] | "1" [0-9] [0-9] | "2" [0-4] [0-9] | "25" [0-5])"));
    if (name == "ipv6") return R"(hex{1,4} ( ":" hex{1,4} ){7})";
    if (name == "duration") {
      const std::string seconds = rule(R"(digits ( "." digits )? "S")"),
                        minutes = rule(fmt::format(R"(digits "M" {0}? | {0})", seconds)),
                        time = rule(fmt::format(R"("T" ( digits "H" {0}? | {0} ))", minutes)),
                        days = rule(fmt::format(R"(digits "D" {}?)", time)),
                        months = rule(fmt::format(R"(digits "M" ( {} | {} )?)", days, time));
      return fmt::format(R"("P" ( {0} | digits "W" | {1} | {2} | digits "Y" ( {2} | {1} | {0} )? ))", time, days,
                         months);
    }
    if (name == "uri") return R"([a-z] [a-z0-9+.\-]{0,15} ":" [A-Za-z0-9/?#@!$&'()*+,;=:._~%\-]+)";
    return "";
  }

  // Formats that OpenAPI and pydantic write for the reader: any string has them.
  static bool is_free_format(std::string_view format) {
    constexpr std::string_view kAnnotations[] = {"password", "binary", "path", "file-path", "directory-path"};
    return std::ranges::find(kAnnotations, format) != std::end(kAnnotations);
  }

  static std::string pattern_in(const std::string& pattern, const std::string& place) {
    try {
      return grammar_of_pattern(pattern);
    } catch (const Error& e) {
      fail(place + "/pattern", e.what());
    }
  }

  std::string text(const json::object& schema, const std::string& place) {
    if (const json::value* const format = schema.if_contains("format")) {
      const std::string name = format->is_string() ? view_of(format->get_string()) : "";
      if (name == "date" || name == "time") return "\"\\\"\" " + name + " \"\\\"\"";
      if (name == "date-time") return R"("\"" date "T" time "\"")";
      if (name == "uuid") return R"("\"" hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12} "\"")";
      if (const std::string body = named_format(name); !body.empty()) return fmt::format(R"("\"" {} "\"")", rule(body));
      if (!is_free_format(name))
        fail(place + "/format", fmt::format("'{}' is not supported", name),
             "formats: date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri");
    }
    if (const json::value* const pattern = schema.if_contains("pattern")) {
      if (!pattern->is_string()) fail(place + "/pattern", "it is a regular expression");
      if (schema.contains("minLength") || schema.contains("maxLength"))
        fail(place + "/pattern", "limits of the length beside it are not supported; write them into the pattern");
      return fmt::format(R"("\"" {} "\"")", rule(pattern_in(view_of(pattern->get_string()), place)));
    }
    if (!schema.contains("minLength") && !schema.contains("maxLength")) return "string";
    return "\"\\\"\" character" +
           times(count(schema, "minLength", 0, place), count(schema, "maxLength", -1, place), place) + " \"\\\"\"";
  }

  // Returns the texts of the values that items can have; nothing if those are no list of known values.
  std::optional<std::vector<std::string>> listed_values(const json::value& items) const {
    const json::object* schema = items.if_object();
    for (int depth = 0; schema && schema->contains("$ref"); ++depth) {
      const json::value& to = schema->at("$ref");
      json::error_code failed;
      const json::value* const found = depth < kSchemaDepth && to.is_string() && to.get_string().starts_with("#/")
                                           ? whole_.find_pointer(view_of(to.get_string()).substr(1), failed)
                                           : nullptr;
      schema = found ? found->if_object() : nullptr;
    }
    if (!schema) return std::nullopt;
    json::array values;
    const json::value* const type = schema->if_contains("type");
    if (const json::value* const one = schema->if_contains("const"))
      values.push_back(*one);
    else if (const json::value* const all = schema->if_contains("enum"); all && all->is_array())
      values = all->get_array();
    else if (type && type->is_string() && type->get_string() == "boolean")
      values = {true, false};
    else
      return std::nullopt;
    std::vector<std::string> texts;
    for (const json::value& value : values)
      if (std::string text = plain_numbers(json::serialize(value)); std::ranges::find(texts, text) == texts.end())
        texts.push_back(std::move(text));
    return texts;
  }

  // Returns the arrays of different values: a rule for the rest after each set of values.
  std::string unique_array(const json::object& schema, const json::value* items, const std::string& place) {
    const auto values = items && !schema.contains("prefixItems") ? listed_values(*items) : std::nullopt;
    if (!values || values->size() > kMostUnique)
      fail(place + "/uniqueItems",
           fmt::format("it is supported for items of an enum of at most {} values", kMostUnique),
           "omit it and remove duplicates afterwards");
    const int64_t least = count(schema, "minItems", 0, place), most = count(schema, "maxItems", -1, place);
    (void)times(least, most, place);
    if (least > static_cast<int64_t>(values->size())) fail(place + "/minItems", "there are fewer different items");
    const size_t sets = size_t{1} << values->size();
    std::vector<std::string> after(sets);
    for (size_t used = sets; used-- > 0;) {
      const int64_t taken = std::popcount(used);
      std::string more;
      for (size_t i = 0; i < values->size() && (most < 0 || taken < most); ++i)
        if (!(used >> i & 1))
          more += fmt::format("{}{}{} ws {}", more.empty() ? "" : " | ", taken ? "\",\" ws " : "",
                              quoted_gbnf((*values)[i]), after[used | size_t{1} << i]);
      after[used] = more.empty() ? "\"\"" : rule(taken < least ? more : fmt::format("( {} )?", more));
    }
    return fmt::format(R"("[" ws {} "]")", after[0]);
  }

  std::string array(const json::object& schema, const std::string& place) {
    const json::value* const unique = schema.if_contains("uniqueItems");
    if (unique && !unique->is_bool()) fail(place + "/uniqueItems", "it is true or false");
    const int64_t limit = count(schema, "maxItems", -1, place);
    if (unique && unique->get_bool() && (limit < 0 || limit > 1))
      return unique_array(schema, schema.if_contains("items"), place);
    std::string first;  // the items of prefixItems
    int64_t given = 0;
    if (const json::value* const prefix = schema.if_contains("prefixItems")) {
      if (!prefix->is_array()) fail(place + "/prefixItems", "it is a list of schemas");
      for (const json::value& one : prefix->get_array()) {
        first += (given ? R"( "," ws )" : "") + expression(one, fmt::format("{}/prefixItems/{}", place, given)) + " ws";
        ++given;
      }
    }
    const json::value* const items = schema.if_contains("items");
    const bool more = items ? !(items->is_bool() && !items->get_bool()) : given == 0;
    const int64_t least = std::max<int64_t>(count(schema, "minItems", 0, place) - given, 0);
    const int64_t most = more ? count(schema, "maxItems", -1, place) : 0;
    if (most == 0) return "\"[\" ws " + first + " \"]\"";
    const std::string item = rule((items ? expression(*items, place + "/items") : "value") + " ws");
    if (given > 0)
      return fmt::format(R"("[" ws {} ( "," ws {} ){} "]")", first, item,
                         times(least, most < 0 ? most : std::max<int64_t>(most - given, 0), place));
    const std::string list = fmt::format(R"({} ( "," ws {} ){})", item, item,
                                         times(std::max<int64_t>(least - 1, 0), most < 0 ? most : most - 1, place));
    return least > 0 ? "\"[\" ws " + list + " \"]\"" : "\"[\" ws ( " + list + " )? \"]\"";
  }

  struct Property {
    std::string term;  // "name": value
    bool required;
  };

  std::vector<Property> properties(const json::object& schema, const std::string& place) {
    std::vector<Property> all;
    std::vector<std::string> required;
    if (const json::value* const names = schema.if_contains("required")) {
      if (!names->is_array()) fail(place + "/required", "it is a list of names");
      for (const json::value& name : names->get_array()) {
        if (!name.is_string()) fail(place + "/required", "it is a list of names");
        required.push_back(view_of(name.get_string()));
      }
    }
    const auto add = [&](const std::string& name, const std::string& term, bool needed) {
      const std::string key = quoted_gbnf(json::serialize(json::value(json::string_view(name))));
      all.push_back({rule(key + " ws \":\" ws " + term + " ws"), needed});
    };
    if (const json::value* const given = schema.if_contains("properties")) {
      if (!given->is_object()) fail(place + "/properties", "it is an object of schemas");
      for (const auto& [key, value] : given->get_object()) {
        const std::string name = view_of(key);
        const auto at = std::find(required.begin(), required.end(), name);
        const bool needed = at != required.end();
        if (needed) required.erase(at);
        add(name, expression(value, place + "/properties/" + name), needed);
      }
    }
    for (const std::string& name : required) add(name, "value", true);  // required but not described
    return all;
  }

  std::string object(const json::object& schema, const std::string& place) {
    const std::vector<Property> all = properties(schema, place);
    const json::value* const other = schema.if_contains("additionalProperties");
    std::string more;  // one additional member
    if (other ? !(other->is_bool() && !other->get_bool()) : all.empty())
      more =
          rule("string ws \":\" ws " + (other ? expression(*other, place + "/additionalProperties") : "value") + " ws");
    // What may follow the first i properties: before any member was written, and after another member.
    std::string first = more.empty() ? "\"\"" : rule(fmt::format(R"(( {} ( "," ws {} )* )?)", more, more));
    std::string behind = more.empty() ? "\"\"" : rule(fmt::format(R"(( "," ws {} )*)", more));
    for (size_t i = all.size(); i-- > 0;) {
      const std::string taken = fmt::format("{} {}", all[i].term, behind);
      const std::string next = fmt::format(R"("," ws {})", taken);
      first = rule(all[i].required ? taken : fmt::format("{} | {}", taken, first));
      behind = rule(all[i].required ? next : fmt::format("{} | {}", next, behind));
    }
    return fmt::format(R"("{{" ws {} "}}")", first);
  }

  const json::value& whole_;
  const std::string prefix_;
  std::vector<std::pair<std::string, std::string>> rules_;
  std::map<std::string, std::string> references_;
  int depth_ = 0;
};

}  // namespace

std::string grammar_of_schema(const boost::json::value& schema) {
  return SchemaGrammar(schema, "s").run("root") + json_rules();
}

std::string rules_of_schema(const boost::json::value& schema, const std::string& name) {
  return SchemaGrammar(schema, name).run(name);
}

std::string json_rules() { return std::string(kJsonRules); }

}  // namespace harmonics::engine
