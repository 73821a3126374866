/* The things of kinds_v1.cpp once more, by the C contract alone. Frozen: see README.md. */
#include <harmonics/augmentation_abi.h>
#include <harmonics/functional_abi.h>
#include <harmonics/metric_abi.h>
#include <harmonics/training_abi.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef VARIANT
#define VARIANT "every"
#endif
#define EXPORTED __attribute__((visibility("default")))
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

EXPORTED const hx_plugin_abi harmonics_plugin_abi = {
    "HXPLUG1", sizeof(hx_plugin_abi),  HX_ABI_MAJOR, HX_ABI_MINOR, HX_ABI_MIN_MINOR,
    0,         "org.example." VARIANT, "1.0.0",      "MIT",        "Example",
    "C"};

static const hx_api* api;

/* ---- values: what a function here returns is the caller's to release; NULL after an error, and passed on as that ----
 */

static hx_value* operation(const char* name, const hx_attributes* attributes, hx_value* a, hx_value* b) {
  hx_value *inputs[2], *out = NULL;
  uint32_t n = 0, given = 0;
  inputs[0] = a, inputs[1] = b;
  n = b ? 2 : a ? 1 : 0;
  return api->apply(name, attributes, inputs, n, &out, 1, &given) == HX_OK ? out : NULL;
}
static void drop(hx_value* v) {
  if (v) api->release(v);
}
/* Takes both operands over where the flag says so. */
static hx_value* of_two(const char* name, hx_value* a, int own_a, hx_value* b, int own_b) {
  hx_value* out = a && b ? operation(name, NULL, a, b) : NULL;
  if (own_a) drop(a);
  if (own_b) drop(b);
  return out;
}
static hx_value* number_like(hx_value* x, double value) {
  hx_type t;
  hx_attribute items[3];
  hx_attributes all;
  if (!x || api->type_of(x, &t) != HX_OK) return NULL;
  memset(items, 0, sizeof items);
  items[0].name = "dtype", items[0].kind = HX_ATTR_INT, items[0].as.i = t.dtype;
  items[1].name = "shape", items[1].kind = HX_ATTR_INTS, items[1].count = t.rank, items[1].as.ints = t.dims;
  items[2].name = "value", items[2].kind = HX_ATTR_FLOAT, items[2].as.f = value;
  all.items = items, all.count = 3;
  return operation("full", &all, NULL, NULL);
}
static hx_value* scaled(hx_value* x, int own, double by) {
  hx_value* number = number_like(x, by);
  return of_two("mul", x, own, number, 1);
}
static hx_value* stretched(hx_value* x, hx_value* like) {
  hx_type t;
  hx_attribute shape;
  hx_attributes all;
  if (!x || api->type_of(like, &t) != HX_OK) return NULL;
  memset(&shape, 0, sizeof shape);
  shape.name = "shape", shape.kind = HX_ATTR_INTS, shape.count = t.rank, shape.as.ints = t.dims;
  all.items = &shape, all.count = 1;
  return operation("broadcast", &all, x, NULL);
}
static hx_status give(hx_value* v, hx_value** out) { return (*out = v) ? HX_OK : HX_ERROR; }

static double number(const hx_attributes* args, const char* name, double otherwise) {
  uint32_t i;
  for (i = 0; args && i < args->count; ++i)
    if (strcmp(args->items[i].name, name) == 0)
      return args->items[i].kind == HX_ATTR_FLOAT ? args->items[i].as.f : (double)args->items[i].as.i;
  return otherwise;
}
static int64_t count_of(const hx_type* t) {
  int64_t n = 1;
  uint32_t i;
  for (i = 0; i < t->rank; ++i) n *= t->dims[i];
  return n;
}

/* ---- functions of flows ---- */

static hx_status swish(void* self, const hx_attributes* args, hx_value* x, hx_value** y) {
  hx_value *inner = scaled(x, 0, number(args, "slope", 1)),
           *gate = inner ? operation("logistic", NULL, inner, NULL) : NULL;
  (void)self;
  drop(inner);
  return give(of_two("mul", x, 0, gate, 1), y);
}
static const hx_activation_vt swish_vt = {sizeof(hx_activation_vt), swish, NULL, NULL};

