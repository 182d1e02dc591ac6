/* Hockey sticks of smooth kernels from densities at the nodes of panels, one individual at a time. On a panel a density
 * is the polynomial through its values at Chebyshev points, which is as exact as doubles are. `mixtures.py` evaluates
 * the kernels themselves instead, and is the oracle of this file; docs/mathematics.md has the formulas.
 *
 * The function touches no Python object, and so is called without the interpreter's lock. */

#include <Python.h>
#include <math.h>
#include <string.h>

/* Of the gap about a turning point, and about a root: what they leave out is of third order. */
#define NEAR_TURN 1e-3
#define NEAR_ROOT 1e-4

typedef struct {
    long panels, degree, nodes; /* nodes = panels * degree + 1: neighbours share one */
    const double *places, *edges;
    const double *transform; /* values on a panel -> coefficients of Chebyshev polynomials */
} Line;

/* One density: values at the nodes, mass up to each panel, and for panels that were asked for, coefficients and those of
 * the integral from the panel's left end, `room` apart. */
typedef struct {
    const double *values;
    double *before, *coefficients;
    char *known;
} Density;

static long room(const Line *line) { return 2 * line->degree + 3; }

static const double *coefficients(const Line *line, const Density *density, long panel)
{
    const long n = line->degree;
    double *c = density->coefficients + panel * room(line), *sum = c + n + 1;
    if (density->known[panel])
        return c;
    const double *values = density->values + panel * n;
    memset(c, 0, (n + 1) * sizeof(double));
    for (long j = 0; j <= n; j++)
        for (long k = 0; k <= n; k++)
            c[k] += line->transform[j * (n + 1) + k] * values[j];
    const double half = 0.5 * (line->edges[panel + 1] - line->edges[panel]);
    double start = 0.0;
    for (long k = 1; k <= n + 1; k++) {
        const double above = k < n ? c[k + 1] : 0.0, below = k == 1 ? 2.0 * c[0] : c[k - 1];
        sum[k] = half * (below - above) / (double)(2 * k);
        start += k % 2 ? sum[k] : -sum[k];
    }
    sum[0] = start; /* so that it is zero at -1 */
    density->known[panel] = 1;
    return c;
}

/* A place on the line, which panel it is on, and where there. */
typedef struct {
    double x, t;
    long panel;
} Place;

/* x next to a node. */
static Place locate(const Line *line, double x, long node)
{
    long panel = node / line->degree;
    panel = panel < line->panels ? panel : line->panels - 1;
    while (panel + 1 < line->panels && x > line->edges[panel + 1])
        panel++;
    while (panel > 0 && x < line->edges[panel])
        panel--;
    const double left = line->edges[panel], right = line->edges[panel + 1];
    const double t = ((x - left) - (right - x)) / (right - left);
    return (Place){x, t < -1.0 ? -1.0 : t > 1.0 ? 1.0 : t, panel};
}

/* Two polynomials at t, by Clenshaw's recurrence. */
static void both_at(const double *c, const double *d, long degree, double t, double *first, double *second)
{
    double b1 = 0.0, b2 = 0.0, d1 = 0.0, d2 = 0.0;
    const double twice = 2.0 * t;
    for (long k = degree; k > 0; k--) {
        const double b = twice * b1 + (c[k] - b2), e = twice * d1 + (d[k] - d2);
        b2 = b1;
        b1 = b;
        d2 = d1;
        d1 = e;
    }
    *first = t * b1 + (c[0] - b2);
    *second = t * d1 + (d[0] - d2);
}

static void densities_at(const Line *line, const Density *p, const Density *q, Place place, double *p_x, double *q_x)
{
    both_at(coefficients(line, p, place.panel), coefficients(line, q, place.panel), line->degree, place.t, p_x, q_x);
}

static void masses_to(const Line *line, const Density *p, const Density *q, Place place, double *mass, double *without)
{
    const long n = line->degree + 1;
    both_at(coefficients(line, p, place.panel) + n, coefficients(line, q, place.panel) + n, n, place.t, mass, without);
    *mass += p->before[place.panel];
    *without += q->before[place.panel];
}

static double quotient(double p, double q)
{
    return p > 0.0 && q > 0.0 ? p / q : p > 0.0 ? INFINITY : q > 0.0 ? 0.0 : 1.0;
}

/* A turning point of the ratio, or an end of the line: both densities, both masses up to it, and the node after it. */
typedef struct {
    double x, p, q, ratio, mass, mass_without;
    long after;
} Knot;

