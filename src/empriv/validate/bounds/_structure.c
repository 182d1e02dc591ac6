/* Sets that tell two samples apart, of many individuals: the parts of the upper bound (`structure_in_numpy.py`), what
 * the bound on total risk adds up (`analytic._total`), and what folds choose and judge (`cross_fitted._block`). These
 * are the oracles of this file, and say what the parts are.
 *
 * Sums of kernels wait for each other from one knot to the next. So they are made for several samples at once, which
 * stand side by side in lanes: compilers turn the loops over lanes into vector instructions. Points may lie any
 * distance apart: kernels are summed by how they decay from one knot to the next. The functions touch no Python object,
 * and so are called without the interpreter's lock. */

#include <Python.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNTS = 1, GAPS = 2, RESIDUES = 4, FINE = 8, COPIES = 8, LANES = 8 };

/* Compiled for wider registers too, where the compiler can have the machine choose. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

typedef struct {
    double value;
    int point; /* which of the N points of its sample; its database is point / draws */
    int side;  /* 0: with everyone, 1: without the individual */
} Knot;

typedef struct {
    long n, draws, size, parts; /* databases, points of each, epsilons */
    const double *e, *shares;   /* shares[k]: Clopper and Pearson's limit for k of n */
    double z, c, tolerance;
    double narrow;       /* bandwidth of the smooth set, in bandwidths */
    double odds, apart;  /* log of the odds that a gap needs; null deviations that fine structure needs */
    double lattice, far; /* its step or 0; points beyond `far` are atoms */
    const double *noise; /* (COPIES, N) in bandwidths of the smooth set */
    const int *orders;   /* (1 + COPIES, N) points with everyone, and with each noise, sorted */
    const double *log_factorial;
    long longest; /* run on either side of a jump */
} Asked;

/* Both samples of up to LANES individuals: arrays are (knots, LANES), `w` and `kept` (LANES, n). */
typedef struct {
    long knots, n, draws;
    const Knot *sorted[LANES]; /* NULL: the lane is empty */
    double *mass[2], *decay;   /* of both samples at a knot, and what is left of a kernel from the knot before */
    double *left[2], *right[2], *density[2]; /* kernels from the left with the knot itself, from the right too, and all */
    double *inside, *psi, *back;
    double *w, *kept;
    int any[LANES]; /* whether the smooth set holds a knot */
} Lanes;

static double larger(double a, double b) { return a > b ? a : b; }

/* The bound on a mean: it is normal, and mended for skewness (moments.skewed). */
static double bound(const double *w, long n, double z, double c, double *mean_of)
{
    double mean = 0.0, square = 0.0, cube = 0.0;
    for (long j = 0; j < n; j++)
        mean += w[j];
    mean /= (double)n;
    for (long j = 0; j < n; j++) {
        const double t = w[j] - mean;
        square += t * t;
        cube += t * t * t;
    }
    square /= (double)n, cube /= (double)n;
    *mean_of = mean;
    if (square <= 1e-30)
        return mean;
    return mean + z * sqrt(square / (n > 1 ? (double)n - 1.0 : 1.0)) + c * cube / (square * (double)n);
}

/* Sorts by value what is nearly sorted already, ties as they are: by insertion, and where points move far, natural runs
 * are merged. */
static void sort(Knot *knots, long count, Knot *spare)
{
    long moves = 0;
    for (long k = 1; k < count && moves <= 8 * count; k++)
        if (knots[k].value < knots[k - 1].value) {
            const Knot knot = knots[k];
            long at = k;
            for (; at > 0 && knots[at - 1].value > knot.value; at--)
                knots[at] = knots[at - 1];
            knots[at] = knot;
            moves += k - at;
        }
    for (int sorted = moves <= 8 * count; !sorted;) {
        long begin = 0, runs = 0;
        for (; begin < count; runs++) {
            long middle = begin + 1;
            while (middle < count && knots[middle - 1].value <= knots[middle].value)
                middle++;
            long end = middle < count ? middle + 1 : middle;
            while (end < count && knots[end - 1].value <= knots[end].value)
                end++;
            long i = begin, j = middle, k = begin;
            while (i < middle && j < end)
                spare[k++] = knots[j].value < knots[i].value ? knots[j++] : knots[i++];
            memcpy(spare + k, knots + i, (size_t)(middle - i) * sizeof(Knot));
            memcpy(spare + k + (middle - i), knots + j, (size_t)(end - j) * sizeof(Knot));
            begin = end;
        }
        memcpy(knots, spare, (size_t)count * sizeof(Knot));
        sorted = runs <= 1;
    }
}

/* Room to sort in: knots of either sample, and one more that ends it. */
typedef struct {
    Knot *x, *y, *spare;
} Desk;

/* Both samples sorted together into `out`. `order` is likely that of both; what `noise` gives is added to points that
 * are no atoms, and to both of a pair. */
static void merge(const Asked *asked, const double *points, const double *own, const int *order, const double *noise,
                  double scale, Desk *desk, Knot *out)
{
    const long size = asked->n * asked->draws;
    Knot *x = desk->x, *y = desk->y;
    for (long k = 0; k < size; k++) {
        const int p = order[k];
        double add = noise ? noise[p] * scale : 0.0;
        if (noise && asked->lattice > 0.0)
            add = asked->lattice * nearbyint(add / asked->lattice);
        x[k] = (Knot){noise && points[p] <= asked->far ? points[p] + add : points[p], p, 0};
        y[k] = (Knot){noise && own[p] <= asked->far ? own[p] + add : own[p], p, 1};
    }
    sort(x, size, desk->spare);
    sort(y, size, desk->spare);
    x[size].value = y[size].value = INFINITY;
    for (long k = 0; k < 2 * size; k++) { /* which is next is a matter of chance: a branch would be guessed wrong */
        const int second = y->value < x->value;
        out[k] = *(second ? y : x);
        y += second, x += !second;
    }
}

