/* Random numbers that depend only on a seed and the index of a case, so that any case can be repeated alone. */
#ifndef SANITISE_RANDOM_H
#define SANITISE_RANDOM_H

#include <stdint.h>

static uint64_t state;

/* splitmix64 */
static uint64_t bits(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int64_t between(int64_t least, int64_t most) { return least + (int64_t)(bits() % (uint64_t)(most - least + 1)); }

static int one_in(int64_t n) { return between(1, n) == 1; }

/* From -1 to 1, exact in float and in double. */
static double random_value(void) { return (double)between(-1024, 1024) / 1024; }

#endif
