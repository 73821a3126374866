/* What <harmonics/sender.hpp> calls: samples to a receiver of Harmonics, in C. Link Harmonics::Sender. Structures carry their size and grow
 * at their end. Functions of one sender may be called from any thread. */
#ifndef HARMONICS_SENDER_ABI_H
#define HARMONICS_SENDER_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct harmonics_sender harmonics_sender;

/* A tensor of every sample. dtype: a number of hx_dtype (abi.h). */
typedef struct harmonics_sent_tensor {
  const char* name;
  uint32_t dtype;
  uint32_t rank;
  const int64_t* dims;
} harmonics_sent_tensor;

/* Zeros and NULL: the default. */
typedef struct harmonics_sender_options {
  uint32_t struct_size;
  uint32_t durable;         /* samples are kept until the receiver's disk has them; 0: until it has received them */
  uint32_t whole_source;    /* the samples are those of a source from its first one on: what the receiver has is not sent again */
  uint32_t insecure;        /* also beyond this machine without keys */
  const char* producer;     /* who sends; NULL: the number of the process */
  const char* stream;       /* NULL: "samples" */
  double patience_seconds;  /* without any receiver; 0: 10 */
  uint64_t batch_bytes;     /* samples in one frame; 0: 256 KiB */
  const char* key_file;     /* ZeroMQ: the own pair of keys, of 'harmonics keys' */
  const char* server_key;   /* ZeroMQ: the receiver's public key, or the file with it */
  const uint32_t* classes;  /* by tensor: its whole numbers are classes below this, and the receiver is told; 0: not. NULL: none are */
} harmonics_sender_options;

/* All return 0, or an error kind + 1 (error.hpp) with harmonics_sender_error(): lines, the first what happened, the others what to do. */
int harmonics_sender_open(const char* address, const harmonics_sender_options* options, const harmonics_sent_tensor* tensors, uint32_t count, harmonics_sender** out);
/* One sample: the tensors' numbers, row-major, in the order of open; they are copied. Waits while the receiver takes no more. */
int harmonics_sender_send(harmonics_sender* sender, const void* const* tensors);
/* The number that the next sample has; waits for the receiver. */
int harmonics_sender_next(harmonics_sender* sender, uint64_t* number);
/* No sample follows; waits until every one is acknowledged. */
int harmonics_sender_finish(harmonics_sender* sender);
void harmonics_sender_close(harmonics_sender* sender);
/* Of the last call in this thread that failed; valid until the next. */
const char* harmonics_sender_error(void);

#ifdef __cplusplus
}
#endif

#endif
