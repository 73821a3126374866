// Contract 1 is frozen: sizes, offsets and values at the binary interface. A later minor version only adds lines.
#include <cstddef>

#include <catch2/catch.hpp>

#include <harmonics/augmentation_abi.h>
#include <harmonics/functional_abi.h>
#include <harmonics/exporter_abi.h>
#include <harmonics/importer_abi.h>
#include <harmonics/metric_abi.h>
#include <harmonics/policy_abi.h>
#include <harmonics/training_abi.h>

#include "engine/plugin/kinds.hpp"

#define AT(type, member, offset) static_assert(offsetof(type, member) == (offset), #type "." #member)
#define SIZE(type, size) static_assert(sizeof(type) == (size), #type)

static_assert(sizeof(void*) == 8, "the numbers below are those of 64-bit machines");
static_assert(HX_ABI_MAJOR == 1 && HX_MAX_RANK == 8 && HX_MAX_PHASES == 4 && HX_MAX_RESULTS == 16 &&
                  HX_MAX_MOMENTS == 8 && HX_MAX_LOOP_RESULTS == 64,
              "");

SIZE(hx_type, 72);
AT(hx_type, rank, 4);
AT(hx_type, dims, 8);
SIZE(hx_attribute, 24);
AT(hx_attribute, kind, 8);
AT(hx_attribute, count, 12);
AT(hx_attribute, as, 16);
SIZE(hx_attributes, 16);
AT(hx_attributes, count, 8);
SIZE(hx_init, 24);
AT(hx_init, a, 8);
AT(hx_init, b, 16);
SIZE(hx_argument_spec, 40);
AT(hx_argument_spec, type, 4);
AT(hx_argument_spec, name, 8);
AT(hx_argument_spec, default_text, 16);
AT(hx_argument_spec, description, 24);
AT(hx_argument_spec, range, 32);
SIZE(hx_item, 56);
AT(hx_item, kind, 4);
AT(hx_item, flags, 8);
AT(hx_item, n_arguments, 12);
AT(hx_item, name, 16);
AT(hx_item, description, 24);
AT(hx_item, arguments, 32);
AT(hx_item, self, 40);
AT(hx_item, vtable, 48);
SIZE(hx_activation_vt, 40);  // 32 up to contract 1.4
AT(hx_activation_vt, apply, 8);
AT(hx_activation_vt, gradient, 16);
AT(hx_activation_vt, destroy, 24);
AT(hx_activation_vt, metadata, 32);
SIZE(hx_text, 16);
SIZE(hx_native, 32);
AT(hx_native, driver, 4);
AT(hx_native, device, 8);
AT(hx_native, context, 16);
AT(hx_native, queue, 24);
SIZE(hx_loss_vt, 40);
AT(hx_loss_vt, apply, 8);
AT(hx_loss_vt, apply_fused, 16);
AT(hx_loss_vt, gradient, 24);
AT(hx_loss_vt, destroy, 32);
SIZE(hx_layer_vt, 24);
AT(hx_layer_vt, apply, 8);
AT(hx_layer_vt, destroy, 16);
SIZE(hx_stream_info, 120);
AT(hx_stream_info, position_axes, 4);
AT(hx_stream_info, sample, 8);
AT(hx_stream_info, size, 80);
AT(hx_stream_info, classes, 88);
AT(hx_stream_info, live, 96);
AT(hx_stream_info, n_symbols, 100);
AT(hx_stream_info, symbols, 104);
AT(hx_stream_info, notes, 112);
SIZE(hx_producer_vt, 120);
SIZE(hx_sample_number, 16);
AT(hx_sample_number, sender, 8);
AT(hx_producer_vt, describe, 8);
AT(hx_producer_vt, next, 16);
AT(hx_producer_vt, read, 24);
AT(hx_producer_vt, rewind, 32);
AT(hx_producer_vt, restore, 72);
AT(hx_producer_vt, position, 80);
AT(hx_producer_vt, durable, 88);
AT(hx_producer_vt, cancel, 96);
AT(hx_producer_vt, health, 104);
AT(hx_producer_vt, numbers, 112);
SIZE(hx_stream_health, 360);
AT(hx_stream_health, samples, 24);
AT(hx_stream_health, idle_seconds, 96);
AT(hx_stream_health, last_error, 104);
AT(hx_producer_vt, size, 40);
AT(hx_producer_vt, destroy, 48);
AT(hx_producer_vt, read_at, 56);
AT(hx_producer_vt, seek, 64);
SIZE(hx_consumer_vt, 32);
AT(hx_consumer_vt, push, 8);
AT(hx_consumer_vt, finish, 16);
AT(hx_consumer_vt, destroy, 24);
SIZE(hx_producer_factory_vt, 24);
AT(hx_producer_factory_vt, open, 8);
AT(hx_producer_factory_vt, destroy, 16);
SIZE(hx_consumer_factory_vt, 24);
AT(hx_consumer_factory_vt, open, 8);
AT(hx_consumer_factory_vt, destroy, 16);
SIZE(hx_scalar_op, 24);
AT(hx_scalar_op, a, 8);
AT(hx_scalar_op, dtype, 20);
SIZE(hx_call_site, 104);  // 80 up to contract 1.4
AT(hx_call_site, flags, 4);
AT(hx_call_site, op, 8);
AT(hx_call_site, attributes, 16);
AT(hx_call_site, n_inputs, 24);
AT(hx_call_site, n_outputs, 28);
AT(hx_call_site, inputs, 32);
AT(hx_call_site, outputs, 40);
AT(hx_call_site, n_chain, 48);
AT(hx_call_site, chain, 56);
AT(hx_call_site, chain_outputs, 64);
AT(hx_call_site, device, 72);
AT(hx_call_site, constants, 80);
AT(hx_call_site, native, 88);
AT(hx_call_site, changed_bytes, 96);
SIZE(hx_kernel, 136);  // 88 up to contract 1.4
AT(hx_kernel, phases, 4);
AT(hx_kernel, parts, 8);
AT(hx_kernel, run, 24);
AT(hx_kernel, context, 32);
AT(hx_kernel, destroy, 40);
AT(hx_kernel, workspace, 48);
AT(hx_kernel, name, 56);
AT(hx_kernel, in_place, 64);
AT(hx_kernel, enqueue, 72);
AT(hx_kernel, enqueue_if_finite, 80);
AT(hx_kernel, packed_bytes, 88);
AT(hx_kernel, packed_piece, 96);
AT(hx_kernel, pack, 104);
AT(hx_kernel, packing, 112);
AT(hx_kernel, packed_input, 120);
AT(hx_kernel, enqueue_native, 128);
SIZE(hx_place, 16);
AT(hx_place, offset, 8);
SIZE(hx_device_info, 1064);
AT(hx_device_info, memory, 8);
AT(hx_device_info, most_bytes, 24);
AT(hx_device_info, alignment, 32);
AT(hx_device_info, name, 40);
AT(hx_device_info, driver, 168);
AT(hx_device_info, capability, 296);
AT(hx_device_info, unavailable, 552);
SIZE(hx_device_vt, 240);  // 224 up to contract 1.4
AT(hx_device_vt, describe, 8);
AT(hx_device_vt, find, 16);
AT(hx_device_vt, destroy, 24);
AT(hx_device_vt, flags, 32);
AT(hx_device_vt, info, 40);
AT(hx_device_vt, open_queue, 48);
AT(hx_device_vt, close_queue, 56);
AT(hx_device_vt, allocate, 64);
AT(hx_device_vt, release, 72);
AT(hx_device_vt, upload, 80);
AT(hx_device_vt, download, 88);
AT(hx_device_vt, copy, 96);
AT(hx_device_vt, synchronize, 104);
AT(hx_device_vt, submit, 112);
AT(hx_device_vt, allocate_host, 120);
AT(hx_device_vt, release_host, 128);
AT(hx_device_vt, record, 136);
AT(hx_device_vt, wait, 144);
AT(hx_device_vt, release_event, 152);
AT(hx_device_vt, begin_capture, 160);
AT(hx_device_vt, end_capture, 168);
AT(hx_device_vt, launch, 176);
AT(hx_device_vt, release_capture, 184);
AT(hx_device_vt, record_time, 192);
AT(hx_device_vt, elapsed, 200);
AT(hx_device_vt, copy_if_finite, 208);
AT(hx_device_vt, await_event, 216);
AT(hx_device_vt, native, 224);
AT(hx_device_vt, wrap, 232);
SIZE(hx_loop_body, 24);
AT(hx_loop_body, step, 8);
AT(hx_loop_body, self, 16);
SIZE(hx_api, 184);
AT(hx_api, abi_major, 4);
AT(hx_api, abi_minor, 6);
AT(hx_api, last_error, 8);
AT(hx_api, set_error, 16);
AT(hx_api, retain, 24);
AT(hx_api, release, 32);
AT(hx_api, create, 40);
AT(hx_api, type_of, 48);
AT(hx_api, data, 56);
AT(hx_api, mutable_data, 64);
AT(hx_api, apply, 72);
AT(hx_api, scope_parameter, 80);
AT(hx_api, scope_state, 88);
AT(hx_api, scope_update, 96);
AT(hx_api, scope_random, 104);
AT(hx_api, scope_training, 112);
AT(hx_api, scope_leading, 120);
AT(hx_api, scope_width, 128);
AT(hx_api, scope_classes, 136);
AT(hx_api, register_item, 144);
AT(hx_api, extension, 152);
AT(hx_api, scope_set_leading, 160);
AT(hx_api, scan, 168);
AT(hx_api, report_figure, 176);
SIZE(hx_registration, 24);
AT(hx_registration, api, 8);
AT(hx_registration, registry, 16);
SIZE(hx_plugin_abi, 252);
AT(hx_plugin_abi, struct_size, 8);
AT(hx_plugin_abi, abi_major, 12);
AT(hx_plugin_abi, abi_minor, 14);
AT(hx_plugin_abi, abi_min_minor, 16);
AT(hx_plugin_abi, flags, 18);
AT(hx_plugin_abi, id, 20);
AT(hx_plugin_abi, version, 84);
AT(hx_plugin_abi, license, 108);
AT(hx_plugin_abi, vendor, 140);
AT(hx_plugin_abi, built_with, 188);
SIZE(hx_metric_batch, 64);
AT(hx_metric_batch, rows, 8);
AT(hx_metric_batch, outputs, 16);
AT(hx_metric_batch, classes, 24);
AT(hx_metric_batch, predictions, 32);
AT(hx_metric_batch, labels, 40);
AT(hx_metric_batch, targets, 48);
AT(hx_metric_batch, activation, 56);
SIZE(hx_figure, 16);
AT(hx_figure, value, 8);
SIZE(hx_metric_vt, 64);
AT(hx_metric_vt, add, 8);
AT(hx_metric_vt, reset, 16);
AT(hx_metric_vt, figures, 24);
AT(hx_metric_vt, table, 32);
AT(hx_metric_vt, destroy, 40);
AT(hx_metric_vt, save, 48);
AT(hx_metric_vt, restore, 56);
SIZE(hx_metric_factory_vt, 24);
AT(hx_metric_factory_vt, open, 8);
AT(hx_metric_factory_vt, destroy, 16);
SIZE(hx_gradient_call, 40);
AT(hx_gradient_call, n_inputs, 4);
AT(hx_gradient_call, n_outputs, 8);
AT(hx_gradient_call, inputs, 16);
AT(hx_gradient_call, outputs, 24);
AT(hx_gradient_call, output_gradients, 32);
SIZE(hx_functional_vt, 40);
AT(hx_functional_vt, apply, 8);
AT(hx_functional_vt, gradient, 16);
AT(hx_functional_vt, destroy, 24);
AT(hx_functional_vt, signature, 32);
SIZE(hx_implementation_vt, 56);
AT(hx_implementation_vt, supports, 8);
AT(hx_implementation_vt, find, 16);
AT(hx_implementation_vt, run, 24);
AT(hx_implementation_vt, find_gradient, 32);
AT(hx_implementation_vt, run_gradient, 40);
AT(hx_implementation_vt, destroy, 48);
SIZE(hx_parameter, 88);
AT(hx_parameter, flags, 4);
AT(hx_parameter, name, 8);
AT(hx_parameter, type, 16);
SIZE(hx_moment, 80);
AT(hx_moment, type, 8);
SIZE(hx_update, 48);
AT(hx_update, n_moments, 4);
AT(hx_update, value, 8);
AT(hx_update, gradient, 16);
AT(hx_update, rate, 24);
AT(hx_update, step, 32);
AT(hx_update, moments, 40);
SIZE(hx_optimizer_vt, 32);
AT(hx_optimizer_vt, moments, 8);
AT(hx_optimizer_vt, step, 16);
AT(hx_optimizer_vt, destroy, 24);
SIZE(hx_run_point, 32);
AT(hx_run_point, step, 8);
AT(hx_run_point, steps, 16);
AT(hx_run_point, progress, 24);
SIZE(hx_schedule_vt, 24);
AT(hx_schedule_vt, factor, 8);
AT(hx_schedule_vt, destroy, 16);
SIZE(hx_run_view, 48);
AT(hx_run_view, step, 8);
AT(hx_run_view, epoch, 16);
AT(hx_run_view, samples, 24);
AT(hx_run_view, run, 32);
AT(hx_run_view, metric, 40);
SIZE(hx_predicate_vt, 24);
AT(hx_predicate_vt, holds, 8);
AT(hx_predicate_vt, destroy, 16);
SIZE(hx_draw, 24);
AT(hx_draw, ordinal, 4);
AT(hx_draw, key, 8);
AT(hx_draw, record, 16);
SIZE(hx_augmentation_vt, 32);
AT(hx_augmentation_vt, result_type, 8);
AT(hx_augmentation_vt, apply, 16);
AT(hx_augmentation_vt, destroy, 24);