/* A lane gets these knots, with kernels of this width; `train` (databases) says which of them the density is of. */
static void load(Lanes *lanes, int lane, const Knot *knots, double width, const char *train)
{
    lanes->sorted[lane] = knots;
    double before = knots[0].value;
    for (long k = 0; k < lanes->knots; k++) {
        const Knot knot = knots[k];
        const double mass = !train || train[lanes->draws == 1 ? knot.point : knot.point / lanes->draws] ? 1.0 : 0.0;
        const long at = k * LANES + lane;
        lanes->mass[0][at] = knot.side ? 0.0 : mass;
        lanes->mass[1][at] = knot.side ? mass : 0.0;
        if (width > 0.0)
            lanes->decay[at] = knot.value == before ? 1.0 : exp((before - knot.value) / width);
        before = knot.value;
    }
    lanes->decay[lane] = 0.0;
}

static void empty(Lanes *lanes)
{
    for (int lane = 0; lane < LANES; lane++)
        lanes->sorted[lane] = NULL;
}

/* Sums of the kernels of both samples at every knot. */
WIDE static void spread_out(const Lanes *lanes)
{
    const long knots = lanes->knots;
    for (int side = 0; side < 2; side++) {
        const double *__restrict mass = lanes->mass[side], *__restrict decay = lanes->decay;
        double *__restrict left = lanes->left[side], *__restrict right = lanes->right[side];
        double *__restrict density = lanes->density[side];
        double sum[LANES] = {0.0};
        for (long k = 0; k < knots; k++)
            for (int lane = 0; lane < LANES; lane++) {
                sum[lane] = sum[lane] * decay[k * LANES + lane] + mass[k * LANES + lane];
                left[k * LANES + lane] = sum[lane];
            }
        for (int lane = 0; lane < LANES; lane++)
            sum[lane] = 0.0;
        for (long k = knots - 1; k >= 0; k--)
            for (int lane = 0; lane < LANES; lane++) {
                const long at = k * LANES + lane;
                right[at] = sum[lane] + mass[at];
                density[at] = left[at] + sum[lane]; /* its own kernel is in both sums, and counts once */
                sum[lane] = right[at] * decay[at];
            }
    }
}

/* Where the density of `direction` exceeds e times the other's, and how much of the kernel at each knot lies there. */
WIDE static void smooth_set(Lanes *lanes, double e, int direction)
{
    const long knots = lanes->knots;
    const double *__restrict a = lanes->density[direction], *__restrict b = lanes->density[1 - direction];
    const double *__restrict la = lanes->left[direction], *__restrict lb = lanes->left[1 - direction];
    const double *__restrict ra = lanes->right[direction], *__restrict rb = lanes->right[1 - direction];
    const double *__restrict decay = lanes->decay;
    double *__restrict inside = lanes->inside, *__restrict psi = lanes->psi, *__restrict back = lanes->back;
    const double bar = e * (1.0 + 1e-10); /* rounding alone puts no point into it */
    double any[LANES] = {0.0}, over[LANES] = {0.0};
    for (long k = 0; k < knots; k++)
        for (int lane = 0; lane < LANES; lane++) {
            const double in = a[k * LANES + lane] > bar * b[k * LANES + lane] ? 1.0 : 0.0;
            inside[k * LANES + lane] = in;
            any[lane] += in;
        }
    double all = 0.0;
    for (int lane = 0; lane < LANES; lane++) {
        lanes->any[lane] = any[lane] > 0.0;
        all += any[lane];
    }
    if (all == 0.0)
        return;
    for (int lane = 0; lane < LANES; lane++)
        psi[lane] = inside[lane];
    for (long k = 1; k < knots; k++) {
        const double *in = inside + k * LANES, *here = decay + k * LANES;
        unsigned long long now[LANES], then[LANES], turns = 0;
        memcpy(now, in, sizeof now), memcpy(then, in - LANES, sizeof then);
        for (int lane = 0; lane < LANES; lane++) {
            turns |= now[lane] ^ then[lane];
            over[lane] *= here[lane];
            back[k * LANES + lane] = 0.0;
        }
        if (turns)
            for (int lane = 0; lane < LANES; lane++) {
                const long at = k * LANES + lane;
                const double turn = 0.5 * (in[lane] - in[lane - LANES]);
                const double left = la[at - LANES] - e * lb[at - LANES], right = ra[at] - e * rb[at];
                /* exp(-t), t from the knot on the left to the root: left exp(-t) + right exp(t) here = 0 */
                const double square = -right / left;
                double to_left = sqrt(square > 0.0 ? square : 0.0) * sqrt(here[lane]);
                to_left = to_left >= here[lane] ? to_left : here[lane];
                to_left = to_left > 1.0 ? 1.0 : to_left;
                const double to_right = here[lane] / (to_left > 0.0 ? to_left : 1.0); /* else far from both */
                over[lane] -= turn != 0.0 ? turn * to_right : 0.0;
                back[at] = turn != 0.0 ? turn * to_left : 0.0; /* of the knot on the left */
            }
        for (int lane = 0; lane < LANES; lane++)
            psi[k * LANES + lane] = in[lane] + over[lane];
    }
    for (int lane = 0; lane < LANES; lane++)
        over[lane] = 0.0;
    for (long k = knots - 2; k >= 0; k--)
        for (int lane = 0; lane < LANES; lane++) {
            const long at = k * LANES + lane, next = at + LANES;
            over[lane] = over[lane] * decay[next] + back[next];
            psi[at] += over[lane];
        }
}

