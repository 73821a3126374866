/* The things of kinds_v1_4.cpp once more, by the C contract alone. Frozen: see README_v1_4.md. */
#include <harmonics/abi.h>

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef VARIANT
#define VARIANT "every"
#endif
#define EXPORTED __attribute__((visibility("default")))

EXPORTED const hx_plugin_abi harmonics_plugin_abi = {
    "HXPLUG1", sizeof(hx_plugin_abi),        HX_ABI_MAJOR, HX_ABI_MINOR, HX_ABI_MIN_MINOR,
    0,         "org.example.later." VARIANT, "1.4.0",      "MIT",        "Example",
    "C"};

static const hx_api* api;

static hx_status failed(uint32_t kind, const char* text) { return api->set_error(kind, text), HX_ERROR; }
static hx_status declined(const char* why) { return api->set_error(HX_ERROR_DEVICE, why), HX_DECLINED; }

/* ---- 1.1 and 1.2: a live source: sample i is (i, i / 2), its sender's number is 10 i ---- */

typedef struct live {
  pthread_mutex_t mutex;
  uint64_t arrived, at, durable;
} live;

static hx_status live_describe(void* self, hx_stream_info* out) {
  hx_stream_info info;
  (void)self;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  info.sample.dtype = HX_F32, info.sample.rank = 1, info.sample.dims[0] = 2;
  info.live = 1;
  *out = info;
  return HX_OK;
}
static hx_status live_next(void* self, hx_value** out) {
  live* l = self;
  const hx_type type = {HX_F32, 1, {2}};
  float values[2];
  int ended;
  pthread_mutex_lock(&l->mutex);
  ended = l->at >= l->arrived;
  values[0] = (float)l->at, values[1] = (float)l->at / 2;
  l->at += !ended;
  pthread_mutex_unlock(&l->mutex);
  return ended ? HX_END : api->create(&type, values, out);
}
static uint64_t live_size(void* self) { return (void)self, 0; }
static void live_destroy(void* self) {
  pthread_mutex_destroy(&((live*)self)->mutex);
  free(self);
}
static hx_status live_restore(void* self, uint64_t index, const char* position) {
  char mine[64];
  snprintf(mine, sizeof mine, "before %llu", (unsigned long long)index);
  if (index && strcmp(mine, position) != 0) return failed(HX_ERROR_STREAM, "not my position");
  ((live*)self)->at = index;
  return HX_OK;
}
static hx_status live_position(void* self, uint64_t index, char* dst, uint64_t capacity, uint64_t* size) {
  char mine[64];
  (void)self;
  *size = (uint64_t)snprintf(mine, sizeof mine, "before %llu", (unsigned long long)index);
  if (*size < capacity) memcpy(dst, mine, *size + 1);
  return HX_OK;
}
static hx_status live_durable(void* self, uint64_t index) {
  live* l = self;
  pthread_mutex_lock(&l->mutex);
  l->durable = index;
  pthread_mutex_unlock(&l->mutex);
  return HX_OK;
}
static hx_status live_cancel(void* self) {
  live* l = self;
  pthread_mutex_lock(&l->mutex);
  l->arrived = 0;
  pthread_mutex_unlock(&l->mutex);
  return HX_OK;
}
static hx_status live_health(void* self, hx_stream_health* out) {
  live* l = self;
  pthread_mutex_lock(&l->mutex);
  out->state = HX_STREAM_RECEIVING;
  out->senders = 2, out->connected = 1, out->wants_durable = 1;
  out->samples = l->arrived, out->bytes = 8 * l->arrived, out->queued_samples = l->durable;
  out->idle_seconds = 0.25;
  snprintf(out->last_error, sizeof out->last_error, "%s", VARIANT);
  pthread_mutex_unlock(&l->mutex);
  return HX_OK;
}
static hx_status live_numbers(void* self, uint64_t n, hx_sample_number* to) {
  live* l = self;
  uint64_t i;
  for (i = 0; i < n; ++i) to[i].number = 10 * (l->at - n + i), to[i].sender = 7;
  return HX_OK;
}
static const hx_producer_vt live_vt = {sizeof(hx_producer_vt),
                                       live_describe,
                                       live_next,
                                       NULL,
                                       NULL,
                                       live_size,
                                       live_destroy,
                                       NULL,
                                       NULL,
                                       live_restore,
                                       live_position,
                                       live_durable,
                                       live_cancel,
                                       live_health,
                                       live_numbers};

