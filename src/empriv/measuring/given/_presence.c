/* Blocks of people given presence: what presence_block.py does in numpy, one person at a time;
 * and masses in cells of series/effects.py. They are the oracles of this file; the formulas are there and in
 * docs/mathematics.md, "Laplace kernel".
 *
 * A person has `runs` runs of n places each: the others' first, then these moved by each influence. Nothing here touches
 * a Python object, and so all is called without the interpreter's lock. */

#include <Python.h>
#include <math.h>
#include <string.h>

typedef struct {
    double key;
    long place;
} Knot;

static void merge(const Knot *a, const Knot *end_a, const Knot *b, const Knot *end_b, Knot *out)
{
    while (a < end_a && b < end_b) { /* no branch: the processor would often guess wrong which comes next */
        const int later = b->key < a->key;
        const Knot *next = later ? b : a;
        *out++ = *next;
        b += later;
        a += !later;
    }
    memcpy(out, a, (size_t)(end_a - a) * sizeof(Knot));
    memcpy(out + (end_a - a), b, (size_t)(end_b - b) * sizeof(Knot));
}

/* Sorts `knots`, of which stretches of `width` are sorted already; gives whichever of the two arrays holds the result. */
static Knot *merge_sort(Knot *knots, Knot *other, long size, long width)
{
    for (; width < size; width *= 2) {
        for (long start = 0; start < size; start += 2 * width) {
            const long middle = start + width < size ? start + width : size;
            const long end = middle + width < size ? middle + width : size;
            merge(knots + start, knots + middle, knots + middle, knots + end, other + start);
        }
        Knot *swapped = knots;
        knots = other;
        other = swapped;
    }
    return knots;
}

/* Sorts n knots in place where few steps will do, as for influences that change the order little; or gives up. */
static int insertion_sort(Knot *knots, long n)
{
    long steps = 8 * n;
    for (long k = 1; k < n; k++) {
        const Knot moved = knots[k];
        long place = k;
        for (; place > 0 && moved.key < knots[place - 1].key; place--) {
            if (!steps--) {
                knots[place] = moved;
                return 0;
            }
            knots[place] = knots[place - 1];
        }
        knots[place] = moved;
    }
    return 1;
}

/* `order` (rows, most n): which of the first `runs[row]` n places of each row comes when. `scratch` has room for
 * 2 most n knots, of two doubles each. */
void empriv_presence_order(long rows, long most, long n, const long *runs, const double *x, long *order, Knot *scratch)
{
    for (long row = 0; row < rows; row++) {
        const double *place = x + row * most * n;
        const long size = runs[row] * n;
        Knot *knots = scratch, *other = scratch + most * n;
        for (long run = 0; run < runs[row]; run++) {
            Knot *own = knots + run * n;
            for (long k = 0; k < n; k++) { /* an influence that is the same in all databases keeps their order */
                own[k].place = run ? knots[k].place + run * n : k;
                own[k].key = place[own[k].place];
            }
            if (!run || !insertion_sort(own, n)) {
                const Knot *sorted = merge_sort(own, other, n, 1);
                if (sorted != own)
                    memcpy(own, sorted, (size_t)n * sizeof(Knot));
            }
        }
        knots = merge_sort(knots, other, size, n);
        for (long k = 0; k < size; k++)
            order[row * most * n + k] = knots[k].place;
    }
}

/* Sums at the knots of one person, of the others [0] and present [1]; `weight` of each knot, and two
 * columns for `empriv_presence_values`. */
typedef struct {
    double *up, *weight, *rising[2], *falling[2], *density[2], *passed[2], *root, *share;
} Sums;

static const int COLUMNS = 12; /* of scratch, for `Sums` */

static Sums sums_in(double *scratch, long room)
{
    Sums s;
    double **column[] = {&s.up,         &s.weight,     &s.rising[0], &s.rising[1], &s.falling[0], &s.falling[1],
                         &s.density[0], &s.density[1], &s.passed[0], &s.passed[1], &s.root,       &s.share};
    for (int k = 0; k < COLUMNS; k++)
        *column[k] = scratch + k * room;
    return s;
}

/* Weights are those of the run that a place is in, or of its database: by stretches of `by_run` and `by_database`. */
typedef struct {
    const double *weights;
    long by_run, by_database;
} Weights;

