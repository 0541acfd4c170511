//! The GGUF container, versions 2 and 3, little-endian: metadata and the table of tensors. Every count and length is compared with
//! the bytes that the file still has before anything is allocated for it, so memory stays within a small multiple of the file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

/// Bytes of metadata and tensor table together; the largest vocabularies take about 20 MB.
const MAX_HEAD: u64 = 256 << 20;
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_DIMENSIONS: u32 = 4;
/// Bytes of a metadata entry at least: key length, type, one byte of value.
const MIN_ENTRY: u64 = 8 + 4 + 1;
/// Bytes of a tensor's entry at least: name length, dimension count, one dimension, type, offset.
const MIN_TENSOR: u64 = 8 + 4 + 8 + 4 + 8;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Any integer type.
    Int(i128),
    /// Both widths.
    Float(f64),
    Bool(bool),
    Text(String),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Bools(Vec<bool>),
    Texts(Vec<String>),
}

/// Element types that can become an MLX snapshot without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorType {
    F32,
    F16,
    /// 32 weights of 4 bits and an f16 scale; the zero point is 8.
    Q4_0,
    /// 32 weights of 4 bits, an f16 scale and an f16 minimum.
    Q4_1,
    /// 32 signed weights of 8 bits and an f16 scale.
    Q8_0,
}

impl TensorType {
    /// Weights in a block.
    pub fn block(self) -> usize {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q8_0 => 32,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
        }
    }

    fn from_id(id: u32) -> Result<Self, String> {
        Ok(match id {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            _ => {
                let name =
                    OTHER_TYPES.iter().find(|(i, _)| *i == id).map_or_else(|| format!("number {id}"), |(_, n)| (*n).into());
                return Err(format!("its type, {name}, has no lossless MLX form; F32, F16, Q4_0, Q4_1 and Q8_0 have"));
            }
        })
    }
}

const OTHER_TYPES: &[(u32, &str)] = &[
    (6, "Q5_0"),
    (7, "Q5_1"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (30, "BF16"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
];

#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Row-major: the file's order reversed. A row is the last dimension, and holds whole blocks.
    pub shape: Vec<usize>,
    pub kind: TensorType,
    /// From the start of the file.
    pub offset: u64,
    pub bytes: usize,
}

/// Everything before the tensors' data.
#[derive(Debug, Clone, PartialEq)]
pub struct Gguf {
    pub metadata: BTreeMap<String, Value>,
    pub tensors: BTreeMap<String, Tensor>,
}

impl Gguf {
    /// Reads from the start of a file of `file_len` bytes. `input` should be buffered.
    ///
    /// # Errors
    /// The reason, with the key or the tensor.
    pub fn read(input: impl Read, file_len: u64) -> Result<Self, String> {
        let mut head = Head { input, position: 0, end: file_len.min(MAX_HEAD), file_len };
        if head.bytes::<4>()? != *b"GGUF" {
            return Err("not a GGUF file".into());
        }
        match head.u32()? {
            2 | 3 => {}
            v if (1..=3).contains(&v.swap_bytes()) => {
                return Err("a big-endian GGUF file; only little-endian ones can be read".into());
            }
            v => return Err(format!("GGUF version {v} is not supported; 2 and 3 are")),
        }
        let tensor_count = head.u64()?;
        let entry_count = head.u64()?;
        head.fits(tensor_count, MIN_TENSOR, "tensors")?;
        head.fits(entry_count, MIN_ENTRY, "metadata entries")?;

        let mut metadata = BTreeMap::new();
        for _ in 0..entry_count {
            let key = head.string()?;
            let value = head.value().map_err(|reason| format!("{key}: {reason}"))?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(format!("two metadata entries are called {key}"));
            }
        }
        let alignment = match metadata.get("general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some(Value::Int(n)) if (8..=1 << 20).contains(n) && n % 8 == 0 => *n as u64,
            Some(other) => return Err(format!("general.alignment is {other:?}")),
        };
        let mut table = Vec::new();
        for _ in 0..tensor_count {
            let name = head.string()?;
            let entry = head.tensor().map_err(|reason| format!("tensor {name}: {reason}"))?;
            table.push((name, entry));
        }
        let data_start = head.position.next_multiple_of(alignment);
        let tensors = place(table, data_start, alignment, file_len)?;
        Ok(Self { metadata, tensors })
    }

    /// # Errors
    /// Absent, of another type, or outside 0 to `max`.
    pub fn int(&self, key: &str, max: u32) -> Result<u32, String> {
        self.opt_int(key, max)?.ok_or_else(|| format!("{key} is missing"))
    }

    pub fn opt_int(&self, key: &str, max: u32) -> Result<Option<u32>, String> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Int(n)) if (0..=i128::from(max)).contains(n) => Ok(Some(*n as u32)),
            Some(_) => Err(format!("{key} is not a whole number from 0 to {max}")),
        }
    }

    pub fn opt_float(&self, key: &str) -> Result<Option<f64>, String> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Float(x)) if x.is_finite() => Ok(Some(*x)),
            Some(_) => Err(format!("{key} is not a number")),
        }
    }

    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, String> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(*b)),
            Some(_) => Err(format!("{key} is not true or false")),
        }
    }

    pub fn opt_text(&self, key: &str) -> Result<Option<&str>, String> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Text(s)) => Ok(Some(s)),
            Some(_) => Err(format!("{key} is not a text")),
        }
    }

    pub fn texts(&self, key: &str) -> Result<&[String], String> {
        match self.metadata.get(key) {
            Some(Value::Texts(v)) => Ok(v),
            Some(_) => Err(format!("{key} is not a list of texts")),
            None => Err(format!("{key} is missing")),
        }
    }

    pub fn ints(&self, key: &str) -> Result<&[i64], String> {
        match self.metadata.get(key) {
            Some(Value::Ints(v)) => Ok(v),
            Some(_) => Err(format!("{key} is not a list of whole numbers")),
            None => Err(format!("{key} is missing")),
        }
    }
}

