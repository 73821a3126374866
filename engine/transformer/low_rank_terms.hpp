// What adapters add to the linear maps of one trace.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <harmonics/tensor.hpp>

#include "engine/program/tracer.hpp"

namespace harmonics::engine {

// An adapted weight: rows from .. from + rank of the parameter `a`, which has `rows`, and the parameter `b`.
struct AdaptedWeight {
  std::string a, b;
  int64_t rows = 0, from = 0, rank = 0;
};
using AdaptedWeights = std::map<std::string, AdaptedWeight>;  // by the key of BoundWeight

// A linear map of a trace.
struct TracedMap {
  ValueId x;
  std::string key;  // "" if the weight is not one that a step named
};

class LowRankTerms {
 public:
  LowRankTerms(const AdaptedWeights& adapted, Tracer& tracer) : adapted_(adapted), tracer_(tracer) {}
  // A step read the weight of this key.
  void read(const HTensor& weight, const std::string& key);
  // y, the map of x by the weight, with what the adapters add.
  HTensor added(const HTensor& y, const HTensor& x, const HTensor& weight);
  const std::vector<TracedMap>& maps() const { return maps_; }

 private:
  const AdaptedWeights& adapted_;
  Tracer& tracer_;
  std::map<ValueId, std::string> keys_;                          // the last one that read the weight
  std::map<std::pair<std::string, ValueId>, HTensor> products_;  // x Aᵀ, by A and x
  std::vector<TracedMap> maps_;
};

}  // namespace harmonics::engine
