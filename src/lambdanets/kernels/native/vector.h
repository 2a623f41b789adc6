/* Vectors of the instruction set that a file is compiled for, as GCC and Clang spell them for every machine. */
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
enum { LANES_AT_MOST = VECTOR_BYTES / 4 };

/* The most accumulators that leave room for one row of B and a broadcast: ROWS x VECTORS of them. */
#define ROWS 4
#define VECTORS (REGISTERS == 32 ? 6 : 3)

/* Few accumulators would wait for each other: then even and odd steps of a sum have their own. */
#define WAYS(rows, vectors) ((rows) * (vectors) < (REGISTERS == 32 ? 12 : 8) ? 2 : 1)

/* Lines of a table are padded to whole units: half vectors where vectors are long. */
#define UNITS (VECTOR_BYTES == 64 ? 2 : 1) /* of a vector */
#define UNIT (LANES / UNITS)

/* In memory a vector may begin at any element. */
typedef real vec __attribute__((vector_size(VECTOR_BYTES)));
typedef real vec_in_memory __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));

#if VECTOR_BYTES == 64
#include <immintrin.h>
typedef real half __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef real half_in_memory __attribute__((vector_size(VECTOR_BYTES / 2), aligned(sizeof(real)), may_alias));
#define LOAD_HALF(p) ((half)(*(const half_in_memory *)(p)))
/* One instruction, which GCC does not find by itself. */
#define JOIN(a, b) ((vec)_mm512_insertf64x4(_mm512_castpd256_pd512((__m256d)(a)), (__m256d)(b), 1))
#endif

/* Keeps a vector in its register: GCC would rather load it again for each of two rows. */
#if defined(__x86_64__)
#define KEEP(v) __asm__("" : "+v"(v))
#else
#define KEEP(v) (void)(v)
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define LOAD(p) (*(const vec_in_memory *)(p))
#define STORE(p) (*(vec_in_memory *)(p))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define ROUND_UP(x, to) (((x) + (to) - 1) / (to) * (to))
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL_ALL _Pragma("GCC unroll 16")

#endif
