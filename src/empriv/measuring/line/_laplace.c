/* Hockey sticks of the Laplace kernel with one bandwidth, from their crossings: what ScanBlock in laplace.py does in
 * numpy, one individual at a time. That class is the oracle of this file; the formulas are in docs/mathematics.md.
 *
 * Points come scaled by the bandwidth, centred, sorted, and with their exponentials, so that no libm call is made here.
 * The function touches no Python object, and so is called without the interpreter's lock. */

#include <Python.h>
#include <math.h>

/* One direction at one e: sums of e^x (left) and e^-x (right) and counts of the numerator and of the denominator up to
 * each knot; `sign` is 1 for p over p_i, where it is positive where ratio > e, and -1 for p_i over p, where it is
 * positive where ratio < 1/e. */
static double stick(long knots, const double *ratio, const double *left_a, const double *left_b, const double *right_a,
                    const double *right_b, const double *count, double e, int sign)
{
    const double bar = sign > 0 ? e : -1.0 / e;
    double total = 0.0;
    int before = sign * ratio[0] > bar;
    for (long k = 1; k < knots; k++) {
        const int now = sign * ratio[k] > bar;
        if (now != before) {
            const double a = left_a[k - 1] - e * left_b[k - 1], b = right_a[k] - e * right_b[k];
            const double product = -(a * b);
            const double with_all = count[k - 1], without = (double)k - with_all;
            const double passed = sign > 0 ? with_all - e * without : without - e * with_all;
            total += (before ? passed : -passed) - (product > 0.0 ? sqrt(product) : 0.0);
            before = now;
        }
    }
    return before ? total + 0.5 * (double)knots * (1.0 - e) : total; /* positive to the very end */
}

/* For each of `rows` individuals: sticks at `size` ascending values of e (the larger of both directions, not divided by
 * n), and the smallest and largest ratio p/p_i. `scratch` has room for 14 n doubles. */
void empriv_laplace_sticks(long rows, long n, const double *points, const double *points_up, const double *without,
                           const double *without_up, long size, const double *e, double *out, double *low,
                           double *high, double *scratch)
{
    const long knots = 2 * n;
    double *up = scratch, *ca = up + knots, *cb = ca + knots, *ra = cb + knots, *rb = ra + knots, *na = rb + knots,
           *ratio = na + knots;
    for (long row = 0; row < rows; row++) {
        const double *x = without + row * n, *x_up = without_up + row * n;
        double sum_a = 0.0, sum_b = 0.0, count = 0.0;
        for (long k = 0, i = 0, j = 0; k < knots; k++) {
            const int with_all = j >= n || (i < n && points[i] <= x[j]);
            const double value = with_all ? points_up[i] : x_up[j];
            if (with_all) {
                sum_a += value;
                count += 1.0;
                i++;
            } else {
                sum_b += value;
                j++;
            }
            up[k] = value;
            ca[k] = sum_a;
            cb[k] = sum_b;
            na[k] = count;
        }
        double least = INFINITY, most = 0.0;
        sum_a = sum_b = 0.0;
        for (long k = knots - 1; k >= 0; k--) {
            const double down = 1.0 / up[k];
            const int with_all = na[k] > (k ? na[k - 1] : 0.0);
            const double right_a = sum_a * up[k], right_b = sum_b * up[k]; /* points strictly to the right */
            sum_a += with_all ? down : 0.0;
            sum_b += with_all ? 0.0 : down;
            ra[k] = sum_a;
            rb[k] = sum_b;
            ratio[k] = (ca[k] * down + right_a) / (cb[k] * down + right_b);
            least = ratio[k] < least ? ratio[k] : least;
            most = ratio[k] > most ? ratio[k] : most;
        }
        low[row] = least;
        high[row] = most;
        double *sticks = out + row * size;
        for (long c = 0; c < size; c++) {
            double one = 0.0, other = 0.0;
            if (e[c] >= most && e[c] * least >= 1.0) { /* beyond both: nothing from here on */
                for (; c < size; c++)
                    sticks[c] = 0.0;
                break;
            }
            if (e[c] < most)
                one = stick(knots, ratio, ca, cb, ra, rb, na, e[c], 1);
            if (e[c] * least < 1.0)
                other = stick(knots, ratio, cb, ca, rb, ra, na, e[c], -1);
            sticks[c] = one > other ? one : other;
        }
    }
}

/* e^s - 1 for s >= 0, never too small: a series for s up to 1/2 whose last term stands for all that follow, doubled as
 * often as it takes. Beyond 128 it is some large number: nobody asks how large. */
static double growth(double s)
{
    int halved = 0;
    if (!(s < 128.0))
        return 1e60;
    for (; s > 0.5; halved++)
        s *= 0.5;
    double g = 1.0 / 24 + s * (1.0 / 120 + s * (1.0 / 720 + s / 4700));
    g = s * (1.0 + s * (1.0 / 2 + s * (1.0 / 6 + s * g)));
    for (; halved > 0; halved--)
        g *= 2.0 + g;
    return g;
}

/* For each of `count` individuals, `rows`, with entries from starts[row] on: the largest average of e^|shift| - 1 over
 * the points, each weighted by its kernel, at any place; shifts are in bandwidths. That is a ratio of two mixtures at
 * the same knots, so that it is largest at one of these. `place` is the position of a point among the sorted ones,
 * `decay` the kernel from each of these to the one before, `weight` the inverse of the kernels' sum there; `scratch`
 * has room for 2 n. */
void empriv_laplace_reach(long count, const long long *rows, long n, const double *points, const int *place,
                          const double *decay, const double *weight, double scale, const long long *starts,
                          const int *entry_point, const double *entries, double *out, double *scratch)
{
    double *change = scratch, *left = scratch + n;
    for (long row = 0; row < count; row++) {
        for (long k = 0; k < n; k++)
            change[k] = 0.0;
        for (long long j = starts[rows[row]]; j < starts[rows[row] + 1]; j++) {
            const int point = entry_point[j];
            change[place[point]] = growth(fabs(entries[j] - points[point]) * scale);
        }
        double sum = 0.0, most = 0.0;
        for (long k = 0; k < n; k++)
            left[k] = sum = sum * decay[k] + change[k];
        sum = 0.0;
        for (long k = n - 1; k >= 0; k--) {
            const double average = (left[k] + sum) * weight[k];
            most = average > most ? average : most;
            sum = (sum + change[k]) * decay[k];
        }
        out[row] = most;
    }
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_laplace", .m_doc = "Called through ctypes: see compiled.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__laplace(void) { return PyModule_Create(&module); }
