/* Paired samples under noise: the sets where one law exceeds the other, and an upper bound on how much they tell.

For each row there are N = databases * draws results with somebody (a) and without them (b). Noise of scale s makes the
mixtures p_a and p_b of them. Of the set A = {p_a > f p_b}, psi = 1_A convolved with the noise, and

    W_k = psi(a_k) - e psi(b_k), averaged over the draws of a database,

so that the mean of W estimates P(a + noise in A) - e P(b + noise in A). The bound is

    B(W) = mean + z sd/sqrt(n - 1) + c m3/(sd^2 n).

Laplace noise, continuous or on the multiples of a step, is exact and takes O(N) after the sort: between neighbouring
results p_a - f p_b is left exp(-u) + right exp(u - gap), which has one root at most. Gaussian noise is computed on a
lattice: that of the noise, or one of a sixteenth of its scale, with cubic interpolation. numpy does the same in
`noisy_laws_in_numpy.py`. A result that is not finite lies in no set. Nothing is shared between calls. */

#include <Python.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT Py_EXPORTED_SYMBOL

static const double SLACK = 1e-10;   /* relative: rounding must not make a set of where both laws are the same */
static const double REACH = 7.5;     /* standard deviations of Gaussian noise that are looked at */
static const long MOST_CELLS = 400000;

/* Natural merge sort of indices by value: nearly sorted input costs next to nothing. */
static void sort_by(const double *x, long *order, long *spare, long n)
{
    while (1) {
        long at = 0, runs = 0;
        while (at < n) {
            long mid = at + 1, end;
            while (mid < n && x[order[mid - 1]] <= x[order[mid]]) mid++;
            if (mid == n) {
                if (runs) memcpy(spare + at, order + at, (size_t)(n - at) * sizeof(long));
                else return;
                runs++;
                break;
            }
            end = mid + 1;
            while (end < n && x[order[end - 1]] <= x[order[end]]) end++;
            long i = at, j = mid, k = at;
            while (i < mid && j < end) spare[k++] = x[order[j]] < x[order[i]] ? order[j++] : order[i++];
            while (i < mid) spare[k++] = order[i++];
            while (j < end) spare[k++] = order[j++];
            at = end;
            runs++;
        }
        memcpy(order, spare, (size_t)n * sizeof(long));
        if (runs <= 1) return;
    }
}

/* The finite ones of these indices, in place. */
static long finite_ones(const double *x, const long *from, long *order, long n)
{
    long count = 0;
    for (long k = 0; k < n; k++) {
        long j = from ? from[k] : k;
        if (isfinite(x[j])) order[count++] = j;
    }
    return count;
}

static double bound(const double *w, long n, double z, double c)
{
    double mean = 0, v = 0, m3 = 0;
    for (long k = 0; k < n; k++) mean += w[k];
    mean /= n;
    for (long k = 0; k < n; k++) {
        double d = w[k] - mean, dd = d * d;
        v += dd;
        m3 += dd * d;
    }
    v /= n;
    m3 /= n;
    if (v <= 1e-30 || n < 2) return mean;
    return mean + z * sqrt(v / (n - 1)) + c * m3 / (v * n);
}

/* Both samples of one row, merged: place[k] < N is a result with, N + j one without. */
typedef struct {
    long size, many;
    double *x;
    long *place;
} Merged;

/* Mixtures under Laplace noise of one scale, at every result. */
typedef struct {
    double *gap, *decay, *fa, *fb, *ga, *gb, *pa, *pb;
} Sweep;

