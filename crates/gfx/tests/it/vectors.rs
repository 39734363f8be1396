//! Random inputs, and results that must be those of the host's arithmetic.
use crate::clang;
use crate::gpu::Gpu;
use crate::random;
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use std::cmp::Ordering;
use std::time::Duration;
use warpverbs_gfx::{Access, Cause, LaunchError, Stop, Target};

const THREADS: usize = 1024;

/// The kernels on each target.
fn vectors(seed: u64) -> Vec<Gpu> {
    let targets = if clang::missing() { &[][..] } else { &Target::ALL };
    targets.iter().map(|&target| Gpu::of(clang::vectors(target), seed)).collect()
}

fn launch(gpu: &Gpu, kernel: &str, arguments: &[u64]) {
    gpu.launch(kernel, [THREADS as u32 / 64, 1, 1], [64, 1, 1], arguments)
        .unwrap_or_else(|error| panic!("{error}"));
}

/// Values of all sizes, often close to a power of two.
fn word(random: &mut StdRng) -> u64 {
    let value = random.next_u64() >> random.random_range(0..64);
    match random.random_range(0..4) {
        0 => (1_u64 << random.random_range(0..64)).wrapping_sub(random.random_range(0..3)),
        1 => value.wrapping_neg(),
        _ => value,
    }
}

fn integers(a: u64, b: u64, c: u64) -> Vec<u64> {
    let (x, y, z) = (a as u32, b as u32, c as u32);
    let (odd, odd_y) = (b as i64 | 1, y | 1);
    vec![
        a / b,
        a % b,
        (a as i64).wrapping_div(odd) as u64,
        (a as i64).wrapping_rem(odd) as u64,
        (x / odd_y).into(),
        (x % odd_y).into(),
        i64::from((x >> 1) as i32 / odd_y as i32) as u64,
        a.wrapping_mul(b).wrapping_add(c),
        a << (b & 63),
        a >> (c & 63),
        (a as i64 >> (c & 63)) as u64,
        (a.count_ones() + y.count_ones()).into(),
        (b.leading_zeros() * 100 + b.trailing_zeros()).into(),
        a.swap_bytes(),
        a.reverse_bits(),
        x.rotate_left(z & 31).into(),
        (x as u16).wrapping_mul(y as u16).wrapping_add(z as u16).into(),
        (i64::from(x as i8) + i64::from(y as i16)) as u64,
        if (a as i64) < b as i64 { c } else { a },
        a.min(b),
        i64::from(if (x as i32) < y as i32 { x } else { z }) as u64,
        x.saturating_sub(y).into(),
        x.saturating_add(z).into(),
        (x & 0xff_ffff).wrapping_mul(y & 0xff).wrapping_add(z).into(),
        (x >> (z & 31) & ((1 << (y & 31)) - 1)).into(),
        (a ^ b).wrapping_add(!c & a).wrapping_sub(b | !c),
        ((u64::from(x) * u64::from(y)) >> 32)
            .wrapping_add((i64::from(x as i32) * i64::from(z as i32)) as u64 >> 32),
        if ((x >> 8) as u8) < (y >> 16) as u8 { 1 } else { 2 },
        u64::from(a.wrapping_add(b) < a) + 2 * u64::from(a.wrapping_sub(c) > a),
        u64::from((x / 7).wrapping_add(y % 1000)),
    ]
}

#[test]
fn integers_are_the_hosts() {
    for gpu in vectors(1) {
        let mut random = random();
        let mut input: Vec<u64> = (0..3 * THREADS).map(|_| word(&mut random)).collect();
        input.iter_mut().skip(1).step_by(3).for_each(|b| *b = (*b).max(1));
        let (given, out) = (gpu.buffer(input.clone()), gpu.buffer(vec![0_u64; 32 * THREADS]));
        launch(&gpu, "integers", &[given.address(), out.address()]);
        for (row, result) in input.chunks(3).zip(out.to_vec().chunks(32)) {
            let expected = integers(row[0], row[1], row[2]);
            for (index, (found, expected)) in result.iter().zip(expected).enumerate() {
                assert_eq!(
                    *found, expected,
                    "operation {index} of {row:x?}: {found:#x}, expected {expected:#x}"
                );
            }
        }
    }
}