static hx_status open_live(void* self, const char* path, const hx_attributes* args, const hx_producer_vt** vt,
                           void** object) {
  live* l = calloc(1, sizeof *l);
  uint32_t i;
  (void)self, (void)path;
  if (!l) return failed(HX_ERROR_PLUGIN, "no memory");
  pthread_mutex_init(&l->mutex, NULL);
  for (i = 0; i < args->count; ++i)
    if (strcmp(args->items[i].name, "size") == 0) l->arrived = (uint64_t)args->items[i].as.i;
  *vt = &live_vt;
  *object = l;
  return HX_OK;
}
static const hx_producer_factory_vt live_factory = {sizeof(hx_producer_factory_vt), open_live, NULL};

/* ---- 1.2 to 1.4: a device. Its memory is the host's at other addresses; queued work runs at once or is recorded ----
 */

#define SHIFT (1ull << 62) /* using a buffer as an address crashes */

enum { ADDS, MULTIPLIES, STEPS, MAPS };
typedef struct kernel {
  int does, rounds;
  int64_t rows, in, out; /* of MAPS; otherwise rows = elements */
} kernel;

enum { UPLOAD, DOWNLOAD, COPY, RECORD, COMPUTE };
typedef struct job {
  int does, looks;
  hx_place to, from, number, places[4];
  const void* sent;
  void* received;
  uint64_t bytes;
  struct timespec* time;
  const kernel* computes;
} job;

typedef struct jobs {
  job* all;
  size_t n;
} jobs;
struct hx_queue {
  int recording;
  jobs recorded;
};

static char* at(hx_place place) { return (char*)(uintptr_t)(place.buffer - SHIFT) + place.offset; }
static int finite_at(hx_place number) {
  float value;
  memcpy(&value, at(number), sizeof value);
  return isfinite(value);
}
static float to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static void compute(const kernel* k, const hx_place* places) {
  const float* x[3] = {NULL, NULL, NULL};
  const int inputs = k->does < STEPS ? 2 : 3;
  float* y = (float*)at(places[inputs]);
  int64_t r, o, i;
  for (i = 0; i < inputs; ++i) x[i] = (const float*)at(places[i]);
  for (i = 0; k->does != MAPS && i < k->rows; ++i)
    y[i] = k->does == ADDS ? x[0][i] + x[1][i] : k->does == MULTIPLIES ? x[0][i] * x[1][i] : x[0][i] - *x[2] * x[1][i];
  for (r = 0; k->does == MAPS && r < k->rows; ++r)
    for (o = 0; o < k->out; ++o) {
      float sum = 0;
      for (i = 0; i < k->in; ++i) {
        const float a = x[0][r * k->in + i], b = x[1][o * k->in + i];
        sum += k->rounds ? to_bf16(a) * to_bf16(b) : a * b;
      }
      y[r * k->out + o] = sum + x[2][o];
    }
}
static void do_job(const job* j) {
  if (j->looks && !finite_at(j->number)) return;
  if (j->does == UPLOAD) memcpy(at(j->to), j->sent, j->bytes);
  if (j->does == DOWNLOAD) memcpy(j->received, at(j->from), j->bytes);
  if (j->does == COPY) memcpy(at(j->to), at(j->from), j->bytes);
  if (j->does == RECORD) clock_gettime(CLOCK_MONOTONIC, j->time);
  if (j->does == COMPUTE) compute(j->computes, j->places);
}
static hx_status put(hx_queue* queue, const job* j) {
  jobs* r = &queue->recorded;
  job* more;
  if (!queue->recording) return do_job(j), HX_OK;
  if (!(more = realloc(r->all, (r->n + 1) * sizeof *more))) return failed(HX_ERROR_DEVICE, "no memory");
  r->all = more;
  r->all[r->n++] = *j;
  return HX_OK;
}