static Knot knot_at(const Line *line, const Density *p, const Density *q, const double *ratio, long node)
{
    Knot knot = {line->places[node], p->values[node], q->values[node], ratio[node], 0.0, 0.0, node + 1};
    masses_to(line, p, q, locate(line, knot.x, node), &knot.mass, &knot.mass_without);
    return knot;
}

/* Where the ratio turns about a node: parabolas through three points, again and again. Where little is left of the
 * densities a panel says less than its nodes do, and the node stays. */
static Knot turning_point(const Line *line, const Density *p, const Density *q, const double *ratio, long node)
{
    double x[3], y[3];
    for (int k = 0; k < 3; k++) {
        x[k] = line->places[node - 1 + k];
        y[k] = ratio[node - 1 + k];
    }
    Knot knot = knot_at(line, p, q, ratio, node);
    const double gap = x[2] - x[0], sign = y[1] > y[0] || y[1] > y[2] ? 1.0 : -1.0;
    const double most = fmax(fabs(y[1] - y[0]), fabs(y[1] - y[2]));
    for (int turn = 0; turn < 8; turn++) {
        const double left = x[1] - x[0], right = x[1] - x[2];
        const double a = left * (y[1] - y[2]), b = right * (y[1] - y[0]);
        const double next = x[1] - 0.5 * (left * a - right * b) / (a - b);
        if (!(next > x[0] && next < x[2]) || fabs(next - x[1]) < NEAR_TURN * gap)
            break;
        double p_x, q_x;
        const Place place = locate(line, next, node);
        densities_at(line, p, q, place, &p_x, &q_x);
        const double here = quotient(p_x, q_x);
        if (!(fabs(here - ratio[node]) <= most))
            break;
        const int to_right = next > x[1];
        if (sign * here >= sign * y[1]) { /* a better middle: the old one becomes an end */
            x[to_right ? 0 : 2] = x[1];
            y[to_right ? 0 : 2] = y[1];
            x[1] = next;
            y[1] = here;
            knot = (Knot){next, p_x, q_x, here, 0.0, 0.0, next < line->places[node] ? node : node + 1};
            masses_to(line, p, q, place, &knot.mass, &knot.mass_without);
        } else {
            x[to_right ? 2 : 0] = next;
            y[to_right ? 2 : 0] = here;
        }
    }
    return knot;
}

/* Integral of the positive part of p - e q, or of q - e p where `back` is set, between two knots of which it is positive
 * at one. Between them it has one root: regula falsi, where an end that stays twice counts half. */
static double crossed_part(const Line *line, const Density *p, const Density *q, const Knot *left, const Knot *right,
                           double e, int back)
{
    const double by_p = back ? -e : 1.0, by_q = back ? 1.0 : -e;
    double a = left->x, b = right->x, at_a = by_p * left->p + by_q * left->q, at_b = by_p * right->p + by_q * right->q;
    const int rising = at_b > at_a;
    long low = left->after - 1, high = right->after; /* the nodes about the root are between them */
    if (high > low + 1 && line->places[high - 1] >= b)
        high--;
    while (high - low > 1) {
        const long middle = (low + high) / 2;
        const double here = by_p * p->values[middle] + by_q * q->values[middle];
        if ((here > 0.0) == rising) {
            high = middle;
            b = line->places[middle];
            at_b = here;
        } else {
            low = middle;
            a = line->places[middle];
            at_a = here;
        }
    }
    const double gap = b - a;
    double x = a - at_a * (gap / (at_b - at_a)), here = 0.0, move = 0.0;
    Place place = {0};
    for (int turn = 0, stayed = 0; turn < 100; turn++) {
        if (!(x >= a && x <= b))
            x = 0.5 * (a + b);
        double p_x, q_x;
        place = locate(line, x, low < 0 ? 0 : low);
        densities_at(line, p, q, place, &p_x, &q_x);
        here = by_p * p_x + by_q * q_x;
        if ((here > 0.0) == rising) {
            b = x;
            at_b = here;
            at_a *= stayed == 1 ? 0.5 : 1.0;
            stayed = 1;
        } else {
            a = x;
            at_a = here;
            at_b *= stayed == -1 ? 0.5 : 1.0;
            stayed = -1;
        }
        const double next = a - at_a * ((b - a) / (at_b - at_a));
        move = next - x;
        if (!(fabs(move) > NEAR_ROOT * gap) || b - a <= 1e-13 * gap)
            break;
        x = next;
    }
    if (!(fabs(move) <= NEAR_ROOT * gap))
        move = 0.0;
    double mass, without;
    masses_to(line, p, q, place, &mass, &without);
    /* from the root on, or up to it; what lies between x and the root is half of the triangle's sides */
    const double rest = 0.5 * here * move;
    const double up_to = by_p * (mass - left->mass) + by_q * (without - left->mass_without) + rest;
    const double from = by_p * (right->mass - mass) + by_q * (right->mass_without - without) - rest;
    const double part = rising ? from : up_to;
    return part > 0.0 ? part : 0.0;
}

