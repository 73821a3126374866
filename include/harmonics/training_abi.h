/* Items of kind HX_OPTIMIZER, HX_SCHEDULE and HX_PREDICATE: C11, append-only, with the rules of abi.h. */
#ifndef HARMONICS_TRAINING_ABI_H
#define HARMONICS_TRAINING_ABI_H

#include <harmonics/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- optimizers: the first argument of the schema is "lr", a number with a default ------------------------------ */

enum {
  HX_PARAMETER_HIDDEN = 1 /* neither an embedding table nor a parameter of an arrow into a tapped layer */
};

typedef struct hx_parameter {
  uint32_t struct_size;
  uint32_t flags; /* HX_PARAMETER_... */
  const char* name;
  hx_type type;
} hx_parameter;

typedef struct hx_moment { /* optimizer state of a parameter, initially zero */
  const char* name;        /* "m"; owned by the optimizer, valid until its next call */
  hx_type type;
} hx_moment;

typedef struct hx_update { /* one update of one parameter; all values are traced */
  uint32_t struct_size;
  uint32_t n_moments;
  hx_value *value, *gradient;
  hx_value* rate; /* f32 scalar: the learning rate of this step */
  hx_value* step; /* i64 scalar: its number, from 1 */
  hx_value* const* moments;
} hx_update;

#define HX_MAX_MOMENTS 8

typedef struct hx_optimizer_vt {
  uint32_t struct_size;
  /* Returns the moments of a parameter; `out` has room for HX_MAX_MOMENTS. Pure. */
  hx_status (*moments)(void* self, const hx_attributes* args, const hx_parameter* parameter, hx_moment* out,
                       uint32_t* count);
  /* Returns the parameter's next value, then the next values of the moments, of their types. Uses hx_api.apply: it is
   * traced as part of the program and cannot read values. */
  hx_status (*step)(void* self, const hx_attributes* args, const hx_parameter* parameter, const hx_update* update,
                    hx_value** next);
  void (*destroy)(void* self);
} hx_optimizer_vt;

/* ---- schedules ----------------------------------------------------------------------------------------------------
 */

typedef struct hx_run_point {
  uint32_t struct_size;
  uint32_t flags;  /* reserved, 0 */
  int64_t step;    /* from 0 */
  int64_t steps;   /* of the whole run; 0: unknown */
  double progress; /* from 0 to 1, by steps or by time; below 0: the end is unknown */
} hx_run_point;

typedef struct hx_schedule_vt {
  uint32_t struct_size;
  /* Returns the factor of the learning rate, at least 0. Pure. */
  hx_status (*factor)(void* self, const hx_attributes* args, const hx_run_point* point, double* out);
  void (*destroy)(void* self);
} hx_schedule_vt;

/* ---- predicates ---------------------------------------------------------------------------------------------------
 */

typedef struct hx_run_view {
  uint32_t struct_size;
  uint32_t flags;               /* reserved, 0 */
  int64_t step, epoch, samples; /* finished so far */
  const void* run;
  /* Returns the value of "loss", "output.accuracy" ...; HX_DECLINED while it has none. */
  hx_status (*metric)(const void* run, const char* name, double* out);
} hx_run_view;

typedef struct hx_predicate_vt {
  uint32_t struct_size;
  /* Returns 0 or 1. Called before every step. Must depend only on the arguments and the run, unless HX_BY_CLOCK is
   * set. */
  hx_status (*holds)(void* self, const hx_attributes* args, const hx_run_view* run, int32_t* out);
  void (*destroy)(void* self);
} hx_predicate_vt;

#ifdef __cplusplus
}
#endif
#endif