static void sweep(const Merged *m, const double *weights, double scale, Sweep *s)
{
    long many = m->many, N = m->size;
    if (!many) return;
    for (long k = 0; k + 1 < many; k++) {
        double gap = (m->x[k + 1] - m->x[k]) / scale;
        s->gap[k] = gap;
        s->decay[k] = gap > 0 ? exp(-gap) : 1.0;
    }
    double fa = 0, fb = 0, ga = 0, gb = 0;
    for (long k = 0, r = many - 1; k < many; k++, r--) {
        long p = m->place[k], q = m->place[r];
        double down = k ? s->decay[k - 1] : 0.0, up = k ? s->decay[r] : 0.0;
        fa *= down, fb *= down, ga *= up, gb *= up;
        if (fa < 1e-290) fa = 0;
        if (fb < 1e-290) fb = 0;
        if (ga < 1e-290) ga = 0;
        if (gb < 1e-290) gb = 0;
        if (p < N) fa += weights[p]; else fb += weights[p - N];
        if (q < N) ga += weights[q]; else gb += weights[q - N];
        s->fa[k] = fa, s->fb[k] = fb, s->ga[r] = ga, s->gb[r] = gb;
    }
    for (long k = 0; k < many; k++) {
        long p = m->place[k];
        double own = p < N ? weights[p] : weights[p - N];
        s->pa[k] = s->fa[k] + s->ga[k] - (p < N ? own : 0.0);
        s->pb[k] = s->fb[k] + s->gb[k] - (p < N ? 0.0 : own);
    }
}

/* psi at every result (2N) for {p_a > f p_b}, or {p_b > f p_a}; 0 if the set is empty or everything. */
static int laplace_psi(const Merged *m, const Sweep *s, int direction, double f, double scale, double step,
                       double *start, double *end, double *psi, double *at)
{
    long many = m->many, crossings = 0;
    const double *pa = direction ? s->pb : s->pa, *pb = direction ? s->pa : s->pb;
    const double *fa = direction ? s->fb : s->fa, *fb = direction ? s->fa : s->fb;
    const double *ga = direction ? s->gb : s->ga, *gb = direction ? s->ga : s->gb;
    double slack = f * (1 + SLACK), amplitude = step > 0 ? 0.5 / cosh(0.5 * step / scale) : 0.5;
    if (!many) return 0;
    int before = pa[0] > slack * pb[0];
    psi[0] = before;
    start[0] = 0;
    end[many - 1] = 0;
    for (long k = 0; k + 1 < many; k++) {
        int inside = pa[k + 1] > slack * pb[k + 1];
        psi[k + 1] = inside;
        start[k + 1] = end[k] = 0;
        if (inside != before) {
            double gap = s->gap[k], u, sign = before ? amplitude : -amplitude;
            double left = fa[k] - f * fb[k], right = ga[k + 1] - f * gb[k + 1];
            if (left * right < 0) u = 0.5 * (log(-left / right) + gap);
            else u = left > 0 ? gap : 0.0;
            u = u < 0 ? 0 : u > gap ? gap : u;
            if (step > 0) { /* the last of the noise's cells on this side, and half a cell more */
                double cells = rint(gap * scale / step), cell = floor(u * scale / step + 1e-9);
                if (cell > cells - 1) cell = cells - 1;
                if (cell < 0) cell = 0;
                u = (cell + 0.5) * step / scale;
                if (u > gap) u = gap;
            }
            start[k + 1] = sign * exp(u - gap);
            end[k] = sign * exp(-u);
            crossings++;
        }
        before = inside;
    }
    if (!crossings && !before) return 0;
    if (crossings) {
        double up = 0, down = 0;
        for (long k = 0, r = many - 1; k < many; k++, r--) {
            up = (k ? up * s->decay[k - 1] : 0.0) + start[k];
            down = (k ? down * s->decay[r] : 0.0) + end[r];
            if (fabs(up) < 1e-290) up = 0;
            if (fabs(down) < 1e-290) down = 0;
            psi[k] += up;
            psi[r] -= down;
        }
    }
    for (long k = 0; k < many; k++) at[m->place[k]] = psi[k];
    return 1;
}

/* Gaussian noise on a lattice: where each result is, and with which weights of four cells around it. */
typedef struct {
    long cells, reach;
    double *table, *sums; /* probability of -reach..reach, and sums of them */
    long *cell;           /* (2N) the first of four cells, -1 for none */
    double *share;        /* (2N, 4) */
    double *pa, *pb, *grid;
} Lattice;

