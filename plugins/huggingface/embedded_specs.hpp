// The embedded model specs. The plugin reads their entry hf_mapping.
#pragma once

namespace huggingface {

struct EmbeddedSpec {
  const char* name;  // "llama.json"
  const char* text;
};
extern const EmbeddedSpec kEmbeddedSpecs[];
extern const unsigned kEmbeddedSpecCount;

}  // namespace huggingface
