// Two ranks bounce messages of growing length and check every byte.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) MPI_Abort(MPI_COMM_WORLD, 2);
    unsigned char *bytes = malloc(1 << 20);
    for (int round = 0, len = 1; len <= 1 << 20; round++, len *= 4) {
        for (int side = 0; side < 2; side++) {
            if (rank == side) {
                for (int i = 0; i < len; i++) bytes[i] = (unsigned char)(i * 7 + round + side);
                MPI_Send(bytes, len, MPI_BYTE, !rank, round, MPI_COMM_WORLD);
            } else {
                MPI_Recv(bytes, len, MPI_BYTE, !rank, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                for (int i = 0; i < len; i++)
                    if (bytes[i] != (unsigned char)(i * 7 + round + side)) MPI_Abort(MPI_COMM_WORLD, 3);
            }
        }
    }
    int sum = rank + 1, all = 0;
    MPI_Allreduce(&sum, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 3) puts("done");
    MPI_Finalize();
    return 0;
}
