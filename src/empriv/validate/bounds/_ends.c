/* What upper bounds see at the ends of two samples: half-lines, end runs, and whether values are tied. It is what
 * `moments.edges` and `moments.end_runs` do in numpy, one individual at a time; these are its oracles.
 *
 * Points with everyone come sorted. Those without an individual are the same but for a few, so that they are sorted by
 * merging. The function touches no Python object, and so is called without the interpreter's lock. */

#include <Python.h>
#include <math.h>

typedef struct {
    double value; /* without the individual */
    long database;
} Point;

static void sort(Point *points, long count)
{
    for (long gap = count / 2; gap > 0; gap = gap == 2 ? 1 : (long)(gap / 2.2))
        for (long k = gap; k < count; k++) {
            const Point one = points[k];
            long at = k;
            for (; at >= gap && points[at - gap].value > one.value; at -= gap)
                points[at] = points[at - gap];
            points[at] = one;
        }
}

typedef struct {
    long n, draws, depth, size; /* databases, points of each, half-lines beyond the first, epsilons */
    const double *e;
    double z, c; /* the normal quantile of the level, and (1 + 2 z^2) / 6 */
} Asked;

/* Sums over databases of a, b, aa, ab, bb, aaa, aab, abb, bbb, of which a and b are shares of half-lines. */
typedef struct {
    double a, b, aa, ab, bb, aaa, aab, abb, bbb;
} Sums;

/* The bound on the mean of `a - e b` over n databases: it is normal, and mended for skewness (moments.skewed). */
static double bound(const Sums *sums, double e, const Asked *asked)
{
    const double n = (double)asked->n;
    const double mean = (sums->a - e * sums->b) / n, second = (sums->aa - 2.0 * e * sums->ab + e * e * sums->bb) / n;
    const double third = (sums->aaa - 3.0 * e * sums->aab + 3.0 * e * e * sums->abb - e * e * e * sums->bbb) / n;
    const double variance = second - mean * mean;
    if (variance < 1e-12)
        return mean;
    const double skew = third - 3.0 * mean * second + 2.0 * mean * mean * mean;
    return mean + asked->z * sqrt(variance / (n > 1.0 ? n - 1.0 : 1.0)) + asked->c * skew / (variance * n);
}

/* Share of the half-lines from `first` up to `after` that end beyond `value`; they end at the first points of b. */
static double within(const double *b, long last, int sign, long first, long after, double value)
{
    long low = first, high = after;
    while (low < high) {
        const long middle = low + (high - low) / 2;
        if (value < sign * b[sign > 0 ? middle : last - middle])
            high = middle;
        else
            low = middle + 1;
    }
    return (double)(after - low) / (double)(after - first);
}

/* A sample: its points, rising, and the database of each. */
typedef struct {
    const double *points;
    const int *databases;
} Sample;

/* Room for one number of each database and sample, all 0, and for the databases where one is not. */
typedef struct {
    double *shares[2];
    int *touched;
} Counted;

/* Half-lines that end at the first points of b, from the left (sign 1) or from the right (-1), in groups
 * (moments.groups): raises `best`, for each e, to the largest bound. */
static void half_lines(const Asked *asked, const Sample *a, const Sample *b, int sign, const Counted *counted,
                       double *best)
{
    const long N = asked->n * asked->draws, last = N - 1;
    const Sample *samples[2] = {a, b};
    for (long first = 0; first <= asked->depth; first = first < 2 ? first + 1 : 2 * first) {
        long after = first < 2 ? first + 1 : 2 * first, touched = 0;
        after = after > asked->depth + 1 ? asked->depth + 1 : after;
        Sums sums = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
        for (int side = 0; side < 2; side++)
            for (long k = 0; k < N; k++) {
                const long at = sign > 0 ? k : last - k;
                const double share = within(b->points, last, sign, first, after, sign * samples[side]->points[at]);
                if (share == 0.0)
                    break;
                const int database = samples[side]->databases[at];
                if (counted->shares[0][database] == 0.0 && counted->shares[1][database] == 0.0)
                    counted->touched[touched++] = database;
                counted->shares[side][database] += share;
            }
        for (long k = 0; k < touched; k++) {
            double *one = counted->shares[0] + counted->touched[k], *other = counted->shares[1] + counted->touched[k];
            const double x = *one / (double)asked->draws, y = *other / (double)asked->draws;
            sums.a += x, sums.aa += x * x, sums.aaa += x * x * x;
            sums.b += y, sums.bb += y * y, sums.bbb += y * y * y;
            sums.ab += x * y, sums.aab += x * x * y, sums.abb += x * y * y;
            *one = *other = 0.0;
        }
        for (long k = 0; k < asked->size; k++) {
            const double found = bound(&sums, asked->e[k], asked);
            best[k] = found > best[k] ? found : best[k];
        }
    }
}

