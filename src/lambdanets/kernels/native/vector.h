/* Vectors of the instruction set that a file is compiled for, in the vector extensions of GCC and Clang. */
#ifndef LAMBDANETS_VECTOR_H
#define LAMBDANETS_VECTOR_H

#include <stdint.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define REGISTERS 32
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define REGISTERS 16
#elif defined(__aarch64__)
#define VECTOR_BYTES 16
#define REGISTERS 32
#else
#define VECTOR_BYTES 16
#define REGISTERS 16
#endif

#define LANES ((int64_t)(VECTOR_BYTES / sizeof(real)))
enum { MAX_LANES = VECTOR_BYTES / 4 };

/* A register block is at most ROWS x VECTORS accumulators, which leaves registers for one row of B and a broadcast. */
#define ROWS 4
#define VECTORS (REGISTERS == 32 ? 6 : 3)

/* Blocks with few accumulators are bound by the latency of FMA: even and odd terms then have accumulators of their own. */
#define CHAINS(rows, vectors) ((rows) * (vectors) < (REGISTERS == 32 ? 12 : 8) ? 2 : 1)

/* Lines of a table are padded to whole segments: half a vector of AVX-512, a whole vector otherwise. */
#define SEGMENTS (VECTOR_BYTES == 64 ? 2 : 1) /* per vector */
#define SEGMENT (LANES / SEGMENTS)            /* elements */

/* Loads and stores are unaligned. */
typedef real vec __attribute__((vector_size(VECTOR_BYTES)));
typedef real unaligned_vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
#define LOAD(p) (*(const unaligned_vec *)(p))
#define STORE(p) (*(unaligned_vec *)(p))

#if VECTOR_BYTES == 64
#include <immintrin.h>
typedef real half_vec __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef real unaligned_half_vec __attribute__((vector_size(VECTOR_BYTES / 2), aligned(sizeof(real)), may_alias));
#define LOAD_HALF(p) ((half_vec)(*(const unaligned_half_vec *)(p)))
/* One instruction, which GCC does not emit for the generic form. */
#define CONCAT(low, high) ((vec)_mm512_insertf64x4(_mm512_castpd256_pd512((__m256d)(low)), (__m256d)(high), 1))
#endif

/* Keeps a vector in its register. For two rows GCC would fold the load into each FMA, which costs up to 30 %. */
#if defined(__x86_64__)
#define KEEP_IN_REGISTER(v) __asm__("" : "+v"(v))
#else
#define KEEP_IN_REGISTER(v) (void)(v)
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define ROUND_UP(x, multiple) (((x) + (multiple) - 1) / (multiple) * (multiple))
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL_ALL _Pragma("GCC unroll 16")

#endif