static hx_status half(void* self, const hx_attributes* args, hx_value* x, hx_value** y) {
  const void* from = NULL;
  hx_type t;
  hx_status status;
  float* to;
  int64_t i;
  (void)self, (void)args;
  if ((status = api->type_of(x, &t)) != HX_OK) return status;
  if ((status = api->data(x, &from)) != HX_OK) return status;
  if ((status = api->create(&t, from, y)) != HX_OK) return status;
  if ((status = api->mutable_data(y, (void**)&to)) != HX_OK) return drop(*y), *y = NULL, status;
  for (i = 0; i < count_of(&t); ++i) to[i] *= 0.5f;
  return HX_OK;
}
static hx_status half_gradient(void* self, const hx_attributes* args, hx_value* x, hx_value* y, hx_value* dy,
                               hx_value** dx) {
  (void)self, (void)args, (void)x, (void)y;
  api->retain(dy);
  return give(dy, dx);
}
static const hx_activation_vt half_vt = {sizeof(hx_activation_vt), half, half_gradient, NULL};

static hx_status square(void* self, const hx_attributes* args, hx_value* p, hx_value* t, hx_value** out) {
  hx_value *d = of_two("sub", p, 0, t, 0), *d2 = of_two("mul", d, 0, d, 0);
  (void)self;
  drop(d);
  return give(scaled(d2, 1, number(args, "weight", 1)), out);
}
static const hx_loss_vt square_vt = {sizeof(hx_loss_vt), square, NULL, NULL, NULL};

static hx_status gain(void* self, const hx_attributes* args, hx_scope* scope, hx_value* x, hx_value** y) {
  const hx_type one = {HX_F32, 1, {1}};
  const hx_init zero = {HX_INIT_CONSTANT, 0, 0};
  hx_init start = {HX_INIT_CONSTANT, 0, 0};
  hx_type t, of_gain = {HX_F32, 1, {0}};
  hx_value *steps = NULL, *next, *parameter = NULL, *wide;
  hx_status status;
  (void)self;
  start.a = number(args, "start", 1);
  if ((status = api->type_of(x, &t)) != HX_OK) return status;
  of_gain.dims[0] = t.dims[t.rank - 1];
  if ((status = api->scope_state(scope, "steps", &one, &zero, &steps)) != HX_OK) return status;
  if (api->scope_training(scope)) {
    hx_value* more = number_like(steps, 1);
    next = of_two("add", steps, 0, more, 1);
    status = next ? api->scope_update(scope, "steps", next) : HX_ERROR;
    drop(next);
  }
  drop(steps);
  if (status != HX_OK) return status;
  if ((status = api->scope_parameter(scope, "gain", &of_gain, &start, &parameter)) != HX_OK) return status;
  wide = stretched(parameter, x);
  drop(parameter);
  return give(of_two("mul", x, 0, wide, 1), y);
}
static const hx_layer_vt gain_vt = {sizeof(hx_layer_vt), gain, NULL};

/* ---- operations ---- */

static hx_status cube(void* self, const hx_attributes* args, hx_value* const* in, uint32_t n, hx_value** outs,
                      uint32_t* n_outs) {
  (void)self, (void)args, (void)n;
  *n_outs = 1;
  return give(of_two("mul", of_two("mul", in[0], 0, in[0], 0), 1, in[0], 0), outs);
}
static hx_status cube_gradient(void* self, const hx_attributes* args, const hx_gradient_call* c, hx_value** gradients) {
  hx_value* slope = scaled(of_two("mul", c->inputs[0], 0, c->inputs[0], 0), 1, 3);
  (void)self, (void)args;
  return give(of_two("mul", slope, 1, c->output_gradients[0], 0), gradients);
}
static const hx_functional_vt cube_vt = {sizeof(hx_functional_vt), cube, cube_gradient, NULL};

static hx_status blend(void* self, const hx_attributes* args, hx_value* const* in, uint32_t n, hx_value** outs,
                       uint32_t* n_outs) {
  const double part = number(args, "part", 0.5);
  (void)self;
  if (n != 2) return api->set_error(HX_ERROR_PLUGIN, "blends two inputs"), HX_ERROR;
  *n_outs = 1;
  return give(of_two("add", scaled(in[0], 0, part), 1, scaled(in[1], 0, 1 - part), 1), outs);
}
static const hx_functional_vt blend_vt = {sizeof(hx_functional_vt), blend, NULL, NULL};