/// Turns offsets from the data's start into offsets in the file; checks that data lies in the file and that no two tensors share any.
fn place(
    table: Vec<(String, TableEntry)>,
    data_start: u64,
    alignment: u64,
    file_len: u64,
) -> Result<BTreeMap<String, Tensor>, String> {
    let mut tensors = BTreeMap::new();
    let mut spans = BTreeSet::new();
    for (name, (shape, kind, relative)) in table {
        let blocks = shape.iter().try_fold(1_usize, |n, &d| n.checked_mul(d)).map(|n| n / kind.block());
        let bytes = blocks.and_then(|n| n.checked_mul(kind.block_bytes()));
        let offset = data_start.checked_add(relative);
        let end = offset.zip(bytes).and_then(|(o, b)| o.checked_add(b as u64)).filter(|end| *end <= file_len);
        let (Some(bytes), Some(offset), Some(end)) = (bytes, offset, end) else {
            return Err(format!("tensor {name}: its data ends past the file's {file_len} bytes: is the file truncated?"));
        };
        if relative % alignment != 0 {
            return Err(format!("tensor {name}: its offset {relative} is not a multiple of {alignment}"));
        }
        spans.insert((offset, end, name.clone()));
        if tensors.insert(name.clone(), Tensor { shape, kind, offset, bytes }).is_some() {
            return Err(format!("two tensors are called {name}"));
        }
    }
    let mut filled = 0;
    for (start, end, name) in spans {
        if start < filled {
            return Err(format!("tensor {name}: its data overlaps another's"));
        }
        filled = end;
    }
    Ok(tensors)
}

type TableEntry = (Vec<usize>, TensorType, u64);

/// A reader that knows how much may still come.
struct Head<R> {
    input: R,
    position: u64,
    /// Nothing is read past this.
    end: u64,
    file_len: u64,
}