static_assert(HX_OK == 0 && HX_ERROR == 1 && HX_NEEDS_VALUES == 2 && HX_END == 3 && HX_DECLINED == 4 &&
                  HX_NEEDS_WIDTH == 5,
              "");
static_assert(HX_BOOL == 0 && HX_U8 == 1 && HX_I32 == 5 && HX_I64 == 7 && HX_F16 == 9 && HX_BF16 == 10 &&
                  HX_F32 == 11 && HX_F64 == 12 && HX_F8_E4M3 == 13 && HX_F8_E5M2 == 14 && HX_NF4 == 15 && HX_I4 == 16 &&
                  HX_Q8_0 == 17 && HX_Q4_0 == 18 && HX_Q4_K == 19 && HX_Q6_K == 20 && HX_Q4_1 == 21 && HX_Q5_0 == 22 &&
                  HX_Q5_1 == 23 && HX_Q2_K == 24 && HX_Q3_K == 25 && HX_Q5_K == 26 && HX_IQ4_NL == 27 &&
                  HX_MXFP4 == 28 && HX_IQ4_XS == 29 && HX_NF4_64 == 30 && HX_FP4_64 == 31 && HX_E4M3_64 == 32,
              "");
static_assert(HX_ACTIVATION == 1 && HX_LOSS == 2 && HX_LAYER == 3 && HX_PRODUCER == 4 && HX_CONSUMER == 5 &&
                  HX_DEVICE == 6 && HX_METRIC == 7 && HX_FUNCTIONAL == 8 && HX_IMPLEMENTATION == 9 &&
                  HX_OPTIMIZER == 10 && HX_SCHEDULE == 11 && HX_PREDICATE == 12 && HX_AUGMENTATION == 13 &&
                  HX_IMPORTER == 14 && HX_EXPORTER == 15,
              "");
