#include "engine/plugin/kinds.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/core.h>

#include <harmonics/augmentation_abi.h>
#include <harmonics/exporter_abi.h>
#include <harmonics/functional_abi.h>
#include <harmonics/importer_abi.h>
#include <harmonics/metric_abi.h>
#include <harmonics/policy_abi.h>
#include <harmonics/training_abi.h>

namespace harmonics::engine {

namespace {

template <typename Table>
void destroy_with(const void* vtable, void* self) {
  const auto& table = *static_cast<const Table*>(vtable);
  if (table.struct_size >= offsetof(Table, destroy) + sizeof table.destroy && table.destroy) table.destroy(self);
}

#define HM_LACKS(Table, table, member) \
  ((table).struct_size < offsetof(Table, member) + sizeof((table).member) || !(table).member)

#define HM_MISSING(Table, member)                              \
  [](const void* vtable) -> const char* {                      \
    const auto& table = *static_cast<const Table*>(vtable);    \
    return HM_LACKS(Table, table, member) ? #member : nullptr; \
  },                                                           \
      destroy_with<Table>

const char* missing_of_importer(const void* vtable) {
  const auto& table = *static_cast<const hx_importer_vt*>(vtable);
  if (HM_LACKS(hx_importer_vt, table, probe)) return "probe";
  if (HM_LACKS(hx_importer_vt, table, open)) return "open";
  return HM_LACKS(hx_importer_vt, table, close) ? "close" : nullptr;
}

const char* missing_of_exporter(const void* vtable) {
  const auto& table = *static_cast<const hx_exporter_vt*>(vtable);
  if (HM_LACKS(hx_exporter_vt, table, probe)) return "probe";
  return HM_LACKS(hx_exporter_vt, table, write) ? "write" : nullptr;
}

const char* missing_of_tokenizer(const void* vtable) {
  const auto& table = *static_cast<const hx_tokenizer_vt*>(vtable);
  if (HM_LACKS(hx_tokenizer_vt, table, probe)) return "probe";
  if (HM_LACKS(hx_tokenizer_vt, table, open)) return "open";
  if (HM_LACKS(hx_tokenizer_vt, table, describe)) return "describe";
  if (HM_LACKS(hx_tokenizer_vt, table, encode)) return "encode";
  if (HM_LACKS(hx_tokenizer_vt, table, decode)) return "decode";
  return HM_LACKS(hx_tokenizer_vt, table, close) ? "close" : nullptr;
}

constexpr KindRow kRows[] = {
    {HX_ACTIVATION, "activation", "activations", "functions", HM_MISSING(hx_activation_vt, apply)},
    {HX_LOSS, "loss", "losses", "losses", HM_MISSING(hx_loss_vt, apply)},
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
    {HX_IMPORTER, "importer", "importers", "importers", missing_of_importer, destroy_with<hx_importer_vt>,
     HX_IMPORTER_EXTENSION},
    {HX_EXPORTER, "exporter", "exporters", "exporters", missing_of_exporter, destroy_with<hx_exporter_vt>,
     HX_EXPORTER_EXTENSION},
    {HX_TOKENIZER, "tokenizer", "tokenizers", "tokenizers", missing_of_tokenizer, destroy_with<hx_tokenizer_vt>,
     HX_TOKENIZER_EXTENSION},
    {HX_POLICY, "policy", "policies", "policies", HM_MISSING(hx_policy_vt, decide), HX_POLICY_EXTENSION},
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

std::string plugin_help(uint32_t kind, std::string_view does) {
  return fmt::format("load a plugin that {} it with --plugin PATH; 'harmonics list {}' lists the known ones", does,
                     kind_row(kind).listed);
}

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