/* W of every database from how much of each knot counts, which is `share[k * step]`. */
static void paired(const Knot *knots, long count, long n, long draws, const double *share, long step, double e,
                   int direction, double *w)
{
    const double gain[2] = {(direction ? -e : 1.0) / (double)draws, (direction ? 1.0 : -e) / (double)draws};
    memset(w, 0, (size_t)n * sizeof(double));
    if (draws == 1)
        for (long k = 0; k < count; k++)
            w[knots[k].point] += gain[knots[k].side] * share[k * step];
    else
        for (long k = 0; k < count; k++)
            w[knots[k].point / draws] += gain[knots[k].side] * share[k * step];
}

/* W of a lane's smooth set. */
static double *values(Lanes *lanes, int lane, double e, int direction)
{
    double *w = lanes->w + lane * lanes->n;
    paired(lanes->sorted[lane], lanes->knots, lanes->n, lanes->draws, lanes->psi + lane, LANES, e, direction, w);
    return w;
}

/* Exact counts: a set that holds points of its own side and none of the other, or a W with two values. */
static double counted(const Asked *asked, const Lanes *lanes, int lane, const char *also, const double *w, double mean,
                      int direction)
{
    const long n = asked->n;
    if (asked->draws > 1)
        return 0.0;
    const Knot *knots = lanes->sorted[lane];
    long count[2] = {0, 0};
    for (long k = 0; k < 2 * n; k++)
        count[knots[k].side] += lanes->inside[k * LANES + lane] > 0.0 || (also && also[k]);
    const long a = count[direction], b = count[1 - direction];
    double best = 0.0;
    if (a > 0 && b == 0 && mean >= 0.9 * (double)a / (double)n)
        best = asked->shares[a];
    double low = w[0], high = w[0];
    for (long j = 1; j < n; j++) {
        low = w[j] < low ? w[j] : low;
        high = w[j] > high ? w[j] : high;
    }
    if (high - low > 1e-9) {
        long at_high = 0;
        for (long j = 0; j < n; j++) {
            if (high - w[j] <= 1e-9)
                at_high++;
            else if (w[j] - low > 1e-9)
                return best;
        }
        best = larger(best, low + (high - low) * asked->shares[at_high]);
    }
    return best;
}

/* Marks the knots that lie between. */
static void mark(const Knot *knots, long count, double low, double high, int closed, char *marked)
{
    for (long k = 0; k < count; k++) {
        const double value = knots[k].value;
        if (closed ? value >= low && value <= high : value > low && value < high)
            marked[k] = 1;
    }
}

/* Gaps: places in the order of a sample where the influence jumps. Raises `marked` of the direction that gains.
 * `scratch` has room for 2 n. */
static int gaps(const Asked *asked, const double *points, const double *own, const Knot *knots, int side,
                char *const marked[2], double *scratch)
{
    const long n = asked->n, most = asked->longest;
    double *d = scratch, *other = scratch + n; /* in this sample's order: influence, and the other sample's value */
    long at = 0;
    int any = 0;
    for (long k = 0; k < 2 * n; k++)
        if (knots[k].side == side) {
            const int p = knots[k].point;
            d[at] = own[p] - points[p];
            other[at++] = side ? points[p] : own[p];
        }
    for (long k = 1; k < n; k++) {
        const double jump = d[k] - d[k - 1], size = fabs(jump), middle = 0.5 * (d[k] + d[k - 1]);
        if (!(size > 8.0 * asked->tolerance) || !isfinite(jump))
            continue;
        const int up = jump > 0.0;
        long l = 0, r = 0;
        while (l < most && k - 1 - l >= 0 && (up ? d[k - 1 - l] < middle : d[k - 1 - l] > middle))
            l++;
        if (l < 3)
            continue;
        while (r < most && k + r < n && (up ? d[k + r] > middle : d[k + r] < middle))
            r++;
        if (r < 3 || asked->log_factorial[l + r] - asked->log_factorial[l] - asked->log_factorial[r] < asked->odds)
            continue;
        double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY}; /* of the influence, left and right */
        double left = -INFINITY, right = INFINITY; /* where the other sample ends on the left, and begins again */
        for (long i = k - l; i < k + r; i++) {
            const int on = i >= k;
            low[on] = d[i] < low[on] ? d[i] : low[on];
            high[on] = d[i] > high[on] ? d[i] : high[on];
            if (on)
                right = other[i] < right ? other[i] : right;
            else
                left = other[i] > left ? other[i] : left;
        }
        if (size <= 0.5 * (high[0] - low[0]) || size <= 0.5 * (high[1] - low[1]))
            continue;
        /* Influence that jumps up takes points of "without" apart, or brings points of "with" together. */
        if (left < right)
            mark(knots, 2 * n, left, right, 0, marked[!up]);
        else
            mark(knots, 2 * n, right, left, 1, marked[!up]);
        any = 1;
    }
    return any;
}

/* Fewest points that must have moved for a gap: on one side of a jump, all have. */
static long fewest_in_a_gap(const Asked *asked)
{
    const double *log_factorial = asked->log_factorial;
    long few = 3;
    while (few <= asked->longest && log_factorial[few + asked->longest] - log_factorial[few] -
                                            log_factorial[asked->longest] < asked->odds)
        few++;
    return few;
}