static void place_on(Lattice *l, const double *x, long from, long n, double low, double step, int exact)
{
    for (long k = 0; k < n; k++) {
        double *share = l->share + 4 * (from + k);
        if (!isfinite(x[k])) {
            l->cell[from + k] = -1;
            continue;
        }
        double y = (x[k] - low) / step, base = exact ? rint(y) : floor(y), t = exact ? 0.0 : y - base;
        l->cell[from + k] = (long)base - 1 + l->reach + 2;
        share[0] = -t * (t - 1) * (t - 2) / 6; /* Lagrange, through -1, 0, 1, 2 */
        share[1] = (t + 1) * (t - 1) * (t - 2) / 2;
        share[2] = -(t + 1) * t * (t - 2) / 2;
        share[3] = (t + 1) * t * (t - 1) / 6;
    }
}

static void spread_out(const Lattice *l, const double *histogram, double *p)
{
    long width = 2 * l->reach + 1;
    memset(p, 0, (size_t)l->cells * sizeof(double));
    for (long j = l->reach; j < l->cells - l->reach; j++) {
        double h = histogram[j], *to = p + j - l->reach;
        if (h == 0) continue;
        for (long k = 0; k < width; k++) to[k] += h * l->table[k];
    }
}

static int gaussian_psi(const Lattice *l, long N, int direction, double f, double *at)
{
    const double *pa = direction ? l->pb : l->pa, *pb = direction ? l->pa : l->pb;
    double slack = f * (1 + SLACK), level = 0, *psi = l->grid;
    long any = 0;
    /* psi = sum over ends of the set of the noise's distribution function: tables near them, whole steps beyond */
    memset(psi, 0, (size_t)(l->cells + 1) * sizeof(double));
    int before = 0;
    double *whole = psi + l->cells + 1;
    memset(whole, 0, (size_t)(l->cells + 1) * sizeof(double));
    for (long j = 0; j < l->cells; j++) {
        int inside = pa[j] > slack * pb[j] && pa[j] > 1e-14;
        if (inside != before) {
            double sign = inside ? 1.0 : -1.0;
            long first = j - l->reach, last = j + l->reach; /* sums[m] belongs to cell j + m - reach */
            long low = first < 0 ? 0 : first, high = last >= l->cells ? l->cells - 1 : last;
            for (long k = low; k <= high; k++) psi[k] += sign * l->sums[k - first];
            if (high + 1 < l->cells) whole[high + 1] += sign;
            any = 1;
        }
        before = inside;
    }
    if (!any) return 0;
    for (long j = 0; j < l->cells; j++) {
        level += whole[j];
        psi[j] += level;
    }
    for (long k = 0; k < 2 * N; k++) {
        long c = l->cell[k];
        const double *share = l->share + 4 * k;
        if (c >= 0) at[k] = share[0] * psi[c] + share[1] * psi[c + 1] + share[2] * psi[c + 2] + share[3] * psi[c + 3];
    }
    return 1;
}

/* Adds `coefficient` W of every database. */
static void add_values(const double *at, long n, long draws, int direction, double e, double coefficient, double *w)
{
    long N = n * draws;
    const double *own = direction ? at + N : at, *other = direction ? at : at + N;
    double part = coefficient / draws;
    for (long k = 0; k < n; k++)
        for (long d = 0; d < draws; d++) w[k] += part * (own[k * draws + d] - e * other[k * draws + d]);
}

