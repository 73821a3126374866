// Changes of layers by request: what is written in the form, and what the run answers.

// Returns the arguments of "rate=0.3 kernel=[3, 3]" by name. A value ends where the next ARGUMENT= begins. Throws an Error.
export function arguments_of(text) {
  const given = {};
  for (const part of text.trim().split(/\s+(?=[A-Za-z_][\w.]*=)/)) {
    const found = /^([A-Za-z_][\w.]*)=(.*)$/s.exec(part);
    if (!found) throw new Error(part === "" ? "write ARGUMENT=VALUE, such as rate=0.3" : `'${part}' is not ARGUMENT=VALUE`);
    const [, name, value] = found;
    if (Object.hasOwn(given, name)) throw new Error(`'${name}' is given twice`);
    given[name] = value.trim();
  }
  return given;
}

// Returns "hidden: rate = 0.3 (was 0.1)" for the change in a reply.
export function change_text(change) {
  const shown = (value) => value ?? "none";
  return `${change.layer}: ${change.arguments.map((a) => `${a.name} = ${shown(a.after)} (was ${shown(a.before)})`).join(", ")}`;
}

// Returns the names of layers that functions lead to, in the order of the flow. Losses of taps are not changed here.
export function changeable_layers(graph) {
  const into = new Set((graph?.edges ?? []).filter((e) => e.kind !== "tap" && e.calls.length > 0).map((e) => e.to));
  return (graph?.nodes ?? []).filter((n) => n.kind === "layer" && into.has(n.name)).map((n) => n.name);
}