/// The lower or the higher one, where -0 is below 0, which Rust's `min` and `max` leave open.
fn extreme(a: f32, b: f32, wanted: Ordering) -> f32 {
    if b.is_nan() || !a.is_nan() && a.total_cmp(&b) == wanted { a } else { b }
}

fn floats(a: f32, b: f32, c: f32) -> Vec<u32> {
    let bits = a.to_bits();
    let flags = [a < b, a <= c, b == c, a.is_nan(), a.abs() > -c];
    let flags = flags.iter().enumerate().fold(0, |all, (bit, &flag)| all | u32::from(flag) << bit);
    vec![
        (a + b).to_bits(),
        (a - c).to_bits(),
        (a * b).to_bits(),
        a.mul_add(b, c).to_bits(),
        (a / b).to_bits(),
        c.trunc().to_bits(),
        (bits as f32).to_bits(),
        (bits as i32 as f32).to_bits(),
        ((u64::from(bits) << 17 | u64::from(bits)) as f32).to_bits(),
        flags,
        bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000,
        (extreme(a, b, Ordering::Less) + extreme(b, c, Ordering::Greater)).to_bits(),
        (-a.abs() * c).to_bits(),
    ]
}

#[test]
fn floats_are_the_hosts() {
    for gpu in vectors(2) {
        let mut random = random();
        let special = [
            0.0,
            -0.0,
            1.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::MIN_POSITIVE,
            f32::MAX,
            1e-40,
            -3e-45,
        ];
        let mut float = || match random.random_range(0..4) {
            0 => special[random.random_range(0..special.len())],
            1 => random.random_range(-100.0..100.0),
            _ => f32::from_bits(random.next_u32()),
        };
        let input: Vec<f32> = (0..3 * THREADS).map(|_| float()).collect();
        let (given, out) = (gpu.buffer(input.clone()), gpu.buffer(vec![0_u32; 16 * THREADS]));
        launch(&gpu, "floats", &[given.address(), out.address()]);
        for (row, result) in input.chunks(3).zip(out.to_vec().chunks(16)) {
            for (index, (&found, expected)) in
                result.iter().zip(floats(row[0], row[1], row[2])).enumerate()
            {
                // IEEE 754 leaves open which NaN is the result.
                let nan = |bits: u32| {
                    index < 6 && f32::from_bits(bits).is_nan()
                        || index > 10 && f32::from_bits(bits).is_nan()
                };
                let same = found == expected || nan(found) && nan(expected);
                assert!(same, "operation {index} of {row:?}: {found:#x}, expected {expected:#x}");
            }
        }
    }
}

#[test]
fn floats_become_integers() {
    for gpu in vectors(3) {
        let mut random = random();
        let input: Vec<f32> = (0..THREADS).map(|_| random.random_range(-2e9..2e9_f32)).collect();
        let (given, out) = (gpu.buffer(input.clone()), gpu.buffer(vec![0_u32; 3 * THREADS]));
        launch(&gpu, "conversions", &[given.address(), out.address()]);
        for (value, row) in input.iter().zip(out.to_vec().chunks(3)) {
            let expected =
                [*value as i32 as u32, value.abs() as u32, (value.abs() as u64 >> 3) as u32];
            assert_eq!(row, expected, "{value}");
        }
    }
}

fn sum(bytes: &[u8], at: usize) -> u64 {
    let word = |at: usize, length: usize| {
        (0..length).fold(0_u64, |all, byte| all | u64::from(bytes[at + byte]) << (8 * byte))
    };
    [
        word(at, 1),
        i64::from(bytes[at + 1] as i8) as u64,
        word(at + 2, 2),
        i64::from(word(at, 2) as i16) as u64,
        word(at + 4, 4),
        word(at + 8, 8),
    ]
    .iter()
    .fold(0, |all: u64, &part| all.wrapping_add(part))
}