/* For each of `rows` individuals: sticks at `size` ascending values of e in both directions, `out` (rows, 2, size), and
 * the smallest and largest ratio p/p_i. `values` are the densities at the nodes, with everyone and without each;
 * `weights` integrate over a panel of width 2. `scratch` has room for 2 panels (2 degree + 4) + nodes doubles, `flags`
 * for 2 panels, `knot_room` for a `Knot`, 7 doubles, at every node. */
void empriv_panel_sticks(long rows, long panels, long degree, const double *places, const double *edges,
                         const double *transform, const double *weights, const double *with_all, const double *values,
                         long size, const double *e, double *out, double *low, double *high, double *scratch, char *flags,
                         double *knot_room)
{
    const Line line = {panels, degree, panels * degree + 1, places, edges, transform};
    const long width = panels * room(&line);
    Density p = {with_all, scratch, scratch + panels, flags};
    Density q = {values, p.coefficients + width, p.coefficients + width + panels, flags + panels};
    double *ratio = q.coefficients + width;
    Knot *knots = (Knot *)knot_room;
    memset(flags, 0, panels);
    for (long row = -1; row < rows; row++) {
        Density *density = row < 0 ? &p : &q;
        if (row >= 0)
            q.values = values + row * line.nodes;
        double mass = 0.0;
        for (long panel = 0; panel < panels; panel++) {
            density->before[panel] = mass;
            double sum = 0.0;
            for (long j = 0; j <= degree; j++)
                sum += weights[j] * density->values[panel * degree + j];
            mass += 0.5 * (edges[panel + 1] - edges[panel]) * sum;
        }
        if (row < 0)
            continue;
        memset(q.known, 0, panels);
        double least = INFINITY, most = 0.0;
        for (long i = 0; i < line.nodes; i++) {
            ratio[i] = quotient(p.values[i], q.values[i]);
            least = ratio[i] < least ? ratio[i] : least;
            most = ratio[i] > most ? ratio[i] : most;
        }
        low[row] = least;
        high[row] = most;
        double *sticks = out + row * 2 * size;
        memset(sticks, 0, 2 * size * sizeof(double));
        if (most <= 1.0 && least >= 1.0)
            continue;
        long count = 0, turned = 0;
        knots[count++] = knot_at(&line, &p, &q, ratio, 0);
        for (long i = 1; i + 1 < line.nodes; i++) {
            /* compared, and not subtracted: where one density is rounded to zero the ratio is infinite */
            const double before = ratio[i - 1], here = ratio[i], after = ratio[i + 1];
            if ((here > before && after <= here) || (here < before && after >= here)) {
                knots[count] = turning_point(&line, &p, &q, ratio, i);
                if (knots[count].x <= knots[count - 1].x) { /* nodes are in order, whatever rounding says between them */
                    if (count > 1)
                        knots[count - 1] = knot_at(&line, &p, &q, ratio, turned);
                    knots[count] = knot_at(&line, &p, &q, ratio, i);
                }
                turned = i;
                least = knots[count].ratio < least ? knots[count].ratio : least;
                most = knots[count].ratio > most ? knots[count].ratio : most;
                count++;
            }
        }
        knots[count++] = knot_at(&line, &p, &q, ratio, line.nodes - 1);
        low[row] = least;
        high[row] = most;
        for (long k = 0; k + 1 < count; k++) {
            const Knot *left = knots + k, *right = left + 1;
            const double lowest = fmin(left->ratio, right->ratio), highest = fmax(left->ratio, right->ratio);
            const double above = right->mass - left->mass, below = right->mass_without - left->mass_without;
            for (long c = 0; c < size && e[c] < highest; c++)
                sticks[c] += e[c] <= lowest ? above - e[c] * below : crossed_part(&line, &p, &q, left, right, e[c], 0);
            for (long c = 0; c < size && e[c] * lowest < 1.0; c++)
                sticks[size + c] +=
                    e[c] * highest <= 1.0 ? below - e[c] * above : crossed_part(&line, &p, &q, left, right, e[c], 1);
        }
    }
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_panels", .m_doc = "Called through ctypes: see compiled.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__panels(void) { return PyModule_Create(&module); }