static void add_up(Sums s, long size, long n, const long *order, const double *up, Weights of)
{
    double total[2] = {0.0, 0.0}, passed[2] = {0.0, 0.0};
    for (long k = 0; k < size; k++) {
        const long source = order[k], run = source / n;
        const int side = run > 0;
        s.weight[k] = of.weights[run * of.by_run + (source - run * n) * of.by_database];
        s.up[k] = up[source];
        total[side] += s.weight[k] * s.up[k];
        passed[side] += s.weight[k];
        for (int i = 0; i < 2; i++) {
            s.rising[i][k] = total[i];
            s.passed[i][k] = passed[i];
        }
    }
    total[0] = total[1] = 0.0;
    for (long k = size - 1; k >= 0; k--) {
        const double down = 1.0 / s.up[k];
        for (int i = 0; i < 2; i++) /* here `total` is of points strictly to the right: no point counts twice */
            s.density[i][k] = s.rising[i][k] * down + total[i] * s.up[k];
        total[order[k] >= n] += s.weight[k] * down;
        for (int i = 0; i < 2; i++)
            s.falling[i][k] = total[i];
    }
}

/* The hockey stick at one e of one side over the other: `a` 0 is the others over present. */
static double one_way(Sums s, long size, double e, int a)
{
    const int b = 1 - a;
    double total = 0.0;
    int before = s.density[a][0] > e * s.density[b][0];
    for (long k = 1; k < size; k++) {
        const int now = s.density[a][k] > e * s.density[b][k];
        if (now == before)
            continue;
        const double left = s.rising[a][k - 1] - e * s.rising[b][k - 1];
        const double right = s.falling[a][k] - e * s.falling[b][k];
        const double passed = s.passed[a][k - 1] - e * s.passed[b][k - 1];
        total += (before ? passed : -passed) - (left * right < 0.0 ? sqrt(-(left * right)) : 0.0);
        before = now;
    }
    return total + (before ? s.passed[a][size - 1] - e * s.passed[b][size - 1] : 0.0); /* positive to the very end */
}

/* The larger of both directions, and at least 0. */
static double stick(Sums s, long size, double e)
{
    return fmax(fmax(one_way(s, size, e, 0), one_way(s, size, e, 1)), 0.0);
}

/* Sticks at each e, `out` (rows, count), times the sum of the weights of a side. `weights` (rows, most) of the runs. */
void empriv_presence_sticks(long rows, long most, long n, const long *runs, const long *order, const double *up,
                            const double *weights, long count, const double *e, double *out, double *scratch)
{
    const Sums s = sums_in(scratch, most * n);
    for (long row = 0; row < rows; row++) {
        const long size = runs[row] * n, first = row * most * n;
        add_up(s, size, n, order + first, up + first, (Weights){weights + row * most, 1, 0});
        for (long c = 0; c < count; c++)
            out[row * count + c] = stick(s, size, e[c]);
    }
}

/* The same where every place has a weight of its own, (rows, most n): `out` (rows, 2, count) is the stick of the others
 * over present, then the other way; and the least and largest ratio of the first density to the second. */
void empriv_placed_sticks(long rows, long most, long n, const long *runs, const long *order, const double *up,
                          const double *weights, long count, const double *e, double *out, double *low, double *high,
                          double *scratch)
{
    const Sums s = sums_in(scratch, most * n);
    for (long row = 0; row < rows; row++) {
        const long size = runs[row] * n, first = row * most * n;
        add_up(s, size, n, order + first, up + first, (Weights){weights + first, n, 1});
        low[row] = INFINITY;
        high[row] = 0.0;
        for (long k = 0; k < size; k++) {
            const double ratio = s.density[0][k] / s.density[1][k];
            low[row] = ratio < low[row] ? ratio : low[row];
            high[row] = ratio > high[row] ? ratio : high[row];
        }
        for (long c = 0; c < 2 * count; c++)
            out[row * 2 * count + c] = one_way(s, size, e[c % count], c >= count);
    }
}

/* min(sd, distance of the quartiles / 1.349) of the others and of present, `out` (rows, 2), where a place of weight w
 * stands for w `each[row]` points: `spread` of selection.py. */
