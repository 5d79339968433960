// CUDA kernels for what array operations do badly; kernels.py launches them.
//
// NVRTC compiles this file with REAL = float or double; it needs no header. LANES is the width of a warp and GROUP how
// many replicates share the rows that a block of `slope_sums` has loaded; kernels.py defines both. The tests compile the
// same file for a CPU, with LANES = 1, and with 32 threads for a warp.
//
// Two kinds of kernels. Those of the first kind go through their work in strides of the whole grid, in any number of
// blocks and threads. Those of the second kind have blocks of one warp: a lane owns the coordinates j with
// j % LANES == lane and is the only one to touch them, and what lanes show each other goes through shared memory between
// two barriers, or through a shuffle, which orders no memory. No kernel has atomic sums: the order of every sum is fixed.
//
// A stream is three words: the two of its Philox key, and 0 for an empty slot, whose numbers are all zero.

typedef unsigned long long word;
typedef long long integer;

struct Words {
    word at[4];
};

struct Pair {
    float even, odd;
};

// ------------------------------------------------------------------------------------------------ random numbers

// Philox 4x64 with 10 rounds (Salmon, Moraes, Dror and Shaw 2011). Words 4 c, ..., 4 c + 3 of a stream are those of the
// counter c + 1, as numpy.random.Philox hands them out.
__device__ Words philox(const word* stream, word c) {
    word x0 = c + 1, x1 = 0, x2 = 0, x3 = 0, key0 = stream[0], key1 = stream[1];
    for (int round = 0; round < 10; ++round) {
        const word high0 = __umul64hi(0xD2E7470EE14C6C93ull, x0), low0 = 0xD2E7470EE14C6C93ull * x0;
        const word high1 = __umul64hi(0xCA5A826395121157ull, x2), low1 = 0xCA5A826395121157ull * x2;
        x0 = high1 ^ x1 ^ key0;
        x1 = low1;
        x2 = high0 ^ x3 ^ key1;
        x3 = low0;
        key0 += 0x9E3779B97F4A7C15ull;
        key1 += 0xBB67AE8584CAA73Bull;
    }
    return {{x0, x1, x2, x3}};
}

__device__ word word_at(const word* stream, integer position) {
    return philox(stream, position / 4).at[position % 4];
}

// Two normal numbers from a word, in the operations of streams.py and in single precision. The intrinsics keep a product
// and a sum from being joined to one operation, which would round otherwise than the host does.
__device__ Pair box_muller(word bits, float scale) {
    const float uniform = __fmul_rn(__fadd_rn((float)(integer)(bits >> 24), 0.5f), 1.0f / 1099511627776.0f);
    const float radius = __fmul_rn(sqrtf(__fmul_rn(logf(uniform), -2.0f)), scale);
    const float angle = __fmul_rn((float)(integer)(bits & 0xFFFFFF), (float)(6.283185307179586 / 16777216.0));
    return {__fmul_rn(cosf(angle), radius), __fmul_rn(cosf(__fadd_rn(angle, -(float)1.5707963267948966)), radius)};
}

// The normal number of one step and coordinate; see `Streams.normals` for which word serves it.
__device__ float normal(const word* stream, integer step, int j, int d, float scale) {
    if (!stream[2]) return 0.0f;
    const Pair pair = box_muller(word_at(stream, step / 2 * d + j), scale);
    return step % 2 ? pair.odd : pair.even;
}

// A uniform number in (0, 1); 0 in an empty slot.
__device__ double uniform(const word* stream, integer position) {
    if (!stream[2]) return 0.0;
    return ((double)(word_at(stream, position) >> 11) + 0.5) * (1.0 / 9007199254740992.0);
}

// A record uniform on {0, ..., n-1}: `Streams.integers`.
__device__ integer record(const word* stream, integer step, integer n) {
    const integer drawn = (integer)(uniform(stream, step) * (double)n);
    return drawn < n ? drawn : n - 1;
}

__device__ double laplace(double uniform) {
    const double centred = uniform - 0.5;
    const double size = -log1p(-2.0 * fabs(centred));
    return centred > 0.0 ? size : -size;
}

__device__ double gumbel(double uniform) {
    return -log(-log(uniform));
}

