// Grammars of the JSON texts allowed by a JSON schema.
#pragma once

#include <string>

#include <boost/json/value.hpp>

namespace harmonics::engine {

// Returns the grammar of the JSON texts that the schema allows, with object members in the order of `properties`.
// Supports type, enum, const, properties, required, additionalProperties, items, prefixItems, minItems, maxItems,
// uniqueItems (of enums), minLength, maxLength, pattern (grammar_of_pattern), minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, multipleOf (multiples_between), anyOf, oneOf, allOf of one schema, $ref to $defs or definitions,
// format (date, time, date-time, uuid, email, hostname, ipv4, ipv6, uri), and annotations. Without
// additionalProperties, an object with properties allows no others. Throws ErrorKind::Usage with the location for other
// keywords and malformed schemas.
std::string grammar_of_schema(const boost::json::value& schema);
// Returns the same texts as the rule `name` of a larger grammar, which has json_rules() once. Its other rules are named
// by `name` and a number.
std::string rules_of_schema(const boost::json::value& schema, const std::string& name);
std::string json_rules();

}  // namespace harmonics::engine
