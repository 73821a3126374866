/* Items of kind HX_METRIC: C11, append-only, with the rules of abi.h. */
#ifndef HARMONICS_METRIC_ABI_H
#define HARMONICS_METRIC_ABI_H

#include <harmonics/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Predictions and targets, row by row: samples, times positions if there are any. */
typedef struct hx_metric_batch {
  uint32_t struct_size;
  uint32_t flags; /* reserved, 0 */
  uint64_t rows;
  uint64_t outputs;         /* numbers per prediction */
  uint64_t classes;         /* of labels: equal to outputs, or 2 if the only output is the probability of the second */
  const float* predictions; /* [rows, outputs] */
  const int32_t* labels;    /* [rows], each below classes; NULL: targets are given */
  const float* targets;     /* [rows, outputs]; NULL: labels are given */
  const char* activation;   /* identity ("plugin-id/name") of the arrow's last function; "": none */
} hx_metric_batch;

typedef struct hx_figure {
  const char* name; /* "accuracy", "f1.3" */
  double value;     /* NaN: undefined for these data */
} hx_figure;

typedef struct hx_metric_vt { /* self is a metric object created by a factory, for one layer */
  uint32_t struct_size;
  hx_status (*add)(void* self, const hx_metric_batch* batch);
  hx_status (*reset)(void* self); /* clears the state for a new pass */
  /* Returns the values for all rows added since reset. Owned by the metric, valid until its next call. */
  hx_status (*figures)(void* self, const hx_figure** out, uint32_t* count);
  /* Optional: returns the confusion matrix, counts [side, side], truth by prediction; HX_DECLINED: none. Owned like
   * figures. */
  hx_status (*table)(void* self, const double** cells, uint32_t* side);
  void (*destroy)(void* self);
  /* Optional, both or neither. save: returns the state since the last reset, for a checkpoint; owned like figures;
   * HX_DECLINED: unsupported. restore: called before the first rows, for a metric with the same arguments, possibly in
   * another process. */
  hx_status (*save)(void* self, const void** bytes, uint64_t* size);
  hx_status (*restore)(void* self, const void* bytes, uint64_t size);
} hx_metric_vt;

/* The vtable of an item of kind HX_METRIC. */
typedef struct hx_metric_factory_vt {
  uint32_t struct_size;
  hx_status (*open)(void* self, const hx_attributes* args, const hx_metric_vt** vt, void** object);
  void (*destroy)(void* self);
} hx_metric_factory_vt;

#ifdef __cplusplus
}
#endif
#endif
