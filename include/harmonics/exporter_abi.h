/* Items of kind HX_EXPORTER: C11, with the rules of abi.h. An extension that is not yet part of contract 1, like
 * importers (importer_abi.h). */
#ifndef HARMONICS_EXPORTER_ABI_H
#define HARMONICS_EXPORTER_ABI_H

#include <harmonics/importer_abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* hx_api.extension returns an hx_item_extension that takes hx_exporter_vt. */
#define HX_EXPORTER_EXTENSION "hx.exporter/0"

/* A tensor to write: dense, row-major, little-endian. */
typedef struct hx_exported_tensor {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;
  hx_type type;
  const void* data; /* aligned for elements of the type */
  uint64_t bytes;   /* exactly the size of the type */
} hx_exported_tensor;

/* The model to write. Owned by the host, unchanged during write. */
typedef struct hx_exported_model {
  uint32_t struct_size;
  uint32_t n_tensors;
  const hx_exported_tensor* tensors; /* sorted by name; names are unique; struct_size is the stride */
  hx_attributes metadata;            /* as in hx_imported_model, sorted by key */
} hx_exported_model;

/* The new file. */
typedef struct hx_export_sink {
  uint32_t struct_size;
  uint32_t reserved;
  const char* path; /* for messages */
  void* host;       /* passed to write */
  /* Appends. After an error the exporter must return it and make no further calls. The host renames the file to its
   * final name after hx_exporter_vt.write has succeeded; otherwise an existing file of that name is unchanged. */
  hx_status (*write)(void* host, const void* data, uint64_t bytes);
  /* Present if struct_size covers it. Directs later writes to another file of this name (no folders) in the same
   * folder. The host renames it before the first file. */
  hx_status (*next_file)(void* host, const char* name);
} hx_export_sink;

typedef struct hx_exporter_vt { /* functions are called from any thread, also concurrently */
  uint32_t struct_size;
  /* Returns how well the format fits a file of this name (no folders): HX_PROBE_NO .. HX_PROBE_CERTAIN. Called if the
   * user names no exporter. */
  hx_status (*probe)(void* self, const char* name, uint32_t* score);
  /* Writes the model. Equal models and options must give equal bytes. `options`: the item's arguments. If the format
   * cannot represent a tensor or a key, the error is HX_ERROR_WEIGHTS and names it. */
  hx_status (*write)(void* self, const hx_exported_model* model, const hx_attributes* options,
                     const hx_export_sink* sink);
  void (*destroy)(void* self);
} hx_exporter_vt;

#ifdef __cplusplus
}
#endif
#endif
