/* Hockey sticks of the Epanechnikov kernel with one bandwidth, one individual at a time. Between neighbouring ends of
 * kernels both densities are parabolas, so that roots and masses are in closed form. `mixtures.py` does the same for any
 * kernel, and is the oracle of this file; the formulas are in docs/mathematics.md.
 *
 * A density is the sum of h^2 - (x - q)^2 over the kernels about x; the caller divides it by its mass. Points come
 * sorted, atoms at +inf last. The function touches no Python object, and so is called without the interpreter's lock. */

#include <Python.h>
#include <math.h>
#include <string.h>

#define LANES 4
#define FEW 8    /* kernels that are added up anew at every knot */
#define STEPS 16 /* knots after which any number is */

/* One side: its sorted points, which of them are active, [ended, begun), and the density c0 + c1 t + c2 t^2 at t from
 * the knot. */
typedef struct {
    const double *q;
    long n, begun, ended, steps;
    double c0, c1, c2, peak;
} Side;

/* Density and slope at x from all kernels but those that begin there, `old` and later, of which the density is zero: a
 * sum of positive terms, hence exact to a few roundings, also where little is left of every kernel. */
static void add_up(Side *side, long old, double x, double h)
{
    double value[LANES] = {0.0}, slope[LANES] = {0.0};
    long j = side->ended;
    for (; j + LANES <= old; j += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            const double u = x - side->q[j + lane];
            value[lane] += (h - u) * (h + u);
            slope[lane] += u;
        }
    for (; j < old; j++) {
        const double u = x - side->q[j];
        value[0] += (h - u) * (h + u);
        slope[0] += u;
    }
    for (; j < side->begun; j++)
        slope[0] += x - side->q[j];
    const double total = (value[0] + value[1]) + (value[2] + value[3]);
    side->c0 = total > 0.0 ? total : 0.0;
    side->c1 = -2.0 * ((slope[0] + slope[1]) + (slope[2] + slope[3]));
    side->peak = side->c0;
    side->steps = 0;
}

/* From the knot before, `width` away, to x. Kernels are added up anew where carrying the parabola on would cancel. */
static void move_to(Side *side, double x, double width, double h)
{
    const long old = side->begun, gone = side->ended;
    while (side->begun < side->n && side->q[side->begun] - h <= x)
        side->begun++;
    while (side->ended < side->begun && side->q[side->ended] + h <= x)
        side->ended++;
    const long active = side->begun - side->ended;
    double value = side->c0 + width * (side->c1 + width * side->c2), slope = side->c1 + 2.0 * width * side->c2;
    for (long j = gone; j < side->ended && j < old; j++)
        slope += 2.0 * (x - side->q[j]);
    for (long j = old > side->ended ? old : side->ended; j < side->begun; j++)
        slope -= 2.0 * (x - side->q[j]);
    side->c2 = -(double)active;
    side->peak = value > side->peak ? value : side->peak;
    if (active <= FEW || ++side->steps >= STEPS || value < 0.25 * side->peak) {
        add_up(side, old > side->ended ? old : side->ended, x, h);
    } else {
        side->c0 = value;
        side->c1 = slope;
    }
}

static double mass(const double *c, double t) { return t * (c[0] + t * (c[1] / 2.0 + t * (c[2] / 3.0))); }

/* Integral over [0, w] of the positive part of a parabola that is nowhere above `top`. A piece that ends at a root is
 * taken from there, where the slope is known: a difference of two integrals would be rounding where it is short. */
static double positive_part(const double *d, double w, double top)
{
    const double inside = d[1] * d[1] - 4.0 * d[2] * d[0];
    const double root = inside > 0.0 ? sqrt(inside) : 0.0, half = -0.5 * (d[1] + copysign(root, d[1]));
    const double one = half / d[2], other = d[0] / half; /* the first is infinite where the parabola is a line */
    const double first = one < other ? one : other, second = one < other ? other : one;
    const int has_first = root > 0.0 && first > 0.0 && first < w, has_second = root > 0.0 && second > 0.0 && second < w;
    if (!has_first && !has_second) {
        const double all = mass(d, w), middle = 0.5 * w;
        return d[0] + middle * (d[1] + middle * d[2]) > 0.0 && all > 0.0 ? all : 0.0;
    }
    if (has_first && has_second && d[2] < 0.0)
        return root * root * root / (6.0 * d[2] * d[2]);
    const double start = has_first ? first : second, stop = w - (has_second ? second : first);
    double total = 0.0, length = 0.0;
    if (d[1] + 2.0 * d[2] * start < 0.0) { /* it falls: positive up to the first root inside */
        total += start * start * (0.5 * root + start * d[2] / 3.0);
        length += start;
    }
    if (d[1] + 2.0 * d[2] * (w - stop) > 0.0) { /* it rises: positive from the last one on */
        total += stop * stop * (0.5 * root + stop * d[2] / 3.0);
        length += stop;
    }
    total = total < top * length ? total : top * length; /* the length may be nothing but rounding */
    return total > 0.0 ? total : 0.0;
}

