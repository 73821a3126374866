// What adapters add to the linear maps of one trace.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <harmonics/tensor.hpp>

#include "engine/program/tracer.hpp"
#include "engine/transformer/trained_adapter.hpp"

namespace harmonics::engine {

// An adapted weight whose adapters do not change: rows from .. from + rank of the parameter `a`, which has `rows`, and
// the parameter `b`. A table of rows that are looked up has an `a` of its own, [rows of the table, rank].
struct AdaptedWeight {
  std::string a, b;
  int64_t rows = 0, from = 0, rank = 0;  // of experts those of each
  std::string factor = {};               // DoRA: [rows of the weight], multiplies the sum of both maps
  bool looked_up = false;                // a table: what a head computes with it stays as it is
};
using AdaptedWeights = std::map<std::string, AdaptedWeight>;  // by the key of BoundWeight

// A linear map of a trace, or a lookup of rows.
struct TracedMap {
  ValueId x;
  std::string key;  // "" if the weight is not one that a step named
  ValueId y;
  bool looked_up = false;
  int64_t experts = 0;                                  // above 0: each maps rows of its own
  std::vector<std::pair<int64_t, int64_t>> parts = {};  // slices of y's last axis that steps take, by their begin
};

class LowRankTerms {
 public:
  // `trained` may be null. `training`: dropout drops.
  LowRankTerms(const AdaptedWeights& adapted, const TrainedAdapter* trained, Tracer& tracer, bool training);
  // A step read the weight of this key.
  void read(const HTensor& weight, const std::string& key);
  // y, the map of x by the weight, with what the adapters add.
  HTensor added(const HTensor& y, const HTensor& x, const HTensor& weight);
  // y, the maps of groups of rows by the weights of `experts`, with what the adapters add. The groups are those of
  // grouped_linear.
  HTensor added_by_experts(const HTensor& y, const HTensor& rows, const HTensor& offsets, const std::string& key,
                           int64_t experts);
  // Whether adapters scale y, so that a bias must be added after them.
  bool scale(const HTensor& weight) const;
  // `rows` of the table, looked up by `ids`, with what the adapters add.
  HTensor looked_up(const HTensor& rows, const HTensor& ids, const HTensor& table);
  const std::vector<TracedMap>& maps() const { return maps_; }

 private:
  using Pairs = std::vector<const TrainedPair*>;
  std::string key_of(const HTensor& weight) const;
  HTensor with_frozen(const AdaptedWeight& pair, const HTensor& y, const HTensor& x);
  HTensor with_frozen_experts(const AdaptedWeight& pair, const HTensor& y, const HTensor& rows, const HTensor& offsets,
                              int64_t experts);
  HTensor with_trained(const Pairs& pairs, const HTensor& y, const HTensor& x, const HTensor& weight);
  // x Aᵀ times the factor, of one pair; those of a group are one product in training.
  HTensor narrow(const TrainedPair& pair, const HTensor& x);
  HTensor narrow_of_experts(const TrainedPair& pair, const HTensor& rows, const HTensor& offsets);
  // The part of the group's product that belongs to the pair.
  HTensor own_part(const TrainedPair& pair, const HTensor& product) const;
  HTensor dropped(const std::string& group, const HTensor& x);
  // DoRA: the lengths that the rows are trained to have, over those of the weight with its adapter.
  HTensor lengths(const TrainedPair& pair, const HTensor& weight, DType dtype);
  HTensor parameter(const std::string& name, const Shape& shape, DType dtype);

  const AdaptedWeights& adapted_;
  Tracer& tracer_;
  bool training_ = false;
  double dropout_ = 0;
  std::map<std::string, Pairs> trained_, groups_;                // by key, and by group
  std::map<ValueId, std::string> keys_;                          // the last one that read the weight
  std::map<std::pair<std::string, ValueId>, HTensor> products_;  // x Aᵀ, by A or group and x
  std::map<std::pair<std::string, ValueId>, HTensor> dropped_;
  std::vector<TracedMap> maps_;
};

}  // namespace harmonics::engine