static_assert(HX_TAKES_CLASSES == 1 && HX_SHIFTS_TARGET == 2 && HX_IDENTITY_SKIP == 4 && HX_MODE_ONLY == 8 &&
                  HX_AFTER_MAP == 16 && HX_TWO_CLASSES_IN_ONE == 32 && HX_TAKES_NUMBERS == 64 &&
                  HX_OWN_GRADIENT == 128 && HX_NEEDS_END == 256 && HX_BY_CLOCK == 512 && HX_UPDATE == 1024 &&
                  HX_BLOCK_WRITE == 2048 && HX_ORDER_FREE == 4096,
              "");
static_assert(HX_ARG_INT == 1 && HX_ARG_FLOAT == 2 && HX_ARG_BOOL == 3 && HX_ARG_STRING == 4 && HX_ARG_INTS == 5 &&
                  HX_ARG_LAYER == 6,
              "");
static_assert(HX_ATTR_INT == 1 && HX_ATTR_FLOAT == 2 && HX_ATTR_STRING == 3 && HX_ATTR_BOOL == 4 && HX_ATTR_INTS == 5 &&
                  HX_ATTR_FLOATS == 6 && HX_ATTR_VALUE == 7 && HX_ATTR_TEXTS == 8 && HX_NATIVE_NONE == 0 &&
                  HX_NATIVE_OPENCL == 1 && HX_NATIVE_CUDA == 2,
              "");
