/* The upper bound's parts for structure that one bandwidth cannot see: what `structure_in_numpy.py` does in numpy, one
 * individual at a time; that module is the oracle of this file, and says what the parts are.
 *
 * Points may lie any distance apart: kernels are summed by how they decay from one knot to the next. The function
 * touches no Python object, and so is called without the interpreter's lock. */

#include <Python.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNTS = 1, GAPS = 2, RESIDUES = 4, FINE = 8, COPIES = 8 };

typedef struct {
    double value;
    int point; /* which of the N points of its sample; its database is point / draws */
    int side;  /* 0: with everyone, 1: without the individual */
} Knot;

typedef struct {
    long n, draws, size, parts; /* databases, points of each, epsilons */
    const double *e, *shares;   /* shares[k]: Clopper and Pearson's limit for k of n */
    double z, c, tolerance;
    double narrow;      /* bandwidth of the smooth set, in bandwidths */
    double odds, apart; /* log of the odds that a gap needs; null deviations that fine structure needs */
    double lattice, far; /* its step or 0; points beyond `far` are atoms */
    const double *noise; /* (COPIES, N) in bandwidths of the smooth set */
    const int *orders;   /* (1 + COPIES, N) points with everyone, and with each noise, sorted */
    const double *log_factorial;
    long longest; /* run on either side of a jump */
} Asked;

typedef struct {
    Knot *knots, *sorted, *spare;
    double *decay, *left[2], *right[2], *psi, *w, *own;
    char *inside, *marked[2];
} Room;

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

/* Sorts by value what is nearly sorted already: natural runs are merged. */
static void sort(Knot *knots, long count, Knot *spare)
{
    for (;;) {
        long begin = 0, runs = 0;
        while (begin < count) {
            long middle = begin + 1;
            while (middle < count && knots[middle - 1].value <= knots[middle].value)
                middle++;
            runs++;
            if (middle == count) {
                memcpy(spare + begin, knots + begin, (size_t)(count - begin) * sizeof(Knot));
                break;
            }
            long end = middle + 1;
            while (end < count && knots[end - 1].value <= knots[end].value)
                end++;
            long i = begin, j = middle, k = begin;
            while (i < middle && j < end) {
                const int second = knots[j].value < knots[i].value;
                spare[k++] = second ? knots[j] : knots[i];
                i += !second, j += second;
            }
            memcpy(spare + k, knots + i, (size_t)(middle - i) * sizeof(Knot));
            memcpy(spare + k + (middle - i), knots + j, (size_t)(end - j) * sizeof(Knot));
            begin = end;
        }
        memcpy(knots, spare, (size_t)count * sizeof(Knot));
        if (runs <= 1)
            return;
        long sorted = 1;
        for (long k = 1; k < count && sorted; k++)
            sorted = knots[k - 1].value <= knots[k].value;
        if (sorted)
            return;
    }
}

/* Both samples sorted together, `noise` times `scale` added to points that are no atoms, and to both of a pair. */
static void merge(const Asked *asked, const double *points, const double *own, const int *order, const double *noise,
                  double scale, Room *room)
{
    const long size = asked->n * asked->draws;
    Knot *x = room->knots, *y = room->sorted; /* the samples in the order that those with everyone are likely to have */
    for (long k = 0; k < size; k++) {
        const int p = order[k];
        double add = noise ? noise[p] * scale : 0.0;
        if (noise && asked->lattice > 0.0)
            add = asked->lattice * nearbyint(add / asked->lattice);
        const double a = points[p] > asked->far ? points[p] : points[p] + add;
        const double b = own[p] > asked->far ? own[p] : own[p] + add;
        x[k] = (Knot){a, p, 0};
        y[k] = (Knot){b, p, 1};
    }
    sort(x, size, room->spare);
    sort(y, size, room->spare);
    long i = 0, j = 0;
    for (long k = 0; k < 2 * size; k++)
        room->spare[k] = j >= size || (i < size && x[i].value <= y[j].value) ? x[i++] : y[j++];
    memcpy(room->knots, room->spare, (size_t)(2 * size) * sizeof(Knot));
}