/* Knots that are tied, taken together: how many of either sample, and where they end. Gives the number of groups. */
static long grouped(const Knot *knots, long count, double tolerance, double *a, double *b, long *ends)
{
    long groups = 0;
    double in[2] = {0.0, 0.0};
    for (long k = 0; k < count; k++) {
        in[knots[k].side] += 1.0;
        if (k + 1 < count && knots[k + 1].value - knots[k].value <= tolerance)
            continue;
        a[groups] = in[0], b[groups] = in[1], ends[groups++] = k + 1;
        in[0] = in[1] = 0.0;
    }
    return groups;
}

/* The largest #A - e #B over intervals of groups; the `first` and the `last` group of the best one. */
static double scan(long groups, const double *a, const double *b, double e, long *first, long *last)
{
    double best = 0.0, sum = 0.0;
    long begin = 0;
    *first = 0, *last = -1;
    for (long k = 0; k < groups; k++) {
        if (sum <= 1e-9) /* what is equal but for rounding is decided alike everywhere: the shorter, the first */
            sum = 0.0, begin = k;
        sum += a[k] - e * b[k];
        if (sum > best + 1e-9)
            best = sum, *first = begin, *last = k;
    }
    return best;
}

/* What is known of one statistic of fine structure, against what noise leaves of it. */
static double beyond(const Asked *asked, double value, const double *null, double smooth, double stick_half,
                     double own_bound)
{
    double mean = 0.0, square = 0.0;
    for (int k = 0; k < COPIES; k++)
        mean += null[k] / COPIES;
    for (int k = 0; k < COPIES; k++)
        square += (null[k] - mean) * (null[k] - mean) / (COPIES - 1);
    const double deviation = larger(sqrt(square), 1.0 / (double)asked->n);
    const double excess = value - mean - asked->apart * deviation;
    if (excess > 2.5 * deviation)
        return larger(smooth + excess, own_bound);
    if (excess > deviation)
        return larger(smooth + excess, own_bound - larger(mean - stick_half, 0.0));
    return excess > 0.0 ? smooth + excess : 0.0;
}

/* Whether fine structure can still raise a bound, after so many copies. A null is never below 0, so that its mean is at
 * least the sum so far over all copies, and its squares those so far. */
static int needed(const Asked *asked, const double *value, const double *null, int copies, const double *smooth,
                  const double *limit, const double *best)
{
    for (long k = 0; k < asked->size; k++) {
        double sum = 0.0, square = 0.0;
        for (int copy = 0; copy < copies; copy++)
            sum += null[k * COPIES + copy];
        for (int copy = 0; copy < copies; copy++) {
            const double t = null[k * COPIES + copy] - sum / copies;
            square += t * t / (COPIES - 1);
        }
        const double least = larger(sqrt(square), 1.0 / (double)asked->n) * (1.0 - 1e-9);
        const double excess = value[k] - sum / COPIES - asked->apart * least;
        if (excess > 0.0 && (smooth[k] + excess > best[k] || (excess > least && limit[k] > best[k])))
            return 1;
    }
    return 0;
}

/* Everything that is written to on the way. */
typedef struct {
    Desk desk;
    Lanes lanes;
    Knot *knots[LANES], *noisy[COPIES];
    double *own[LANES], *x, *y, *scratch, *share;
    double *a, *b; /* groups of tied knots */
    long *ends;
    char *marked[LANES][2]; /* knots at gaps, by the direction that gains */
    int jumps[LANES];       /* whether there are any */
    double *smooth[LANES], *half[LANES], *value[LANES], *limit[LANES], *null;
} Room;

/* Fine structure of a sample: the largest share that an interval tells apart, at each e. With `limit`: its bound. */
static void intervals(const Asked *asked, const Knot *knots, Room *room, double *value, long step, double *limit)
{
    const long count = 2 * asked->n * asked->draws;
    const long groups = grouped(knots, count, asked->tolerance, room->a, room->b, room->ends);
    for (long g = 0; g < asked->size; g++) {
        double best = 0.0;
        long range[2] = {0, -1};
        int chosen = 0;
        for (int direction = 0; direction < 2; direction++) {
            long first, last;
            const double sum = scan(groups, direction ? room->b : room->a, direction ? room->a : room->b, asked->e[g],
                                    &first, &last) / (double)(asked->n * asked->draws);
            if (sum > best + 1e-11)
                best = sum, chosen = direction, range[0] = first, range[1] = last;
        }
        value[g * step] = best;
        if (!limit)
            continue;
        const long begin = range[0] ? room->ends[range[0] - 1] : 0, end = range[1] < 0 ? 0 : room->ends[range[1]];
        double mean;
        for (long k = 0; k < count; k++)
            room->share[k] = k >= begin && k < end;
        paired(knots, count, asked->n, asked->draws, room->share, 1, asked->e[g], chosen, room->scratch);
        limit[g] = bound(room->scratch, asked->n, asked->z, asked->c, &mean);
    }
}

