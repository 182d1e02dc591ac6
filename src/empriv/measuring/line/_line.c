/* Two samples under Laplace noise of one scale: hockey sticks, paired values, and bounds on their means.

For each row there are N = databases * draws results with somebody (a) and without them (b); with noise of scale s they
are the mixtures p_a and p_b. After the sort everything takes O(N): between neighbouring results p_a - f p_b is
left exp(-u) + right exp(u - gap), u from the left one in units of s, which has one root at most. From one sweep come

    sticks: H = the integral of (p_a - e p_b)+, a sum over its roots: with D the points passed, a less e times b, the
            integral up to a root is D -+ sqrt(-left right exp(-gap)), minus where it falls through zero, plus where it
            rises (docs/method.md, "Laplace kernel"). Exact for moderate e: a large one would cancel.
    values: psi = 1_A convolved with the noise, A = {p_a > f p_b}, and W_k = psi(a_k) - e psi(b_k), averaged over the
            draws of a database. The mean of W estimates P(a + noise in A) - e P(b + noise in A).
    bounds: B(W) = mean + z sd/sqrt(n - 1) + c m3/(sd^2 n).

The same in numpy is in laplace.py. A result that is not finite lies in no set. Functions touch no Python object and share
nothing between calls, so that they are called without the interpreter's lock. */

#include <Python.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT Py_EXPORTED_SYMBOL

static const double SLACK = 1e-10; /* relative: rounding must not make a set of where both laws are the same */
static const double LEAST = 1e-290; /* sums below are 0: numbers near the smallest double are slow */

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

/* Both samples of one row, merged, and the sums of exp(-distance) of either on either side of every result. */
typedef struct {
    long size, many;          /* N, and how many of 2N are finite */
    double *x;                /* (many,) */
    long *place;              /* below N a result with, N + j one without */
    long *order[2], *spare, finite[2];
} Merged;

typedef struct {
    double *gap, *decay;      /* to the next result, and exp(-gap) */
    double *left[2], *right[2], *p[2]; /* sums up to each result and from each on, of a [0] and of b [1]; both laws */
} Sweep;

enum { SWEEP_ARRAYS = 8 };

static Sweep sweep_in(double *room, long many)
{
    return (Sweep){room, room + many, {room + 2 * many, room + 3 * many}, {room + 4 * many, room + 5 * many},
                   {room + 6 * many, room + 7 * many}};
}

/* Sorts both samples; a stays sorted from row to row where all rows share it. */
static void sort_both(Merged *m, const double *a, const double *b, int a_is_sorted)
{
    const long N = m->size;
    if (!a_is_sorted) {
        m->finite[0] = finite_ones(a, NULL, m->order[0], N);
        sort_by(a, m->order[0], m->spare, m->finite[0]);
    }
    /* those without in the order of those with: moved ones apart are runs */
    long many = finite_ones(b, m->order[0], m->order[1], m->finite[0]);
    if (m->finite[0] < N)
        for (long k = 0; k < N; k++)
            if (!isfinite(a[k]) && isfinite(b[k])) m->order[1][many++] = k;
    m->finite[1] = many;
    sort_by(b, m->order[1], m->spare, many);
}

static void merge(Merged *m, const double *a, const double *b)
{
    const long *in_a = m->order[0], *in_b = m->order[1];
    long i = 0, j = 0, k = 0;
    for (; i < m->finite[0] || j < m->finite[1]; k++) {
        const int with = j >= m->finite[1] || (i < m->finite[0] && a[in_a[i]] <= b[in_b[j]]);
        m->x[k] = with ? a[in_a[i]] : b[in_b[j]];
        m->place[k] = with ? in_a[i++] : m->size + in_b[j++];
    }
    m->many = k;
}

/* The sums at one scale; every result counts 1, or its weight. */
static void sweep(const Merged *m, const double *weights, double scale, Sweep *s)
{
    const long many = m->many, N = m->size;
    for (long k = 0; k + 1 < many; k++) {
        const double gap = (m->x[k + 1] - m->x[k]) / scale;
        s->gap[k] = gap;
        s->decay[k] = gap > 0 ? exp(-gap) : 1.0;
    }
    double sum[2] = {0, 0};
    for (long k = 0; k < many; k++) {
        const int side = m->place[k] >= N;
        const double decay = k ? s->decay[k - 1] : 0.0;
        for (int t = 0; t < 2; t++) {
            sum[t] *= decay;
            if (sum[t] < LEAST) sum[t] = 0;
            s->p[t][k] = sum[t]; /* what is strictly to the left, for now */
        }
        sum[side] += weights ? weights[m->place[k] - side * N] : 1.0;
        s->left[0][k] = sum[0], s->left[1][k] = sum[1];
    }
    sum[0] = sum[1] = 0;
    for (long k = many - 1; k >= 0; k--) {
        const int side = m->place[k] >= N;
        const double decay = k + 1 < many ? s->decay[k] : 0.0;
        for (int t = 0; t < 2; t++) {
            sum[t] *= decay;
            if (sum[t] < LEAST) sum[t] = 0;
        }
        sum[side] += weights ? weights[m->place[k] - side * N] : 1.0;
        s->right[0][k] = sum[0], s->right[1][k] = sum[1];
        s->p[0][k] += sum[0], s->p[1][k] += sum[1];
    }
}

