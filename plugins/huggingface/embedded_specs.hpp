// The model specs, of which the plugin reads the entry hf_mapping.
#pragma once

namespace huggingface {

struct EmbeddedSpec {
  const char* name;  // "llama.json"
  const char* text;
};
extern const EmbeddedSpec kEmbeddedSpecs[];
extern const unsigned kEmbeddedSpecCount;

}  // namespace huggingface