/* Fine structure on a lattice: the hockey stick of both densities at this width, of each lane. With `limit`: bounds. */
static void sticks(const Asked *asked, Lanes *lanes, double *const value[LANES], long step, double *const *limit)
{
    const long knots = lanes->knots;
    spread_out(lanes);
    for (long g = 0; g < asked->size; g++) {
        double best[LANES] = {0.0};
        for (int direction = 0; direction < 2; direction++) {
            smooth_set(lanes, asked->e[g], direction);
            for (int lane = 0; lane < LANES; lane++) {
                if (!lanes->sorted[lane])
                    continue;
                double sum = 0.0, mean;
                if (lanes->any[lane])
                    for (long k = 0; k < knots; k++)
                        sum += (lanes->sorted[lane][k].side == direction ? 1.0 : -asked->e[g]) *
                               lanes->psi[k * LANES + lane];
                if (sum > best[lane] + 1e-11 * (double)knots || (limit && !direction)) {
                    best[lane] = larger(sum, 0.0);
                    if (limit)
                        limit[lane][g] = !lanes->any[lane] ? 0.0
                                         : bound(values(lanes, lane, asked->e[g], direction), asked->n, asked->z,
                                                 asked->c, &mean);
                }
            }
        }
        for (int lane = 0; lane < LANES; lane++)
            if (lanes->sorted[lane])
                value[lane][g * step] = best[lane] / (double)(asked->n * asked->draws);
    }
}

/* Whether fine structure of somebody who moves so many points can raise a bound: no set tells more apart. */
static int possible(const Asked *asked, long moved, const double *smooth, const double *best, Room *room)
{
    for (long g = 0; g < asked->size; g++) {
        room->value[0][g] = (double)moved / (double)(asked->n * asked->draws);
        room->limit[0][g] = INFINITY;
    }
    return needed(asked, room->value[0], room->null, 0, smooth, room->limit[0], best);
}

/* Raises `best` to what fine structure gives, whose value and limit are known. */
static void fine(const Asked *asked, const double *points, int person, double width, double *best, Room *room)
{
    const long size = asked->n * asked->draws;
    const double *own = room->own[person], *smooth = room->smooth[person];
    const double *value = room->value[person], *limit = room->limit[person];
    double *null[LANES];
    Lanes *lanes = &room->lanes;
    empty(lanes);
    for (int copy = 0; copy < COPIES; copy++) {
        if ((copy == 0 || asked->lattice <= 0.0) && !needed(asked, value, room->null, copy, smooth, limit, best))
            return;
        null[copy] = room->null + copy;
        merge(asked, points, own, asked->orders + (1 + copy) * size, asked->noise + copy * size, width, &room->desk,
              room->noisy[copy]);
        if (asked->lattice > 0.0)
            load(lanes, copy, room->noisy[copy], 0.25 * width, NULL); /* there are as many lanes as copies */
        else
            intervals(asked, room->noisy[copy], room, null[copy], COPIES, NULL);
    }
    if (asked->lattice > 0.0)
        sticks(asked, lanes, null, COPIES, NULL);
    for (long g = 0; g < asked->size; g++)
        best[g] = larger(best[g], beyond(asked, value[g], room->null + g * COPIES, smooth[g], room->half[person][g],
                                         limit[g]));
}

/* What smooth sets are looked at for. */
enum { RAISE = 1, COUNT = 2, FIRST = 4, TOTAL = 8 };

/* Smooth sets of all lanes, each for what `use` says: raises `upper` of each lane to their bounds, with exact counts,
 * keeps bounds and means, and adds up what total risk is made of. */
static void smooth_sets(const Asked *asked, const int *use, double *const *upper, double *losses, double *sums,
                        Room *room)
{
    Lanes *lanes = &room->lanes;
    const long n = asked->n, knots = lanes->knots;
    spread_out(lanes);
    for (long g = 0; g < asked->size; g++) {
        const double e = asked->e[g];
        double most[LANES] = {0.0}; /* mean of W, the larger of both directions */
        for (int direction = 0; direction < 2; direction++) {
            smooth_set(lanes, e, direction);
            for (int lane = 0; lane < LANES; lane++) {
                const char *marked = room->jumps[lane] ? room->marked[lane][direction] : NULL;
                if (!lanes->sorted[lane])
                    continue;
                double mean = 0.0, limit = 0.0;
                double *w = lanes->w + lane * n;
                if (lanes->any[lane]) {
                    w = values(lanes, lane, e, direction);
                    limit = bound(w, n, asked->z, asked->c, &mean);
                    if (use[lane] & RAISE)
                        upper[lane][g] = larger(upper[lane][g], limit);
                    if (use[lane] & COUNT)
                        upper[lane][g] = larger(upper[lane][g], counted(asked, lanes, lane, NULL, w, mean, direction));
                    if (use[lane] & TOTAL && mean > most[lane]) {
                        most[lane] = mean;
                        memcpy(lanes->kept + lane * n, w, (size_t)n * sizeof(double));
                    }
                }
                if (!(use[lane] & FIRST))
                    continue;
                room->smooth[lane][g] = larger(room->smooth[lane][g], limit);
                room->half[lane][g] = larger(room->half[lane][g], mean);
                if (!marked)
                    continue;
                long count[2] = {0, 0};
                for (long k = 0; k < knots; k++) {
                    room->share[k] = marked[k] ? 1.0 : lanes->any[lane] ? lanes->psi[k * LANES + lane] : 0.0;
                    count[lanes->sorted[lane][k].side] += marked[k];
                }
                if (!count[direction])
                    continue;
                paired(lanes->sorted[lane], knots, n, asked->draws, room->share, 1, e, direction, w);
                upper[lane][g] = larger(upper[lane][g], bound(w, n, asked->z, asked->c, &mean));
                if (asked->parts & COUNTS)
                    upper[lane][g] =
                        larger(upper[lane][g], counted(asked, lanes, lane, marked, w, mean, direction));
                if (!count[1 - direction])
                    upper[lane][g] = larger(upper[lane][g], asked->shares[count[direction]]);
            }
        }
        for (int lane = 0; lane < LANES; lane++)
            if (lanes->sorted[lane] && use[lane] & TOTAL && most[lane] > 0.0) {
                const double d = most[lane] < 1.0 ? most[lane] : 1.0;
                losses[g] -= log1p(-d);
                for (long j = 0; j < n && d < 1.0; j++)
                    sums[g * n + j] += lanes->kept[lane * n + j] / (1.0 - d);
            }
    }
}

