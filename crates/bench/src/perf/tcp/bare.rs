//! The yardstick: two threads, one socket, `send` and `recv` of whole buffers and nothing else.

use anyhow::{Context as _, Result};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

/// Bytes a second from one thread to another, over 127.0.0.1.
pub(super) fn run(bytes: u64, count: u64) -> Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || -> std::io::Result<()> {
            let mut buffer = vec![2; bytes as usize];
            for _ in 0..count {
                far.read_exact(&mut buffer)?;
            }
            far.write_all(b"!")
        });
        let buffer = vec![1; bytes as usize];
        let began = Instant::now();
        for _ in 0..count {
            near.write_all(&buffer)?;
        }
        near.read_exact(&mut [0])?;
        let took = began.elapsed();
        let received = receiver.join().ok().context("the receiving thread")?;
        received?;
        Ok((bytes * count) as f64 / took.as_secs_f64())
    })
}