static void run_cube(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const float* x = buffers[0];
  float* y = buffers[1];
  int64_t i;
  (void)phase, (void)part;
  for (i = 0; i < *(const int64_t*)context; ++i) y[i] = x[i] * x[i] * x[i];
}
static void run_cube_gradient(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const float *x = buffers[0], *dy = buffers[2];
  float* dx = buffers[3];
  int64_t i;
  (void)phase, (void)part;
  for (i = 0; i < *(const int64_t*)context; ++i) dx[i] = dy[i] * 3 * x[i] * x[i];
}
static hx_status fill(const hx_call_site* site, hx_kernel* out, const char* name,
                      void (*run)(const void*, void* const*, uint32_t, uint32_t)) {
  int64_t* n = malloc(sizeof *n);
  if (!n) return api->set_error(HX_ERROR_PLUGIN, "no memory"), HX_ERROR;
  *n = count_of(&site->inputs[0]);
  out->phases = 1, out->parts[0] = 1, out->run = run, out->context = n, out->destroy = free, out->name = name;
  return HX_OK;
}
static hx_status fast_supports(void* self, const hx_call_site* site) {
  (void)self;
  if (site->inputs[0].dtype == HX_F32) return HX_OK;
  return api->set_error(HX_ERROR_PLUGIN, "computes f32 only"), HX_DECLINED;
}
static hx_status fast_find(void* self, const hx_call_site* site, hx_kernel* out) {
  (void)self;
  return fill(site, out, VARIANT " cube", run_cube);
}
static hx_status fast_find_gradient(void* self, const hx_call_site* site, hx_kernel* out) {
  (void)self;
  return fill(site, out, VARIANT " cube gradient", run_cube_gradient);
}
static const hx_implementation_vt fast_vt = {sizeof(hx_implementation_vt), fast_supports, fast_find, NULL,
                                             fast_find_gradient,           NULL,          NULL};

static hx_status plain_supports(void* self, const hx_call_site* site) {
  (void)self;
  if (count_of(&site->inputs[0]) <= 64) return HX_OK;
  return api->set_error(HX_ERROR_PLUGIN, "takes at most 64 numbers"), HX_DECLINED;
}
/* out = with_dy ? dy 3 x^2 : x^3 */
static hx_status plainly(hx_value* x, hx_value* dy, hx_value** out) {
  const void *from = NULL, *slope = NULL;
  hx_type t;
  hx_status status;
  float* to;
  int64_t i;
  if ((status = api->type_of(x, &t)) != HX_OK || (status = api->data(x, &from)) != HX_OK) return status;
  if (dy && (status = api->data(dy, &slope)) != HX_OK) return status;
  if ((status = api->create(&t, NULL, out)) != HX_OK || (status = api->mutable_data(out, (void**)&to)) != HX_OK)
    return status;
  for (i = 0; i < count_of(&t); ++i) {
    const float v = ((const float*)from)[i];
    to[i] = dy ? ((const float*)slope)[i] * 3 * v * v : v * v * v;
  }
  return HX_OK;
}
static hx_status plain_run(void* self, const hx_call_site* site, hx_value* const* inputs, hx_value** outputs) {
  (void)self, (void)site;
  return plainly(inputs[0], NULL, outputs);
}
static hx_status plain_run_gradient(void* self, const hx_call_site* site, const hx_gradient_call* c,
                                    hx_value** gradients) {
  (void)self, (void)site;
  return plainly(c->inputs[0], c->output_gradients[0], gradients);
}
static const hx_implementation_vt plain_vt = {
    sizeof(hx_implementation_vt), plain_supports, NULL, plain_run, NULL, plain_run_gradient, NULL};

static const char* device_text(void* self) { return (void)self, "a device without kernels"; }
static hx_status device_find(void* self, const hx_call_site* site, hx_kernel* out) {
  return (void)self, (void)site, (void)out, HX_DECLINED;
}
static const hx_device_vt none_vt = {sizeof(hx_device_vt), device_text, device_find, NULL, NULL};

/* ---- training ---- */

static hx_status momentum_moments(void* self, const hx_attributes* args, const hx_parameter* p, hx_moment* out,
                                  uint32_t* count) {
  (void)self, (void)args;
  out[0].name = "v", out[0].type = p->type;
  *count = 1;
  return HX_OK;
}
static hx_status momentum_step(void* self, const hx_attributes* args, const hx_parameter* p, const hx_update* u,
                               hx_value** next) {
  hx_value *v = of_two("add", scaled(u->moments[0], 0, number(args, "momentum", 0.9)), 1, u->gradient, 0),
           *rate = stretched(u->rate, u->value);
  hx_value* moved = of_two("sub", u->value, 0, of_two("mul", rate, 1, v, 0), 1);
  (void)self, (void)p;
  if (!moved) return drop(v), HX_ERROR;
  next[0] = moved, next[1] = v;
  return HX_OK;
}
static const hx_optimizer_vt momentum_vt = {sizeof(hx_optimizer_vt), momentum_moments, momentum_step, NULL};

