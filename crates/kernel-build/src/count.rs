//! `WV_COUNT(expression)`: how many elements a kernel touches behind a pointer.

use crate::signature::{Parameter, is_identifier};
use crate::types::Type;

/// Names that an expression may use besides parameters: the shape of the launch.
const SHAPE: [&str; 3] = ["grid_threads", "grid_blocks", "block_threads"];

/// The Rust expression of `text`, a [`Count`] of the crate at `gpu`: sums and products of numbers,
/// unsigned parameters and the shape of the launch.
///
/// [`Count`]: https://docs.rs/warpverbs-gpu
pub(crate) fn rust(
    text: &str,
    parameters: &[Parameter],
    gpu: &str,
) -> Result<String, &'static str> {
    let mut parser = Parser { rest: text.trim(), parameters, gpu };
    let out = parser.sum()?;
    if parser.rest.is_empty() { Ok(out) } else { Err(GRAMMAR) }
}

const GRAMMAR: &str = "WV_COUNT takes sums and products of numbers, unsigned parameters, \
                       grid_threads, grid_blocks and block_threads";

struct Parser<'a> {
    rest: &'a str,
    parameters: &'a [Parameter],
    gpu: &'a str,
}

impl Parser<'_> {
    fn sum(&mut self) -> Result<String, &'static str> {
        let mut out = self.product()?;
        while self.eat('+') {
            out = format!("{out} + {}", self.product()?);
        }
        Ok(out)
    }

    fn product(&mut self) -> Result<String, &'static str> {
        let mut out = self.factor()?;
        while self.eat('*') {
            out = format!("{out} * {}", self.factor()?);
        }
        Ok(out)
    }

    fn factor(&mut self) -> Result<String, &'static str> {
        if self.eat('(') {
            let inner = self.sum()?;
            return if self.eat(')') { Ok(format!("({inner})")) } else { Err(GRAMMAR) };
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        let gpu = self.gpu;
        if let Ok(number) = word.parse::<u64>() {
            return Ok(format!("{gpu}::Count::from({number}u64)"));
        }
        if !is_identifier(word) {
            return Err(GRAMMAR);
        }
        match self.parameters.iter().find(|p| p.name == word) {
            Some(Parameter { ty: Type::Scalar("u8" | "u16" | "u32" | "u64"), .. }) => {
                Ok(format!("{gpu}::Count::from(self.{})", crate::emit::raw(word)))
            }
            None if SHAPE.contains(&word) => Ok(format!("bounds.{word}()")),
            _ => Err(GRAMMAR),
        }
    }

    fn eat(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest).trim_start();
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::parse;
    use std::path::Path;

    #[test]
    fn sums_and_products_become_rust() {
        let kernels =
            parse(Path::new("k.cu"), "WV_KERNEL(k)(u32 n, u8 type, i32 signed_one, u64* out) {}");
        let parameters = kernels.unwrap().remove(0).parameters;
        let of = |text| rust(text, &parameters, "g");
        let want = "g::Count::from(2u64) * (g::Count::from(self.n) + bounds.grid_threads())";
        assert_eq!(of("2*(n + grid_threads)").as_deref(), Ok(want));
        assert_eq!(of("type").as_deref(), Ok("g::Count::from(self.r#type)"));
        for bad in ["", "n -", "n - 1", "m", "signed_one", "out", "(n", "n n", "n / 2", "2 +"] {
            assert_eq!(of(bad), Err(GRAMMAR), "{bad}");
        }
    }
}