/* Sums of the kernels of both samples at every knot: from the left with the knot itself, and from the right too. */
static void spread_out(const Asked *asked, double width, Room *room)
{
    const long knots = 2 * asked->n * asked->draws;
    const Knot *x = room->knots;
    double *decay = room->decay;
    decay[0] = 0.0;
    for (long k = 1; k < knots; k++)
        decay[k] = exp((x[k - 1].value - x[k].value) / width);
    double sum[2] = {0.0, 0.0};
    for (long k = 0; k < knots; k++) {
        sum[0] *= decay[k], sum[1] *= decay[k];
        sum[x[k].side] += 1.0;
        room->left[0][k] = sum[0], room->left[1][k] = sum[1];
    }
    sum[0] = sum[1] = 0.0;
    for (long k = knots - 1; k >= 0; k--) {
        const double by = k + 1 < knots ? decay[k + 1] : 0.0;
        sum[0] *= by, sum[1] *= by;
        sum[x[k].side] += 1.0;
        room->right[0][k] = sum[0], room->right[1][k] = sum[1];
    }
}

/* Where the density of `direction` exceeds e times the other's, and how much of the kernel at each knot lies there. */
static void smooth_set(const Asked *asked, double e, int direction, Room *room)
{
    const long knots = 2 * asked->n * asked->draws;
    const double *la = room->left[direction], *lb = room->left[1 - direction];
    const double *ra = room->right[direction], *rb = room->right[1 - direction];
    double *psi = room->psi;
    char *inside = room->inside;
    for (long k = 0; k < knots; k++) {
        const int own = room->knots[k].side == direction;
        const double a = la[k] + ra[k] - own, b = lb[k] + rb[k] - !own; /* its own kernel is in both sums */
        inside[k] = a > e * (1.0 + 1e-10) * b; /* rounding alone puts no point into it */
        psi[k] = inside[k];
    }
    double over = 0.0;
    for (long k = 1; k < knots; k++) {
        over *= room->decay[k];
        if (inside[k] != inside[k - 1]) {
            const double left = la[k - 1] - e * lb[k - 1], right = ra[k] - e * rb[k], all = room->decay[k];
            /* exp(-t), t from the knot on the left to the root: left exp(-t) + right exp(t) all = 0 */
            double to_left = -right / left > 0.0 ? sqrt(-right / left) * sqrt(all) : 0.0;
            to_left = !(to_left >= all) ? all : to_left > 1.0 ? 1.0 : to_left;
            const double to_right = to_left > 0.0 ? all / to_left : 0.0; /* else the root is far from both */
            over += (inside[k] ? -0.5 : 0.5) * to_right;
            room->w[k] = (inside[k] ? 0.5 : -0.5) * to_left; /* of the knot on the left */
        } else
            room->w[k] = 0.0;
        psi[k] += over;
    }
    over = 0.0;
    for (long k = knots - 2; k >= 0; k--) {
        over = over * room->decay[k + 1] + room->w[k + 1];
        psi[k] += over;
    }
}

/* W of every database from how much of each knot counts; `w` has room for 2 n. */
static void paired(const Asked *asked, const double *share, double e, int direction, Room *room)
{
    const long knots = 2 * asked->n * asked->draws;
    const double one = 1.0 / (double)asked->draws;
    double *w = room->own;
    for (long j = 0; j < asked->n; j++)
        w[j] = 0.0;
    for (long k = 0; k < knots; k++) {
        const Knot knot = room->knots[k];
        w[asked->draws == 1 ? knot.point : knot.point / asked->draws] += (knot.side == direction ? one : -e * one) * share[k];
    }
}

