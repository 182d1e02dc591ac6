/* Kendall's sum of signs in many arrangements of the same numbers: what `concordance_in_numpy` in battery.py does, which
 * is the oracle of this file. Numbers are placed from the smallest to the largest, each where it is in the arrangement:
 * those already there are smaller, and a set of bits says how many of them come before.
 *
 * The function touches no Python object, and so is called without the interpreter's lock. */

#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Compiled for wider registers too, where the compiler can have the machine choose. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

static inline int32_t ones(uint64_t bits)
{
#if defined(__GNUC__)
    return __builtin_popcountll(bits);
#else
    bits -= (bits >> 1) & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + ((bits >> 2) & 0x3333333333333333u);
    return (int32_t)((((bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u) >> 56);
#endif
}

/* `order` (arrangements, n) says which number comes when. `rising` are the n numbers from the smallest to the largest,
 * `ends[k]` where the run of numbers equal to the k-th in that order ends → `out` (arrangements), the sum of the signs
 * of later less earlier numbers. `place` holds n, `bits` and `below` n/64 + 1 values. */
WIDE void empriv_concordance(long arrangements, long n, const int64_t *order, const int64_t *rising,
                             const int64_t *ends, int64_t *out, int32_t *place, int64_t *bits, int32_t *below)
{
    const long words = n / 64 + 1;
    for (long row = 0; row < arrangements; row++) {
        int64_t total = 0;
        for (long t = 0; t < n; t++)
            place[order[row * n + t]] = (int32_t)t;
        memset(bits, 0, words * sizeof *bits);
        memset(below, 0, words * sizeof *below);
        for (long k = 0; k < n;) {
            const long end = ends[k];
            for (long j = k; j < end; j++) { /* numbers that are equal do not count for each other */
                const int32_t at = place[rising[j]];
                const uint64_t before = (uint64_t)bits[at >> 6] & (((uint64_t)1 << (at & 63)) - 1);
                total += 2 * (int64_t)(below[at >> 6] + ones(before)) - k;
            }
            for (; k < end; k++) {
                const int32_t at = place[rising[k]];
                bits[at >> 6] |= (int64_t)((uint64_t)1 << (at & 63));
                for (long word = (at >> 6) + 1; word < words; word++)
                    below[word]++;
            }
        }
        out[row] = total;
    }
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_battery", .m_doc = "Called through ctypes: see battery.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__battery(void) { return PyModule_Create(&module); }