void empriv_placed_spreads(long rows, long most, long n, const long *runs, const long *order, const double *x,
                           const double *weights, const double *each, double *out)
{
    for (long row = 0; row < rows; row++) {
        const long size = runs[row] * n, first = row * most * n;
        for (int side = 0; side < 2; side++) {
            const long from = side ? n : 0, to = side ? size : n;
            double total = 0.0, sum = 0.0, squares = 0.0;
            for (long k = from; k < to; k++) {
                total += weights[first + k];
                sum += weights[first + k] * x[first + k];
            }
            const double points = floor(total * each[row] + 0.5), mean = total > 0.0 ? sum / total : 0.0;
            for (long k = from; k < to; k++)
                squares += weights[first + k] * (x[first + k] - mean) * (x[first + k] - mean);
            const double sd = points > 1.0 ? sqrt(squares * each[row] / (points - 1.0)) : 0.0;
            double quartile[2] = {0.0, 0.0}, passed = 0.0;
            long k = -1;
            for (int which = 0; which < 2; which++) {
                const double at = (which ? 0.75 : 0.25) * (points - 1.0), below = floor(at);
                double value[2] = {0.0, 0.0};
                for (int next = 0; next < 2; next++) { /* the points number `below` and the one after it, from 0 */
                    while (passed <= below + next + 0.5 && k + 1 < size) {
                        k++;
                        const long place = order[first + k];
                        passed += (place >= n) == side ? weights[first + place] * each[row] : 0.0;
                    }
                    value[next] = x[first + order[first + (k < 0 ? 0 : k)]];
                }
                quartile[which] = value[0] + (at - below) * (value[1] - value[0]);
            }
            const double quartiles = (quartile[1] - quartile[0]) / 1.349;
            out[row * 2 + side] = quartiles > 0.0 && quartiles < sd ? quartiles : sd;
        }
    }
}

/* Values for each database whose means are the hockey sticks: `out` (count, 2, rows, n), the others over present first.
 * They are made of how much of the kernel at each knot lies in the set where one density exceeds e the other. */
void empriv_presence_values(long rows, long most, long n, const long *runs, const long *order, const double *up,
                            const double *weights, long count, const double *e, double *out, double *scratch)
{
    const Sums s = sums_in(scratch, most * n);
    for (long row = 0; row < rows; row++) {
        const long size = runs[row] * n;
        const long *own = order + row * most * n;
        add_up(s, size, n, own, up + row * most * n, (Weights){weights + row * most, 1, 0});
        for (long direction = 0; direction < 2 * count; direction++) {
            const int a = (int)(direction % 2), b = 1 - a;
            const double factor = e[direction / 2], of_others = a ? -factor : 1.0, of_present = a ? 1.0 : -factor;
            double *values = out + (direction * rows + row) * n;
            memset(values, 0, (size_t)n * sizeof(double));
            /* of roots e^r where the set begins and ends: sums of e^r to the left, then of e^-r to the right */
            double sum = 0.0;
            int inside = s.density[a][0] > factor * s.density[b][0];
            s.root[0] = 0.0;
            s.share[0] = inside;
            for (long k = 1; k < size; k++) {
                const int now = s.density[a][k] > factor * s.density[b][k];
                s.root[k] = 0.0;
                if (now != inside) {
                    const double left = s.rising[a][k - 1] - factor * s.rising[b][k - 1];
                    const double right = s.falling[a][k] - factor * s.falling[b][k];
                    const double root = fmin(fmax(sqrt(fmax(-left / right, 0.0)), s.up[k - 1]), s.up[k]);
                    s.root[k] = inside ? root : -root;
                    sum += s.root[k];
                    inside = now;
                }
                s.share[k] = inside + 0.5 / s.up[k] * sum;
            }
            sum = 0.0;
            for (long k = size - 1; k >= 0; k--) {
                const double share = s.share[k] - 0.5 * s.up[k] * sum;
                values[own[k] % n] += share * s.weight[k] * (own[k] < n ? of_others : of_present);
                sum += s.root[k] != 0.0 ? 1.0 / s.root[k] : 0.0;
            }
        }
    }
}

#define GROUPS 256 /* at most */

/* Groups of near influences, as in `grouped`: those of a row are `rising` from starts[row] to starts[row + 1]. `out` are
 * means and weights (rows, most), 0 beyond counts[row]; `changed` is what grouping changes of delta at most. */