static const char* memory_describe(void* self) { return (void)self, "the host's memory under other addresses"; }
static uint32_t memory_flags(void* self) { return (void)self, HX_SITE_BF16 | HX_SITE_FP8; }
static hx_status memory_info(void* self, hx_device_info* out) {
  (void)self;
  out->sort = HX_DEVICE_FPGA;
  out->memory = 1ull << 30, out->free_memory = 1ull << 29, out->most_bytes = 1ull << 28;
  out->alignment = 64;
  snprintf(out->name, sizeof out->name, "%s memory", VARIANT);
  snprintf(out->driver, sizeof out->driver, "1.4");
  snprintf(out->capability, sizeof out->capability, "four kernels");
  return HX_OK;
}
static hx_status memory_open_queue(void* self, hx_queue** out) {
  (void)self;
  return (*out = calloc(1, sizeof **out)) ? HX_OK : failed(HX_ERROR_DEVICE, "no memory");
}
static void memory_close_queue(void* self, hx_queue* queue) { (void)self, free(queue->recorded.all), free(queue); }
static hx_status memory_allocate(void* self, uint64_t bytes, uint64_t* buffer) {
  void* data = aligned_alloc(64, (bytes + 63) / 64 * 64);
  (void)self;
  if (!data) return failed(HX_ERROR_DEVICE, "no memory");
  *buffer = (uint64_t)(uintptr_t)data + SHIFT;
  return HX_OK;
}
static void memory_release(void* self, uint64_t buffer) {
  const hx_place place = {buffer, 0};
  (void)self, free(at(place));
}
static hx_status memory_upload(void* self, hx_queue* queue, const hx_place* to, const void* from, uint64_t bytes) {
  job j = {.does = UPLOAD, .to = *to, .sent = from, .bytes = bytes};
  return (void)self, put(queue, &j);
}
static hx_status memory_download(void* self, hx_queue* queue, void* to, const hx_place* from, uint64_t bytes) {
  job j = {.does = DOWNLOAD, .received = to, .from = *from, .bytes = bytes};
  return (void)self, put(queue, &j);
}
static hx_status memory_copy(void* self, hx_queue* queue, const hx_place* to, const hx_place* from, uint64_t bytes) {
  job j = {.does = COPY, .to = *to, .from = *from, .bytes = bytes};
  return (void)self, put(queue, &j);
}
static hx_status memory_copy_if_finite(void* self, hx_queue* queue, const hx_place* to, const hx_place* from,
                                       uint64_t bytes, const hx_place* number) {
  job j = {.does = COPY, .looks = 1, .to = *to, .from = *from, .number = *number, .bytes = bytes};
  return (void)self, put(queue, &j);
}
static hx_status memory_synchronize(void* self, hx_queue* queue) { return (void)self, (void)queue, HX_OK; }
static hx_status memory_allocate_host(void* self, uint64_t bytes, void** out) {
  (void)self;
  return (*out = aligned_alloc(64, (bytes + 63) / 64 * 64)) ? HX_OK : failed(HX_ERROR_DEVICE, "no memory");
}
static void memory_release_host(void* self, void* memory) { (void)self, free(memory); }
static hx_status memory_record(void* self, hx_queue* queue, hx_event** out) {
  struct timespec* time = calloc(1, sizeof *time);
  job j = {.does = RECORD, .time = time};
  (void)self;
  if (!time) return failed(HX_ERROR_DEVICE, "no memory");
  *out = (hx_event*)time;
  return put(queue, &j);
}
static hx_status memory_wait(void* self, hx_queue* queue, hx_event* event) {
  return (void)self, (void)queue, (void)event, HX_OK;
}
static hx_status memory_await_event(void* self, hx_event* event) { return (void)self, (void)event, HX_OK; }
static void memory_release_event(void* self, hx_event* event) { (void)self, free(event); }
static hx_status memory_elapsed(void* self, hx_event* from, hx_event* to, double* seconds) {
  const struct timespec *a = (struct timespec*)from, *b = (struct timespec*)to;
  (void)self;
  *seconds = (double)(b->tv_sec - a->tv_sec) + 1e-9 * (double)(b->tv_nsec - a->tv_nsec);
  return HX_OK;
}
static hx_status memory_begin_capture(void* self, hx_queue* queue) { return (void)self, queue->recording = 1, HX_OK; }
static hx_status memory_end_capture(void* self, hx_queue* queue, hx_capture** out) {
  jobs* recorded = malloc(sizeof *recorded);
  (void)self;
  if (!recorded) return failed(HX_ERROR_DEVICE, "no memory");
  *recorded = queue->recorded;
  memset(&queue->recorded, 0, sizeof queue->recorded);
  queue->recording = 0;
  *out = (hx_capture*)recorded;
  return HX_OK;
}
static hx_status memory_launch(void* self, hx_queue* queue, hx_capture* capture) {
  const jobs* recorded = (const jobs*)capture;
  size_t i;
  (void)self;
  for (i = 0; i < recorded->n; ++i) put(queue, &recorded->all[i]);
  return HX_OK;
}
static void memory_release_capture(void* self, hx_capture* capture) {
  (void)self, free(((jobs*)capture)->all), free(capture);
}

