/* Items of kind HX_EXPORTER: C11, with the rules of abi.h, but not yet part of contract 1: an extension, as importers
 * are (importer_abi.h). */
#ifndef HARMONICS_EXPORTER_ABI_H
#define HARMONICS_EXPORTER_ABI_H

#include <harmonics/importer_abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* hx_api.extension returns an hx_item_extension that takes hx_exporter_vt. */
#define HX_EXPORTER_EXTENSION "hx.exporter/0"

/* Dense, row-major, little-endian. */
typedef struct hx_exported_tensor {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;
  hx_type type;
  const void* data; /* aligned for an element of the type */
  uint64_t bytes;   /* exactly those of the type */
} hx_exported_tensor;

/* What is to be written. Owned by the host, unchanged during write. */
typedef struct hx_exported_model {
  uint32_t struct_size;
  uint32_t n_tensors;
  const hx_exported_tensor* tensors; /* sorted by name, which is unique; each as long as its struct_size */
  hx_attributes metadata;            /* as of hx_imported_model, sorted by key */
} hx_exported_model;

/* The new file. */
typedef struct hx_export_sink {
  uint32_t struct_size;
  uint32_t reserved;
  const char* path; /* for messages */
  void* host;       /* passed to write */
  /* Appends. After an error the exporter returns it and calls no more. The host puts the file into its place when the
   * exporter's write has succeeded; otherwise a former file of that name stays as it was. */
  hx_status (*write)(void* host, const void* data, uint64_t bytes);
  /* Present if struct_size says so. What is written from now on goes to a further file of this name, which has no
   * folders, beside the new one. The host puts it into its place before the first. */
  hx_status (*next_file)(void* host, const char* name);
} hx_export_sink;

typedef struct hx_exporter_vt { /* functions are called from any thread, also concurrently */
  uint32_t struct_size;
  /* How well the format fits a file of this name, which has no folders: HX_PROBE_NO .. HX_PROBE_CERTAIN. The host asks
   * if the user names no exporter. */
  hx_status (*probe)(void* self, const char* name, uint32_t* score);
  /* Equal models and options give equal bytes. `options` follow the item's arguments. What the format cannot hold is an
   * error of kind HX_ERROR_WEIGHTS that names the tensor or the key. */
  hx_status (*write)(void* self, const hx_exported_model* model, const hx_attributes* options,
                     const hx_export_sink* sink);
  void (*destroy)(void* self);
} hx_exporter_vt;

#ifdef __cplusplus
}
#endif
#endif