static_assert(HX_SITE_FP16_CHUNKS == 1 && HX_SITE_TRAINING == 2 && HX_SITE_BF16 == 4 && HX_SITE_FP8 == 8 &&
                  HX_PARAMETER_HIDDEN == 1,
              "");

TEST_CASE("contract: the advertised kinds are those with a row") {
  std::vector<uint32_t> kinds;
  for (uint32_t kind = HX_ACTIVATION; kind <= static_cast<uint32_t>(HX_AUGMENTATION); ++kind) kinds.push_back(kind);
  kinds.push_back(HX_IMPORTER);
  kinds.push_back(HX_EXPORTER);
  kinds.push_back(HX_TOKENIZER);
  kinds.push_back(HX_POLICY);
  CHECK(harmonics::engine::item_kinds() == kinds);
  CHECK(harmonics::engine::kind_named("importer") == static_cast<uint32_t>(HX_IMPORTER));
  CHECK(harmonics::engine::kind_named("exporters") == static_cast<uint32_t>(HX_EXPORTER));
}

TEST_CASE("contract: extensions are found by name and version") {
  const hx_api* api = harmonics_api();
  for (const char* id : {HX_IMPORTER_EXTENSION, HX_EXPORTER_EXTENSION, HX_TOKENIZER_EXTENSION, HX_POLICY_EXTENSION}) {
    INFO(id);
    const auto* found = static_cast<const hx_item_extension*>(api->extension(id));
    REQUIRE(found);
    CHECK(found->struct_size == sizeof(hx_item_extension));
    CHECK(found->register_item != nullptr);
  }
  for (const char* id : {"hx.importer/1", "hx.importer", "hx.exporter/1", "", static_cast<const char*>(nullptr)})
    CHECK(api->extension(id) == nullptr);
}