void empriv_presence_groups(long rows, const long *starts, const double *rising, const double *bandwidths,
                            double tolerance, long most, double *means, double *weights, long *counts,
                            double *changed, double *scratch)
{
    for (long row = 0; row < rows; row++) {
        const double *own = rising + starts[row];
        const long size = starts[row + 1] - starts[row];
        double *sums = scratch, *squares = sums + size + 1, *rest = squares + size + 1;
        long count = 1, first[GROUPS], last[GROUPS];
        const double scale = 2.0 * bandwidths[row] * bandwidths[row] * (double)size;
        sums[0] = squares[0] = 0.0;
        for (long k = 0; k < size; k++) {
            sums[k + 1] = sums[k] + own[k];
            squares[k + 1] = squares[k] + own[k] * own[k];
        }
#define REST(from, to)                                                                                                 \
    fmax(0.0, squares[to] - squares[from] - (sums[to] - sums[from]) * (sums[to] - sums[from]) / (double)((to) - (from)))
        first[0] = 0, last[0] = size, rest[0] = REST(0, size);
        double total = rest[0];
        while (count < most && total > tolerance * scale) {
            long worst = 0;
            for (long k = 1; k < count; k++)
                worst = rest[k] > rest[worst] ? k : worst;
            const long from = first[worst], to = last[worst];
            const double mean = (sums[to] - sums[from]) / (double)(to - from);
            long low = from, high = to; /* the first that is not below the mean */
            while (low < high) {
                const long middle = (low + high) / 2;
                if (own[middle] < mean)
                    low = middle + 1;
                else
                    high = middle;
            }
            const long cut = low < from + 1 ? from + 1 : low > to - 1 ? to - 1 : low;
            for (long k = worst; k + 1 < count; k++)
                first[k] = first[k + 1], last[k] = last[k + 1], rest[k] = rest[k + 1];
            first[count - 1] = from, last[count - 1] = cut, rest[count - 1] = REST(from, cut);
            first[count] = cut, last[count] = to, rest[count] = REST(cut, to);
            count++;
            total = 0.0;
            for (long k = 0; k < count; k++)
                total += rest[k];
        }
        for (long k = 0; k < most; k++) {
            const double members = k < count ? (double)(last[k] - first[k]) : 0.0;
            means[row * most + k] = k < count ? (sums[last[k]] - sums[first[k]]) / members : 0.0;
            weights[row * most + k] = members / (double)size;
        }
        counts[row] = count;
        changed[row] = total / scale;
    }
}

/* Mass below each of `count` edges that are 1/cells apart, of Laplace kernels of width 1: for each of `rows`, `points`
 * of them with the shares of row / each of `shares`. `out` (rows, count + 2) begins with 0 and ends with the total.
 * `decay` are powers of exp(-1/cells), count of them. What is no number has no mass. */
void empriv_cumulated(long rows, long points, const double *x, long each, const double *shares, long count,
                      const double *edges, const double *decay, double cells, double *out)
{
    for (long row = 0; row < rows; row++) {
        double *below = out + row * (count + 2) + 1;
        memset(below - 1, 0, (size_t)(count + 2) * sizeof(double));
        for (long k = 0; k < points; k++) {
            const double place = x[row * points + k];
            const double half = 0.5 * shares[row / each * points + k];
            if (!isfinite(place))
                continue;
            const double steps = ceil((place - edges[0]) * cells);
            long first = steps < 0.0 ? 0 : steps > (double)count ? count : (long)steps; /* edge that is not below */
            while (first > 0 && edges[first - 1] >= place)
                first--;
            while (first < count && edges[first] < place)
                first++;
            const double right = first < count ? half * exp(place - edges[first]) : 0.0;
            const double left = first > 0 ? half * exp(edges[first - 1] - place) : 0.0;
            for (long edge = first; edge < count; edge++)
                below[edge] += 2.0 * half - right * decay[edge - first];
            for (long edge = 0; edge < first; edge++)
                below[edge] += left * decay[first - 1 - edge];
            below[count] += 2.0 * half;
        }
    }
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_presence", .m_doc = "Called through ctypes: see compiled_blocks.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__presence(void) { return PyModule_Create(&module); }