// First kind. Words `first` to `first + count` of every stream: out (slots, count).
extern "C" __global__ void words(word* out, const word* streams, integer first, integer count, int slots) {
    const integer stride = (integer)gridDim.x * blockDim.x;
    for (integer i = blockIdx.x * (integer)blockDim.x + threadIdx.x; i < slots * count; i += stride) {
        const word* stream = streams + 3 * (i / count);
        out[i] = stream[2] ? word_at(stream, first + i % count) : 0;
    }
}

// First kind. Scaled normal numbers of a block of steps: out (steps, slots, d). One thread makes the eight of a counter.
extern "C" __global__ void normals(
    REAL* out, const word* streams, integer first, integer steps, int d, int slots, float scale
) {
    const integer first_pair = first / 2, last_pair = (first + steps - 1) / 2;
    const integer first_counter = first_pair * d / 4;
    const integer counters = ((last_pair + 1) * d - 1) / 4 - first_counter + 1;
    const integer stride = (integer)gridDim.x * blockDim.x;
    for (integer i = blockIdx.x * (integer)blockDim.x + threadIdx.x; i < slots * counters; i += stride) {
        const int k = (int)(i / counters);
        const word* stream = streams + 3 * k;
        const integer counter = first_counter + i % counters;
        const Words drawn = philox(stream, counter);
        for (int place = 0; place < 4; ++place) {
            const integer position = 4 * counter + place, pair = position / d, j = position % d;
            if (pair < first_pair || pair > last_pair) continue;
            const Pair z = stream[2] ? box_muller(drawn.at[place], scale) : Pair{0.0f, 0.0f};
            const integer step = 2 * pair - first;
            if (step >= 0) out[(step * slots + k) * d + j] = z.even;
            if (step + 1 < steps) out[((step + 1) * slots + k) * d + j] = z.odd;
        }
    }
}

// First kind. The noisy prefix of a tree: out (slots, d) is the sum over the open nodes, from the largest on, of a node's
// total (nodes, slots, d) and the noise of its step. Noise goes to a node before anything is rounded to the whole sum.
extern "C" __global__ void tree_prefix(
    REAL* out, const REAL* totals, const integer* steps, const word* streams, int nodes, int d, int slots, float scale
) {
    const integer size = (integer)slots * d, stride = (integer)gridDim.x * blockDim.x;
    for (integer i = blockIdx.x * (integer)blockDim.x + threadIdx.x; i < size; i += stride) {
        const word* stream = streams + 3 * (i / d);
        REAL prefix = 0;
        for (int node = 0; node < nodes; ++node)
            prefix += totals[node * size + i] + (REAL)normal(stream, steps[node], (int)(i % d), d, scale);
        out[i] = prefix;
    }
}

// ------------------------------------------------------------------------------------- steps on one record each

