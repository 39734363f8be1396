// Two ranks send each other messages of random length and contents, many of them under way at once,
// and compare every byte; then the same by puts and gets of a window, and by atomics on it.
//
// mpi_payload SEED MESSAGES: prints "done" at rank 0.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST (1 << 20)
#define WINDOW 16

static uint64_t seed;

static uint64_t next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

// The state, known to both sides, from which message `number` of rank `from` is made.
static uint64_t state_of(int from, int number) {
    uint64_t state = seed ^ (uint64_t)from << 56 ^ (uint64_t)number << 8;
    next(&state);
    return state;
}

// Most are short, so that rings go round; some take every other way of the library.
static int length(uint64_t *state) {
    uint64_t kind = next(state) % 1000;
    int most = kind < 900 ? 256 : kind < 980 ? 9000 : kind < 997 ? 1 << 16 : LONGEST;
    return 1 + next(state) % most;
}

static void fill(unsigned char *bytes, int len, uint64_t *state) {
    for (int i = 0; i < len; i += 8) {
        uint64_t word = next(state);
        memcpy(bytes + i, &word, len - i < 8 ? len - i : 8);
    }
}

static void compare(const unsigned char *bytes, const unsigned char *expected, int len, const char *what, int number) {
    if (memcmp(bytes, expected, len) == 0) return;
    int i = 0;
    while (bytes[i] == expected[i]) i++;
    fprintf(stderr, "%s %d: byte %d of %d is %#x, expected %#x, seed %llu\n", what, number, i, len, bytes[i], expected[i],
            (unsigned long long)seed);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static unsigned char *sent[WINDOW], *received[WINDOW], *expected;

static void messages(int rank, int count) {
    for (int first = 0; first < count; first += WINDOW) {
        MPI_Request requests[2 * WINDOW];
        int n = count - first < WINDOW ? count - first : WINDOW;
        for (int i = 0; i < n; i++) {
            uint64_t theirs = state_of(!rank, first + i), mine = state_of(rank, first + i);
            int len = length(&theirs);
            memset(received[i], 0x5a, len);
            MPI_Irecv(received[i], len, MPI_BYTE, !rank, i, MPI_COMM_WORLD, &requests[i]);
            len = length(&mine);
            fill(sent[i], len, &mine);
            MPI_Isend(sent[i], len, MPI_BYTE, !rank, i, MPI_COMM_WORLD, &requests[n + i]);
        }
        MPI_Waitall(2 * n, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < n; i++) {
            uint64_t theirs = state_of(!rank, first + i);
            int len = length(&theirs);
            fill(expected, len, &theirs);
            compare(received[i], expected, len, "message", first + i);
        }
    }
}

// Puts into the peer's window and reads back what is there; the first word counts.
static void window(int rank, int count) {
    unsigned char *bytes;
    MPI_Win win;
    MPI_Win_allocate(LONGEST + 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &bytes, &win);
    memset(bytes, 0, 64);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < count; i++) {
        uint64_t mine = state_of(rank, -1 - i), one = 1, old = ~0ull;
        int len = length(&mine);
        fill(sent[0], len, &mine);
        MPI_Put(sent[0], len, MPI_BYTE, !rank, 64, len, MPI_BYTE, win);
        MPI_Fetch_and_op(&one, &old, MPI_UINT64_T, !rank, 0, MPI_SUM, win);
        MPI_Win_flush(!rank, win);
        memset(received[0], 0x5a, len);
        MPI_Get(received[0], len, MPI_BYTE, !rank, 64, len, MPI_BYTE, win);
        MPI_Win_flush(!rank, win);
        compare(received[0], sent[0], len, "put", i);
        if (old != (uint64_t)i) {
            fprintf(stderr, "atomic %d found %llu, seed %llu\n", i, (unsigned long long)old, (unsigned long long)seed);
            MPI_Abort(MPI_COMM_WORLD, 4);
        }
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
    seed = strtoull(argv[1], NULL, 10);
    int count = atoi(argv[2]);
    for (int i = 0; i < WINDOW; i++) {
        sent[i] = malloc(LONGEST);
        received[i] = malloc(LONGEST);
    }
    expected = malloc(LONGEST);
    messages(rank, count);
    window(rank, count / 8);
    uint64_t sum = rank + 1, all = 0;
    MPI_Allreduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 3) puts("done");
    MPI_Finalize();
    return 0;
}
