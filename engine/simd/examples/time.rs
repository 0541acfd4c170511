//! How quick the inner loops are on one thread: `cargo run --release -p simd --example time`.

use std::hint::black_box;
use std::time::Instant;

use half::f16;
use simd::{Floats, Out, Packed, Path, Rounded, Tile};

/// The quickest of some runs, in seconds.
fn quickest(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed().as_millis() < 100 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn main() {
    let rows_of_x = 256;
    for (rows, columns, group) in [(4096, 4096, 64), (49152, 576, 32), (1536, 576, 32), (576, 1536, 32)] {
        for bits in [4, 8] {
            let bytes: Vec<u8> = (0..rows * columns * bits / 8).map(|i| (i * 37 % 251) as u8).collect();
            let scales = vec![f16::from_f32(0.01); rows * columns / group];
            let w = Packed::new(bits, group, columns, &bytes, Floats::F16(&scales), Floats::F16(&scales)).expect("a matrix");
            let x: Vec<f32> = (0..rows_of_x * columns).map(|i| (i % 97) as f32 - 48.0).collect();
            for path in Path::all() {
                let (mut one, mut many, mut tile) = (Rounded::default(), Rounded::default(), Tile::default());
                let round = quickest(|| path.round(bits, columns, black_box(&x[..columns]), &mut one));
                path.round(bits, columns, &x, &mut many);
                let mut out = vec![0.0; rows_of_x * rows];
                let mut dots = |rows: usize, x: &Rounded| {
                    // SAFETY: there is one thread.
                    quickest(|| unsafe { path.rounded_dots(&w, 0..rows, x, &mut tile, &Out::new(&mut out, rows), 0) })
                };
                let some = 256.min(rows);
                let (decode, prefill) = (dots(rows, &one), dots(some, &many));
                let mut sum = 0.0;
                // In f32, four rows at a time.
                let (wide, mut four) = (vec![0.01; rows * columns / group], vec![0.0; 4 * columns]);
                let mut exact = |x: &[f32], rows: usize| {
                    for row in (0..rows).step_by(4) {
                        let (words, groups) = (columns * bits / 8, columns / group);
                        let scales = &wide[row * groups..(row + 4) * groups];
                        path.unpack(bits, &bytes[row * words..], scales, scales, &mut four);
                        path.dots(&four, x, columns, |_, _, v| sum += v);
                    }
                };
                let exact = [quickest(|| exact(&x[..columns], rows)), quickest(|| exact(&x, some))];
                black_box((sum, out));
                let size = (bytes.len() + 4 * scales.len()) as f64;
                println!(
                    "[{rows}, {columns}] {bits} bits {path:?}: one row {:.0} us, {:.1} GB/s; {rows_of_x} rows {:.0} GFLOP/s; rounding a row {:.2} us; in f32: {:.1} GB/s, {:.0} GFLOP/s",
                    decode * 1e6,
                    size / decode / 1e9,
                    2.0 * (rows_of_x * some * columns) as f64 / prefill / 1e9,
                    round * 1e6,
                    size / exact[0] / 1e9,
                    2.0 * (rows_of_x * some * columns) as f64 / exact[1] / 1e9,
                );
            }
        }
    }
}
