// Low-rank terms that adapters add to the linear maps of one trace.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <harmonics/tensor.hpp>

#include "engine/program/tracer.hpp"
#include "engine/transformer/trained_adapter.hpp"

namespace harmonics::engine {

// A weight with frozen adapters: rows [from, from + rank) of the parameter `a`, which has `rows` rows, and the
// parameter `b`. For a lookup table, `a` is separate: [rows of the table, rank].
struct AdaptedWeight {
  std::string a, b;
  int64_t rows = 0, from = 0, rank = 0;  // for experts, of each expert
  std::string factor = {};               // DoRA: [rows of the weight], factor of the sum of both maps
  bool looked_up = false;                // a lookup table; a head that shares the table is not adapted
};
using AdaptedWeights = std::map<std::string, AdaptedWeight>;  // by the key of BoundWeight

// A linear map, or a lookup of rows, in a trace.
struct TracedMap {
  ValueId x;
  std::string key;  // key of the weight; "" if no step named it
  ValueId y;
  bool looked_up = false;
  int64_t experts = 0;                                  // above 0: number of experts, each with its own rows
  std::vector<std::pair<int64_t, int64_t>> parts = {};  // slices of y's last axis that steps take, sorted
};

class LowRankTerms {
 public:
  // `trained` may be null. `training`: dropout is active.
  LowRankTerms(const AdaptedWeights& adapted, const TrainedAdapter* trained, Tracer& tracer, bool training);
  // Records that a step has read the weight of this key.
  void read(const HTensor& weight, const std::string& key);
  // Returns y, the result of mapping x by the weight, plus the terms of adapters.
  HTensor added(const HTensor& y, const HTensor& x, const HTensor& weight);
  // Returns y, the result of mapping groups of rows by experts, plus the terms of adapters. Groups are those of
  // grouped_linear.
  HTensor added_by_experts(const HTensor& y, const HTensor& rows, const HTensor& offsets, const std::string& key,
                           int64_t experts);
  // Returns whether adapters scale y, so that a bias must be added afterwards.
  bool scale(const HTensor& weight) const;
  // Returns `rows`, looked up in the table by `ids`, plus the terms of adapters.
  HTensor looked_up(const HTensor& rows, const HTensor& ids, const HTensor& table);
  const std::vector<TracedMap>& maps() const { return maps_; }

 private:
  using Pairs = std::vector<const TrainedPair*>;
  std::string key_of(const HTensor& weight) const;
  HTensor with_frozen(const AdaptedWeight& pair, const HTensor& y, const HTensor& x);
  HTensor with_frozen_experts(const AdaptedWeight& pair, const HTensor& y, const HTensor& rows, const HTensor& offsets,
                              int64_t experts);
  HTensor with_trained(const Pairs& pairs, const HTensor& y, const HTensor& x, const HTensor& weight);
  // Returns factor · x Aᵀ for one pair. In training, all pairs of a group share one product.
  HTensor narrow(const TrainedPair& pair, const HTensor& x);
  HTensor narrow_of_experts(const TrainedPair& pair, const HTensor& rows, const HTensor& offsets);
  // Returns the part of the group's product that belongs to the pair.
  HTensor own_part(const TrainedPair& pair, const HTensor& product) const;
  HTensor dropped(const std::string& group, const HTensor& x);
  // DoRA: returns the trained row norms divided by those of the weight with its adapter.
  HTensor lengths(const TrainedPair& pair, const HTensor& weight, DType dtype);
  HTensor parameter(const std::string& name, const Shape& shape, DType dtype);

  const AdaptedWeights& adapted_;
  Tracer& tracer_;
  bool training_ = false;
  double dropout_ = 0;
  std::map<std::string, Pairs> trained_, groups_;                // by key, and by group
  std::map<ValueId, std::string> keys_;                          // by weight: the key last passed to read()
  std::map<std::pair<std::string, ValueId>, HTensor> products_;  // x Aᵀ, by name of A or group, and x
  std::map<std::pair<std::string, ValueId>, HTensor> dropped_;
  std::vector<TracedMap> maps_;
};

}  // namespace harmonics::engine
