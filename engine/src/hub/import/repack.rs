//! GGUF blocks to MLX tensors, without loss: a block of 32 becomes an affine group of 32 with the same codes. What MLX computes,
//! `scale * code + bias`, is then exactly what the block says.

use half::f16;

use super::gguf::TensorType;

/// Weights in a group, and in a block.
pub const GROUP: usize = 32;

/// One tensor's parts as MLX stores them, little-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parts {
    F16(Vec<u8>),
    F32(Vec<u8>),
    Affine {
        bits: u32,
        /// Codes, the first weight in the lowest bits of each u32.
        weight: Vec<u8>,
        /// f16, one per group.
        scales: Vec<u8>,
        /// f16, one per group.
        biases: Vec<u8>,
    },
}

/// Converts whole rows of blocks.
///
/// # Errors
/// The reason, where a value cannot be kept: a scale that is no number, or a zero point past f16's range.
pub fn repack(kind: TensorType, data: &[u8]) -> Result<Parts, String> {
    match kind {
        TensorType::F16 => Ok(Parts::F16(data.to_vec())),
        TensorType::F32 => Ok(narrow(data)),
        TensorType::Q4_0 => affine(kind, data, 4, |b| (&b[2..18], scaled(b, -8.0)), four_bits),
        TensorType::Q4_1 => affine(kind, data, 4, |b| (&b[4..20], Ok([b[2], b[3]])), four_bits),
        TensorType::Q8_0 => affine(
            kind,
            data,
            8,
            |b| (&b[2..34], scaled(b, -128.0)),
            |codes, out| {
                // -128..127 becomes 0..255.
                out.extend(codes.iter().map(|c| c ^ 0x80));
            },
        ),
    }
}

/// A block has its scale first, then what `split` finds: the codes, and the bias as f16.
fn affine<'a>(
    kind: TensorType,
    data: &'a [u8],
    bits: u32,
    split: impl Fn(&'a [u8]) -> (&'a [u8], Result<[u8; 2], String>),
    codes: impl Fn(&[u8], &mut Vec<u8>),
) -> Result<Parts, String> {
    let blocks = data.len() / kind.block_bytes();
    let mut weight = Vec::with_capacity(blocks * GROUP * bits as usize / 8);
    let (mut scales, mut biases) = (Vec::with_capacity(blocks * 2), Vec::with_capacity(blocks * 2));
    for (i, block) in data.chunks_exact(kind.block_bytes()).enumerate() {
        let (packed, bias) = split(block);
        let (scale, bias) = ([block[0], block[1]], bias.map_err(|reason| format!("block {i}: {reason}"))?);
        if !f16::from_le_bytes(scale).is_finite() || !f16::from_le_bytes(bias).is_finite() {
            return Err(format!("block {i}: its scale or minimum is not a finite number"));
        }
        codes(packed, &mut weight);
        scales.extend(scale);
        biases.extend(bias);
    }
    Ok(Parts::Affine { bits, weight, scales, biases })
}

/// The block's scale times a power of two: exact in f16, subnormal or not, unless it overflows.
fn scaled(block: &[u8], factor: f32) -> Result<[u8; 2], String> {
    let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
    let bias = f16::from_f32(scale * factor);
    if scale.is_finite() && !bias.is_finite() {
        return Err(format!("its scale {scale} times {factor} is past what f16 holds"));
    }
    Ok(bias.to_le_bytes())
}

/// GGUF keeps weights j and j + 16 in byte j; MLX keeps 2j and 2j + 1.
fn four_bits(codes: &[u8], out: &mut Vec<u8>) {
    let (low, high) = (|c: &u8| c & 0x0f, |c: &u8| c >> 4);
    out.extend(codes.chunks_exact(2).map(|p| low(&p[0]) | low(&p[1]) << 4));
    out.extend(codes.chunks_exact(2).map(|p| high(&p[0]) | high(&p[1]) << 4));
}

/// Whether f16 keeps every value of an F32 tensor, bits and all.
pub fn fits_half(data: &[u8]) -> bool {
    data.chunks_exact(4).all(|b| half(b).is_some())
}

fn narrow(data: &[u8]) -> Parts {
    match data.chunks_exact(4).map(half).collect::<Option<Vec<_>>>() {
        Some(halves) => Parts::F16(halves.concat()),
        None => Parts::F32(data.to_vec()),
    }
}

fn half(b: &[u8]) -> Option<[u8; 2]> {
    let x = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let h = f16::from_f32(x);
    (h.to_f32().to_bits() == x.to_bits()).then(|| h.to_le_bytes())
}