/* Exact counts: a set that holds `a` points of its own side and none of the other, or a W with two values. */
static double counted(const Asked *asked, const char *inside, const char *also, double mean, int direction, Room *room)
{
    const long n = asked->n, knots = 2 * n;
    if (asked->draws > 1)
        return 0.0;
    long a = 0, b = 0;
    for (long k = 0; k < knots; k++)
        if (inside[k] || (also && also[k])) {
            a += room->knots[k].side == direction;
            b += room->knots[k].side != direction;
        }
    double best = 0.0;
    if (a > 0 && b == 0 && mean >= 0.9 * (double)a / (double)n)
        best = asked->shares[a];
    const double *w = room->own;
    double low = w[0], high = w[0];
    for (long j = 1; j < n; j++) {
        low = w[j] < low ? w[j] : low;
        high = w[j] > high ? w[j] : high;
    }
    if (high - low > 1e-9) {
        long count = 0;
        for (long j = 0; j < n; j++) {
            if (high - w[j] <= 1e-9)
                count++;
            else if (w[j] - low > 1e-9)
                return best;
        }
        const double two = low + (high - low) * asked->shares[count];
        best = two > best ? two : best;
    }
    return best;
}

/* Marks the knots that lie between. */
static void mark(const Asked *asked, double low, double high, int closed, char *marked, const Room *room)
{
    const long knots = 2 * asked->n;
    for (long k = 0; k < knots; k++) {
        const double value = room->knots[k].value;
        if (closed ? value >= low && value <= high : value > low && value < high)
            marked[k] = 1;
    }
}

/* Gaps: places in the order of a sample where the influence jumps. Raises `marked` of the direction that gains. */
static int gaps(const Asked *asked, const double *points, const double *own, int side, Room *room)
{
    const long n = asked->n, most = asked->longest;
    double *d = room->own, *other = room->w; /* in the order of this sample: influence, and the other sample's value */
    long at = 0;
    int any = 0;
    for (long k = 0; k < 2 * n; k++)
        if (room->knots[k].side == side) {
            const int p = room->knots[k].point;
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
        while (r < most && k + r < n && (up ? d[k + r] > middle : d[k + r] < middle))
            r++;
        if (l < 3 || r < 3 ||
            asked->log_factorial[l + r] - asked->log_factorial[l] - asked->log_factorial[r] < asked->odds)
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
            mark(asked, left, right, 0, room->marked[!up], room);
        else
            mark(asked, right, left, 1, room->marked[!up], room);
        any = 1;
    }
    return any;
}

/* The largest (#A - e #B) / N over intervals, ties together; `first` and `last` knot of the best one. */
static double scan(const Asked *asked, double e, int direction, const Room *room, long *first, long *last)
{
    const long knots = 2 * asked->n * asked->draws;
    double best = 0.0, sum = 0.0;
    long begin = 0;
    *first = 0, *last = -1;
    for (long k = 0; k < knots;) {
        long end = k;
        double group = 0.0;
        do
            group += room->knots[end++].side == direction ? 1.0 : -e;
        while (end < knots && room->knots[end].value - room->knots[end - 1].value <= asked->tolerance);
        if (sum <= 1e-9) /* what is equal but for rounding is decided alike everywhere: the shorter, the first */
            sum = 0.0, begin = k;
        sum += group;
        if (sum > best + 1e-9)
            best = sum, *first = begin, *last = end - 1;
        k = end;
    }
    return best / (double)(asked->n * asked->draws);
}

static double larger(double a, double b) { return a > b ? a : b; }