/* Room for `size` epsilons, or 0 without memory. */
static int make_room(Room *room, long n, long draws, long size)
{
    const long N = n * draws, knots = 2 * N;
    Knot *all_knots = malloc((size_t)((LANES + COPIES) * knots + 2 * (N + 1) + knots) * sizeof(Knot));
    double *numbers = malloc((size_t)(12 * knots * LANES + 2 * n * LANES + LANES * N + 8 * knots +
                                      (4 * LANES + COPIES) * size) * sizeof(double));
    long *places = malloc((size_t)knots * sizeof(long));
    char *flags = malloc((size_t)(2 * LANES * knots));
    room->knots[0] = all_knots, room->lanes.mass[0] = numbers, room->ends = places, room->marked[0][0] = flags;
    if (!all_knots || !numbers || !places || !flags)
        return 0;
    Lanes *lanes = &room->lanes;
    memset(numbers, 0, (size_t)(12 * knots * LANES) * sizeof(double)); /* lanes that are never used hold numbers too */
    lanes->knots = knots, lanes->n = n, lanes->draws = draws;
    double **arrays[12] = {lanes->mass, lanes->mass + 1, &lanes->decay, lanes->left, lanes->left + 1, lanes->right,
                           lanes->right + 1, lanes->density, lanes->density + 1, &lanes->inside, &lanes->psi,
                           &lanes->back};
    for (int k = 0; k < 12; k++, numbers += knots * LANES)
        *arrays[k] = numbers;
    lanes->w = numbers, lanes->kept = numbers + n * LANES, numbers += 2 * n * LANES;
    for (int lane = 0; lane < LANES; lane++, numbers += N + 4 * size, flags += 2 * knots) {
        room->knots[lane] = all_knots + lane * knots;
        room->own[lane] = numbers, room->smooth[lane] = numbers + N, room->half[lane] = numbers + N + size;
        room->value[lane] = numbers + N + 2 * size, room->limit[lane] = numbers + N + 3 * size;
        room->marked[lane][0] = flags, room->marked[lane][1] = flags + knots;
    }
    all_knots += LANES * knots;
    for (int copy = 0; copy < COPIES; copy++, all_knots += knots)
        room->noisy[copy] = all_knots;
    room->desk.spare = all_knots, room->desk.x = all_knots + knots, room->desk.y = room->desk.x + N + 1;
    room->a = numbers, room->b = numbers + knots, room->share = numbers + 2 * knots;
    room->scratch = numbers + 3 * knots, room->x = numbers + 5 * knots, room->y = numbers + 6 * knots;
    numbers += 8 * knots;
    room->null = numbers;
    return 1;
}

static void leave(const Room *room)
{
    free(room->knots[0]), free(room->lanes.mass[0]), free(room->ends), free(room->marked[0][0]);
}

/* For each of `rows` individuals: raises `best` (rows, epsilons) to the parts. `without` are their points, and
 * `bandwidths` their own; `marks` (rows, steps, 2, N) say for each step, sample and point whether it stays on the line
 * (0) or is one of two atoms, with `marked` (rows,) steps in use. The densities of somebody at bandwidth `narrow` are
 * known to stay within a factor `reach` (rows,) of each other. With `total` > 0, its bandwidth: adds to `losses`
 * (epsilons,) and `sums` (epsilons, n), for everybody whose densities there do not stay within `reach_total`. */