static hx_status halving(void* self, const hx_attributes* args, const hx_run_point* point, double* out) {
  (void)self;
  *out = pow(0.5, (double)(point->step / (int64_t)number(args, "every", 10)));
  return HX_OK;
}
static const hx_schedule_vt halving_vt = {sizeof(hx_schedule_vt), halving, NULL};

static hx_status first(void* self, const hx_attributes* args, const hx_run_view* run, int32_t* out) {
  double loss = 0;
  (void)self;
  if (run->step > 0 && run->metric(run->run, "loss", &loss) != HX_OK)
    return api->set_error(HX_ERROR_PLUGIN, "there is no loss after a step"), HX_ERROR;
  *out = run->step < (int64_t)number(args, "steps", 1);
  return HX_OK;
}
static const hx_predicate_vt first_vt = {sizeof(hx_predicate_vt), first, NULL};

typedef struct worst {
  double most;
  hx_figure figure;
} worst;
static hx_status worst_add(void* self, const hx_metric_batch* b) {
  worst* w = self;
  uint64_t i;
  for (i = 0; b->targets && i < b->rows * b->outputs; ++i)
    w->most = fmax(w->most, fabs((double)b->predictions[i] - (double)b->targets[i]));
  return HX_OK;
}
static hx_status worst_reset(void* self) { return ((worst*)self)->most = 0, HX_OK; }
static hx_status worst_figures(void* self, const hx_figure** out, uint32_t* count) {
  worst* w = self;
  w->figure.name = VARIANT "_worst", w->figure.value = w->most;
  *out = &w->figure, *count = 1;
  return HX_OK;
}
static hx_status worst_save(void* self, const void** bytes, uint64_t* size) {
  *bytes = &((worst*)self)->most, *size = sizeof(double);
  return HX_OK;
}
static hx_status worst_restore(void* self, const void* bytes, uint64_t size) {
  if (size != sizeof(double)) return api->set_error(HX_ERROR_PLUGIN, "saved by another"), HX_ERROR;
  memcpy(&((worst*)self)->most, bytes, sizeof(double));
  return HX_OK;
}
static const hx_metric_vt worst_vt = {sizeof(hx_metric_vt), worst_add,    worst_reset, worst_figures, NULL, free,
                                      worst_save,           worst_restore};
static hx_status worst_open(void* self, const hx_attributes* args, const hx_metric_vt** vt, void** object) {
  (void)self, (void)args;
  *vt = &worst_vt;
  return (*object = calloc(1, sizeof(worst))) ? HX_OK : HX_ERROR;
}
static const hx_metric_factory_vt worst_factory = {sizeof(hx_metric_factory_vt), worst_open, NULL};

/* ---- streams ---- */

typedef struct ramp {
  uint64_t size, at;
  int64_t width;
} ramp;
static hx_type ramp_type(const ramp* r) {
  hx_type t = {HX_F32, 1, {0}};
  t.dims[0] = r->width;
  return t;
}
static void ramp_put(const ramp* r, uint64_t sample, float* to) {
  int64_t k;
  for (k = 0; k < r->width; ++k) to[k] = (float)((int64_t)sample * r->width + k) / 8 - 1;
}
static hx_status ramp_describe(void* self, hx_stream_info* out) {
  const ramp* r = self;
  out->sample = ramp_type(r), out->size = r->size, out->notes = "numbers that rise";
  return HX_OK;
}
static hx_status ramp_read(void* self, uint64_t n, void* to, uint64_t* got) {
  ramp* r = self;
  uint64_t i;
  if (n > r->size - r->at) n = r->size - r->at;
  for (i = 0; i < n; ++i) ramp_put(r, r->at + i, (float*)to + (int64_t)i * r->width);
  r->at += n;
  *got = n;
  return HX_OK;
}
static hx_status ramp_next(void* self, hx_value** out) {
  ramp* r = self;
  const hx_type t = ramp_type(r);
  void* to = NULL;
  hx_status status;
  if (r->at == r->size) return HX_END;
  if ((status = api->create(&t, NULL, out)) != HX_OK || (status = api->mutable_data(out, &to)) != HX_OK) return status;
  ramp_put(r, r->at++, to);
  return HX_OK;
}
static hx_status ramp_rewind(void* self, uint64_t epoch) { return (void)epoch, ((ramp*)self)->at = 0, HX_OK; }
static uint64_t ramp_size(void* self) { return ((ramp*)self)->size; }
static hx_status ramp_read_at(void* self, const uint64_t* numbers, uint64_t n, void* to) {
  const ramp* r = self;
  uint64_t i;
  for (i = 0; i < n; ++i) ramp_put(r, numbers[i], (float*)to + (int64_t)i * r->width);
  return HX_OK;
}
static hx_status ramp_seek(void* self, uint64_t epoch, uint64_t index) {
  return (void)epoch, ((ramp*)self)->at = index, HX_OK;
}
static const hx_producer_vt ramp_vt = {
    sizeof(hx_producer_vt), ramp_describe, ramp_next, ramp_read, ramp_rewind, ramp_size, free, ramp_read_at, ramp_seek};