#[test]
fn memory_of_each_kind_and_width() {
    for gpu in vectors(4) {
        let mut input = vec![0_u8; 64 * THREADS];
        random().fill_bytes(&mut input);
        // In units that are aligned to 16 bytes.
        let cells: Vec<u128> = input
            .chunks(16)
            .map(|cell| u128::from_le_bytes(cell.try_into().expect("16")))
            .collect();
        let (given, out) = (gpu.buffer(cells), gpu.buffer(vec![0_u64; 4 * THREADS]));
        launch(&gpu, "widths", &[given.address(), out.address()]);
        for (thread, row) in out.to_vec().chunks(4).enumerate() {
            let bytes = |thread: usize| &input[64 * thread..64 * (thread + 1)];
            let (own, at) = (bytes(thread), thread * 8 % 48);
            let local: Vec<u8> = own.iter().map(|byte| byte ^ 0x5a).collect();
            let odd = u64::from_le_bytes(own[at + 3..at + 11].try_into().expect("8"));
            assert_eq!(
                row,
                [sum(own, at), sum(&local, at), sum(bytes(thread ^ 1), at), odd],
                "thread {thread}"
            );
        }
    }
}

#[test]
fn lanes_loop_as_often_as_they_want() {
    for gpu in vectors(5) {
        let mut random = random();
        let input: Vec<u32> = (0..THREADS).map(|_| random.random_range(1..100_000)).collect();
        let (given, out) = (gpu.buffer(input.clone()), gpu.buffer(vec![0_u32; THREADS]));
        launch(&gpu, "divergent", &[given.address(), out.address()]);
        let steps = |mut x: u32| {
            let mut steps = 0;
            while x != 1 && steps < 200 {
                x = if x.is_multiple_of(2) { x / 2 } else { 3 * x + 1 };
                steps += 1;
            }
            steps
        };
        assert_eq!(out.to_vec(), input.into_iter().map(steps).collect::<Vec<_>>());
    }
}

#[test]
fn what_a_kernel_must_not_do_is_an_error() {
    for gpu in vectors(6) {
        let guarded = gpu.buffer(vec![0_u64; 4]);
        let fault = |address: u64, how: u64| match gpu.launch(
            "outside",
            [1, 1, 1],
            [64, 1, 1],
            &[address, how],
        ) {
            Err(LaunchError::Fault { cause, place, .. }) => (cause, place),
            other => panic!("{other:?}"),
        };
        let behind = guarded.address() + 32;
        for (how, access) in [(0, Access::Store), (1, Access::Atomic)] {
            for address in [0, 8, behind, 1 << 47, u64::MAX - 7] {
                let (cause, place) = fault(address, how);
                let Cause::Memory { space: "global", fault } = cause else { panic!("{cause}") };
                assert_eq!((fault.address, fault.access), (address, access), "{place}");
                assert!(
                    place.source.as_deref().is_some_and(|source| source.contains("vectors.cu")),
                    "{place}"
                );
            }
        }
        // Not aligned: the host has no such atomic operation.
        assert!(matches!(fault(guarded.address() + 4, 1).0, Cause::Memory { .. }));
        assert_eq!(fault(0, 2).0, Cause::Trap(2));
        assert_eq!(fault(guarded.address(), 3).0, Cause::Left);
    }
}

/// The reason for the library's rule that lanes of one wave do not wait for each other.
#[test]
fn a_lane_that_waits_for_another_of_its_wave_stalls() {
    for gpu in vectors(7) {
        let (cell, count) = (gpu.buffer(vec![0_u32]), gpu.buffer(vec![0_u32]));
        let run = |lanes: u32, inside: u64, time: Duration| {
            let arguments = [cell.address(), count.address(), inside];
            gpu.launch_for(time, Stop::default(), "lock", [3, 1, 1], [lanes, 1, 1], &arguments)
        };
        let long = Duration::from_secs(60);
        run(1, 0, long).unwrap_or_else(|error| panic!("{error}"));
        run(64, 1, long).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(count.to_vec(), [3 + 3 * 64]);
        let error = run(2, 0, Duration::from_millis(200))
            .expect_err("the holder waits, masked off, for who waits for it");
        assert!(
            matches!(&error, LaunchError::Unfinished { stopped: false, left: 3, .. }),
            "{error}"
        );
    }
}