static hx_status enqueue_looking(const void* context, hx_queue* queue, const hx_place* places, const hx_place* number) {
  job j = {.does = COMPUTE, .looks = number != NULL, .computes = context};
  const size_t inputs = j.computes->does < STEPS ? 2 : 3;
  if (number) j.number = *number;
  memcpy(j.places, places, (inputs + 1) * sizeof *places);
  return put(queue, &j);
}
static hx_status enqueue(const void* context, hx_queue* queue, const hx_place* places) {
  return enqueue_looking(context, queue, places, NULL);
}
static int same(const hx_type* a, const hx_type* b) {
  return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}
static hx_status memory_find(void* self, const hx_call_site* site, hx_kernel* out) {
  const hx_type* in = site->inputs;
  const int two = site->n_inputs == 2 && same(&in[0], &in[1]);
  kernel k = {ADDS, (site->flags & HX_SITE_BF16) != 0, 1, 0, 0}, *kept;
  uint32_t i;
  (void)self;
  for (i = 0; i < site->n_inputs; ++i)
    if (in[i].dtype != HX_F32) return declined("computes f32 only");
  for (i = 0; site->attributes && i < site->attributes->count; ++i) {
    const hx_attribute* a = &site->attributes->items[i];
    const int list = a->kind == HX_ATTR_INTS || a->kind == HX_ATTR_FLOATS;
    const int zero = a->kind == HX_ATTR_FLOAT ? a->as.f == 0 : a->kind != HX_ATTR_STRING ? a->as.i == 0 : !*a->as.s;
    if (list || !zero) return declined("takes no attributes");
  }
  for (i = 0; site->n_inputs && i < in[0].rank; ++i) k.rows *= in[0].dims[i];
  if (strcmp(site->op, "mul") == 0 && two) {
    k.does = MULTIPLIES;
  } else if (strcmp(site->op, "sgd") == 0 && site->n_inputs == 3 && same(&in[0], &in[1]) && !in[2].rank) {
    k.does = STEPS;
  } else if (strcmp(site->op, "linear") == 0 && site->n_inputs == 3 && in[0].rank == 2) {
    k.does = MAPS, k.rows = in[0].dims[0], k.in = in[0].dims[1], k.out = in[1].dims[0];
  } else if (strcmp(site->op, "add") != 0 || !two) {
    return declined("computes sums, products, affine maps and steps");
  }
  if (!(kept = malloc(sizeof *kept))) return failed(HX_ERROR_DEVICE, "no memory");
  *kept = k;
  out->context = kept, out->destroy = free, out->name = VARIANT " kernel", out->enqueue = enqueue;
  if (k.does == STEPS && out->struct_size >= offsetof(hx_kernel, enqueue_if_finite) + sizeof out->enqueue_if_finite)
    out->enqueue_if_finite = enqueue_looking;
  return HX_OK;
}

static const hx_device_vt memory_vt = {
    .struct_size = sizeof(hx_device_vt),
    .describe = memory_describe,
    .find = memory_find,
    .flags = memory_flags,
    .info = memory_info,
    .open_queue = memory_open_queue,
    .close_queue = memory_close_queue,
    .allocate = memory_allocate,
    .release = memory_release,
    .upload = memory_upload,
    .download = memory_download,
    .copy = memory_copy,
    .synchronize = memory_synchronize,
    .submit = memory_synchronize,
    .allocate_host = memory_allocate_host,
    .release_host = memory_release_host,
    .record = memory_record,
    .wait = memory_wait,
    .release_event = memory_release_event,
    .begin_capture = memory_begin_capture,
    .end_capture = memory_end_capture,
    .launch = memory_launch,
    .release_capture = memory_release_capture,
    .record_time = memory_record,
    .elapsed = memory_elapsed,
    .copy_if_finite = memory_copy_if_finite,
    .await_event = memory_await_event,
};

EXPORTED void harmonics_register(hx_registration* registration) {
  static const hx_argument_spec size = {sizeof(hx_argument_spec), HX_ARG_INT, "size", "16", "samples", ""};
  const hx_item source = {sizeof(hx_item), HX_PRODUCER, 0, 1, VARIANT "_live", "numbers as they arrive", &size, NULL,
                          &live_factory};
  const hx_item device = {
      sizeof(hx_item), HX_DEVICE, 0, 0, VARIANT "_memory", "a device in the host's memory", NULL, NULL, &memory_vt};
  api = registration->api;
  api->register_item(registration->registry, &source);
  api->register_item(registration->registry, &device);
}