static hx_status ramp_open(void* self, const char* path, const hx_attributes* args, const hx_producer_vt** vt,
                           void** object) {
  ramp* r = calloc(1, sizeof *r);
  (void)self, (void)path;
  if (!r) return HX_ERROR;
  r->size = (uint64_t)number(args, "size", 8), r->width = (int64_t)number(args, "width", 2);
  *vt = &ramp_vt, *object = r;
  return HX_OK;
}
static const hx_producer_factory_vt ramp_factory = {sizeof(hx_producer_factory_vt), ramp_open, NULL};

typedef struct sum {
  long samples;
  double total;
  char path[4096];
} sum;
static hx_status sum_push(void* self, hx_value* sample) {
  sum* s = self;
  const void* from = NULL;
  hx_type t;
  hx_status status;
  int64_t i;
  if ((status = api->type_of(sample, &t)) != HX_OK || (status = api->data(sample, &from)) != HX_OK) return status;
  for (i = 0; i < count_of(&t); ++i) s->total += (double)((const float*)from)[i];
  ++s->samples;
  return HX_OK;
}
static hx_status sum_finish(void* self) {
  const sum* s = self;
  FILE* file = fopen(s->path, "w");
  if (!file) return api->set_error(HX_ERROR_OUTPUT, "cannot write the sum\nchoose another file"), HX_ERROR;
  fprintf(file, "%ld %.6f\n", s->samples, s->total);
  fclose(file);
  return HX_OK;
}
static const hx_consumer_vt sum_vt = {sizeof(hx_consumer_vt), sum_push, sum_finish, free};
static hx_status sum_open(void* self, const char* path, const hx_attributes* args, const hx_consumer_vt** vt,
                          void** object) {
  sum* s = calloc(1, sizeof *s);
  (void)self, (void)args;
  if (!s) return HX_ERROR;
  snprintf(s->path, sizeof s->path, "%s", path);
  *vt = &sum_vt, *object = s;
  return HX_OK;
}
static const hx_consumer_factory_vt sum_factory = {sizeof(hx_consumer_factory_vt), sum_open, NULL};

static hx_status shift_type(void* self, const hx_attributes* args, const hx_type* sample, hx_type* out) {
  (void)self, (void)args;
  if (sample->dtype != HX_F32) return api->set_error(HX_ERROR_USAGE, "shifts f32 only"), HX_ERROR;
  *out = *sample;
  return HX_OK;
}
/* No Philox here: numbers that look random, of the draw alone. */
static hx_status shift(void* self, const hx_attributes* args, const hx_type* sample, const void* from,
                       const hx_draw* draw, const hx_type* result, void* to) {
  const float by = (float)number(args, "by", 0), most = (float)number(args, "most", 0);
  uint64_t state = draw->key ^ (draw->record * 0x9E3779B97F4A7C15u) ^ draw->ordinal;
  int64_t i;
  (void)self, (void)result;
  for (i = 0; i < count_of(sample); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ((float*)to)[i] = ((const float*)from)[i] + by + most * (float)((double)(state >> 40) / 16777216.0);
  }
  return HX_OK;
}
static const hx_augmentation_vt shift_vt = {sizeof(hx_augmentation_vt), shift_type, shift, NULL};

