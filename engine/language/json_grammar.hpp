// Grammars of JSON texts: of any, or of those that a JSON schema allows.
#pragma once

#include <string>

#include <boost/json/value.hpp>

namespace harmonics::engine {

// Any JSON object.
std::string json_object_grammar();
// The JSON texts that the schema allows, with object members in the order of `properties`. Known: type, enum, const,
// properties, required, additionalProperties, items, prefixItems, minItems, maxItems, minLength, maxLength, minimum 0,
// anyOf, oneOf, allOf of one schema, $ref to $defs or definitions, format (date, time, date-time, uuid), and
// annotations. Without additionalProperties, an object with properties has no others. Throws ErrorKind::Usage, with the
// place, for other keywords and for schemas that are wrong.
std::string grammar_of_schema(const boost::json::value& schema);

}  // namespace harmonics::engine
