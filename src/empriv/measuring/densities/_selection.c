/* Sums of Gaussian kernels at each point over all others, for many bandwidths: what `sums_in_numpy` in selection.py does,
 * which is the oracle of this file. A polynomial stands for the exponential, so that the loop over the centres is plain
 * arithmetic, which compilers turn into vector instructions.
 *
 * The function touches no Python object, and so is called without the interpreter's lock. */

#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Adding and taking away 1.5 * 2^52 rounds a double to the nearest whole number; its last bits are that number. */
static const double ROUND = 6755399441055744.0;

/* Beyond this many times below 1, a kernel is left to the library's exponential. */
#define FARTHEST 700.0

/* Compiled for wider registers too, where the compiler can have the machine choose. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define WIDE __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define WIDE
#endif

#define LANES 16 /* n is a multiple of it */

/* Sum of weight e^(-rate a). With rate a = whole ln 2 - r and |r| <= ln 2 / 2: the Taylor series of e^r, whose first
 * term left out is below 2e-16, then `whole` is taken from the exponent. */
WIDE static double sum(long n, const double *a, const double *weight, double rate)
{
    double lanes[LANES] = {0.0}, total = 0.0;
    for (long j = 0; j < n; j += LANES)
        for (int lane = 0; lane < LANES; lane++) { /* several sums at once: additions wait for each other otherwise */
            const double t = rate * a[j + lane], near = t < FARTHEST ? -t : -FARTHEST;
            const double shifted = near * 1.4426950408889634 + ROUND, whole = shifted - ROUND;
            const double r = (near - whole * 0.693147180369123816490) - whole * 1.90821492927058770002e-10;
            double e = 1.0 / 479001600;
            e = e * r + 1.0 / 39916800;
            e = e * r + 1.0 / 3628800;
            e = e * r + 1.0 / 362880;
            e = e * r + 1.0 / 40320;
            e = e * r + 1.0 / 5040;
            e = e * r + 1.0 / 720;
            e = e * r + 1.0 / 120;
            e = e * r + 1.0 / 24;
            e = e * r + 1.0 / 6;
            e = e * r + 0.5;
            e = e * r + 1.0;
            e = e * r + 1.0;
            uint64_t bits, exponent;
            memcpy(&bits, &e, sizeof bits);
            memcpy(&exponent, &shifted, sizeof exponent);
            bits += exponent << 52;
            memcpy(&e, &bits, sizeof bits);
            lanes[lane] += e * weight[j + lane];
        }
    for (int lane = 0; lane < LANES; lane++)
        total += lanes[lane];
    return total;
}

/* Points `first` to `last` of the n points `x`: sums over their partners, which are of another group and not tied, of
 * exp(-z^2/2)/h, where z is the distance in bandwidths h → `out` (sets, scales, last - first). A bandwidth is a scale
 * times the centre's width, of `widths` (sets, n), or of `next` where the point is no farther from the centre than its
 * width. `room` holds 2 (n + LANES) values. */
void empriv_gaussian_sums(long first, long last, long n, const double *x, const int64_t *groups, double tolerance,
                          long sets, const double *widths, const double *next, long scales, const double *scale,
                          double *room, double *out)
{
    double *a = room, *weight = room + n + LANES;
    for (long set = 0; set < sets; set++)
        for (long i = first; i < last; i++) {
            long count = 0;
            double largest = 0.0;
            for (long j = 0; j < n; j++) {
                const double distance = fabs(x[i] - x[j]), own = widths[set * n + j];
                const double width = distance <= own ? next[set * n + j] : own;
                a[count] = 0.5 * (distance / width) * (distance / width);
                weight[count] = 1.0 / width;
                count += (distance > tolerance) & (groups[i] != groups[j]);
            }
            for (long j = 0; j < count; j++)
                largest = weight[j] > largest ? weight[j] : largest;
            const long full = (count + LANES - 1) / LANES * LANES;
            for (long j = count; j < full; j++)
                a[j] = weight[j] = 0.0;
            for (long k = 0; k < scales; k++) {
                const double rate = 1.0 / (scale[k] * scale[k]);
                double total = sum(full, a, weight, rate);
                if (!(total > 1e-290 * largest)) { /* every kernel is far away */
                    total = 0.0;
                    for (long j = 0; j < count; j++)
                        total += exp(-rate * a[j]) * weight[j];
                }
                out[(set * scales + k) * (last - first) + i - first] = total / scale[k];
            }
        }
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_selection", .m_doc = "Called through ctypes: see selection.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__selection(void) { return PyModule_Create(&module); }
