//! mlx5 queue formats as bytes and values.
#![no_std]
#![forbid(unsafe_code)]

pub mod export;