/* B, the largest over levels and directions and 0, in out (rows, epsilons); with `values` (rows, epsilons, 2, n) the W of
the first level instead. a is (rows, N) or, with `shared`, (N). `scales` (rows, parts) is combined with `coefficients`.
1 if a row was too wide for Gaussian noise of this scale (its bound is 1), -1 if there is no memory. */
EXPORT long empriv_mixtures(long rows, long n, long draws, long shared, const double *a, const double *b,
                            const double *weights, long gaussian, double step, long parts, const double *scales,
                            const double *coefficients, long epsilons, const double *e, long levels,
                            const double *level, double z, double c, long want_values, double *out)
{
    long N = n * draws, M = 2 * N, status = 0;
    double *doubles = malloc((size_t)(5 * M + n + 8 * M * parts) * sizeof(double) + 64);
    long *longs = malloc((size_t)(4 * M) * sizeof(long) + 64);
    double *grid = NULL;
    long grid_size = 0;
    if (!doubles || !longs) {
        free(doubles);
        free(longs);
        return -1;
    }
    Merged m = {N, 0, doubles, longs};
    double *psi = doubles + M, *start = psi + M, *end = start + M, *at = end + M, *w = at + M;
    double *sweeps = w + n;
    long *order_a = longs + M, *order_b = order_a + N, *spare = order_b + N, *cell = spare + M;
    long many_a = 0;
    for (long row = 0; row < rows && status >= 0; row++) {
        const double *x = shared ? a : a + row * N, *y = b + row * N;
        if (!row || !shared) {
            many_a = finite_ones(x, NULL, order_a, N);
            sort_by(x, order_a, spare, many_a);
        }
        Sweep s[4];
        Lattice l = {0};
        int too_wide = 0;
        if (!gaussian) {
            /* those without in the order of those with: moved ones apart are runs */
            long many_b = finite_ones(y, order_a, order_b, many_a);
            if (many_a < N)
                for (long k = 0; k < N; k++)
                    if (!isfinite(x[k]) && isfinite(y[k])) order_b[many_b++] = k;
            sort_by(y, order_b, spare, many_b);
            long i = 0, j = 0, k = 0;
            while (i < many_a || j < many_b) {
                if (j >= many_b || (i < many_a && x[order_a[i]] <= y[order_b[j]])) {
                    m.x[k] = x[order_a[i]];
                    m.place[k++] = order_a[i++];
                } else {
                    m.x[k] = y[order_b[j]];
                    m.place[k++] = N + order_b[j++];
                }
            }
            m.many = k;
            for (long part = 0; part < parts; part++) {
                double *room = sweeps + 8 * M * part;
                Sweep one = {room, room + M, room + 2 * M, room + 3 * M, room + 4 * M, room + 5 * M, room + 6 * M, room + 7 * M};
                s[part] = one;
                sweep(&m, weights, scales[row * parts + part], &s[part]);
            }
        } else { /* one part */
            double scale = scales[row * parts], fine = step > 0 ? step : scale / 16, low = INFINITY, high = -INFINITY;
            for (long k = 0; k < N; k++) {
                if (isfinite(x[k])) low = fmin(low, x[k]), high = fmax(high, x[k]);
                if (isfinite(y[k])) low = fmin(low, y[k]), high = fmax(high, y[k]);
            }
            l.reach = (long)ceil(REACH * scale / fine) + 1;
            double cells = low <= high ? (high - low) / fine + 2 * l.reach + 8 : 0;
            too_wide = !(cells <= MOST_CELLS);
            if (too_wide) status = 1;
            l.cells = too_wide ? 0 : (long)cells;
            long need = 4 * M + 6 * (l.cells + 1) + 2 * (2 * l.reach + 1);
            if (!too_wide && need > grid_size) {
                free(grid);
                grid = malloc((size_t)need * sizeof(double));
                grid_size = need;
                if (!grid) {
                    status = -1;
                    break;
                }
            }
            if (l.cells) {
                l.share = grid;
                l.pa = grid + 4 * M;
                l.pb = l.pa + l.cells;
                l.grid = l.pb + l.cells; /* 2 (cells + 1) for psi */
                double *histogram = l.grid + 2 * (l.cells + 1);
                l.table = histogram + l.cells;
                l.sums = l.table + 2 * l.reach + 1;
                l.cell = cell;
                double total = 0;
                for (long k = -l.reach; k <= l.reach; k++) {
                    double u = k * fine / scale;
                    total += l.table[k + l.reach] = exp(-0.5 * u * u);
                }
                double sum = 0;
                for (long k = 0; k <= 2 * l.reach; k++) l.sums[k] = (sum += l.table[k] /= total);
                place_on(&l, x, 0, N, low, fine, step > 0);
                place_on(&l, y, N, N, low, fine, step > 0);
                for (int side = 0; side < 2; side++) {
                    memset(histogram, 0, (size_t)l.cells * sizeof(double));
                    for (long k = 0; k < N; k++)
                        for (long q = 0; q < 4 && cell[side * N + k] >= 0; q++)
                            histogram[cell[side * N + k] + q] += weights[k] * l.share[4 * (side * N + k) + q];
                    spread_out(&l, histogram, side ? l.pb : l.pa);
                }
            }
        }
        for (long k = 0; k < M; k++) at[k] = 0; /* what is not finite stays there */
        for (long q = 0; q < epsilons; q++) {
            double best = 0;
            for (int direction = 0; direction < 2; direction++)
                for (long v = 0; v < (want_values ? 1 : levels); v++) {
                    double f = pow(e[q], level[v]);
                    int any = 0;
                    memset(w, 0, (size_t)n * sizeof(double));
                    for (long part = 0; part < parts && !too_wide; part++) {
                        double scale = scales[row * parts + part];
                        int here = gaussian ? (l.cells ? gaussian_psi(&l, N, direction, f, at) : 0)
                                            : laplace_psi(&m, &s[part], direction, f, scale, step, start, end, psi, at);
                        if (here) add_values(at, n, draws, direction, e[q], coefficients[part], w);
                        any |= here;
                    }
                    if (want_values) {
                        memcpy(out + ((row * epsilons + q) * 2 + direction) * n, w, (size_t)n * sizeof(double));
                    } else if (any) {
                        double here = bound(w, n, z, c);
                        if (here > best) best = here;
                    }
                }
            if (!want_values) out[row * epsilons + q] = too_wide ? 1.0 : best;
        }
    }
    free(grid);
    free(doubles);
    free(longs);
    return status;
}

