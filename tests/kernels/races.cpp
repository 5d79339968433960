// Runs every kernel that works with a warp once, for ThreadSanitizer to look at. Sizes fill no warp and no pair evenly.

#include "host_launch.h"

#include <cstdio>

int main() {
    const int d = 37, width = 48, replicates = GROUP + 1;
    const integer n = 70, chunk = 64, first = 1, count = 5, skipped = 2;
    const int groups = 2, chunks = 2;
    const REAL l2 = (REAL)0.1, clip = (REAL)0.05;
    const float sigma = 0.3f;
    std::vector<REAL> x(replicates * d, (REAL)0.5), mean(x), full(x), rows((n + 1) * width), etas(64, (REAL)0.1);
    std::vector<REAL> sums(chunks * replicates * d);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = (REAL)((i * 7919 % 101) / 101.0 - 0.5);
    std::vector<word> streams(3 * replicates, 1);
    std::vector<integer> places(replicates);
    REAL *at_x = x.data(), *at_mean = mean.data(), *at_full = full.data(), *at_rows = rows.data(), *at_etas = etas.data();
    REAL* at_sums = sums.data();
    word* at_streams = streams.data();
    integer *at_places = places.data(), *no_index = nullptr;
    double scale = 1.0;
    int exponential = 0;
    auto pointer = [](const auto& value) { return (void*)&value; };

    void* sgd[] = {pointer(at_x), pointer(at_mean), pointer(at_rows), pointer(at_etas), pointer(no_index),
                   pointer(at_streams), pointer(at_streams), pointer(first), pointer(count), pointer(n), pointer(skipped),
                   pointer(d), pointer(width), pointer(l2), pointer(sigma)};
    void* svrg[] = {pointer(at_x), pointer(at_mean), pointer(at_full), pointer(at_full), pointer(at_rows), pointer(at_etas),
                    pointer(no_index), pointer(at_streams), pointer(at_streams), pointer(first), pointer(count), pointer(n),
                    pointer(d), pointer(width), pointer(l2), pointer(clip), pointer(sigma)};
    void* gradient[] = {pointer(at_sums), pointer(at_rows), pointer(at_x), pointer(n), pointer(chunk), pointer(d),
                        pointer(width), pointer(replicates)};
    void* maximum[] = {pointer(at_places), pointer(at_x), pointer(at_streams), pointer(first), pointer(d), pointer(scale),
                       pointer(exponential)};
    const int failed = launch("noisy_sgd", 2, sgd) + launch("noisy_svrg", 2, svrg) +
                       launch("slope_sums", chunks * groups, gradient) + launch("noisy_max", 2, maximum);
    double total = 0;
    for (REAL value : x) total += value;
    for (REAL value : sums) total += value;
    std::printf("total %g\n", total);
    return failed || total != total;
}
