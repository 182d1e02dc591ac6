/* Hockey sticks of the Laplace kernel with one bandwidth, from their crossings. With D the points passed, numerator
 * minus e times denominator, the integral of p - e p_i up to a root is D -+ sqrt(-A B), minus where it falls through zero
 * and plus where it rises; A and B are the sums of e^x and e^-x on either side (docs/method.md, "Laplace kernel").
 * Exact for moderate e: a large one would cancel. Knots in laplace.py is the oracle.
 *
 * Points come scaled by the bandwidth, centred, sorted, and with their exponentials, so that no libm call is made here.
 * The function touches no Python object, and so is called without the interpreter's lock. */

#include <Python.h>
#include <math.h>

/* Knots of one individual: their e^x, sums of e^x (left) and e^-x (right) of points with everyone [0] and without them
 * [1] up to each knot, how many there are with everyone, and the ratio p/p_i. */
typedef struct {
    double *up, *left[2], *right[2], *count, *ratio;
} Knots;

static Knots knots_in(double *scratch, long room)
{
    return (Knots){scratch,
                   {scratch + room, scratch + 2 * room},
                   {scratch + 3 * room, scratch + 4 * room},
                   scratch + 5 * room,
                   scratch + 6 * room};
}

/* Merges m points with everyone and n without the individual, both rising; gives the least and largest ratio. */
static void add_up(Knots s, long m, const double *points, const double *points_up, long n, const double *x,
                   const double *x_up, double *low, double *high)
{
    double sum_a = 0.0, sum_b = 0.0, count = 0.0;
    for (long k = 0, i = 0, j = 0; k < m + n; k++) {
        const int with_all = j >= n || (i < m && points[i] <= x[j]);
        const double value = with_all ? points_up[i] : x_up[j];
        if (with_all) {
            sum_a += value;
            count += 1.0;
            i++;
        } else {
            sum_b += value;
            j++;
        }
        s.up[k] = value;
        s.left[0][k] = sum_a;
        s.left[1][k] = sum_b;
        s.count[k] = count;
    }
    double least = INFINITY, most = 0.0;
    sum_a = sum_b = 0.0;
    for (long k = m + n - 1; k >= 0; k--) {
        const double down = 1.0 / s.up[k];
        const int with_all = s.count[k] > (k ? s.count[k - 1] : 0.0);
        const double right_a = sum_a * s.up[k], right_b = sum_b * s.up[k]; /* points strictly to the right */
        sum_a += with_all ? down : 0.0;
        sum_b += with_all ? 0.0 : down;
        s.right[0][k] = sum_a;
        s.right[1][k] = sum_b;
        s.ratio[k] = (s.left[0][k] * down + right_a) / (s.left[1][k] * down + right_b);
        least = s.ratio[k] < least ? s.ratio[k] : least;
        most = s.ratio[k] > most ? s.ratio[k] : most;
    }
    *low = least;
    *high = most;
}

/* The hockey stick at one e, not divided by n: p over p_i in direction 0, positive where ratio > e, and the other way in
 * direction 1, positive where ratio < 1/e. */
static double stick(Knots s, long knots, double e, int direction)
{
    const int sign = direction ? -1 : 1;
    const double bar = direction ? -1.0 / e : e;
    const double *left_a = s.left[direction], *left_b = s.left[1 - direction];
    const double *right_a = s.right[direction], *right_b = s.right[1 - direction];
    double total = 0.0;
    int before = sign * s.ratio[0] > bar;
    for (long k = 1; k <= knots; k++) {
        const int now = k < knots && sign * s.ratio[k] > bar;
        if (k == knots ? !before : now == before)
            continue;
        const double with_all = s.count[k - 1], without = (double)k - with_all;
        const double passed = direction ? without - e * with_all : with_all - e * without;
        double root = 0.0; /* positive to the very end, there is none */
        if (k < knots) {
            const double product = -((left_a[k - 1] - e * left_b[k - 1]) * (right_a[k] - e * right_b[k]));
            root = product > 0.0 ? sqrt(product) : 0.0;
        }
        total += (before ? passed : -passed) - root;
        before = now;
    }
    return total;
}

/* For each of `rows` individuals: sticks of both directions (rows, 2, size) at `size` ascending values of e, not divided
 * by n, and the smallest and largest ratio p/p_i. The first `m` of n points with everyone count, and the first
 * counts[row] without each: what follows are atoms. `scratch` has room for 14 n doubles. */
void empriv_laplace_sticks(long rows, long n, long m, const double *points, const double *points_up,
                           const long long *counts, const double *without, const double *without_up, long size,
                           const double *e, double *out, double *low, double *high, double *scratch)
{
    const Knots s = knots_in(scratch, 2 * n);
    for (long row = 0; row < rows; row++) {
        add_up(s, m, points, points_up, (long)counts[row], without + row * n, without_up + row * n, low + row,
               high + row);
        for (long c = 0; c < 2 * size; c++) {
            const int direction = c >= size;
            const double at = e[c % size];
            const int any = direction ? at * low[row] < 1.0 : at < high[row];
            out[row * 2 * size + c] = any ? stick(s, m + (long)counts[row], at, direction) : 0.0;
        }
    }
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_laplace", .m_doc = "Called through ctypes: see laplace.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__laplace(void) { return PyModule_Create(&module); }