int empriv_parts(long rows, long n, long draws, const double *points, const double *without,
                     const double *bandwidths, const double *reach, long steps, const signed char *marks,
                     const int *marked, long size, const double *e, double z, double c, const double *shares,
                     double bandwidth, double narrow, double tolerance, double odds, double apart, double lattice,
                     double far, const double *noise, const int *orders, const double *log_factorial, long longest,
                     long parts, double total, const double *reach_total, double *best, double *losses, double *sums)
{
    const Asked asked = {n, draws, size, parts, e, shares, z, c, tolerance, narrow, odds, apart, lattice, far, noise,
                         orders, log_factorial, longest};
    const long N = n * draws;
    const long in_a_gap = parts & GAPS && draws == 1 ? fewest_in_a_gap(&asked) : N + 1;
    double least = e[0];
    Room room;
    if (!make_room(&room, n, draws, size)) {
        leave(&room);
        return 1;
    }
    for (long g = 1; g < size; g++)
        least = e[g] < least ? e[g] : least;
    for (long row = 0; row < rows;) {
        double *upper[LANES], width[LANES];
        long who[LANES], moved[LANES];
        int count = 0, use[LANES], in_total[LANES], again = 0, wide = 0;
        empty(&room.lanes);
        for (; row < rows && count < LANES; row++) {
            double *own = room.own[count];
            long many = 0;
            for (long k = 0; k < N; k++) {
                const double value = without[row * N + k];
                own[k] = fabs(value - points[k]) <= 8.0 * tolerance ? points[k] : value;
                many += own[k] != points[k];
            }
            const int apart_sets = reach[row] > least, sums_up = total > 0.0 && reach_total[row] > least;
            for (long g = 0; g < size; g++)
                room.smooth[count][g] = room.half[count][g] = 0.0;
            const int finer = parts & FINE && possible(&asked, many, room.smooth[count], best + row * size, &room);
            if (!many || !(apart_sets || sums_up || finer || many >= in_a_gap || (parts & RESIDUES && marked[row])))
                continue;
            who[count] = row, moved[count] = many, upper[count] = best + row * size;
            width[count] = narrow * bandwidths[row];
            merge(&asked, points, own, orders, NULL, 0.0, &room.desk, room.knots[count]);
            room.jumps[count] = 0;
            if (many >= in_a_gap) {
                memset(room.marked[count][0], 0, (size_t)(4 * N));
                for (int side = 0; side < 2; side++)
                    room.jumps[count] |=
                        gaps(&asked, points, own, room.knots[count], side, room.marked[count], room.scratch);
            }
            use[count] = RAISE | FIRST | (parts & COUNTS ? COUNT : 0);
            in_total[count] = sums_up;
            if (apart_sets || room.jumps[count]) {
                if (sums_up && width[count] == total)
                    use[count] |= TOTAL, in_total[count] = 0;
                load(&room.lanes, count, room.knots[count], width[count], NULL);
                again = 1;
            }
            count++;
        }
        if (again)
            smooth_sets(&asked, use, upper, losses, sums, &room);
        for (int pass = 0; pass < 2; pass++) { /* at everyone's bandwidth, and at that of total risk */
            const double all = pass ? total : narrow * bandwidth;
            empty(&room.lanes);
            wide = 0;
            for (int lane = 0; lane < count; lane++) {
                const int adds = in_total[lane] && all == total;
                use[lane] = (!pass && bandwidths[who[lane]] != bandwidth ? RAISE : 0) | (adds ? TOTAL : 0);
                if (!use[lane])
                    continue;
                load(&room.lanes, lane, room.knots[lane], all, NULL);
                in_total[lane] = in_total[lane] && !adds;
                wide = 1;
            }
            if (wide)
                smooth_sets(&asked, use, upper, losses, sums, &room);
        }
        int finer[LANES];
        empty(&room.lanes);
        for (int lane = 0; lane < count; lane++) {
            finer[lane] = parts & FINE && !(lattice > 0.0 && 0.25 * width[lane] < lattice) &&
                          possible(&asked, moved[lane], room.smooth[lane], upper[lane], &room);
            if (finer[lane] && lattice > 0.0)
                load(&room.lanes, lane, room.knots[lane], 0.25 * width[lane], NULL);
        }
        if (lattice > 0.0)
            sticks(&asked, &room.lanes, room.value, 1, room.limit);
        for (int lane = 0; lane < count; lane++) {
            const double h = bandwidths[who[lane]], *own = room.own[lane];
            if (finer[lane] && lattice <= 0.0)
                intervals(&asked, room.knots[lane], &room, room.value[lane], 1, room.limit[lane]);
            if (finer[lane])
                fine(&asked, points, lane, width[lane], upper[lane], &room);
            for (int s = 0; s < marked[who[lane]] && parts & RESIDUES; s++) {
                const signed char *at = marks + (who[lane] * steps + s) * 2 * N;
                double top = -INFINITY;
                for (long k = 0; k < N; k++)
                    top = larger(top, larger(points[k], own[k]));
                const double step = 20.0 * h + 1e-6 * fabs(top);
                for (long k = 0; k < N; k++) {
                    room.x[k] = at[k] ? top + step * at[k] : points[k];
                    room.y[k] = at[N + k] ? top + step * at[N + k] : own[k];
                }
                merge(&asked, room.x, room.y, orders, NULL, 0.0, &room.desk, room.noisy[0]);
                empty(&room.lanes);
                load(&room.lanes, lane, room.noisy[0], width[lane], NULL);
                use[lane] = RAISE | COUNT;
                smooth_sets(&asked, use, upper, losses, sums, &room);
            }
        }
    }
    leave(&room);
    return 0;
}

/* For each of `rows` individuals and each fold of databases: the smooth set at this width that the other databases
 * choose, its direction too. `sums` (epsilons, n) gets its W in the databases of the fold, of everybody added up;
 * `values` that of the most promising individual so far, and `scores` (epsilons, folds) how promising: the mean on the
 * other databases, less z standard errors of a mean over n. */
int empriv_cross_fit(long rows, long n, long draws, const double *points, const double *without, const int *order,
                     double width, const int *fold, long folds, long size, const double *e, double z, double *scores,
                     double *values_of, double *sums)
{
    const Asked asked = {.n = n, .draws = draws, .size = size, .far = INFINITY};
    const long N = n * draws;
    Room room;
    char *train = malloc((size_t)n);
    if (!make_room(&room, n, draws, size) || !train) {
        leave(&room), free(train);
        return 1;
    }
    Lanes *lanes = &room.lanes;
    for (long row = 0; row < rows; row += LANES) {
        const int count = rows - row < LANES ? (int)(rows - row) : LANES;
        for (int lane = 0; lane < count; lane++)
            merge(&asked, points, without + (row + lane) * N, order, NULL, 0.0, &room.desk, room.knots[lane]);
        empty(lanes);
        for (long left_out = 0; left_out < folds; left_out++) {
            long seen = 0;
            for (long j = 0; j < n; j++)
                seen += train[j] = fold[j] != left_out;
            for (int lane = 0; lane < count; lane++) /* kernels decay alike in every fold */
                load(lanes, lane, room.knots[lane], left_out ? 0.0 : width, train);
            spread_out(lanes);
            for (long g = 0; g < size; g++) {
                double most[LANES];
                int any[LANES] = {0};
                for (int direction = 0; direction < 2; direction++) {
                    smooth_set(lanes, e[g], direction);
                    for (int lane = 0; lane < count; lane++) {
                        double mean = 0.0;
                        if (!lanes->any[lane]) { /* nothing is told apart: W is 0 */
                            if (!direction)
                                most[lane] = 0.0;
                            else if (any[lane] && most[lane] < 0.0)
                                any[lane] = 0;
                            continue;
                        }
                        const double *w = values(lanes, lane, e[g], direction);
                        for (long j = 0; j < n; j++)
                            mean += train[j] ? w[j] : 0.0;
                        mean /= (double)seen;
                        if (!direction || mean > most[lane]) {
                            most[lane] = mean, any[lane] = 1;
                            memcpy(lanes->kept + lane * n, w, (size_t)n * sizeof(double));
                        }
                    }
                }
                for (int lane = 0; lane < count; lane++) {
                    if (!any[lane])
                        continue;
                    const double *w = lanes->kept + lane * n;
                    double square = 0.0;
                    for (long j = 0; j < n; j++) {
                        square += train[j] ? (w[j] - most[lane]) * (w[j] - most[lane]) : 0.0;
                        sums[g * n + j] += train[j] ? 0.0 : w[j];
                    }
                    const double score = most[lane] - z * sqrt(square / (double)seen / (double)n);
                    if (!(score > scores[g * folds + left_out]))
                        continue;
                    scores[g * folds + left_out] = score;
                    for (long j = 0; j < n; j++)
                        if (!train[j])
                            values_of[g * n + j] = w[j];
                }
            }
        }
    }
    leave(&room), free(train);
    return 0;
}

