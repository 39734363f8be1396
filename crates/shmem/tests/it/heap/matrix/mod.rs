//! Every call by every route, number of ranks, group, size and misalignment, between processes: from
//! one table ([`cells`]), compared with a model that knows of memory alone.
//!
//! A run takes cells in which any two levels meet and some others, by a seed that it prints;
//! `WARPVERBS_SEED` repeats it. With `WARPVERBS_SHMEM_CELLS=all` it takes all of them.

mod calls;
mod cells;
mod rank;

use crate::heap::processes::{ROUTE_ENV, output, rank_of_env, start, two_gpus};
use crate::heap::ranks::serve;
use cells::{Cell, ROUTES, WORLDS};
use std::time::Instant;

/// Seed, and how many cells or `all`, for a process that is a rank.
const MATRIX: &str = "SHMEM_TEST_MATRIX";
/// Cells beside those that let any two levels meet.
const MORE: &str = "60";

/// Of the ranks and routes of this process.
fn cells_of(seed: u64, more: &str, world: u32, routes: &str) -> Vec<Cell> {
    let cells = match more.parse() {
        Ok(more) => cells::chosen(seed, more),
        Err(_) => cells::all(),
    };
    cells.into_iter().filter(|cell| (cell.world, cell.routes) == (world, routes)).collect()
}

/// The part of one process.
#[test]
fn part() {
    let Ok(matrix) = std::env::var(MATRIX) else { return };
    let (seed, more) = matrix.split_once(' ').unwrap();
    let (seed, routes) = (seed.parse().unwrap(), std::env::var(ROUTE_ENV).unwrap());
    let mut part = rank::Part::new(rank_of_env(), seed);
    for cell in cells_of(seed, more, part.world(), &routes) {
        part.cell(&cell);
    }
    assert!(part.heap.health().unwrap().is_ok(), "{}", part.heap.health().unwrap());
    part.rank.world.leave().unwrap();
}

/// Runs the cells of some numbers of ranks.
fn run(worlds: &[u32], gpu: &str, more: &str) {
    let (seed, begun, mut count) = (warpverbs_dev::seed(), Instant::now(), 0);
    for (&world, routes) in worlds.iter().flat_map(|w| ROUTES.map(|routes| (w, routes))) {
        let cells = cells_of(seed, more, world, routes);
        let server = serve();
        let matrix = format!("{seed} {more}");
        let env = [(MATRIX, &*matrix), (ROUTE_ENV, routes), (crate::heap::processes::GPU, gpu)];
        let port = server.local_addr().port();
        let child = |rank| start("heap::matrix::part", (rank, world, port), &env);
        let children: Vec<_> = (0..world).map(child).collect();
        let ended: Vec<_> = children.into_iter().map(output).collect();
        // One rank's failure is followed by those of the others.
        let failed = ended.iter().enumerate().filter(|(_, (status, _))| !status.success());
        let failed: Vec<_> =
            failed.map(|(rank, (_, text))| format!("rank {rank}: {text}")).collect();
        assert!(failed.is_empty(), "{world} ranks by {routes}: {}", failed.join("\n"));
        println!("{} cells of {world} ranks by {routes}, {:.1?}", cells.len(), begun.elapsed());
        count += cells.len();
    }
    assert!(count > 0);
}

#[test]
fn every_call_between_processes() {
    let more = std::env::var("WARPVERBS_SHMEM_CELLS").unwrap_or_else(|_| MORE.to_owned());
    run(&WORLDS, "simt", &more);
}

#[test]
#[ignore = "needs two GPUs with peer access"]
fn every_call_between_two_gpus() {
    if !two_gpus() {
        return;
    }
    run(&WORLDS[..1], "gpu", MORE);
}