/* Points from `begin` to `end` that stand alone at an end before the first point of the sample `side`; what is tied
 * with that point is not alone. `step` is 1 from the left, -1 from the right. */
static long run(const double *x, const char *sides, long begin, long end, int side, int step)
{
    long at = step > 0 ? begin : end - 1;
    for (; at >= begin && at < end && sides[at] != side; at += step) {
    }
    long count = step > 0 ? at - begin : end - 1 - at;
    for (long back = 1; count > 0 && x[at - step * back] == x[at]; back++)
        count--;
    return count;
}

/* Most points at an end that one sample holds alone: over all, or added up over clusters, which are cut where
 * neighbours are more than `gap` apart, and count with five points of each sample. */
static long end_runs(const double *x, const char *sides, long knots, double gap)
{
    long most = 0, sums[4] = {0, 0, 0, 0};
    for (int k = 0; k < 4; k++) {
        const long found = run(x, sides, 0, knots, k / 2, k % 2 ? 1 : -1);
        most = found > most ? found : most;
    }
    for (long begin = 0, end = 1; begin < knots; begin = end, end++) {
        long without = sides[begin];
        for (; end < knots && !(x[end] - x[end - 1] > gap); end++)
            without += sides[end];
        if (without >= 5 && end - begin - without >= 5)
            for (int k = 0; k < 4; k++)
                sums[k] += run(x, sides, begin, end, k / 2, k % 2 ? 1 : -1);
    }
    for (int k = 0; k < 4; k++)
        most = sums[k] > most ? sums[k] : most;
    return most;
}

/* Whether neighbours among sorted values are within the tolerance. */
static int neighbours(const double *x, long count, double tolerance)
{
    int any = 0;
    for (long k = 1; k < count; k++)
        any |= x[k] - x[k - 1] <= tolerance;
    return any;
}

/* Whether two points that stay where they are, of the sorted `points`, are within the tolerance: then both samples hold
 * both of them. */
static int tied_still(const double *points, const char *is_moved, long count, double tolerance)
{
    for (long k = 1; k < count; k++)
        if (points[k] - points[k - 1] <= tolerance && !is_moved[k] && !is_moved[k - 1])
            return 1;
    return 0;
}