/* How many of the ascending values are below v, or at most v. */
static long count_below(const double *e, long size, double v, int or_equal)
{
    long low = 0, high = size;
    while (low < high) {
        const long middle = (low + high) / 2;
        if (e[middle] < v || (or_equal && e[middle] == v))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* One cell in one direction: a over b is between low and high there. Values of e up to `low` take all of it, which is
 * noted in `above` and `below` at the first value that does not; those up to `high` take the part where a > e b. */
static void add_cell(const double *a, const double *b, double w, double low, double high, long size, const double *e,
                     double *out, double *above, double *below)
{
    if (high <= e[0])
        return;
    const long full = count_below(e, size, low, 1), crossed = count_below(e, size, high, 0);
    if (full > 0) {
        above[full] += mass(a, w);
        below[full] += mass(b, w);
    }
    for (long c = full; c < crossed; c++) {
        const double share = 1.0 / e[c]; /* divided by e, of which the square may not be a double */
        const double d[3] = {a[0] * share - b[0], a[1] * share - b[1], a[2] * share - b[2]};
        out[c] += e[c] * positive_part(d, w, (a[0] + w * fabs(a[1])) * share);
    }
}

static double ratio(double a, double slope_a, double b, double slope_b)
{
    return a > 0.0 || b > 0.0 ? a / b : slope_a / slope_b; /* both begin or end here */
}

/* For each of `rows` individuals: sticks at `size` ascending values of e in both directions, `out` (rows, 2, size), and
 * the smallest and largest ratio p/p_i. `scratch` has room for 4 (size + 1). */
void empriv_epanechnikov_sticks(long rows, long n, const double *points, const double *without, double h, long size,
                                const double *e, double *out, double *low, double *high, double *scratch)
{
    long n_points = n;
    while (n_points > 0 && isinf(points[n_points - 1]))
        n_points--;
    memset(out, 0, rows * 2 * size * sizeof(double));
    for (long row = 0; row < rows; row++) {
        Side p = {.q = points, .n = n_points}, q = {.q = without + row * n, .n = n};
        while (q.n > 0 && isinf(q.q[q.n - 1]))
            q.n--;
        double *sticks = out + row * 2 * size, *above = scratch, *below = above + size + 1, *above_back = below + size + 1,
               *below_back = above_back + size + 1;
        memset(scratch, 0, 4 * (size + 1) * sizeof(double));
        double least = INFINITY, most = 0.0, x = 0.0;
        while (p.ended < p.n || q.ended < q.n) {
            double next = INFINITY;
            const Side *sides[2] = {&p, &q};
            for (int k = 0; k < 2; k++) {
                const Side *side = sides[k];
                if (side->begun < side->n && side->q[side->begun] - h < next)
                    next = side->q[side->begun] - h;
                if (side->ended < side->begun && side->q[side->ended] + h < next)
                    next = side->q[side->ended] + h;
            }
            const double a[3] = {p.c0, p.c1, p.c2}, b[3] = {q.c0, q.c1, q.c2}, w = next - x;
            const int has_a = p.begun > p.ended, has_b = q.begun > q.ended;
            move_to(&p, next, w, h);
            move_to(&q, next, w, h);
            x = next;
            if (!has_a && !has_b)
                continue;
            double lowest = has_b ? 0.0 : INFINITY, highest = lowest; /* where there is nothing of one side */
            if (has_a && has_b) {
                const double left = ratio(a[0], a[1], b[0], b[1]);
                const double right = ratio(p.c0, a[1] + 2.0 * w * a[2], q.c0, b[1] + 2.0 * w * b[2]);
                lowest = left < right ? left : right;
                highest = left < right ? right : left;
                /* the ratio turns where a' b - a b', of degree 2, is zero */
                const double t0 = a[1] * b[0] - a[0] * b[1], t1 = a[2] * b[0] - a[0] * b[2], t2 = a[2] * b[1] - a[1] * b[2];
                const double inside = t1 * t1 - t0 * t2;
                if (inside > 0.0) {
                    const double half = -(t1 + copysign(sqrt(inside), t1)), turns[2] = {half / t2, t0 / half};
                    for (int k = 0; k < 2; k++) {
                        const double t = turns[k];
                        if (t > 0.0 && t < w) {
                            const double here = (a[0] + t * (a[1] + t * a[2])) / (b[0] + t * (b[1] + t * b[2]));
                            lowest = here < lowest ? here : lowest;
                            highest = here > highest ? here : highest;
                        }
                    }
                }
            }
            least = lowest < least ? lowest : least;
            most = highest > most ? highest : most;
            add_cell(a, b, w, lowest, highest, size, e, sticks, above, below);
            add_cell(b, a, w, 1.0 / highest, 1.0 / lowest, size, e, sticks + size, above_back, below_back);
        }
        for (int direction = 0; direction < 2; direction++) {
            const double *a = direction ? above_back : above, *b = direction ? below_back : below;
            double sum_a = 0.0, sum_b = 0.0;
            for (long c = size - 1; c >= 0; c--) {
                sum_a += a[c + 1];
                sum_b += b[c + 1];
                sticks[direction * size + c] += sum_a - e[c] * sum_b;
            }
        }
        low[row] = least;
        high[row] = most;
    }
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_epanechnikov", .m_doc = "Called through ctypes: see compiled.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__epanechnikov(void) { return PyModule_Create(&module); }