/* Mean of W at this width: the hockey stick of both densities, the larger of both directions. */
static double stick(const Asked *asked, double e, Room *room, int *direction_of)
{
    const long knots = 2 * asked->n * asked->draws;
    double best = 0.0;
    *direction_of = 0;
    for (int direction = 0; direction < 2; direction++) {
        smooth_set(asked, e, direction, room);
        double sum = 0.0;
        for (long k = 0; k < knots; k++)
            sum += (room->knots[k].side == direction ? 1.0 : -e) * room->psi[k];
        if (sum > best + 1e-11 * (double)knots)
            best = sum, *direction_of = direction;
    }
    return best / (double)(asked->n * asked->draws);
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

/* Fine structure: the best interval, or on a lattice the hockey stick at a quarter of the smooth set's bandwidth. */
static double finest(const Asked *asked, double e, Room *room, double *limit)
{
    const long knots = 2 * asked->n * asked->draws;
    int chosen = 0;
    long range[2][2];
    double best = 0.0, mean;
    if (asked->lattice > 0.0)
        best = stick(asked, e, room, &chosen);
    else
        for (int direction = 0; direction < 2; direction++) {
            const double value = scan(asked, e, direction, room, &range[direction][0], &range[direction][1]);
            if (value > best + 1e-11)
                best = value, chosen = direction;
        }
    if (!limit)
        return best;
    if (asked->lattice > 0.0)
        smooth_set(asked, e, chosen, room);
    else
        for (long k = 0; k < knots; k++)
            room->psi[k] = k >= range[chosen][0] && k <= range[chosen][1];
    paired(asked, room->psi, e, chosen, room);
    *limit = bound(room->own, asked->n, asked->z, asked->c, &mean);
    return best;
}

static void fine(const Asked *asked, const double *points, const double *own, double width, const double *smooth,
                 const double *half, double *best, Room *room, double *kept)
{
    const long size = asked->size, n = asked->n * asked->draws;
    double *value = kept, *limit = kept + size, *null = kept + 2 * size;
    if (asked->lattice > 0.0)
        spread_out(asked, 0.25 * width, room);
    for (long g = 0; g < size; g++)
        value[g] = finest(asked, asked->e[g], room, limit + g);
    for (int copy = 0; copy < COPIES; copy++) {
        if (!needed(asked, value, null, copy, smooth, limit, best))
            return;
        merge(asked, points, own, asked->orders + (1 + copy) * n, asked->noise + copy * n, width, room);
        if (asked->lattice > 0.0)
            spread_out(asked, 0.25 * width, room);
        for (long g = 0; g < size; g++)
            null[g * COPIES + copy] = finest(asked, asked->e[g], room, NULL);
    }
    for (long g = 0; g < size; g++)
        best[g] = larger(best[g], beyond(asked, value[g], null + g * COPIES, smooth[g], half[g], limit[g]));
}

/* For each of `rows` individuals: raises `best` (rows, epsilons) to the parts. `without` are their points, and
 * `bandwidths` their own; `marks` (rows, steps, 2, N) say for each step, sample and point whether it stays on the line
 * (0) or is one of two atoms, with `marked` (rows,) steps in use. */
int empriv_structure(long rows, long n, long draws, const double *points, const double *without,
                     const double *bandwidths, long steps, const signed char *marks, const int *marked, long size, const double *e, double z, double c,
                     const double *shares, double bandwidth, double narrow, double tolerance, double odds, double apart, double lattice,
                     double far, const double *noise, const int *orders, const double *log_factorial, long longest,
                     long parts, double *best)
{
    const Asked asked = {n, draws, size, parts, e, shares, z, c, tolerance, narrow, odds, apart, lattice, far, noise,
                         orders, log_factorial, longest};
    const long N = n * draws, knots = 2 * N;
    Room room;
    Knot *knot_room = malloc((size_t)(4 * knots) * sizeof(Knot));
    double *room_of = malloc((size_t)(11 * knots + (6 + 2 * COPIES) * size + 8) * sizeof(double));
    char *flags = malloc((size_t)(3 * knots));
    if (!knot_room || !room_of || !flags) {
        free(knot_room), free(room_of), free(flags);
        return 1;
    }
    room.knots = knot_room, room.sorted = knot_room + knots, room.spare = knot_room + 2 * knots;
    room.decay = room_of, room.left[0] = room_of + knots + 2, room.left[1] = room.left[0] + knots;
    room.right[0] = room.left[1] + knots, room.right[1] = room.right[0] + knots, room.psi = room.right[1] + knots;
    room.w = room.psi + knots, room.own = room.w + knots;
    double *own = room.own + knots, *x = own + N, *y = x + N, *smooth = y + N + N, *half = smooth + size,
           *kept = half + size;
    room.inside = flags, room.marked[0] = flags + knots, room.marked[1] = flags + 2 * knots;
    for (long row = 0; row < rows; row++) {
        double *upper = best + row * size;
        const double h = bandwidths[row], width = narrow * h;
        long moved = 0;
        for (long k = 0; k < N; k++) {
            const double value = without[row * N + k];
            own[k] = fabs(value - points[k]) <= 8.0 * tolerance ? points[k] : value;
            moved += own[k] != points[k];
        }
        if (!moved)
            continue;
        merge(&asked, points, own, orders, NULL, 0.0, &room);
        memset(room.marked[0], 0, (size_t)(2 * knots));
        int jumps = 0;
        if (parts & GAPS && draws == 1)
            jumps = gaps(&asked, points, own, 0, &room) | gaps(&asked, points, own, 1, &room);
        spread_out(&asked, width, &room);
        for (long g = 0; g < size; g++) {
            smooth[g] = half[g] = 0.0;
            for (int direction = 0; direction < 2; direction++) {
                double mean;
                smooth_set(&asked, e[g], direction, &room);
                paired(&asked, room.psi, e[g], direction, &room);
                smooth[g] = larger(smooth[g], bound(room.own, n, z, c, &mean));
                half[g] = larger(half[g], mean);
                upper[g] = larger(upper[g], smooth[g]);
                if (parts & COUNTS)
                    upper[g] = larger(upper[g], counted(&asked, room.inside, NULL, mean, direction, &room));
                if (!jumps)
                    continue;
                long a = 0, b = 0;
                for (long k = 0; k < knots; k++)
                    if (room.marked[direction][k]) {
                        room.psi[k] = 1.0;
                        a += room.knots[k].side == direction;
                        b += room.knots[k].side != direction;
                    }
                if (!a)
                    continue;
                paired(&asked, room.psi, e[g], direction, &room);
                upper[g] = larger(upper[g], bound(room.own, n, z, c, &mean));
                if (parts & COUNTS)
                    upper[g] = larger(upper[g],
                                      counted(&asked, room.inside, room.marked[direction], mean, direction, &room));
                if (!b)
                    upper[g] = larger(upper[g], shares[a]);
            }
        }
        if (h != bandwidth) {
            spread_out(&asked, narrow * bandwidth, &room);
            for (long g = 0; g < size; g++)
                for (int direction = 0; direction < 2; direction++) {
                    double mean;
                    smooth_set(&asked, e[g], direction, &room);
                    paired(&asked, room.psi, e[g], direction, &room);
                    upper[g] = larger(upper[g], bound(room.own, n, z, c, &mean));
                }
        }
        if (parts & FINE && !(lattice > 0.0 && 0.25 * width < lattice))
            fine(&asked, points, own, width, smooth, half, upper, &room, kept);
        for (int s = 0; s < marked[row] && parts & RESIDUES; s++) {
            const signed char *at = marks + (row * steps + s) * 2 * N;
            double top = -INFINITY;
            for (long k = 0; k < N; k++)
                top = larger(top, larger(points[k], own[k]));
            const double step = 20.0 * h + 1e-6 * fabs(top);
            for (long k = 0; k < N; k++) {
                x[k] = at[k] ? top + step * at[k] : points[k];
                y[k] = at[N + k] ? top + step * at[N + k] : own[k];
            }
            merge(&asked, x, y, orders, NULL, 0.0, &room);
            spread_out(&asked, width, &room);
            for (long g = 0; g < size; g++)
                for (int direction = 0; direction < 2; direction++) {
                    double mean;
                    smooth_set(&asked, e[g], direction, &room);
                    paired(&asked, room.psi, e[g], direction, &room);
                    upper[g] = larger(upper[g], bound(room.own, n, z, c, &mean));
                    upper[g] = larger(upper[g], counted(&asked, room.inside, NULL, mean, direction, &room));
                }
        }
    }
    free(knot_room), free(room_of), free(flags);
    return 0;
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_structure", .m_doc = "Called through ctypes: see structure.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__structure(void) { return PyModule_Create(&module); }
