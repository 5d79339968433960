// Launches kernels on a CPU as cuLaunchKernel does on a GPU: by name, with pointers to the arguments. Blocks run one after
// another. KERNELS(X) lists the kernels; it is made from the source.

template <class... Arguments, std::size_t... Places>
static void call(void (*kernel)(Arguments...), void** arguments, std::index_sequence<Places...>) {
    kernel(*static_cast<Arguments*>(arguments[Places])...);
}

template <class... Arguments>
static void call(void (*kernel)(Arguments...), void** arguments) {
    call(kernel, arguments, std::index_sequence_for<Arguments...>());
}

static bool call_by_name(const char* name, void** arguments) {
#define TRY(kernel)                   \
    if (!std::strcmp(name, #kernel)) { \
        call(kernel, arguments);       \
        return true;                   \
    }
    KERNELS(TRY)
#undef TRY
    return false;
}

extern "C" int launch(const char* name, unsigned blocks, void** arguments) {
    bool known = true;
    for (unsigned block = 0; block < blocks && known; ++block) {
        // What a kernel reads before it has written it is not a number.
        std::memset(scratch, 0xFF, sizeof scratch);
        auto lane = [&](unsigned number) {
            threadIdx = {number};
            blockIdx = {block};
            blockDim = {LANES};
            gridDim = {blocks};
            const bool found = call_by_name(name, arguments);
            if (number == 0) known = found;
        };
#if LANES > 1
        pthread_barrier_init(&warp_barrier, nullptr, LANES);
        std::vector<std::thread> lanes;
        for (unsigned number = 0; number < LANES; ++number) lanes.emplace_back(lane, number);
        for (auto& thread : lanes) thread.join();
        pthread_barrier_destroy(&warp_barrier);
#else
        lane(0);
#endif
    }
    return known ? 0 : 1;
}