/* The one-standard-error rule for the Laplace kernel, of every row (rows, n) of results that are all finite; tied results
do not score each other. `multiples` rise to 1, `widest` is the last bandwidth of a spread of 1. 0 for a constant. */
EXPORT long empriv_bandwidths(long rows, long n, const double *x, long count, const double *multiples, double widest,
                              double *out)
{
    double *room = malloc((size_t)(5 * n + n * count) * sizeof(double) + 64);
    long *longs = malloc((size_t)(2 * n) * sizeof(long) + 64);
    if (!room || !longs) {
        free(room);
        free(longs);
        return -1;
    }
    double *value = room, *many = value + n, *decay = many + n, *left = decay + n, *sorted = left + n;
    double *score = sorted + n;
    for (long row = 0; row < rows; row++) {
        const double *y = x + row * n;
        double mean = 0, v = 0, largest = 0;
        for (long k = 0; k < n; k++) longs[k] = k, mean += y[k], largest = fmax(largest, fabs(y[k]));
        sort_by(y, longs, longs + n, n);
        mean /= n;
        for (long k = 0; k < n; k++) v += (y[k] - mean) * (y[k] - mean), sorted[k] = y[longs[k]];
        double sd = n > 1 ? sqrt(v / (n - 1)) : 0, quartile[2];
        for (int k = 0; k < 2; k++) {
            double place = (n - 1) * (k ? 0.75 : 0.25);
            long low = (long)place, high = low + 1 < n ? low + 1 : low;
            quartile[k] = sorted[low] + (place - low) * (sorted[high] - sorted[low]);
        }
        double iqr = (quartile[1] - quartile[0]) / 1.349, spread = iqr > 0 && iqr < sd ? iqr : sd;
        double tied = 4 * (nextafter(largest, INFINITY) - largest);
        long values = 0;
        for (long k = 0; k < n; k++) {
            if (k && sorted[k] - sorted[k - 1] <= tied) many[values - 1] += 1;
            else value[values] = sorted[k], many[values++] = 1;
        }
        out[row] = 0;
        if (values < 2 || !(spread > 0)) continue;
        double best = -INFINITY;
        long chosen = 0;
        for (long q = 0; q < count; q++) {
            double h = widest * spread * multiples[q], f = 0, g = 0, total = 0, *s = score + q * n;
            for (long k = 0; k + 1 < values; k++) decay[k] = exp((value[k] - value[k + 1]) / h);
            for (long k = 0; k < values; k++) {
                f = k ? (f + many[k - 1]) * decay[k - 1] : 0.0;
                if (f < 1e-290) f = 0;
                left[k] = f;
            }
            for (long k = values - 1; k >= 0; k--) {
                g = k + 1 < values ? (g + many[k + 1]) * decay[k] : 0.0;
                if (g < 1e-290) g = 0;
                s[k] = log(fmax(left[k] + g, 1e-300) / h);
                total += many[k] * s[k];
            }
            if (total > best) best = total, chosen = q;
        }
        const double *top = score + chosen * n;
        for (long q = count - 1; q >= 0; q--) {
            double lost = 0, square = 0, *s = score + q * n;
            for (long k = 0; k < values; k++) lost += many[k] * (top[k] - s[k]);
            lost /= n;
            for (long k = 0; k < values; k++) square += many[k] * (top[k] - s[k] - lost) * (top[k] - s[k] - lost);
            if (lost <= sqrt(square / (n - 1)) / sqrt((double)n)) {
                out[row] = widest * spread * multiples[q];
                break;
            }
        }
    }
    free(room);
    free(longs);
    return 0;
}