/* The most promising of `rows` individuals for each kind of set, and for each e: half-lines that end after a knot, from
 * the left and from the right, in both directions, then smooth sets at this width in both. A score is the mean of W
 * less z standard errors of a mean over `judges` databases. `scores`, `who` (epsilons, 6) and `place` (epsilons, 4), the
 * knot: what is found is better than what is there already (`lower._half_lines` and `lower._smooth_sets` in numpy). */
int empriv_promising(long rows, long n, const double *points, const double *without, const int *order, double width,
                     long size, const double *e, double z, double judges, double *scores, long long *who,
                     long long *place)
{
    const Asked asked = {.n = n, .draws = 1, .size = size, .far = INFINITY};
    const double one = (double)n;
    Room room;
    if (!make_room(&room, n, 1, size)) {
        leave(&room);
        return 1;
    }
    Lanes *lanes = &room.lanes;
    double *const p[2] = {room.a, room.b}, *whole = room.scratch, *partly = room.scratch + 2 * n;
    for (long row = 0; row < rows; row += LANES) {
        const int count = rows - row < LANES ? (int)(rows - row) : LANES;
        empty(lanes);
        for (int lane = 0; lane < count; lane++) {
            const Knot *knots = room.knots[lane];
            char *seen = room.marked[lane][0];
            double in[2] = {0.0, 0.0}; /* pairs wholly there, and at least partly */
            long without_them = 0;
            merge(&asked, points, without + (row + lane) * n, order, NULL, 0.0, &room.desk, room.knots[lane]);
            load(lanes, lane, knots, width, NULL);
            memset(seen, 0, (size_t)n);
            for (long k = 0; k < 2 * n; k++) {
                without_them += knots[k].side;
                in[!seen[knots[k].point]] += 1.0;
                seen[knots[k].point] = 1;
                p[1][k] = (double)without_them / one, p[0][k] = (double)(k + 1) / one - p[1][k];
                whole[k] = in[0] / one, partly[k] = in[1] / one;
            }
            for (long g = 0; g < size; g++)
                for (int kind = 0; kind < 4; kind++) {
                    const double *x = p[kind % 2], *y = p[1 - kind % 2], *both = kind < 2 ? whole : partly;
                    double best = scores[g * 6 + kind];
                    for (long k = 0; k + 1 < 2 * n; k++) {
                        const double a = kind < 2 ? x[k] : 1.0 - x[k], b = kind < 2 ? y[k] : 1.0 - y[k];
                        const double mean = a - e[g] * b;
                        if (!(mean > best) || !(knots[k + 1].value > knots[k].value)) /* no line through ties */
                            continue;
                        const double shared = kind < 2 ? both[k] : 1.0 - both[k];
                        const double variance = a - 2 * e[g] * shared + e[g] * e[g] * b - mean * mean;
                        const double score = mean - z * sqrt((variance > 0.0 ? variance : 0.0) / judges);
                        if (score > best) {
                            best = scores[g * 6 + kind] = score;
                            who[g * 6 + kind] = row + lane, place[g * 4 + kind] = k;
                        }
                    }
                }
        }
        spread_out(lanes);
        for (long g = 0; g < size; g++)
            for (int direction = 0; direction < 2; direction++) {
                smooth_set(lanes, e[g], direction);
                for (int lane = 0; lane < count; lane++) {
                    double mean = 0.0, square = 0.0;
                    if (lanes->any[lane]) {
                        const double *w = values(lanes, lane, e[g], direction);
                        for (long j = 0; j < n; j++)
                            mean += w[j];
                        mean /= one;
                        for (long j = 0; j < n; j++)
                            square += (w[j] - mean) * (w[j] - mean);
                    }
                    const double score = mean - z * sqrt(square / one) / sqrt(judges);
                    if (score > scores[g * 6 + 4 + direction])
                        scores[g * 6 + 4 + direction] = score, who[g * 6 + 4 + direction] = row + lane;
                }
            }
    }
    leave(&room);
    return 0;
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_structure", .m_doc = "Called through ctypes: see structure.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__structure(void) { return PyModule_Create(&module); }