__device__ REAL over_lanes(REAL value) {
    for (int distance = LANES / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
    return value;
}

__device__ REAL dot(const REAL* a, const REAL* b, int d) {
    REAL sum = 0;
    for (int j = threadIdx.x; j < d; j += LANES) sum += a[j] * b[j];
    return over_lanes(sum);
}

// Fill `noise` (2, d), which is shared, with the normal numbers of the steps 2 pair and 2 pair + 1.
__device__ void draw_pair(float* noise, const word* stream, integer pair, int d, float scale) {
    const integer first = pair * d, last = first + d - 1;
    __syncwarp();  // the numbers of the pair before have been read
    for (integer counter = first / 4 + threadIdx.x; counter <= last / 4; counter += LANES) {
        const Words drawn = philox(stream, counter);
        for (int place = 0; place < 4; ++place) {
            const integer j = 4 * counter + place - first;
            if (j < 0 || j >= d) continue;
            const Pair z = stream[2] ? box_muller(drawn.at[place], scale) : Pair{0.0f, 0.0f};
            noise[j] = z.even;
            noise[d + j] = z.odd;
        }
    }
    __syncwarp();  // they are all there
}

// Second kind, a block for a replicate. `count` steps of noisy stochastic gradient descent from release `first` on,
//     x = (x - eta (grad f(x, z_i) + noise)) / (1 + eta l2),
// f the logistic loss at rows y x of length `width`. `mean` is the mean of the iterates behind the first `skipped`, and x
// itself before. The records are `index` (count, replicates) or, where that is null, drawn from `samples`.
extern "C" __global__ void noisy_sgd(
    REAL* iterates, REAL* means, const REAL* rows, const REAL* etas, const integer* index, const word* noises,
    const word* samples, integer first, integer count, integer n, integer skipped, int d, int width, REAL l2, float sigma
) {
    extern __shared__ double scratch[];
    float* noise = (float*)scratch;
    const int k = blockIdx.x;
    REAL *x = iterates + (integer)k * d, *mean = means + (integer)k * d;
    for (integer step = 0; step < count; ++step) {
        const integer release = first + step, averaged = release + 1 - skipped;
        if (release % 2 == 0 || step == 0) draw_pair(noise, noises + 3 * k, release / 2, d, sigma);
        const integer i = index ? index[step * gridDim.x + k] : record(samples + 3 * k, release, n);
        const REAL *a = rows + i * width, eta = etas[step];
        const REAL slope = (REAL)0.5 * tanh((REAL)0.5 * dot(a, x, d)) - (REAL)0.5;
        for (int j = threadIdx.x; j < d; j += LANES) {
            x[j] = (x[j] - eta * (slope * a[j] + (REAL)noise[release % 2 * d + j])) / (1 + eta * l2);
            mean[j] = averaged <= 1 ? x[j] : mean[j] + (x[j] - mean[j]) / (REAL)averaged;
        }
    }
}

// Second kind, a block for a replicate. `count` inner steps of noisy variance-reduced descent around a snapshot,
//     x = (x - eta (grad f(x, z_i) - grad f(snapshot, z_i) + full + noise)) / (1 + eta l2),
// with a step size for each replicate; the difference is shortened to the norm `clip` where it is longer, unless clip is
// 0. `totals` gathers the sum of the iterates. All else is as above.
extern "C" __global__ void noisy_svrg(
    REAL* iterates, REAL* totals, const REAL* snapshots, const REAL* fulls, const REAL* rows, const REAL* etas,
    const integer* index, const word* noises, const word* samples, integer first, integer count, integer n, int d,
    int width, REAL l2, REAL clip, float sigma
) {
    extern __shared__ double scratch[];
    float* noise = (float*)scratch;
    const int k = blockIdx.x;
    const integer own = (integer)k * d;
    REAL *x = iterates + own, *total = totals + own;
    const REAL *snapshot = snapshots + own, *full = fulls + own, eta = etas[k];
    for (integer step = 0; step < count; ++step) {
        const integer release = first + step;
        if (release % 2 == 0 || step == 0) draw_pair(noise, noises + 3 * k, release / 2, d, sigma);
        const integer i = index ? index[step * gridDim.x + k] : record(samples + 3 * k, release, n);
        const REAL* a = rows + i * width;
        const REAL here = tanh((REAL)0.5 * dot(a, x, d)), there = tanh((REAL)0.5 * dot(a, snapshot, d));
        REAL turn = (REAL)0.5 * (here - there);
        if (clip > 0) {
            const REAL length = fabs(turn) * sqrt(dot(a, a, d));
            if (length > clip) turn *= clip / length;
        }
        for (int j = threadIdx.x; j < d; j += LANES) {
            x[j] = (x[j] - eta * (turn * a[j] + full[j] + (REAL)noise[release % 2 * d + j])) / (1 + eta * l2);
            total[j] += x[j];
        }
    }
}

// ------------------------------------------------------------------------------------------------- full gradient

// Second kind, a block for a chunk of rows and GROUP replicates: sums (chunks, replicates, d) of tanh(<a, w>/2) a over the
// rows a of a chunk. LANES rows at a time are loaded once for all the replicates; a lane first takes the products of one
// row, then the sums of its coordinates. An odd distance of the rows keeps lanes on different banks.
extern "C" __global__ void slope_sums(
    REAL* sums, const REAL* rows, const REAL* points, integer n, integer chunk, int d, int width, int replicates
) {
    extern __shared__ double scratch[];
    const int lane = threadIdx.x, distance = d | 1, groups = (replicates + GROUP - 1) / GROUP;
    REAL* tile = (REAL*)scratch;             // LANES rows
    REAL* slopes = tile + LANES * distance;  // of LANES rows for GROUP replicates
    REAL* w = slopes + LANES * GROUP;        // (GROUP, d)
    REAL* total = w + GROUP * d;             // (GROUP, d)
    const integer number = blockIdx.x / groups, begin = number * chunk, end = begin + chunk < n ? begin + chunk : n;
    const int first = blockIdx.x % groups * GROUP;
    const int members = replicates - first < GROUP ? replicates - first : GROUP;
    for (int g = 0; g < members; ++g)
        for (int j = lane; j < d; j += LANES) {
            w[g * d + j] = points[(integer)(first + g) * d + j];
            total[g * d + j] = 0;
        }
    for (integer row = begin; row < end; row += LANES) {
        const int loaded = end - row < LANES ? (int)(end - row) : LANES;
        for (int r = 0; r < loaded; ++r)
            for (int j = lane; j < d; j += LANES) tile[r * distance + j] = rows[(row + r) * width + j];
        __syncwarp();  // the rows and points are loaded, and the slopes of the rows before have been read
        if (lane < loaded)
            for (int g = 0; g < members; ++g) {
                REAL product = 0;
                for (int j = 0; j < d; ++j) product += tile[lane * distance + j] * w[g * d + j];
                slopes[lane * GROUP + g] = tanh((REAL)0.5 * product);
            }
        __syncwarp();  // the slopes are there, and all products with the rows are taken
        for (int r = 0; r < loaded; ++r)
            for (int j = lane; j < d; j += LANES)
                for (int g = 0; g < members; ++g) total[g * d + j] += slopes[r * GROUP + g] * tile[r * distance + j];
    }
    for (int g = 0; g < members; ++g)
        for (int j = lane; j < d; j += LANES)
            sums[((integer)number * replicates + first + g) * d + j] = total[g * d + j];
}

// First kind. out (replicates, d) = factor times the sums of all chunks, in their order, plus `constant` times `mean` (d).
extern "C" __global__ void gather_chunks(
    REAL* out, const REAL* sums, const REAL* mean, integer chunks, int d, int replicates, REAL factor, REAL constant
) {
    const integer size = (integer)replicates * d, stride = (integer)gridDim.x * blockDim.x;
    for (integer i = blockIdx.x * (integer)blockDim.x + threadIdx.x; i < size; i += stride) {
        REAL total = 0;
        for (integer chunk = 0; chunk < chunks; ++chunk) total += sums[chunk * size + i];
        out[i] = factor * total + constant * mean[i % d];
    }
}

// ----------------------------------------------------------------------------------------------- report noisy max

// Whether (value, place) goes before (other, place_of_other) as in numpy.argmax: what is not a number first, then the
// larger, then the earlier.
__device__ bool goes_before(REAL value, int place, REAL other, int place_of_other) {
    const bool no_number = value != value, no_other = other != other;
    if (no_number || no_other) return no_number && (!no_other || place < place_of_other);
    return value > other || (value == other && place < place_of_other);
}

// Second kind, a block for a replicate: the place of the largest score (replicates, candidates) plus Laplace noise, or
// Gumbel noise if `exponential`, of which candidate j has the uniform number `first` + j of the replicate's stream.
extern "C" __global__ void noisy_max(
    integer* places, const REAL* scores, const word* streams, integer first, int candidates, double scale, int exponential
) {
    const int k = blockIdx.x;
    const word* stream = streams + 3 * k;
    REAL best = 0;
    int place = candidates;
    for (int j = threadIdx.x; j < candidates; j += LANES) {
        const double drawn = uniform(stream, first + j);
        const double noise = !stream[2] ? 0.0 : exponential ? gumbel(drawn) : laplace(drawn);
        const REAL value = scores[(integer)k * candidates + j] + (REAL)(scale * noise);
        if (place == candidates || goes_before(value, j, best, place)) {
            best = value;
            place = j;
        }
    }
    for (int distance = LANES / 2; distance > 0; distance /= 2) {
        const REAL other = __shfl_xor_sync(0xFFFFFFFFu, best, distance);
        const int place_of_other = __shfl_xor_sync(0xFFFFFFFFu, place, distance);
        const bool theirs = place_of_other < candidates;
        if (theirs && (place == candidates || goes_before(other, place_of_other, best, place))) {
            best = other;
            place = place_of_other;
        }
    }
    if (threadIdx.x == 0) places[k] = place;
}
