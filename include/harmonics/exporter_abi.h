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

/* The model to write. Owned by the host, unchanged during write. */
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
  /* Appends. After an error the exporter must return it and make no further calls. The host renames the file to its
   * final name after write has succeeded; otherwise an existing file of that name is unchanged. */
  hx_status (*write)(void* host, const void* data, uint64_t bytes);
  /* Present if struct_size covers it. Directs later writes to a further file of this name (no folders) in the folder of
   * the new one. The host renames it before the first file. */
  hx_status (*next_file)(void* host, const char* name);
} hx_export_sink;

typedef struct hx_exporter_vt { /* functions are called from any thread, also concurrently */
  uint32_t struct_size;
  /* How well the format fits a file of this name, which has no folders: HX_PROBE_NO .. HX_PROBE_CERTAIN. The host calls
   * it if the user names no exporter. */
  hx_status (*probe)(void* self, const char* name, uint32_t* score);
  /* Equal models and options give equal bytes. `options` follow the item's arguments. If the format cannot represent a
   * tensor or a key, the error is HX_ERROR_WEIGHTS and names it. */
  hx_status (*write)(void* self, const hx_exported_model* model, const hx_attributes* options,
                     const hx_export_sink* sink);
  void (*destroy)(void* self);
} hx_exporter_vt;

#ifdef __cplusplus
}
#endif
#endif