/* ---- registration ---- */

#define ARGUMENT(type, name, otherwise, text, range) \
  { sizeof(hx_argument_spec), type, name, otherwise, text, range }
static const hx_argument_spec slope[] = {ARGUMENT(HX_ARG_FLOAT, "slope", "1", "steepness", "0..100")};
static const hx_argument_spec weight[] = {ARGUMENT(HX_ARG_FLOAT, "weight", "1", "of it", NULL)};
static const hx_argument_spec start[] = {ARGUMENT(HX_ARG_FLOAT, "start", "1", "of the parameter", NULL)};
static const hx_argument_spec mixture[] = {ARGUMENT(HX_ARG_LAYER, "other", "", "what is mixed in", NULL),
                                           ARGUMENT(HX_ARG_FLOAT, "part", "0.5", "of the first", "0..1")};
static const hx_argument_spec rates[] = {ARGUMENT(HX_ARG_FLOAT, "lr", "0.1", "learning rate", "0<.."),
                                         ARGUMENT(HX_ARG_FLOAT, "momentum", "0.9", "what stays", "0..<1")};
static const hx_argument_spec every[] = {ARGUMENT(HX_ARG_INT, "every", "10", "steps", "1..")};
static const hx_argument_spec steps[] = {ARGUMENT(HX_ARG_INT, "steps", "1", "how many", "1..")};
static const hx_argument_spec sizes[] = {ARGUMENT(HX_ARG_INT, "size", "8", "samples", "1.."),
                                         ARGUMENT(HX_ARG_INT, "width", "2", "numbers of a sample", "1..")};
static const hx_argument_spec shifts[] = {ARGUMENT(HX_ARG_FLOAT, "by", "0", "always", NULL),
                                          ARGUMENT(HX_ARG_FLOAT, "most", "0", "at random, below this", "0..")};

#define ITEM(kind, flags, name, text, arguments, n, table) \
  { sizeof(hx_item), kind, flags, n, VARIANT "_" name, text, arguments, NULL, &table }
#define WITH(arguments) arguments, COUNT_OF(arguments)
#define PLAINLY NULL, 0
#define ROW(...) ITEM(__VA_ARGS__)
static const hx_item items[] = {
    ROW(HX_ACTIVATION, 0, "swish", "x sigmoid(slope x)", WITH(slope), swish_vt),
    ROW(HX_ACTIVATION, 0, "half", "half of x, with the gradient of x", PLAINLY, half_vt),
    ROW(HX_LOSS, 0, "square", "the squared distance", WITH(weight), square_vt),
    ROW(HX_LAYER, 0, "gain", "x times a parameter", WITH(start), gain_vt),
    ROW(HX_FUNCTIONAL, HX_OWN_GRADIENT, "cube", "x^3", PLAINLY, cube_vt),
    ROW(HX_FUNCTIONAL, 0, "blend", "a mixture", WITH(mixture), blend_vt),
    ROW(HX_IMPLEMENTATION, HX_OWN_GRADIENT, "cube.plain", "tensors in, tensors out", PLAINLY, plain_vt),
    ROW(HX_IMPLEMENTATION, HX_OWN_GRADIENT, "cube.fast", "one loop each way", PLAINLY, fast_vt),
    ROW(HX_DEVICE, 0, "none", "runs nothing by itself", PLAINLY, none_vt),
    ROW(HX_OPTIMIZER, 0, "momentum", "gradient descent with momentum", WITH(rates), momentum_vt),
    ROW(HX_SCHEDULE, 0, "halving", "half of it every so many steps", WITH(every), halving_vt),
    ROW(HX_PREDICATE, 0, "first", "the first steps", WITH(steps), first_vt),
    ROW(HX_METRIC, HX_TAKES_NUMBERS, "worst", "the largest distance", PLAINLY, worst_factory),
    ROW(HX_PRODUCER, 0, "ramp", "numbers that rise", WITH(sizes), ramp_factory),
    ROW(HX_CONSUMER, 0, "sum", "writes a sum to a file", PLAINLY, sum_factory),
    ROW(HX_AUGMENTATION, 0, "shift", "adds a number", WITH(shifts), shift_vt),
};

EXPORTED void harmonics_register(hx_registration* registration) {
  size_t i;
  api = registration->api;
  for (i = 0; i < COUNT_OF(items); ++i)
    if (api->register_item(registration->registry, &items[i]) != HX_OK) return;
}