impl<R: Read> Head<R> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut buffer = [0; N];
        self.fill(&mut buffer)?;
        Ok(buffer)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), String> {
        self.fits(buffer.len() as u64, 1, "bytes")?;
        self.input.read_exact(buffer).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.truncated(),
            _ => e.to_string(),
        })?;
        self.position += buffer.len() as u64;
        Ok(())
    }

    /// Whether `count` things of at least `each` bytes can still come.
    fn fits(&self, count: u64, each: u64, what: &str) -> Result<(), String> {
        match count.checked_mul(each) {
            Some(bytes) if bytes <= self.end - self.position => Ok(()),
            _ if self.end < self.file_len => {
                Err(format!("{count} {what} at byte {}: more than {MAX_HEAD} bytes of metadata", self.position))
            }
            _ => Err(format!("{count} {what} at byte {}: {}", self.position, self.truncated())),
        }
    }

    fn truncated(&self) -> String {
        format!("the file ends at byte {}: is it truncated?", self.file_len)
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn string(&mut self) -> Result<String, String> {
        let len = self.u64()?;
        self.fits(len, 1, "bytes of text")?;
        let mut text = vec![0; len as usize];
        self.fill(&mut text)?;
        String::from_utf8(text).map_err(|_| format!("a text that ends at byte {} is not UTF-8", self.position))
    }

    fn value(&mut self) -> Result<Value, String> {
        let kind = self.u32()?;
        Ok(match kind {
            6 => Value::Float(widen(f32::from_le_bytes(self.bytes()?))),
            12 => Value::Float(f64::from_le_bytes(self.bytes()?)),
            7 => Value::Bool(self.boolean()?),
            8 => Value::Text(self.string()?),
            9 => self.array()?,
            _ => Value::Int(self.integer(kind)?),
        })
    }

    fn array(&mut self) -> Result<Value, String> {
        let kind = self.u32()?;
        let count = self.u64()?;
        let each = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            _ => return Err(format!("a list of values of type {kind}")),
        };
        self.fits(count, each, "values")?;
        let n = 0..count;
        Ok(match kind {
            6 => Value::Floats(n.map(|_| Ok(f32::from_le_bytes(self.bytes()?))).collect::<Result<_, String>>()?),
            12 => Value::Floats(n.map(|_| Ok(f64::from_le_bytes(self.bytes()?) as f32)).collect::<Result<_, String>>()?),
            7 => Value::Bools(n.map(|_| self.boolean()).collect::<Result<_, _>>()?),
            8 => Value::Texts(n.map(|_| self.string()).collect::<Result<_, _>>()?),
            _ => Value::Ints(
                n.map(|_| i64::try_from(self.integer(kind)?).map_err(|_| "a number over 2^63".into()))
                    .collect::<Result<_, String>>()?,
            ),
        })
    }

    fn integer(&mut self, kind: u32) -> Result<i128, String> {
        Ok(match kind {
            0 => u8::from_le_bytes(self.bytes()?).into(),
            1 => i8::from_le_bytes(self.bytes()?).into(),
            2 => u16::from_le_bytes(self.bytes()?).into(),
            3 => i16::from_le_bytes(self.bytes()?).into(),
            4 => self.u32()?.into(),
            5 => i32::from_le_bytes(self.bytes()?).into(),
            10 => self.u64()?.into(),
            11 => i64::from_le_bytes(self.bytes()?).into(),
            _ => return Err(format!("a value of unknown type {kind}")),
        })
    }

    fn boolean(&mut self) -> Result<bool, String> {
        match self.bytes::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(format!("{other} is not true or false")),
        }
    }

    fn tensor(&mut self) -> Result<TableEntry, String> {
        let dimensions = self.u32()?;
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err(format!("{dimensions} dimensions"));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            let n = self.u64()?;
            let n = usize::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| format!("a dimension of {n}"))?;
            shape.insert(0, n);
        }
        let kind = TensorType::from_id(self.u32()?)?;
        let offset = self.u64()?;
        let row = shape.last().copied().unwrap_or(0);
        if row % kind.block() != 0 {
            return Err(format!("rows of {row} weights are not whole blocks of {}", kind.block()));
        }
        Ok((shape, kind, offset))
    }
}

/// The shortest decimal that is this `f32`, as the writer of the file meant it: 1e-5, not 9.99999974e-6.
fn widen(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}