/* The hockey stick at one e, not divided by N: p_a over p_b in direction 0, positive where ratio > e, and the other way in
 * direction 1, positive where ratio < 1/e. `count` is how many of a there are up to each result. */
static double stick(const Merged *m, const Sweep *s, const double *ratio, const double *count, double e, int direction)
{
    const int sign = direction ? -1 : 1;
    const double bar = direction ? -1.0 / e : e;
    const double *left_a = s->left[direction], *left_b = s->left[1 - direction];
    const double *right_a = s->right[direction], *right_b = s->right[1 - direction];
    double total = 0.0;
    int before = sign * ratio[0] > bar;
    for (long k = 1; k <= m->many; k++) {
        const int now = k < m->many && sign * ratio[k] > bar;
        if (k == m->many ? !before : now == before) continue;
        const double with_all = count[k - 1], without = (double)k - with_all;
        const double passed = direction ? without - e * with_all : with_all - e * without;
        double root = 0.0; /* positive to the very end, there is none */
        if (k < m->many) {
            const double ends = (left_a[k - 1] - e * left_b[k - 1]) * (right_a[k] - e * right_b[k]);
            root = ends < 0.0 ? sqrt(-ends * s->decay[k - 1]) : 0.0;
        }
        total += (before ? passed : -passed) - root;
        before = now;
    }
    return total;
}

