/* Sums of cos(2 pi x/s) and sin(2 pi x/s) over each individual's results, for many steps s: what `sums_in_numpy` in
 * last_digits.py does, which is the oracle of this file. Polynomials stand for both functions, so that the loop over the
 * results is plain arithmetic, which compilers turn into vector instructions.
 *
 * The function touches no Python object, and so is called without the interpreter's lock. */

#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Adding and taking away 1.5 * 2^52 rounds a double to the nearest whole number. */
static const double ROUND = 6755399441055744.0;

/* Compiled for wider registers too, where the compiler can have the machine choose. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

#define LANES 8 /* n is a multiple of it */

/* Sums over one row at one step. With x/s = whole + t and t in [-1/2, 1/2]: Taylor series of sin(pi t) and cos(pi t),
 * whose first terms left out are below 4e-6, then the double angle. */
WIDE static void sums(long n, const double *x, double rate, double *cosines, double *sines)
{
    double c[LANES] = {0.0}, s[LANES] = {0.0};
    for (long j = 0; j < n; j += LANES)
        for (int lane = 0; lane < LANES; lane++) { /* several sums at once: additions wait for each other otherwise */
            const double turns = rate * x[j + lane];
            const double t = turns - ((turns + ROUND) - ROUND), y = t * t;
            const double sine = t * (3.1415926535897932 + y * (-5.1677127800499702 + y * (2.5501640398773455 +
                                y * (-0.59926452932079210 + y * 0.082145886611128233))));
            const double cosine = 1.0 + y * (-4.9348022005446790 + y * (4.0587121264167676 + y * (-1.3352627688545893 +
                                  y * (0.23533063035889316 + y * -0.025806891390014061))));
            c[lane] += 1.0 - 2.0 * sine * sine;
            s[lane] += 2.0 * sine * cosine;
        }
    for (int lane = 0; lane < LANES; lane++) {
        *cosines += c[lane];
        *sines += s[lane];
    }
}

/* `values` (rows, n) → `out` (rows, steps, 2), the sums of cosines and of sines; `rates` are 1/s, n is a multiple of
 * LANES: zeros stand where there is no result, and each adds 1 to the cosines. */
void empriv_residue_sums(long rows, long n, const double *values, long steps, const double *rates, double *out)
{
    for (long row = 0; row < rows; row++)
        for (long k = 0; k < steps; k++) {
            double *place = out + 2 * (row * steps + k);
            place[0] = place[1] = 0.0;
            sums(n, values + row * n, rates[k], place, place + 1);
        }
}

/* The same without each of some individuals, from the sums with everyone `all` (steps, 2): `each` (points, steps, 2) is
 * what every point adds to them, `where` and `entries` are the points that an individual changes and what they become,
 * from `starts[i]` on. `room` holds as many values as anybody changes, and up to a multiple of LANES. */
void empriv_residue_sums_without(long rows, const int64_t *row, const int64_t *starts, const int32_t *where,
                                 const double *entries, long steps, const double *rates, const double *each,
                                 const double *all, double *room, double *out)
{
    for (long r = 0; r < rows; r++) {
        const int64_t first = starts[row[r]], count = starts[row[r] + 1] - first;
        const int64_t filled = (count + LANES - 1) / LANES * LANES;
        double *place = out + 2 * r * steps;
        memcpy(place, all, 2 * steps * sizeof(double));
        memcpy(room, entries + first, count * sizeof(double));
        memset(room + count, 0, (filled - count) * sizeof(double)); /* a zero has cosine 1 */
        for (int64_t j = 0; j < count; j++) {
            const double *gone = each + 2 * steps * where[first + j];
            for (long k = 0; k < 2 * steps; k++)
                place[k] -= gone[k];
        }
        for (long k = 0; k < steps; k++) {
            place[2 * k] -= (double)(filled - count);
            sums(filled, room, rates[k], place + 2 * k, place + 2 * k + 1);
        }
    }
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_residues", .m_doc = "Called through ctypes: see last_digits.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__residues(void) { return PyModule_Create(&module); }