/* The largest B, less 1/n and at least 0, over half-lines that hold up to `depth` + 1 of N results of one side: they end at
its lowest results, in groups of 1, 1, 2, 4, ... that are averaged; then at its highest; then those of the other side. */
EXPORT long empriv_ends(long rows, long n, long draws, long shared, const double *a, const double *b, long depth,
                        long epsilons, const double *e, double z, double c, double *out)
{
    long N = n * draws;
    double *doubles = calloc((size_t)(2 * n) + 8, sizeof(double)), *mine = doubles, *theirs = doubles + n;
    long *longs = malloc((size_t)(3 * N + 2 * n) * sizeof(long) + 64);
    if (!doubles || !longs) {
        free(doubles);
        free(longs);
        return -1;
    }
    long *order[2] = {longs, longs + N}, *spare = longs + 2 * N, *touched = longs + 3 * N, many[2] = {0, 0};
    for (long row = 0; row < rows; row++) {
        const double *side[2] = {shared ? a : a + row * N, b + row * N};
        for (int s = 0; s < 2; s++) {
            if (s == 0 && shared && row) continue;
            if (s == 0) many[0] = finite_ones(side[0], NULL, order[0], N);
            else {
                many[1] = finite_ones(side[1], order[0], order[1], many[0]);
                if (many[0] < N)
                    for (long k = 0; k < N; k++)
                        if (!isfinite(side[0][k]) && isfinite(side[1][k])) order[1][many[1]++] = k;
            }
            sort_by(side[s], order[s], spare, many[s]);
        }
        double *best = out + row * epsilons;
        for (long q = 0; q < epsilons; q++) best[q] = 0;
        for (int s = 0; s < 2; s++)       /* whose results the half-lines end at: the other side has more there */
            for (int high = 0; high < 2; high++) {
                long from = 0, to = 1;
                const long *place[2] = {high ? order[0] + many[0] - 1 : order[0], high ? order[1] + many[1] - 1 : order[1]};
                const long by = high ? -1 : 1;
                const double sign = high ? -1.0 : 1.0;
                while (from <= depth && from < many[s]) {
                    if (to > depth + 1) to = depth + 1;
                    if (to > many[s]) to = many[s];
                    double share = 1.0 / ((double)(to - from) * draws);
                    long count = 0; /* databases with a result beyond the last of these lines: W is 0 at all others */
                    for (int t = 0; t < 2; t++) {
                        double *held = t == s ? theirs : mine;
                        long line = from;
                        for (long k = 0; k < many[t]; k++) {
                            long j = place[t][by * k], db = j / draws;
                            double value = sign * side[t][j];
                            while (line < to && sign * side[s][place[s][by * line]] <= value) line++;
                            if (line == to) break;
                            if (mine[db] == 0 && theirs[db] == 0) touched[count++] = db;
                            held[db] += (to - line) * share;
                        }
                    }
                    for (long q = 0; q < epsilons; q++) {
                        double one = 0, two = 0, three = 0;
                        for (long k = 0; k < count; k++) {
                            double w = mine[touched[k]] - e[q] * theirs[touched[k]], ww = w * w;
                            one += w, two += ww, three += ww * w;
                        }
                        double mean = one / n, v = two / n - mean * mean;
                        double m3 = three / n - 3 * mean * two / n + 2 * mean * mean * mean, here = mean;
                        if (v > 1e-30 && n > 1) here += z * sqrt(v / (n - 1)) + c * m3 / (v * n);
                        if (here - 1.0 / n > best[q]) best[q] = here - 1.0 / n;
                    }
                    for (long k = 0; k < count; k++) mine[touched[k]] = theirs[touched[k]] = 0;
                    long next = to == 1 ? 2 : 2 * to;
                    from = to;
                    to = next;
                }
            }
    }
    free(doubles);
    free(longs);
    return 0;
}