/* psi at every result (2N) for {p_a > f p_b}, or {p_b > f p_a}; 0 if the set is empty or everything. */
static int psi_at(const Merged *m, const Sweep *s, int direction, double f, double scale, double step, double *room,
                  double *at)
{
    const long many = m->many;
    const double *own = s->p[direction], *other = s->p[1 - direction];
    const double *left_a = s->left[direction], *left_b = s->left[1 - direction];
    const double *right_a = s->right[direction], *right_b = s->right[1 - direction];
    const double slack = f * (1 + SLACK), amplitude = step > 0 ? 0.5 / cosh(0.5 * step / scale) : 0.5;
    double *start = room, *end = start + many, *psi = end + many;
    long crossings = 0;
    if (!many) return 0;
    int before = own[0] > slack * other[0];
    psi[0] = before;
    start[0] = end[many - 1] = 0;
    for (long k = 0; k + 1 < many; k++) {
        const int inside = own[k + 1] > slack * other[k + 1];
        psi[k + 1] = inside;
        start[k + 1] = end[k] = 0;
        if (inside != before) {
            const double gap = s->gap[k], sign = before ? amplitude : -amplitude;
            const double left = left_a[k] - f * left_b[k], right = right_a[k + 1] - f * right_b[k + 1];
            double u = left > 0 ? gap : 0.0;
            if (left * right < 0) u = 0.5 * (log(-left / right) + gap);
            u = u < 0 ? 0 : u > gap ? gap : u;
            if (step > 0) { /* the last of the noise's cells on this side, and half a cell more */
                const double cells = rint(gap * scale / step);
                double cell = floor(u * scale / step + 1e-9);
                if (cell > cells - 1) cell = cells - 1;
                if (cell < 0) cell = 0;
                u = fmin((cell + 0.5) * step / scale, gap);
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
            if (fabs(up) < LEAST) up = 0;
            if (fabs(down) < LEAST) down = 0;
            psi[k] += up;
            psi[r] -= down;
        }
    }
    for (long k = 0; k < many; k++) at[m->place[k]] = psi[k];
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

/* Room for one row: N results on either side, `arrays` of 2N doubles beside those merged. */
static int make_room(Merged *m, long N, long arrays, double **doubles)
{
    double *room = malloc((size_t)((arrays + 1) * 2 * N) * sizeof(double) + 64);
    long *longs = malloc((size_t)(6 * N) * sizeof(long) + 64);
    if (!room || !longs) {
        free(room);
        free(longs);
        return 0;
    }
    *m = (Merged){N, 0, room, longs, {longs + 2 * N, longs + 3 * N}, longs + 4 * N, {0, 0}};
    *doubles = room + 2 * N;
    return 1;
}

/* Sticks of both directions (rows, 2, size) at `size` values of e, not divided by N, and the smallest and largest ratio
 * p_a/p_b of each row. a is (rows, N) or, with `shared`, (N), b (rows, N). -1 if there is no memory. */
EXPORT long empriv_sticks(long rows, long N, long shared, const double *a, const double *b, double scale, long size,
                          const double *e, double *out, double *low, double *high)
{
    Merged m;
    double *room;
    if (!make_room(&m, N, SWEEP_ARRAYS + 2, &room)) return -1;
    double *ratio = room + SWEEP_ARRAYS * 2 * N, *count = ratio + 2 * N;
    Sweep s = sweep_in(room, 2 * N);
    for (long row = 0; row < rows; row++) {
        const double *x = shared ? a : a + row * N, *y = b + row * N;
        sort_both(&m, x, y, shared && row);
        merge(&m, x, y);
        sweep(&m, NULL, scale, &s);
        double least = m.many ? INFINITY : 1.0, most = m.many ? 0.0 : 1.0, passed = 0;
        for (long k = 0; k < m.many; k++) {
            ratio[k] = s.p[0][k] / s.p[1][k];
            least = ratio[k] < least ? ratio[k] : least;
            most = ratio[k] > most ? ratio[k] : most;
            count[k] = (passed += m.place[k] < N);
        }
        low[row] = least;
        high[row] = most;
        for (long c = 0; c < 2 * size; c++) {
            const int direction = c >= size;
            const double at = e[c % size];
            const int any = m.many && (direction ? at * least < 1.0 : at < most);
            out[row * 2 * size + c] = any ? stick(&m, &s, ratio, count, at, direction) : 0.0;
        }
    }
    free(m.x);
    free(m.place);
    return 0;
}

/* B, the largest over levels and directions and 0, in out (rows, epsilons); with `want_values` W of the first level
instead, (rows, epsilons, 2, n). a is (rows, N) or, with `shared`, (N). The values at each of `parts` scales (rows, parts)
are combined with `coefficients`. -1 if there is no memory. */
EXPORT long empriv_values(long rows, long n, long draws, long shared, const double *a, const double *b,
                          const double *weights, double step, long parts, const double *scales,
                          const double *coefficients, long epsilons, const double *e, long levels, const double *level,
                          double z, double c, long want_values, double *out)
{
    const long N = n * draws, M = 2 * N;
    Merged m;
    double *room;
    if (!make_room(&m, N, SWEEP_ARRAYS * parts + 5, &room)) return -1;
    double *psi = room + SWEEP_ARRAYS * M * parts, *at = psi + 3 * M, *w = at + M;
    for (long row = 0; row < rows; row++) {
        const double *x = shared ? a : a + row * N, *y = b + row * N, *scale = scales + row * parts;
        sort_both(&m, x, y, shared && row);
        merge(&m, x, y);
        for (long part = 0; part < parts; part++) {
            Sweep s = sweep_in(room + SWEEP_ARRAYS * M * part, M);
            sweep(&m, weights, scale[part], &s);
        }
        for (long k = 0; k < M; k++) at[k] = 0; /* what is not finite stays there */
        for (long q = 0; q < epsilons; q++) {
            double best = 0;
            for (int direction = 0; direction < 2; direction++)
                for (long v = 0; v < (want_values ? 1 : levels); v++) {
                    const double f = pow(e[q], level[v]);
                    int any = 0;
                    memset(w, 0, (size_t)n * sizeof(double));
                    for (long part = 0; part < parts; part++) {
                        const Sweep s = sweep_in(room + SWEEP_ARRAYS * M * part, M);
                        if (!psi_at(&m, &s, direction, f, scale[part], step, psi, at)) continue;
                        add_values(at, n, draws, direction, e[q], coefficients[part], w);
                        any = 1;
                    }
                    if (want_values) {
                        memcpy(out + ((row * epsilons + q) * 2 + direction) * n, w, (size_t)n * sizeof(double));
                    } else if (any) {
                        const double here = bound(w, n, z, c);
                        if (here > best) best = here;
                    }
                }
            if (!want_values) out[row * epsilons + q] = best;
        }
    }
    free(m.x);
    free(m.place);
    return 0;
}

/* The largest B, less 1/n and at least 0, over half-lines that hold up to `depth` + 1 of N results of one side: they end at
its lowest results, in groups of 1, 1, 2, 4, ... that are averaged; then at its highest; then those of the other side. */
EXPORT long empriv_ends(long rows, long n, long draws, long shared, const double *a, const double *b, long depth,
                        long epsilons, const double *e, double z, double c, double *out)
{
    const long N = n * draws;
    Merged m;
    double *room;
    if (!make_room(&m, N, 3, &room)) return -1;
    double *mine = room, *theirs = mine + n;
    long *touched = (long *)(theirs + n); /* databases with a result beyond the last line: W is 0 at all others */
    memset(room, 0, (size_t)(2 * n) * sizeof(double));
    for (long row = 0; row < rows; row++) {
        const double *side[2] = {shared ? a : a + row * N, b + row * N};
        sort_both(&m, side[0], side[1], shared && row);
        double *best = out + row * epsilons;
        for (long q = 0; q < epsilons; q++) best[q] = 0;
        for (int s = 0; s < 2; s++) /* whose results the half-lines end at: the other side has more there */
            for (int high = 0; high < 2; high++) {
                const long by = high ? -1 : 1;
                const long *place[2] = {high ? m.order[0] + m.finite[0] - 1 : m.order[0],
                                        high ? m.order[1] + m.finite[1] - 1 : m.order[1]};
                const double sign = high ? -1.0 : 1.0;
                for (long from = 0, to = 1; from <= depth && from < m.finite[s];) {
                    if (to > depth + 1) to = depth + 1;
                    if (to > m.finite[s]) to = m.finite[s];
                    const double share = 1.0 / ((double)(to - from) * draws);
                    long count = 0;
                    for (int t = 0; t < 2; t++) {
                        double *held = t == s ? theirs : mine;
                        long line = from;
                        for (long k = 0; k < m.finite[t]; k++) {
                            const long j = place[t][by * k], db = j / draws;
                            const double value = sign * side[t][j];
                            while (line < to && sign * side[s][place[s][by * line]] <= value) line++;
                            if (line == to) break;
                            if (mine[db] == 0 && theirs[db] == 0) touched[count++] = db;
                            held[db] += (to - line) * share;
                        }
                    }
                    for (long q = 0; q < epsilons; q++) {
                        double one = 0, two = 0, three = 0;
                        for (long k = 0; k < count; k++) {
                            const double w = mine[touched[k]] - e[q] * theirs[touched[k]], ww = w * w;
                            one += w, two += ww, three += ww * w;
                        }
                        const double mean = one / n, v = two / n - mean * mean;
                        const double m3 = three / n - 3 * mean * two / n + 2 * mean * mean * mean;
                        double here = mean;
                        if (v > 1e-30 && n > 1) here += z * sqrt(v / (n - 1)) + c * m3 / (v * n);
                        if (here - 1.0 / n > best[q]) best[q] = here - 1.0 / n;
                    }
                    for (long k = 0; k < count; k++) mine[touched[k]] = theirs[touched[k]] = 0;
                    const long next = to == 1 ? 2 : 2 * to;
                    from = to;
                    to = next;
                }
            }
    }
    free(m.x);
    free(m.place);
    return 0;
}

/* Rayleigh's statistic: the largest |sum over k of exp(2 pi i f x_k)| over the frequencies f = low, low + by, ..., in out.
-1 if there is no memory. */
EXPORT long empriv_rayleigh(long n, const double *x, double low, double by, long count, double *out)
{
    const long size = n + 3;
    double *room = calloc((size_t)(4 * size), sizeof(double));
    if (!room) return -1;
    double *restrict re = room, *restrict im = re + size, *restrict step_re = im + size, *restrict step_im = step_re + size;
    const double turn = 6.283185307179586;
    for (long k = 0; k < n; k++) {
        const double u = x[k] - x[0], first = turn * fmod(low * u, 1.0), then = turn * fmod(by * u, 1.0);
        re[k] = cos(first), im[k] = sin(first), step_re[k] = cos(then), step_im[k] = sin(then);
    }
    double best = 0;
    for (long f = 0; f < count; f++) {
        double a[4] = {0, 0, 0, 0}, b[4] = {0, 0, 0, 0};
        for (long k = 0; k < n; k += 4) /* four sums at once: room is filled up with points that count for nothing */
            for (int j = 0; j < 4; j++) {
                const double r = re[k + j], i = im[k + j];
                a[j] += r;
                b[j] += i;
                re[k + j] = r * step_re[k + j] - i * step_im[k + j];
                im[k + j] = r * step_im[k + j] + i * step_re[k + j];
            }
        const double sum_a = a[0] + a[1] + a[2] + a[3], sum_b = b[0] + b[1] + b[2] + b[3];
        best = fmax(best, sum_a * sum_a + sum_b * sum_b);
    }
    *out = sqrt(best);
    free(room);
    return 0;
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_line", .m_doc = "Called through ctypes: see laplace.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__line(void) { return PyModule_Create(&module); }