/* The first of the sorted points that is not below the value. */
static long lowest(const double *points, long count, double value)
{
    long low = 0, high = count;
    while (low < high) {
        const long middle = low + (high - low) / 2;
        if (points[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether a point that moves to `value` leaves the ends of all clusters as they are. */
static int inside_clusters(const double *points, long count, long rank, double value, double gap)
{
    const long above = lowest(points, count, value);
    return rank > 0 && rank < count - 1 && points[rank] - points[rank - 1] <= gap &&
           points[rank + 1] - points[rank] <= gap && above > 0 && above < count &&
           points[above] - points[above - 1] <= gap;
}

/* Whether none of the values, sorted, is within the tolerance of another one or of a point. */
static int stand_apart(const Point *moved, long some, const double *points, long count, double tolerance)
{
    for (long k = 0; k < some; k++) {
        const double value = moved[k].value;
        const long low = lowest(points, count, value);
        if ((low < count && points[low] - value <= tolerance) || (low > 0 && value - points[low - 1] <= tolerance) ||
            (k > 0 && value - moved[k - 1].value <= tolerance))
            return 0;
    }
    return 1;
}

/* For each of `count` individuals, `rows`: the largest bound over half-lines for each of `size` values of e, the end
 * runs, and whether three values are within `tolerance`; of those who are `inner`, ties alone. There are N = n draws
 * points, sorted, with the database of each; `place` is where each database's draws stand among them. `scratch` has room
 * for 5 N + 2 n + 2 size doubles, `numbers` for N + n, `sides` for 2 N bytes. */
void empriv_ends_of_samples(long count, const long long *rows, const char *inner, long n, long draws,
                            const double *points, const int *databases, const int *place, const long long *starts,
                            const int *entry_database, const double *entries, long depth, long size, const double *e,
                            double z, double c, double gap, double tolerance, double *best, long long *runs, char *tied,
                            double *scratch, int *numbers, char *sides)
{
    const Asked asked = {n, draws, depth, size, e, z, c};
    const long N = n * draws;
    const int pairs = neighbours(points, N, tolerance);
    double *sorted = scratch, *x = sorted + N;
    Point *moved = (Point *)(x + 2 * N);
    double *shares = (double *)(moved + N);
    int *whose = numbers;
    const Counted counted = {{shares, shares + n}, whose + N};
    const Sample with_all = {points, databases}, without = {sorted, whose};
    char *is_moved = sides;
    double *everybody[2] = {shares + 2 * n, shares + 2 * n + size}; /* half-lines where no point moves */
    const long outer = depth < N ? depth : N - 1; /* the last point that half-lines end at */
    for (long k = 0; k < 2 * n; k++)
        shares[k] = 0.0;
    for (int right = 0; right < 2; right++) {
        for (long k = 0; k < size; k++)
            everybody[right][k] = -INFINITY;
        half_lines(&asked, &with_all, &with_all, right ? -1 : 1, &counted, everybody[right]);
    }
    for (long row = 0; row < count; row++) {
        const long long first = starts[rows[row]], stop = starts[rows[row] + 1];
        long some = 0;
        int runs_alike = 1, ends[2] = {0, 0}; /* whether a point moves as far out as half-lines reach, from the left and the right */
        for (long k = 0; k < N; k++)
            is_moved[k] = 0;
        for (long long j = first; j < stop; j++)
            for (long draw = 0; draw < draws; draw++) {
                const int rank = place[entry_database[j] * draws + draw];
                const double value = entries[j * draws + draw];
                if (value == points[rank])
                    continue;
                is_moved[rank] = 1;
                runs_alike = runs_alike && inside_clusters(points, N, rank, value, gap);
                ends[0] |= rank <= outer || value <= points[outer];
                ends[1] |= rank >= N - 1 - outer || value >= points[N - 1 - outer];
                moved[some].value = value;
                moved[some++].database = entry_database[j];
            }
        sort(moved, some);
        double *found = best + row * size;
        for (long k = 0; k < size; k++)
            found[k] = -INFINITY;
        tied[row] = 0, runs[row] = 0;
        for (int right = 0; right < 2 && !inner[row]; right++)
            for (long k = 0; k < size && !ends[right]; k++)
                found[k] = everybody[right][k] > found[k] ? everybody[right][k] : found[k];
        /* where the outermost points of every cluster are the same in both samples, none stands alone */
        const int same_ends = inner[row] || (!ends[0] && !ends[1] && runs_alike);
        if (same_ends) { /* ties alone are asked for, which often need no sorting */
            tied[row] = (char)(pairs && tied_still(points, is_moved, N, tolerance));
            if (tied[row] || (!pairs && stand_apart(moved, some, points, N, tolerance)))
                continue;
        }
        for (long k = 0, i = 0, j = 0; k < N; k++) {
            while (i < N && is_moved[i])
                i++;
            if (j >= some || (i < N && points[i] <= moved[j].value)) {
                whose[k] = databases[i];
                sorted[k] = points[i++];
            } else {
                whose[k] = (int)moved[j].database;
                sorted[k] = moved[j++].value;
            }
        }
        /* of three alike, two are of the same sample */
        const int maybe = pairs || neighbours(sorted, N, tolerance);
        for (int right = 0; right < 2 && !inner[row]; right++) {
            if (!ends[right])
                continue;
            half_lines(&asked, &with_all, &without, right ? -1 : 1, &counted, found);
            half_lines(&asked, &without, &with_all, right ? -1 : 1, &counted, found);
        }
        if (same_ends && !maybe)
            continue;
        for (long k = 0, i = 0, j = 0; k < 2 * N; k++) {
            const int theirs = i >= N || (j < N && sorted[j] < points[i]);
            x[k] = theirs ? sorted[j++] : points[i++];
            sides[k] = (char)theirs;
        }
        for (long k = 2; k < 2 * N && maybe && !tied[row]; k++)
            tied[row] = x[k] - x[k - 2] <= tolerance;
        if (!same_ends)
            runs[row] = end_runs(x, sides, 2 * N, gap);
    }
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_ends", .m_doc = "Called through ctypes: see ends.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__ends(void) { return PyModule_Create(&module); }
