/* Half-lines and end runs of people given presence: what `ends_in_numpy` in present.py does, one person at a time. That
 * function is the oracle of this file.
 *
 * A person has runs of n places each: the others' first, then these moved by each influence, and `order` sorts them all.
 * Nothing here touches a Python object, and so it is called without the interpreter's lock. */

#include <Python.h>
#include <math.h>
#include <string.h>

/* The normal bound mended for skewness, `moments.skewed`, from sums of powers of n values. */
static double skewed(double sum, double squares, double cubes, double n, double z)
{
    const double first = sum / n, second = squares / n, third = cubes / n;
    const double variance = fmax(second - first * first, 0.0);
    if (!(variance > 1e-30))
        return first;
    const double skewness = third - 3.0 * first * second + 2.0 * first * first * first;
    return first + z * sqrt(variance / fmax(n - 1.0, 1.0)) + (1.0 + 2.0 * z * z) / 6.0 * skewness / (variance * n);
}

/* For each of `rows` people with runs[row] of `most` runs: the largest bound over half-lines at both ends, without the
 * 1/n that is taken off it, `best` (rows, count), and how many points lie beyond all of the other side, `alone`.
 *
 * A half-line ends at one of the first `depth` places of a run; the first 2 depth of these are looked at, on average
 * over each of `parts` groups that begin at starts[0], ..., and end at starts[parts]. `scratch` has room for
 * 2 depth + 2 n parts + most doubles. */
void empriv_presence_ends(long rows, long most, long n, const long *runs, const long *order, const double *places,
                          const double *weights, long depth, long parts, const long *starts, long count,
                          const double *e, double z, double *best, double *alone, double *scratch)
{
    double *lines = scratch, *shares = lines + 2 * depth, *taken = shares + 2 * n * parts;
    for (long row = 0; row < rows; row++) {
        const double *place = places + row * most * n, *weight = weights + row * (most - 1);
        const long *sorted = order + row * most * n;
        const long size = runs[row] * n;
        for (long c = 0; c < count; c++)
            best[row * count + c] = -INFINITY;
        alone[row] = 0.0;
        for (int sign = 1; sign >= -1; sign -= 2) {
            long number = 0;
            memset(taken, 0, (size_t)most * sizeof(double));
            for (long k = 0; k < size && number < 2 * depth; k++) {
                const long source = sorted[sign > 0 ? k : size - 1 - k], run = source / n;
                if (taken[run] < (double)depth) {
                    taken[run] += 1.0;
                    lines[number++] = sign * place[source];
                }
            }
            /* shares (databases, 2, parts): of the half-lines of each group that a database's places lie in */
            const double last = lines[number - 1];
            long near = 0;
            double first_other = INFINITY, first_present = INFINITY;
            for (long j = 0; j < n; j++) {
                double *own = shares + 2 * parts * near;
                int inside = 0;
                for (long run = 0; run < runs[row]; run++) {
                    const double value = sign * place[run * n + j];
                    if (run)
                        first_present = fmin(first_present, value);
                    else
                        first_other = fmin(first_other, value);
                    if (!(value < last))
                        continue;
                    if (!inside)
                        memset(own, 0, (size_t)(2 * parts) * sizeof(double));
                    inside = 1;
                    long line = 0; /* the first that it lies in; it lies in all after it */
                    while (!(value < lines[line]))
                        line++;
                    for (long part = 0; part < parts; part++) {
                        const long begin = starts[part], end = starts[part + 1] < number ? starts[part + 1] : number;
                        const long from = line > begin ? line : begin;
                        if (from < end)
                            own[(run > 0) * parts + part] +=
                                (run ? weight[run - 1] : 1.0) * (double)(end - from) / (double)(end - begin);
                    }
                }
                near += inside;
            }
            for (long c = 0; c < count; c++)
                for (long part = 0; part < parts && starts[part] < number; part++) {
                    double sums[2][3] = {{0.0, 0.0, 0.0}, {0.0, 0.0, 0.0}};
                    for (long j = 0; j < near; j++) {
                        const double other = shares[2 * parts * j + part], present = shares[2 * parts * j + parts + part];
                        const double w[2] = {other - e[c] * present, present - e[c] * other};
                        for (int i = 0; i < 2; i++) {
                            sums[i][0] += w[i];
                            sums[i][1] += w[i] * w[i];
                            sums[i][2] += w[i] * w[i] * w[i];
                        }
                    }
                    for (int i = 0; i < 2; i++) {
                        const double bound = skewed(sums[i][0], sums[i][1], sums[i][2], (double)n, z);
                        best[row * count + c] = fmax(best[row * count + c], bound);
                    }
                }
            double ahead = 0.0, beyond = 0.0;
            for (long run = 0; run < runs[row]; run++)
                for (long j = 0; j < n; j++) {
                    const double value = sign * place[run * n + j];
                    if (run)
                        ahead += value < first_other ? weight[run - 1] : 0.0;
                    else
                        beyond += value < first_present;
                }
            alone[row] = fmax(alone[row], fmax(ahead, beyond));
        }
    }
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_present", .m_doc = "Called through ctypes: see present.py.", .m_size = -1};

PyMODINIT_FUNC PyInit__present(void) { return PyModule_Create(&module); }
