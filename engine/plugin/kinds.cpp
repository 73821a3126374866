#include "engine/plugin/kinds.hpp"

#include <algorithm>
#include <cstddef>

#include <harmonics/augmentation_abi.h>
#include <harmonics/functional_abi.h>
#include <harmonics/metric_abi.h>
#include <harmonics/training_abi.h>

namespace harmonics::engine {

namespace {

template <typename Table>
void destroy_with(const void* vtable, void* self) {
  const auto& table = *static_cast<const Table*>(vtable);
  if (table.struct_size >= offsetof(Table, destroy) + sizeof table.destroy && table.destroy) table.destroy(self);
}

#define HM_MISSING(Table, member)                                                           \
  [](const void* vtable) -> const char* {                                                   \
    const auto& table = *static_cast<const Table*>(vtable);                                 \
    const bool there = table.struct_size >= offsetof(Table, member) + sizeof(table.member); \
    return there && table.member ? nullptr : #member;                                       \
  },                                                                                        \
      destroy_with<Table>

constexpr KindRow kRows[] = {
    {HX_ACTIVATION, "activation", "activations", "functions", HM_MISSING(hx_activation_vt, apply)},
    {HX_LOSS, "loss", "losses", "functions", HM_MISSING(hx_loss_vt, apply)},
    {HX_LAYER, "layer", "layers", "functions", HM_MISSING(hx_layer_vt, apply)},
    {HX_PRODUCER, "producer", "producers", "producers", HM_MISSING(hx_producer_factory_vt, open)},
    {HX_CONSUMER, "consumer", "consumers", "consumers", HM_MISSING(hx_consumer_factory_vt, open)},
    {HX_DEVICE, "device", "devices", "devices", HM_MISSING(hx_device_vt, find)},
    {HX_METRIC, "metric", "metrics", "metrics", HM_MISSING(hx_metric_factory_vt, open)},
    {HX_FUNCTIONAL, "functional", "functionals", "functionals", HM_MISSING(hx_functional_vt, apply)},
    {HX_IMPLEMENTATION, "implementation", "implementations", "implementations",
     HM_MISSING(hx_implementation_vt, supports)},
    {HX_OPTIMIZER, "optimizer", "optimizers", "optimizers", HM_MISSING(hx_optimizer_vt, step)},
    {HX_SCHEDULE, "schedule", "schedules", "schedules", HM_MISSING(hx_schedule_vt, factor)},
    {HX_PREDICATE, "predicate", "predicates", "predicates", HM_MISSING(hx_predicate_vt, holds)},
    {HX_AUGMENTATION, "augmentation", "augmentations", "augmentations", HM_MISSING(hx_augmentation_vt, apply)},
};

}  // namespace

std::span<const KindRow> kind_rows() { return kRows; }

bool is_item_name(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (text.empty() || !letter(text[0])) return false;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '+' || c == '-'; });
}

const KindRow& kind_row(uint32_t kind) {
  for (const KindRow& row : kRows)
    if (row.kind == kind) return row;
  throw Error(ErrorKind::Internal, "no kind of item has the number " + std::to_string(kind));
}

std::string_view kind_name(uint32_t kind) { return kind_row(kind).name; }
std::string_view kind_plural(uint32_t kind) { return kind_row(kind).plural; }

uint32_t kind_named(std::string_view name) {
  for (const KindRow& row : kRows)
    if (row.name == name || row.plural == name) return row.kind;
  return 0;
}

std::vector<uint32_t> item_kinds() {
  std::vector<uint32_t> all;
  for (const KindRow& row : kRows) all.push_back(row.kind);
  return all;
}

std::string missing_function(uint32_t kind, const void* vtable) {
  const char* missing = kind_row(kind).missing(vtable);
  return missing ? missing : "";
}

}  // namespace harmonics::engine