/* Rayleigh's statistic: the largest |sum over k of exp(2 pi i f x_k)| over the frequencies f = low, low + by, ... (rows,). */
EXPORT long empriv_rayleigh(long rows, long n, const double *x, const double *low, const double *by, const long *count,
                            double *out)
{
    double *room = malloc((size_t)(4 * n) * sizeof(double) + 64);
    if (!room) return -1;
    double *restrict re = room, *restrict im = room + n, *restrict step_re = room + 2 * n, *restrict step_im = room + 3 * n;
    const double turn = 6.283185307179586;
    for (long row = 0; row < rows; row++) {
        const double *y = x + row * n;
        double best = 0;
        for (long k = 0; k < n; k++) {
            double u = y[k] - y[0], first = turn * fmod(low[row] * u, 1.0), then = turn * fmod(by[row] * u, 1.0);
            re[k] = cos(first), im[k] = sin(first), step_re[k] = cos(then), step_im[k] = sin(then);
        }
        for (long f = 0; f < count[row]; f++) {
            double a[4] = {0, 0, 0, 0}, b[4] = {0, 0, 0, 0};
            long k = 0;
            for (; k + 4 <= n; k += 4)
                for (int j = 0; j < 4; j++) {
                    double r = re[k + j], i = im[k + j];
                    a[j] += r;
                    b[j] += i;
                    re[k + j] = r * step_re[k + j] - i * step_im[k + j];
                    im[k + j] = r * step_im[k + j] + i * step_re[k + j];
                }
            for (; k < n; k++) {
                double r = re[k], i = im[k];
                a[0] += r;
                b[0] += i;
                re[k] = r * step_re[k] - i * step_im[k];
                im[k] = r * step_im[k] + i * step_re[k];
            }
            double sum_a = a[0] + a[1] + a[2] + a[3], sum_b = b[0] + b[1] + b[2] + b[3];
            double power = sum_a * sum_a + sum_b * sum_b;
            if (power > best) best = power;
        }
        out[row] = sqrt(best);
    }
    free(room);
    return 0;
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_noisy_laws", .m_doc = "Called through ctypes: see noisy_laws.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__noisy_laws(void) { return PyModule_Create(&module); }
